#include "model/index/ordered_jobs.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched {

// The last block whose first entry is not behind `key`; the first block if there is none.
std::size_t OrderedJobs::block_of(const OrderKey& key) const {
  CHECK(!blocks_.empty());
  const auto behind = std::upper_bound(blocks_.begin(), blocks_.end(), key,
                                       [](const OrderKey& k, const Block& b) { return k < b.first; });
  if (behind == blocks_.begin()) return 0;
  return static_cast<std::size_t>(behind - blocks_.begin()) - 1;
}

void OrderedJobs::insert(const OrderKey& key) {
  ++size_;
  if (blocks_.empty()) {
    blocks_.push_back(Block{.first = key, .entries = {key}});
    return;
  }
  const std::size_t at = block_of(key);
  std::vector<OrderKey>& entries = blocks_[at].entries;
  const auto place = std::lower_bound(entries.begin(), entries.end(), key);
  CHECK(place == entries.end() || *place != key);
  if (entries.size() < kBlockMax) {
    entries.insert(place, key);
    blocks_[at].first = entries.front();
    return;
  }
  // The common insert is at the end of the line: leave full blocks full there, split in halves elsewhere.
  const bool at_end = place == entries.end() && at + 1 == blocks_.size();
  if (at_end) {
    Block fresh{.first = key, .entries = {}};
    fresh.entries.reserve(kBlockMax);
    fresh.entries.push_back(key);
    blocks_.push_back(std::move(fresh));
    return;
  }
  const bool into_first = place - entries.begin() <= static_cast<std::ptrdiff_t>(kBlockMax / 2);
  Block second{.first = entries[kBlockMax / 2], .entries = {entries.begin() + kBlockMax / 2, entries.end()}};
  entries.resize(kBlockMax / 2);
  const auto inserted =
      blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(second));
  Block& target = into_first ? blocks_[at] : *inserted;
  target.entries.insert(std::lower_bound(target.entries.begin(), target.entries.end(), key), key);
  target.first = target.entries.front();
}

void OrderedJobs::erase(const OrderKey& key) {
  CHECK(size_ > 0);
  const std::size_t at = block_of(key);
  std::vector<OrderKey>& entries = blocks_[at].entries;
  const auto place = std::lower_bound(entries.begin(), entries.end(), key);
  CHECK(place != entries.end());
  CHECK(*place == key);
  entries.erase(place);
  --size_;
  if (entries.empty()) {
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
  } else {
    blocks_[at].first = entries.front();
  }
}

const OrderKey& OrderedJobs::front() const {
  CHECK(!blocks_.empty());
  return blocks_.front().first;
}

std::size_t OrderedJobs::rank(const OrderKey& key) const {
  if (blocks_.empty()) return 0;
  const std::size_t at = block_of(key);
  std::size_t before = 0;
  // From the nearer end: most questions are about the newest job.
  if (at > blocks_.size() / 2) {
    before = size_;
    for (std::size_t i = at; i < blocks_.size(); ++i) before -= blocks_[i].entries.size();
  } else {
    for (std::size_t i = 0; i < at; ++i) before += blocks_[i].entries.size();
  }
  const std::vector<OrderKey>& entries = blocks_[at].entries;
  return before +
         static_cast<std::size_t>(std::lower_bound(entries.begin(), entries.end(), key) - entries.begin());
}

}  // namespace gpusched
