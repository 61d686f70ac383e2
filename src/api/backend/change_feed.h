#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "api/contract/jobs.h"
#include "host/core/interfaces.h"

namespace gpusched::api {

/// Tells many watchers which jobs and nodes the observer's changes touched. Thread-safe.
class ChangeFeed final : public std::enable_shared_from_this<ChangeFeed> {
 public:
  using Changed = std::function<void(const ChangeNotice&)>;

  /// Until the token is dropped.
  std::shared_ptr<void> subscribe(Changed changed);
  /// On the observer's thread. Costs nothing while nobody watches.
  void publish(const Changes& changes);

 private:
  std::mutex mutex_;  // Guards all below.
  std::map<uint64_t, std::shared_ptr<Changed>> watchers_;
  uint64_t next_ = 1;
};

/// What the changes touched.
ChangeNotice notice_of(const Changes& changes);

}  // namespace gpusched::api
