#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/ids.h"

namespace gpusched::api {

/// Orders the changes of a job that are made from what the job is: each reads the job only after the change
/// before it is decided, so that none takes back what another one was told. Elements of an array take the
/// array's turns, because a change of the array changes them too. Thread-safe.
class JobTurns {
 public:
  using Change = std::function<void()>;

  /// Calls `change` in its turn: at once if no change of the job is under way, else from within the `end` of
  /// the one before. Each turn is ended once; not from within `change`, or the stack would grow with those
  /// who wait.
  void begin(JobId job, Change change) {
    {
      const std::lock_guard lock(mutex_);
      const auto [at, is_first] = waiting_.try_emplace(job);
      if (!is_first) return at->second.push_back(std::move(change));
    }
    change();
  }
  /// Gives the turn to the next change that waits.
  void end(JobId job) {
    Change next;
    {
      const std::lock_guard lock(mutex_);
      const auto at = waiting_.find(job);
      CHECK(at != waiting_.end());
      if (at->second.empty()) {
        waiting_.erase(at);
        return;
      }
      next = std::move(at->second.front());
      at->second.pop_front();
    }
    next();
  }

 private:
  std::mutex mutex_;
  std::map<JobId, std::deque<Change>> waiting_;  ///< Behind the change under way, by job.
};

}  // namespace gpusched::api
