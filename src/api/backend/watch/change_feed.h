#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "api/backend/watch/change_ring.h"
#include "api/contract/jobs.h"
#include "api/views/rights.h"
#include "host/core/interfaces.h"

namespace gpusched::api {

/// Tells many watchers which jobs and nodes the observer's changes touched: of jobs those that each may see.
/// Thread-safe, except what is said to be the observer's.
class ChangeFeed final : public std::enable_shared_from_this<ChangeFeed> {
 public:
  using Changed = std::function<void(const ChangeNotice&)>;

  /// Until the token is dropped.
  std::shared_ptr<void> subscribe(CallerPtr caller, Changed changed);

  /// The two calls that follow are the observer's. Nothing is known of changes before `state`. To be called
  /// before `publish`.
  void fill(const State& state) { ring_.begin(state.last.sequence); }
  void publish(const State& state, const Changes& changes);
  /// Where a watch by that caller begins that was told of everything up to `since`.
  WatchBegin begin(const access::Caller& caller, const State& state, std::optional<uint64_t> since) const;

 private:
  struct Watcher {
    CallerPtr caller;
    Changed changed;
  };

  ChangeRing ring_;   // The observer's.
  std::mutex mutex_;  // Guards all below.
  std::map<uint64_t, std::shared_ptr<const Watcher>> watchers_;
  uint64_t next_ = 1;
};

/// The jobs and nodes that the changes touched.
ChangeNotice notice_of(const Changes& changes);
/// The part that the caller may know of. A job that is no longer kept is known only to those who see all.
ChangeNotice seen_by(const access::Caller& caller, const State& state, const ChangeNotice& notice);

}  // namespace gpusched::api
