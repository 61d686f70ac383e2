#include "api/backend/change_feed.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace gpusched::api {

ChangeNotice notice_of(const Changes& changes) {
  ChangeNotice notice{.sequence = changes.last.sequence};
  for (const Event& event : changes.events) {
    std::visit(
        [&notice](const auto& what) {
          if constexpr (requires { JobId{what.job}; }) {
            if (what.job.valid()) notice.jobs.push_back(what.job);
          } else if constexpr (requires { NodeId{what.node}; }) {
            notice.nodes.push_back(what.node);
          }
        },
        event);
  }
  const auto once = [](auto& ids) {
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  };
  once(notice.jobs);
  once(notice.nodes);
  return notice;
}

std::shared_ptr<void> ChangeFeed::subscribe(Changed changed) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = next_++;
  watchers_.emplace(number, std::make_shared<Changed>(std::move(changed)));
  return {nullptr, [self = shared_from_this(), number](void*) {
            std::shared_ptr<Changed> last;  // Let go outside the lock.
            const std::lock_guard inner(self->mutex_);
            const auto found = self->watchers_.find(number);
            last = std::move(found->second);
            self->watchers_.erase(found);
          }};
}

void ChangeFeed::publish(const Changes& changes) {
  std::vector<std::shared_ptr<Changed>> watchers;
  {
    const std::lock_guard lock(mutex_);
    if (watchers_.empty()) return;
    for (const auto& [number, changed] : watchers_) watchers.push_back(changed);
  }
  const ChangeNotice notice = notice_of(changes);
  if (notice.jobs.empty() && notice.nodes.empty()) return;
  for (const auto& changed : watchers) (*changed)(notice);
}

}  // namespace gpusched::api
