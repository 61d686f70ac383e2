#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "model/types.h"

namespace gpusched {

/// The engine says no. A value: the state is untouched.
enum class RejectionCode : uint8_t {
  kTenantNotFound = 1,
  kTenantExists,         ///< Another tenant has the name.
  kTenantBusy,           ///< It has unfinished jobs or children.
  kTenantParentInvalid,  ///< Unknown, or too deep.
  kTenantLimit,          ///< Too many tenants.
  kJobNotFound,
  kJobFinished,    ///< Too late: it is final.
  kQuotaExceeded,  ///< The request alone is more than the tenant may ever hold.
  kQueueFull,
  kInfeasible,          ///< `require_feasible`, and no registered node could ever run it.
  kRequestKeyConflict,  ///< The key was used for another request.
  kPartsUnsupported,    ///< More than one member.
  kNodeNotFound,
  kNodeNameTaken,  ///< Another agent's data folder holds the name.
  kNodeAlive,      ///< It reports: it cannot be confirmed dead.
  kNodeLimit,      ///< Too many nodes, devices on one, or kinds of device.
  kDeviceNotFound,
  kAttemptNotFound,     ///< It is over, or never was: nothing to do.
  kStale,               ///< The world has moved on: another generation, state or boot.
  kJobNotWaiting,       ///< Only possible for a job that waits.
  kJobNotPlaced,        ///< Only possible for a job that is scheduled or running.
  kLabelLimit,          ///< Too many labels on a node.
  kDependencyNotFound,  ///< No such job, or none of this tenant's, or no longer known.
  kDependencyInvalid,  ///< It would wait for itself or for a later one of its submission, or names one twice.
  kBookingNotFound,    ///< No reservation of this name or number.
  kBookingExists,      ///< Another one has the name.
  kBookingDenied,      ///< It is for others.
  kBookingTaken,       ///< Another one has a node of it at that time.
  kBookingTimes,       ///< It is over already, or repeats before it ends.
  kBookingLimit,       ///< Too many of them.
  kThrottled,          ///< Many jobs wait, and the user's last one came in just now.
  kRateExceeded,       ///< The user's bucket has too few tokens.
  kDailyExceeded,      ///< The user spent its tokens of the day.
  kDeadlinePassed,     ///< The deadline is not in the future, or not after the job may begin.
  kNotInteractive,     ///< Too large, too long or not of the kind for a job that is to start at once.
  kGuaranteeAboveLimit,   ///< A tenant would be guaranteed more than it may have.
  kGuaranteeAboveParent,  ///< The guarantees of a tenant's children would be more than its own.
  kWeightInvalid,         ///< A weight that is not above 0.
  kPoolsInvalid,          ///< Shares of pools that are negative or more than the whole.
  kTenantQueueFull,       ///< As many of the tenant's jobs wait as may.
  kTenantThrottled,       ///< Many of the tenant's jobs wait, and the user's last one came in just now.
  kNoDomain,              ///< `require_feasible`, and no node has a label for the domain it insists on.
  kContradiction,         ///< The request contradicts itself: `requested` is its RequestFlaw.
  kMoveStale,             ///< Moves that do not hold (any more).
  kNodeStillHeard,        ///< Another boot of the machine has the node's lease.
  kNodeOverlap,           ///< Its data folder or a device belongs to another node: `nearest` names both.
  kBookingTooFar,         ///< A reservation begins later than one may.
  kFeasibilityLimit,      ///< `require_feasible` of too many different jobs at once.
  kNodeConnected,         ///< Its agent reports: it would only register again.
  kNodeBusy,              ///< It holds `current` attempts and has `requested` devices that are not free.
  kNodeReserved,          ///< The reservation `requested` names it.
  kKeyNotFound,
  kKeyExists,           ///< A living key of its home has the name, or any key the prefix.
  kKeyLimit,            ///< Too many keys, or too many roles of one.
  kKeyRevoked,          ///< It is revoked, or expired.
  kKeyExpiry,           ///< It would be expired already.
  kBindingInvalid,      ///< No such role or tenant, or not within the key's home.
  kRuntimeRaised,       ///< It runs; with the longer limit it might pass a reservation, or jobs that wait.
  kNodeTicketNotFound,  ///< No such node token, or it is another node's.
  kNodeTicketUsed,      ///< With another public key.
  kNodeTicketExpired,
  kNodeTicketExists,      ///< Another one has the prefix.
  kNodeTicketExpiry,      ///< It would be expired already.
  kNodeIdentityLimit,     ///< Too many node tokens, or nodes with an identity.
  kNodeIdentityNotFound,  ///< The node has none, or another one by now.
  kNodeRevoked,
  kPoolInUse,  ///< The pool of online work (`index` 0) or batch work holds `current` thousandths of GPUs.
  kArrayHeld,  ///< An element cannot be released while its array, job `requested`, is held.
  kPersonNotFound,  ///< No such person; or, for a key, an inactive one or one of another home.
  kPersonExists,    ///< Another person has the address.
  kPersonLimit,
};

std::string_view to_string(RejectionCode code);

struct Rejection {
  RejectionCode code = RejectionCode::kStale;
  // Evidence, as far as the code has any.
  TenantId tenant;  ///< Tenant whose quota is exceeded.
  Resource resource = Resource::kNone;
  int64_t requested = 0;
  int64_t limit = 0;
  int64_t current = 0;
  uint32_t index = 0;    ///< Index of the job in a batch.
  Duration retry_after;  ///< When it might pass; zero: unknown.
  /// kInfeasible: the node that could meet most of it, and what it lacks. kNodeOverlap: what belongs to whom.
  std::string nearest = {};
};

/// The rejection as one sentence that says what to do.
std::string describe(const Rejection& rejection);

}  // namespace gpusched
