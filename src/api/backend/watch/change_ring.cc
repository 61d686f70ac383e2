#include "api/backend/watch/change_ring.h"

#include <algorithm>
#include <vector>

namespace gpusched::api {
namespace {

template <class Id>
std::vector<Id> behind(const std::deque<std::pair<uint64_t, Id>>& touched, uint64_t sequence) {
  std::vector<Id> ids;
  for (auto at = touched.rbegin(); at != touched.rend() && at->first > sequence; ++at)
    ids.push_back(at->second);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

template <class Id>
void ChangeRing::note(Touched<Id>& touched, uint64_t sequence, const std::vector<Id>& ids) {
  for (const Id id : ids) touched.emplace_back(sequence, id);
  while (touched.size() > most_) {
    known_behind_ = std::max(known_behind_, touched.front().first);
    touched.pop_front();
  }
}

void ChangeRing::add(const ChangeNotice& notice) {
  newest_ = notice.sequence;
  note(jobs_, notice.sequence, notice.jobs);
  note(nodes_, notice.sequence, notice.nodes);
}

std::optional<ChangeNotice> ChangeRing::since(uint64_t sequence) const {
  if (sequence < known_behind_ || sequence > newest_) return std::nullopt;
  return ChangeNotice{.sequence = newest_,
                      .jobs = behind(jobs_, sequence),
                      .nodes = behind(nodes_, sequence),
                      .forgotten = 0};
}

}  // namespace gpusched::api
