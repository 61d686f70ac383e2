#include "engine/messages/rejection.h"

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {

std::string_view to_string(RejectionCode code) {
  switch (code) {
    case RejectionCode::kTenantNotFound:
      return "tenant_not_found";
    case RejectionCode::kTenantExists:
      return "tenant_exists";
    case RejectionCode::kTenantBusy:
      return "tenant_busy";
    case RejectionCode::kTenantParentInvalid:
      return "tenant_parent_invalid";
    case RejectionCode::kTenantLimit:
      return "tenant_limit";
    case RejectionCode::kJobNotFound:
      return "job_not_found";
    case RejectionCode::kJobFinished:
      return "job_finished";
    case RejectionCode::kQuotaExceeded:
      return "quota_exceeded";
    case RejectionCode::kQueueFull:
      return "queue_full";
    case RejectionCode::kInfeasible:
      return "infeasible";
    case RejectionCode::kRequestKeyConflict:
      return "request_key_conflict";
    case RejectionCode::kPartsUnsupported:
      return "parts_unsupported";
    case RejectionCode::kNodeNotFound:
      return "node_not_found";
    case RejectionCode::kNodeNameTaken:
      return "node_name_taken";
    case RejectionCode::kNodeStillHeard:
      return "node_still_heard";
    case RejectionCode::kNodeOverlap:
      return "node_overlap";
    case RejectionCode::kNodeAlive:
      return "node_alive";
    case RejectionCode::kNodeLimit:
      return "node_limit";
    case RejectionCode::kDeviceNotFound:
      return "device_not_found";
    case RejectionCode::kAttemptNotFound:
      return "attempt_not_found";
    case RejectionCode::kStale:
      return "stale";
    case RejectionCode::kJobNotWaiting:
      return "job_not_waiting";
    case RejectionCode::kJobNotPlaced:
      return "job_not_placed";
    case RejectionCode::kLabelLimit:
      return "label_limit";
    case RejectionCode::kDependencyNotFound:
      return "dependency_not_found";
    case RejectionCode::kDependencyInvalid:
      return "dependency_invalid";
    case RejectionCode::kBookingNotFound:
      return "reservation_not_found";
    case RejectionCode::kBookingExists:
      return "reservation_exists";
    case RejectionCode::kBookingDenied:
      return "reservation_denied";
    case RejectionCode::kBookingTaken:
      return "reservation_taken";
    case RejectionCode::kBookingTimes:
      return "reservation_times";
    case RejectionCode::kBookingLimit:
      return "reservation_limit";
    case RejectionCode::kBookingTooFar:
      return "reservation_too_far";
    case RejectionCode::kFeasibilityLimit:
      return "feasibility_limit";
    case RejectionCode::kNodeConnected:
      return "node_connected";
    case RejectionCode::kNodeBusy:
      return "node_busy";
    case RejectionCode::kNodeReserved:
      return "node_reserved";
    case RejectionCode::kThrottled:
      return "throttled";
    case RejectionCode::kRateExceeded:
      return "rate_exceeded";
    case RejectionCode::kDailyExceeded:
      return "daily_exceeded";
    case RejectionCode::kDeadlinePassed:
      return "deadline_passed";
    case RejectionCode::kNotInteractive:
      return "not_interactive";
    case RejectionCode::kGuaranteeAboveLimit:
      return "guarantee_above_limit";
    case RejectionCode::kGuaranteeAboveParent:
      return "guarantee_above_parent";
    case RejectionCode::kWeightInvalid:
      return "weight_invalid";
    case RejectionCode::kPoolsInvalid:
      return "pools_invalid";
    case RejectionCode::kTenantQueueFull:
      return "tenant_queue_full";
    case RejectionCode::kTenantThrottled:
      return "tenant_throttled";
    case RejectionCode::kNoDomain:
      return "no_domain";
    case RejectionCode::kContradiction:
      return "contradiction";
    case RejectionCode::kMoveStale:
      return "move_stale";
  }
  UNREACHABLE();
}

namespace {

std::string tenant_name(TenantId id) {
  return id == kDefaultTenant ? std::string("default") : "tenant-" + std::to_string(id.value);
}

std::string describe_not_interactive(const Rejection& rejection) {
  if (rejection.resource == Resource::kGpus && rejection.limit > 0) {
    return "an interactive job may have at most " + std::to_string(rejection.limit) +
           " GPUs, and this one asks for " + std::to_string(rejection.requested) +
           "; ask for fewer, or submit it as a job that waits";
  }
  if (rejection.resource == Resource::kGpus)
    return "this cluster takes no interactive jobs; submit it as a job that waits";
  if (rejection.limit > 0) {
    return "an interactive job must have a time limit of at most " + std::to_string(rejection.limit / 60) +
           " minutes; give it one, or submit it as a job that waits";
  }
  return "an interactive job starts at once: it cannot be held, an array, begin later or wait for others; "
         "leave "
         "that out, or submit it as a job that waits";
}

// CPU is counted in thousandths of a core and shown in cores.
std::string shown(Resource resource, int64_t amount) {
  if (resource != Resource::kCpu) return std::to_string(amount);
  const int64_t milli = amount % 1000;
  if (milli == 0) return std::to_string(amount / 1000);
  std::string fraction = std::to_string(1000 + milli).substr(1);
  while (fraction.back() == '0') fraction.pop_back();
  return std::to_string(amount / 1000) + "." + fraction;
}

std::string in_seconds(Duration wait) {
  return std::to_string((wait.ns + 999'999'999) / 1'000'000'000) + " s";
}

std::string describe_tenant_queue_full(const Rejection& rejection) {
  const std::string what = "of tenant " + tenant_name(rejection.tenant) + " at most " +
                           std::to_string(rejection.limit) + " jobs may wait, its children's included";
  if (rejection.requested > rejection.limit)
    return what + ", and this submission has " + std::to_string(rejection.requested) +
           "; submit fewer at once";
  return what + ", and " + std::to_string(rejection.current) + " do; try again later";
}

}  // namespace

std::string describe(const Rejection& rejection) {
  switch (rejection.code) {
    case RejectionCode::kTenantNotFound:
      return "no such tenant; create it first or name an existing one";
    case RejectionCode::kTenantExists:
      return "a tenant of this name exists; choose another name or update that one";
    case RejectionCode::kTenantBusy:
      return "the tenant has unfinished jobs or child tenants; cancel or remove them first";
    case RejectionCode::kTenantParentInvalid:
      return "the parent tenant does not exist or is nested too deep";
    case RejectionCode::kTenantLimit:
      return "there are too many tenants; delete unused ones";
    case RejectionCode::kJobNotFound:
      return "no such job";
    case RejectionCode::kJobFinished:
      return "the job has already finished";
    case RejectionCode::kQuotaExceeded:
      return "quota exceeded for tenant " + tenant_name(rejection.tenant) + ": " +
             std::string(to_string(rejection.resource)) +
             " requested=" + shown(rejection.resource, rejection.requested) +
             ", quota=" + shown(rejection.resource, rejection.limit) +
             ", current=" + shown(rejection.resource, rejection.current);
    case RejectionCode::kQueueFull:
      return "the queue is full (" + std::to_string(rejection.limit) + " waiting jobs); try again later";
    case RejectionCode::kInfeasible:
      return "no registered node could ever run this job" +
             (rejection.nearest.empty() ? std::string() : " (" + rejection.nearest + ")") +
             "; lower the request or drop require_feasible to let it wait";
    case RejectionCode::kRequestKeyConflict:
      return "this idempotency key was used for a different request; use a new key for a new request";
    case RejectionCode::kPartsUnsupported:
      return "a job has at most " + std::to_string(limits::kPartsMax) + " parts of at most " +
             std::to_string(limits::kMembersMax) +
             " members together, each with the GPUs of one node at most; "
             "only its last part may be elastic, a share of a GPU must be its only part, and its parts agree "
             "on "
             "domain and own nodes; correct its parts";
    case RejectionCode::kNodeNotFound:
      return "no such node";
    case RejectionCode::kNodeNameTaken:
      return "another agent (with another data folder, or on another machine) is registered under this node "
             "name; choose another --node, or run confirm-dead for the old one once it is certainly gone";
    case RejectionCode::kNodeStillHeard:
      return "an agent of this node is heard from another boot of the machine; after a restart of the "
             "machine "
             "the node is let in as soon as that one's lease is over; if the machine or its data folder was "
             "copied, give the copy another --node and an empty --data-dir";
    case RejectionCode::kNodeOverlap:
      return rejection.nearest +
             ", which is not known to be dead; register under that node's name, or run "
             "confirm-dead for it once its agent is stopped for good";
    case RejectionCode::kNodeAlive:
      return "the node is reporting; stop its agent before confirming it dead";
    case RejectionCode::kNodeLimit:
      return "too many nodes, devices on the node, or kinds of device";
    case RejectionCode::kDeviceNotFound:
      return "the node has no such device";
    case RejectionCode::kAttemptNotFound:
      return "no such attempt is active";
    case RejectionCode::kStale:
      return "the cluster has changed since; look again";
    case RejectionCode::kJobNotWaiting:
      return "only a waiting job can be held or change its priority; requeue or cancel this one instead";
    case RejectionCode::kJobNotPlaced:
      return "only a job that is scheduled or running can be requeued; this one waits already";
    case RejectionCode::kLabelLimit:
      return "a node has at most 64 labels; remove some first";
    case RejectionCode::kDependencyNotFound:
      return "it is to wait for job-" + std::to_string(rejection.requested) +
             ", which does not exist, is another tenant's or is no longer known; name an existing job";
    case RejectionCode::kDependencyInvalid:
      return "a job can wait once for each other job, and within one submission only for earlier ones, so "
             "that "
             "no circle arises; reorder the submission or drop the dependency";
    case RejectionCode::kBookingNotFound:
      return "no such reservation; look at `gpu-cli reservation list`";
    case RejectionCode::kBookingExists:
      return "a reservation of this name exists; choose another name, or cancel that one";
    case RejectionCode::kBookingDenied:
      return "this reservation is for another tenant or user; submit without it";
    case RejectionCode::kBookingTaken:
      return "reservation-" + std::to_string(rejection.requested) +
             " has one of these nodes at that time; choose other nodes or another time";
    case RejectionCode::kBookingTimes:
      return "the reservation is over before it begins, or lasts longer than from one time to the next; give "
             "other times";
    case RejectionCode::kFeasibilityLimit:
      return "the submission asks of too many different jobs whether they could ever run here; submit fewer "
             "of "
             "them at once, or drop require_feasible";
    case RejectionCode::kNodeConnected:
      return "the node's agent is connected and would register again at once; stop the agent first, then "
             "remove the node";
    case RejectionCode::kNodeBusy:
      return "the node still holds work: " + std::to_string(rejection.current) + " attempts, and " +
             std::to_string(rejection.requested) +
             " GPUs that nobody has seen empty; once nothing runs there, run confirm-dead for it, then "
             "remove it";
    case RejectionCode::kNodeReserved:
      return "reservation-" + std::to_string(rejection.requested) +
             " names the node; cancel the reservation first, then remove the node";
    case RejectionCode::kBookingTooFar:
      return "the reservation would begin more than 366 days from now; give an earlier time";
    case RejectionCode::kBookingLimit:
      return "there are too many reservations; cancel some first";
    case RejectionCode::kThrottled:
      return "many jobs wait (" + std::to_string(rejection.current) + "; from " +
             std::to_string(rejection.limit) + " on, each user's are let in one by one); try again in " +
             in_seconds(rejection.retry_after);
    case RejectionCode::kRateExceeded:
      return "this submission costs " + std::to_string(rejection.requested) +
             " tokens, and too few are in your bucket (at most " + std::to_string(rejection.current) +
             "); try again in " + in_seconds(rejection.retry_after);
    case RejectionCode::kDailyExceeded:
      return "this submission costs " + std::to_string(rejection.requested) + " tokens, and of today's " +
             std::to_string(rejection.limit) + " you have spent " + std::to_string(rejection.current) +
             "; try again after midnight (UTC), in " + in_seconds(rejection.retry_after);
    case RejectionCode::kDeadlinePassed:
      return "the deadline is over before the job may begin; give a later one";
    case RejectionCode::kNotInteractive:
      return describe_not_interactive(rejection);
    case RejectionCode::kGuaranteeAboveLimit:
      return "tenant " + tenant_name(rejection.tenant) + " would be guaranteed " +
             shown(rejection.resource, rejection.requested) + " " +
             std::string(to_string(rejection.resource)) + " and may have " +
             shown(rejection.resource, rejection.limit) +
             "; guarantee no more than that, or raise the limit first";
    case RejectionCode::kGuaranteeAboveParent:
      return "the children of tenant " + tenant_name(rejection.tenant) + " would be guaranteed " +
             shown(rejection.resource, rejection.requested) + " " +
             std::string(to_string(rejection.resource)) + " together, which is more than its own " +
             shown(rejection.resource, rejection.limit) +
             "; raise the parent's guarantee first, or lower the children's";
    case RejectionCode::kWeightInvalid:
      return "a tenant's weight must be above 0; give a positive one";
    case RejectionCode::kPoolsInvalid:
      return "the shares of the pools must not be negative and not be more than 1 together; lower one";
    case RejectionCode::kTenantQueueFull:
      return describe_tenant_queue_full(rejection);
    case RejectionCode::kTenantThrottled:
      return "many jobs of tenant " + tenant_name(rejection.tenant) + " wait (" +
             std::to_string(rejection.current) + "; from " + std::to_string(rejection.limit) +
             " on, each user's are let in one by one); try again in " + in_seconds(rejection.retry_after);
    case RejectionCode::kNoDomain:
      return "no node has a label that says which domain of the required level it is in; label the nodes, "
             "ask "
             "for another level, or drop require_feasible to let it wait";
    case RejectionCode::kContradiction:
      return std::string(describe(static_cast<RequestFlaw>(rejection.requested)));
    case RejectionCode::kMoveStale:
      return "the moves no longer hold: a job ended, started or changed, or a place is taken; ask for moves "
             "again";
  }
  UNREACHABLE();
}

}  // namespace gpusched
