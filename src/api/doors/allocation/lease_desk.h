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

/// Submits leases, one after the other of each family of organizations, so that each is held with all before
/// it against the quotas of its organization and of those above. Thread-safe; it must outlive its questions.
class LeaseDesk {
 public:
  explicit LeaseDesk(Backend& backend) : backend_(backend) {}

  /// `request` is one job of the caller's own organization. kQuotaExceeded: with its GPUs the organization,
  /// or one above it with all below, would have more than it may, leases that wait for a place included;
  /// unless it was submitted before, by the same Idempotency-Key.
  void allocate(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done);

 private:
  struct Asked;
  using AskedPtr = std::shared_ptr<Asked>;

  /// Goes up to the tenant above all others. Tenants keep their parents.
  void find_root(const AskedPtr& asked, TenantId at);
  /// Whoever asks first below a root goes on; the others follow as each is done.
  void enter(const AskedPtr& asked);
  void leave(TenantId root);
  void check_quotas(const AskedPtr& asked);
  /// Takes the leases that wait off the quotas that they count in, page by page.
  void count_waiting(const AskedPtr& asked, JobId before);
  void check_known(const AskedPtr& asked);
  void submit(const AskedPtr& asked);
  void finish(const AskedPtr& asked, Answer<Submitted> answer);

  Backend& backend_;
  std::mutex mutex_;
  /// Who waits behind the one whose turn it is, by the topmost tenant.
  std::map<TenantId, std::deque<AskedPtr>> lanes_;
};

}  // namespace gpusched::api
