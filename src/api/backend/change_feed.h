#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "api/contract/jobs.h"
#include "api/views/rights.h"
#include "host/core/interfaces.h"

namespace gpusched::api {

/// Tells many watchers which jobs and nodes the observer's changes touched: of jobs those that each may see.
/// Thread-safe.
class ChangeFeed final : public std::enable_shared_from_this<ChangeFeed> {
 public:
  using Changed = std::function<void(const ChangeNotice&)>;

  /// Until the token is dropped.
  std::shared_ptr<void> subscribe(CallerPtr caller, Changed changed);
  /// On the observer's thread. Costs nothing while nobody watches.
  void publish(const State& state, const Changes& changes);

 private:
  struct Watcher {
    CallerPtr caller;
    Changed changed;
  };

  std::mutex mutex_;  // Guards all below.
  std::map<uint64_t, std::shared_ptr<const Watcher>> watchers_;
  uint64_t next_ = 1;
};

/// What the changes touched.
ChangeNotice notice_of(const Changes& changes);
/// What of it the caller may know of. A job that is no longer kept is known to those alone who see all.
ChangeNotice seen_by(const access::Caller& caller, const State& state, const ChangeNotice& notice);

}  // namespace gpusched::api
