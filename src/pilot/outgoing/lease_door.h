#pragma once

#include <string>

#include "anticipate/anticipator.h"
#include "base/result.h"
#include "pilot/outgoing/outbox.h"

namespace gpusched::pilot {

/// A lease at the scheduler.
struct RemoteLease {
  std::string id;   ///< UUID at the allocation door.
  std::string job;  ///< "job-7"
};

/// Requests to the scheduler's allocation door. Nothing that a monitor saw is in any of them. Errors:
/// kPermissionDenied, kInvalidArgument, kTooLarge (a quota): it will not; kNotFound: there is no such lease;
/// kUnavailable, kOutcomeUnknown, kTimeout: try the same again, with the same key. Not thread-safe.
class LeaseDoor {
 public:
  LeaseDoor(Outbox& outbox, std::string url) : outbox_(outbox), url_(std::move(url)) {}

  /// Asks for a lease. The same key never makes two.
  Result<RemoteLease> allocate(const anticipate::LeaseRequest& request, const std::string& key);
  /// Where a lease stands. Its end is on the scheduler's clock.
  Result<anticipate::LeaseSeen> look(const std::string& id);
  /// Extends it to `length` from now; never shortens it.
  Result<anticipate::LeaseSeen> extend(const std::string& id, Duration length, const std::string& key);
  Result<Unit> release(const std::string& id, const std::string& key);

 private:
  Result<std::string> call(const std::string& method, const std::string& path, const std::string& body,
                           const std::string& key);

  Outbox& outbox_;
  const std::string url_;
};

}  // namespace gpusched::pilot
