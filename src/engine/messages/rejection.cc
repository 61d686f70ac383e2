#include "engine/messages/rejection.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/limits.h"
#include "engine/messages/rejection_rows.h"

namespace gpusched {

namespace {

std::string tenant_name(TenantId id) {
  return id == kDefaultTenant ? std::string("default") : "tenant-" + std::to_string(id.value);
}

/// "tenant-12", or one above the caller's, of which it is not told.
std::string tenant_shown(TenantId id) {
  return id.valid() ? "tenant " + tenant_name(id) : std::string("a tenant above yours");
}

std::string describe_not_interactive(const Rejection& rejection) {
  if (rejection.resource == Resource::kGpus && rejection.limit > 0) {
    return "an interactive job may request at most " + std::to_string(rejection.limit) +
           " GPUs, and this one requests " + std::to_string(rejection.requested) +
           "; request fewer, or submit it as an ordinary job";
  }
  if (rejection.resource == Resource::kGpus)
    return "this cluster does not accept interactive jobs; submit it as an ordinary job";
  if (rejection.limit > 0) {
    return "an interactive job must have a time limit of at most " + std::to_string(rejection.limit / 60) +
           " minutes; set one, or submit it as an ordinary job";
  }
  return "an interactive job starts at once: it cannot be held, be an array, begin later or depend on other "
         "jobs; remove that, or submit it as an ordinary job";
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

std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string in_seconds(Duration wait) {
  return std::to_string((wait.ns + 999'999'999) / 1'000'000'000) + " s";
}

std::string describe_tenant_queue_full(const Rejection& rejection) {
  if (!rejection.tenant.valid())
    return "a tenant above yours has as many waiting jobs as it may have; try again later, or submit fewer "
           "at once";
  const std::string what = "tenant " + tenant_name(rejection.tenant) + " and its children may have at most " +
                           std::to_string(rejection.limit) + " waiting jobs";
  if (rejection.requested > rejection.limit)
    return what + ", and this submission has " + std::to_string(rejection.requested) +
           "; submit fewer at once";
  return what + ", and " + std::to_string(rejection.current) + " are waiting; try again later";
}

/// The field of a job's request that asks for it.
std::string_view quota_field(Resource resource) {
  switch (resource) {
    case Resource::kGpus:
      return "gpu_count";
    case Resource::kGpuMemory:
      return "gpu_memory_mb";
    case Resource::kCpu:
      return "cpu_cores";
    case Resource::kMemory:
      return "memory_mb";
    case Resource::kJobs:
    case Resource::kNone:
      return "";
  }
  UNREACHABLE();
}

/// The setting of a tenant that guarantees it.
std::string_view guarantee_field(Resource resource) {
  switch (resource) {
    case Resource::kGpus:
      return "guaranteed_gpus";
    case Resource::kGpuMemory:
      return "guaranteed_gpu_memory_mb";
    case Resource::kCpu:
      return "guaranteed_cpu_cores";
    case Resource::kMemory:
      return "guaranteed_memory_mb";
    case Resource::kJobs:
      return "guaranteed_jobs";
    case Resource::kNone:
      return "";
  }
  UNREACHABLE();
}

/// A row in the making.
struct Row : RejectionRow {
  constexpr Row told_as(std::string_view code_of_clients) const {
    Row row = *this;
    row.client_code = code_of_clients;
    return row;
  }
  constexpr Row at(std::string_view field_at_fault) const {
    Row row = *this;
    row.field = field_at_fault;
    return row;
  }
  constexpr Row at(std::string_view (*by_resource)(Resource)) const {
    Row row = *this;
    row.field_of = by_resource;
    return row;
  }
  constexpr Row of_one_job() const {
    Row row = *this;
    row.names_job = true;
    return row;
  }
};
constexpr Row row(RejectionCode code, std::string_view name, std::string_view sentence) {
  return {{.code = code, .name = name, .client_code = name, .sentence = sentence}};
}
constexpr Row row(RejectionCode code, std::string_view name, std::string (*say)(const Rejection&)) {
  return {{.code = code, .name = name, .client_code = name, .say = say}};
}

using enum RejectionCode;

constexpr RejectionRow kRows[] = {
    row(kTenantNotFound, "tenant_not_found", "no such tenant; create it first, or name an existing one")
        .at("tenant_id"),
    row(kTenantExists, "tenant_exists",
        "a tenant of this name already exists; choose another name, or update that one")
        .at("name"),
    row(kTenantBusy, "tenant_busy",
        "the tenant has unfinished jobs or child tenants; cancel or remove them first"),
    row(kTenantParentInvalid, "tenant_parent_invalid",
        "the parent tenant does not exist or is nested too deeply; name another parent")
        .at("parent_id"),
    row(kTenantLimit, "tenant_limit", "there are too many tenants; delete unused ones"),
    row(kJobNotFound, "job_not_found", "no such job"),
    row(kJobFinished, "job_finished", "the job has already finished"),
    row(kQuotaExceeded, "quota_exceeded",
        [](const Rejection& it) {
          const std::string what = "quota exceeded for " + tenant_shown(it.tenant) + ": " +
                                   std::string(to_string(it.resource)) +
                                   " requested=" + shown(it.resource, it.requested);
          if (!it.tenant.valid()) return what;
          return what + ", quota=" + shown(it.resource, it.limit) +
                 ", current=" + shown(it.resource, it.current);
        })
        .at(quota_field)
        .of_one_job(),
    row(kQueueFull, "queue_full",
        [](const Rejection& it) {
          if (it.requested + it.current > it.limit || it.requested == 0)
            return "the queue is full (" + std::to_string(it.limit) + " waiting jobs); try again later";
          // Whose jobs are counted, and how many these are, is not everybody's business.
          return "of the " + std::to_string(it.limit) +
                 " places for waiting jobs nobody may have more than are left free for others, and " +
                 (it.requested == 1 ? std::string("one job more")
                                    : std::to_string(it.requested) + " jobs more") +
                 " would be too many; wait until some of your tenant's jobs start, cancel some, or submit " +
                 "fewer at once";
        }),
    row(kInfeasible, "infeasible",
        [](const Rejection& it) {
          return "no registered node can ever run this job" +
                 (it.nearest.empty() ? std::string() : " (" + it.nearest + ")") +
                 "; request less, or drop require_feasible to let it wait";
        })
        .of_one_job(),
    row(kRequestKeyConflict, "request_key_conflict",
        "this idempotency key was already used for a different request; use a new key for each new request")
        .at("Idempotency-Key"),
    row(kPartsUnsupported, "parts_unsupported",
        [](const Rejection&) {
          return "a job has at most " + std::to_string(limits::kPartsMax) + " parts of at most " +
                 std::to_string(limits::kMembersMax) +
                 " members in total, and no member has more GPUs than one node; only the last part may be "
                 "elastic, a share of a GPU must be the only part, and all parts must have the same domain "
                 "and own_nodes; correct its parts";
        })
        .of_one_job(),
    row(kNodeNotFound, "node_not_found", "no such node"),
    row(kNodeNameTaken, "node_name_taken",
        "another agent (with another data folder, or on another machine) is registered under this node name; "
        "choose another --node, or, once the old agent is certainly gone, run gpu-cli node confirm-dead for "
        "this name"),
    row(kNodeAlive, "node_alive", "the node still reports; stop its agent before declaring it dead"),
    row(kNodeLimit, "node_limit",
        "there are too many nodes, devices on this node, or kinds of device; remove nodes that are no longer "
        "used"),
    row(kDeviceNotFound, "device_not_found", "the node has no such device"),
    row(kAttemptNotFound, "attempt_not_found", "no such attempt is active; it has ended or never existed"),
    row(kStale, "stale", "the cluster has changed in the meantime; read its state again and retry")
        .told_as("conflict"),
    row(kJobNotWaiting, "job_not_waiting",
        "only a waiting job can be held or given another priority; requeue or cancel this one instead"),
    row(kJobNotPlaced, "job_not_placed",
        "only a scheduled or running job can be requeued; this one is already waiting"),
    row(kLabelLimit, "label_limit", "a node has at most 64 labels; remove some first").told_as("node_limit"),
    row(kDependencyNotFound, "dependency_not_found",
        [](const Rejection& it) {
          return "the job depends on job-" + std::to_string(it.requested) +
                 ", which does not exist, belongs to another tenant or is no longer kept; name an existing "
                 "job";
        })
        .at("dependencies")
        .of_one_job(),
    row(kDependencyInvalid, "dependency_invalid",
        "a job can depend on each other job only once, and within one submission only on earlier jobs, so "
        "that there are no cycles; reorder the submission, or drop the dependency")
        .at("dependencies")
        .of_one_job(),
    row(kBookingNotFound, "reservation_not_found",
        "no such reservation; `gpu-cli reservation list` shows the existing ones"),
    row(kBookingExists, "reservation_exists",
        "a reservation of this name already exists; choose another name, or cancel that one"),
    row(kBookingDenied, "reservation_denied",
        "this reservation belongs to another tenant or user; submit the job without it"),
    row(kBookingTaken, "reservation_taken",
        [](const Rejection& it) {
          return "reservation-" + std::to_string(it.requested) +
                 " already has one of these nodes at that time; choose other nodes or another time";
        }),
    row(kBookingTimes, "reservation_times",
        "the reservation ends before it begins, or lasts longer than its repeat interval; correct the times"),
    row(kBookingLimit, "reservation_limit", "there are too many reservations; cancel some first"),
    row(kThrottled, "throttled",
        [](const Rejection& it) {
          return "too many jobs are waiting (" + std::to_string(it.current) + "; above " +
                 std::to_string(it.limit) + ", each user's submissions are throttled); try again in " +
                 in_seconds(it.retry_after);
        }),
    row(kRateExceeded, "rate_exceeded",
        [](const Rejection& it) {
          return "this submission costs " + std::to_string(it.requested) +
                 " tokens, and your bucket, which holds at most " + std::to_string(it.current) +
                 ", has fewer; try again in " + in_seconds(it.retry_after);
        }),
    row(kDailyExceeded, "daily_exceeded",
        [](const Rejection& it) {
          return "this submission costs " + std::to_string(it.requested) + " tokens, and you have spent " +
                 std::to_string(it.current) + " of today's " + std::to_string(it.limit) +
                 "; try again after midnight (UTC), in " + in_seconds(it.retry_after);
        }),
    row(kDeadlinePassed, "deadline_passed",
        "the deadline passes before the job may begin; set a later deadline")
        .at("deadline")
        .of_one_job(),
    row(kNotInteractive, "not_interactive", describe_not_interactive).at("interactive").of_one_job(),
    row(kGuaranteeAboveLimit, "guarantee_above_limit",
        [](const Rejection& it) {
          return "tenant " + tenant_name(it.tenant) + " would have a guarantee of " +
                 shown(it.resource, it.requested) + " " + std::string(to_string(it.resource)) +
                 ", and its limit is " + shown(it.resource, it.limit) +
                 "; guarantee no more than the limit, or raise the limit first";
        })
        .told_as("unprocessable")
        .at(guarantee_field),
    row(kGuaranteeAboveParent, "guarantee_above_parent",
        [](const Rejection& it) {
          return "the children of tenant " + tenant_name(it.tenant) + " would have guarantees of " +
                 shown(it.resource, it.requested) + " " + std::string(to_string(it.resource)) +
                 " in total, which is more than its own " + shown(it.resource, it.limit) +
                 "; raise the parent's guarantee first, or lower the children's";
        })
        .told_as("unprocessable")
        .at(guarantee_field),
    row(kWeightInvalid, "weight_invalid", "a tenant's weight must be above 0; give a positive number")
        .told_as("invalid_argument")
        .at("fair_share_weight"),
    row(kPoolsInvalid, "pools_invalid",
        "the shares of the pools must not be negative, and their sum must not exceed 1; lower one of them")
        .told_as("invalid_argument"),
    row(kTenantQueueFull, "tenant_queue_full", describe_tenant_queue_full),
    row(kTenantThrottled, "tenant_throttled",
        [](const Rejection& it) {
          const std::string counts = it.tenant.valid()
                                         ? std::to_string(it.current) + "; above " + std::to_string(it.limit)
                                         : std::string("above its limit");
          return "too many jobs of " + tenant_shown(it.tenant) + " are waiting (" + counts +
                 ", each user's submissions are throttled); try again in " + in_seconds(it.retry_after);
        }),
    row(kNoDomain, "no_domain",
        "no node has the label that names its domain of the required level; label the nodes, require another "
        "level, or drop require_feasible to let the job wait")
        .told_as("infeasible"),
    row(kContradiction, "contradiction",
        [](const Rejection& it) { return std::string(describe(static_cast<RequestFlaw>(it.requested))); })
        .told_as("unprocessable")
        .of_one_job(),
    row(kMoveStale, "move_stale",
        "the proposal is no longer valid: a job ended, started or changed, a GPU was taken, or starts are "
        "paused; request new proposals"),
    row(kNodeStillHeard, "node_still_heard",
        "an agent of this node still reports from another boot of the machine; after a restart of the "
        "machine, the node is admitted as soon as the lease of that agent has expired; if the machine or its "
        "data folder was copied, give the copy another --node and an empty --data-dir"),
    row(kNodeOverlap, "node_overlap",
        [](const Rejection& it) {
          return it.nearest +
                 ", which is not known to be dead; register under that node's name, or, once its agent is "
                 "stopped for good, run gpu-cli node confirm-dead for it";
        }),
    row(kBookingTooFar, "reservation_too_far",
        "the reservation would begin more than 366 days from now; give an earlier time")
        .told_as("reservation_times"),
    row(kFeasibilityLimit, "feasibility_limit",
        "the submission sets require_feasible on too many different jobs; submit fewer of them at once, or "
        "drop require_feasible")
        .told_as("unprocessable"),
    row(kNodeConnected, "node_connected",
        "the node's agent is connected and would register again at once; stop the agent first, then remove "
        "the node")
        .told_as("node_alive"),
    row(kNodeBusy, "node_busy",
        [](const Rejection& it) {
          return "the node still has work: " + counted(it.current, "attempt") + ", and " +
                 counted(it.requested, "GPU") +
                 " not confirmed empty; once nothing runs there, run gpu-cli node confirm-dead for it, then "
                 "remove it";
        }),
    row(kNodeReserved, "node_reserved",
        [](const Rejection& it) {
          return "reservation-" + std::to_string(it.requested) +
                 " names the node; cancel the reservation first, then remove the node";
        })
        .told_as("node_busy"),
    row(kKeyNotFound, "key_not_found", "no such key; look at the list of keys"),
    row(kKeyExists, "key_exists",
        "a key of this name is in use in its tenant; choose another name, or revoke that one first")
        .at("name"),
    row(kKeyLimit, "key_limit",
        "there are too many keys, or too many roles of this one; revoke keys or take roles first"),
    row(kKeyRevoked, "key_revoked", "the key was revoked or has expired, for good; create another one"),
    row(kKeyExpiry, "key_expiry", "the key would have expired already; give a later time")
        .told_as("unprocessable")
        .at("expires_at"),
    row(kBindingInvalid, "binding_invalid",
        "the role does not exist for that tenant, or the tenant is not the key's own or below it; choose "
        "another role or tenant")
        .told_as("unprocessable")
        .at("role"),
    row(kRuntimeRaised, "runtime_raised",
        "the job has been placed, and with a longer time limit it could run into a reservation or delay jobs "
        "that "
        "wait; lower the limit, or ask an operator to raise it")
        .told_as("job_not_waiting")
        .at("max_runtime"),
    row(kNodeTicketNotFound, "node_token_not_found",
        "this node token does not exist, was replaced by a newer one, or is for another node; create one for "
        "this node's name with gpu-scheduler node-token create")
        .told_as("node_token_invalid"),
    row(kNodeTicketUsed, "node_token_used",
        "this node token was used already; create another one with gpu-scheduler node-token create, and if "
        "it "
        "was not you who used it, run gpu-cli node revoke for the node")
        .told_as("node_token_invalid"),
    row(kNodeTicketExpired, "node_token_expired",
        "this node token has expired; create another one with gpu-scheduler node-token create")
        .told_as("node_token_invalid"),
    row(kNodeTicketExists, "node_token_exists", "another node token was drawn alike; ask again")
        .told_as("conflict"),
    row(kNodeTicketExpiry, "node_token_expiry",
        "the node token would have expired already; give a later time")
        .told_as("unprocessable")
        .at("expires_at"),
    row(kNodeIdentityLimit, "node_identity_limit",
        "there are too many node tokens, or too many nodes with certificates"),
    row(kNodeIdentityNotFound, "node_identity_not_found",
        "the node has no certificate, or has joined anew since; gpu-cli node identities lists those that "
        "have"),
    row(kNodeRevoked, "node_revoked",
        "the node was revoked; to let it in again create a node token for it and join it anew"),
    row(kPoolInUse, "pool_in_use",
        [](const Rejection& it) {
          return "the pool of " + std::string(it.index == 0 ? "online" : "batch") + " work would have " +
                 std::to_string(it.limit / kMilliPerGpu) + " GPUs, and its jobs hold " +
                 std::to_string((it.current + kMilliPerGpu - 1) / kMilliPerGpu) +
                 "; wait until some of them have ended, or cancel them, or give the pool a larger share";
        })
        .told_as("conflict"),
    row(kArrayHeld, "array_held",
        [](const Rejection& it) {
          const std::string array = "job-" + std::to_string(it.requested);
          return "the element has its turn when its array has, and that is held; release " + array +
                 ", which releases all of its elements";
        })
        .told_as("unprocessable"),
    row(kPersonNotFound, "user_not_found",
        "there is no such user, or it is not active, or of another organization; look at the list of users"),
    row(kPersonExists, "user_exists", "another user has this email; change that one, or give another email")
        .at("email"),
    row(kPersonLimit, "user_limit", "there are as many users as may be; change one that is not needed"),
};

static_assert(std::ranges::all_of(kRows, [](const RejectionRow& one) {
  return static_cast<std::size_t>(one.code) == static_cast<std::size_t>(&one - kRows) + 1;
}));

}  // namespace

std::span<const RejectionRow> rejection_rows() { return kRows; }

const RejectionRow& row_of(RejectionCode code) {
  const std::size_t index = static_cast<std::size_t>(code) - 1;
  CHECK(index < std::size(kRows));
  return kRows[index];
}

std::string_view to_string(RejectionCode code) { return row_of(code).name; }

std::string describe(const Rejection& rejection) {
  const RejectionRow& row = row_of(rejection.code);
  return row.say == nullptr ? std::string(row.sentence) : row.say(rejection);
}

std::string_view field_at_fault(const Rejection& rejection) {
  const RejectionRow& row = row_of(rejection.code);
  return row.field_of == nullptr ? row.field : row.field_of(rejection.resource);
}

}  // namespace gpusched
