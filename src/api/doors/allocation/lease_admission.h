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

/// The caller as it allocates for an organization and works with what it has there: an administrator of the
/// cluster, who runs no jobs anywhere, is a user of it as well, and so has what it allocated itself.
CallerPtr as_user_of(const CallerPtr& caller, TenantId tenant);

/// Submits leases, one after the other of each family of organizations, so that each is held with all before
/// it against the quotas of its organization and of those above. Thread-safe. It must live until the last of
/// its questions is answered, and may be gone from within that answer on.
class LeaseAdmission {
 public:
  explicit LeaseAdmission(Backend& backend) : backend_(backend) {}

  /// `request` is one job, of the caller's own organization where it names none. kQuotaExceeded: with its
  /// GPUs the organization, or one above it with all below, would have more than it may, leases that wait for
  /// a place included; unless it was submitted before, by the same Idempotency-Key.
  void allocate(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done);

 private:
  struct Asked;
  using AskedPtr = std::shared_ptr<Asked>;

  /// Goes up to the tenant above all others. Tenants keep their parents.
  void find_root(const AskedPtr& asked, TenantId at);
  /// Lets the first below a root go on; the others follow as each is done.
  void enter(const AskedPtr& asked);
  /// Gives the turn to the next. Requests whose answers come at once are dealt with one after the other and
  /// not one inside the other, so the stack does not grow with the lane.
  void leave(TenantId root);
  /// Ends the present turn. Returns who has it now; null: nobody, or another thread gives turns there.
  AskedPtr end_turn(TenantId root);
  /// The next in turn, for the thread that gives turns; null: it gives no more.
  AskedPtr next_turn(TenantId root);
  void check_quotas(const AskedPtr& asked);
  /// Takes the leases that wait off the quotas that they count in, page by page.
  void count_waiting(const AskedPtr& asked, JobId before);
  void check_known(const AskedPtr& asked);
  void submit(const AskedPtr& asked);
  void finish(const AskedPtr& asked, Answer<Submitted> answer);

  Backend& backend_;
  std::mutex mutex_;
  struct Lane {
    std::deque<AskedPtr> waiting{};  ///< Behind the one whose turn it is.
    bool is_taken = true;            ///< Somebody has the turn.
    bool is_given = false;           ///< A thread is in `leave` and gives turns, one after the other.
  };
  /// By the topmost tenant; of those where somebody has the turn or gives it.
  std::map<TenantId, Lane> lanes_;
};

}  // namespace gpusched::api
