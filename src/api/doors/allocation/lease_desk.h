#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "api/contract/backend.h"

namespace gpusched::api {

/// Submits leases, one after the other of each organization, so that each is held against the organization's
/// quota with all before it. Thread-safe; it must outlive its questions.
class LeaseDesk {
 public:
  explicit LeaseDesk(Backend& backend) : backend_(backend) {}

  /// `request` is one job of the caller's own organization. kQuotaExceeded: with its GPUs the organization
  /// would have more than it may, those that wait for a place included; unless it was submitted before, by
  /// the same Idempotency-Key.
  void allocate(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done);

 private:
  struct Asked;
  using AskedPtr = std::shared_ptr<Asked>;

  /// Whoever asks first for the tenant goes on; the others follow as each is done.
  void enter(const AskedPtr& asked, TenantId tenant);
  void leave(TenantId tenant);
  void check_quota(const AskedPtr& asked);
  /// Adds up the leases that wait, page by page.
  void count_waiting(const AskedPtr& asked, JobId before);
  void check_known(const AskedPtr& asked);
  void submit(const AskedPtr& asked);
  void finish(const AskedPtr& asked, Answer<Submitted> answer);

  Backend& backend_;
  std::mutex mutex_;
  /// Who waits behind the one whose turn it is.
  std::map<TenantId, std::deque<AskedPtr>> lanes_;
};

}  // namespace gpusched::api
