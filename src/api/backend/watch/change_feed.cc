#include "api/backend/watch/change_feed.h"

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

namespace gpusched::api {

ChangeNotice notice_of(const Changes& changes) {
  ChangeNotice notice{.sequence = changes.last.sequence};
  for (const Event& event : changes.events) {
    std::visit(
        [&notice](const auto& what) {
          if constexpr (std::is_same_v<std::decay_t<decltype(what)>, JobsForgotten>) {
            notice.forgotten += what.count;
          } else if constexpr (requires { JobId{what.job}; }) {
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

ChangeNotice seen_by(const access::Caller& caller, const State& state, const ChangeNotice& notice) {
  ChangeNotice seen = notice;
  if (!may_always(caller, access::Action::kSeeJob)) {
    std::erase_if(seen.jobs, [&](JobId id) {
      const Job* const job = state.jobs.find(id);
      return job == nullptr || !sees_jobs_of(state, caller, job->tenant);
    });
  }
  if (!may_always(caller, access::Action::kSeeNode)) seen.nodes.clear();
  return seen;
}

std::shared_ptr<void> ChangeFeed::subscribe(CallerPtr caller, Changed changed) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = next_++;
  watchers_.emplace(number, std::make_shared<Watcher>(std::move(caller), std::move(changed)));
  return {nullptr, [self = shared_from_this(), number](void*) {
            std::shared_ptr<const Watcher> last;  // Let go outside the lock.
            const std::lock_guard inner(self->mutex_);
            const auto found = self->watchers_.find(number);
            last = std::move(found->second);
            self->watchers_.erase(found);
          }};
}

WatchBegin ChangeFeed::begin(const access::Caller& caller, const State& state,
                             std::optional<uint64_t> since) const {
  WatchBegin begin{.sequence = state.last.sequence, .missed = std::nullopt};
  if (!since) return begin;
  if (const std::optional<ChangeNotice> missed = ring_.since(*since))
    begin.missed = seen_by(caller, state, *missed);
  return begin;
}

void ChangeFeed::publish(const State& state, const Changes& changes) {
  const ChangeNotice notice = notice_of(changes);
  ring_.add(notice);
  std::vector<std::shared_ptr<const Watcher>> watchers;
  {
    const std::lock_guard lock(mutex_);
    if (watchers_.empty()) return;
    for (const auto& [number, watcher] : watchers_) watchers.push_back(watcher);
  }
  if (notice.jobs.empty() && notice.nodes.empty() && notice.forgotten == 0) return;
  // Many watchers, few callers: what each sees is found once.
  std::map<const access::Caller*, ChangeNotice> seen;
  for (const auto& watcher : watchers) {
    const auto [at, is_new] = seen.try_emplace(watcher->caller.get());
    if (is_new) at->second = seen_by(*watcher->caller, state, notice);
    const ChangeNotice& its = at->second;
    if (!its.jobs.empty() || !its.nodes.empty() || its.forgotten > 0) watcher->changed(its);
  }
}

}  // namespace gpusched::api
