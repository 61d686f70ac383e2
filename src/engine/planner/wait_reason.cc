#include "engine/planner/wait_reason.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "base/text/civil_time.h"

namespace gpusched {

std::string_view to_string(WaitCode code) {
  switch (code) {
    case WaitCode::kQueued:
      return "queued";
    case WaitCode::kNoNode:
      return "no_node";
    case WaitCode::kNoMatchingGpu:
      return "no_matching_gpu";
    case WaitCode::kTooLarge:
      return "too_large";
    case WaitCode::kNodesUnreachable:
      return "nodes_unreachable";
    case WaitCode::kGpusUnhealthy:
      return "gpus_unhealthy";
    case WaitCode::kGpusBusy:
      return "gpus_busy";
    case WaitCode::kCpuBusy:
      return "cpu_busy";
    case WaitCode::kMemoryBusy:
      return "memory_busy";
    case WaitCode::kNodeFull:
      return "node_full";
    case WaitCode::kQuota:
      return "quota";
    case WaitCode::kNoFeature:
      return "no_feature";
    case WaitCode::kNodesHeld:
      return "nodes_held";
    case WaitCode::kReserved:
      return "reserved";
    case WaitCode::kGpuTime:
      return "gpu_hours";
    case WaitCode::kPool:
      return "pool";
    case WaitCode::kReservedForOthers:
      return "reserved_for_others";
    case WaitCode::kDevicesHot:
      return "devices_hot";
    case WaitCode::kGangPartiallyFits:
      return "gang_partially_fits";
    case WaitCode::kGangTooLarge:
      return "gang_too_large";
    case WaitCode::kNoDomain:
      return "no_domain";
    case WaitCode::kNoLabels:
      return "no_labels";
    case WaitCode::kNoSuchLayout:
      return "no_such_layout";
    case WaitCode::kNodesTaken:
      return "nodes_taken";
    case WaitCode::kLayoutUnavailable:
      return "layout_unavailable";
  }
  UNREACHABLE();
}

namespace {

std::string name_of(TenantId tenant) {
  return tenant == kDefaultTenant ? "default" : "tenant-" + std::to_string(tenant.value);
}

/// One that the caller is not told of.
constexpr std::string_view kTenantAbove = "a tenant above the job's";

/// A caller is not told of every job: see PromiseFacts.
std::string name_of(JobId job) {
  return job.valid() ? "job-" + std::to_string(job.value) : std::string("a job of another tenant");
}

std::string two_digits(int64_t number) { return std::to_string(100 + number % 100).substr(1); }

/// GPU-milliseconds as hours with two decimals, rounded down.
std::string gpu_hours(int64_t gpu_ms) {
  const int64_t hundredths = gpu_ms / 36'000;
  return std::to_string(hundredths / 100) + "." + two_digits(hundredths);
}

std::string models_wanted(const Part& part) {
  const PlaceRequest* wishes = part.wishes();
  if (wishes == nullptr || wishes->gpu_models.empty())
    return part.gpu_model.empty() ? "" : " of model " + part.gpu_model;
  std::string text = " of model ";
  for (std::size_t i = 0; i < wishes->gpu_models.size(); ++i)
    text += (i == 0 ? "" : " or ") + wishes->gpu_models[i];
  return text;
}

std::string labels_wanted(const PlaceRequest& wishes) {
  std::string text;
  const auto add = [&](const LabelTerm& term, const char* before) {
    text += (text.empty() ? "" : ", ") + std::string(before) + term.name;
    if (!term.any_value) text += "=" + term.value;
  };
  for (const LabelTerm& term : wishes.labels) add(term, "with ");
  for (const LabelTerm& term : wishes.without_labels) add(term, "without ");
  return text;
}

bool asks_labels(const Part& part) {
  const PlaceRequest* wishes = part.wishes();
  return wishes != nullptr && !(wishes->labels.empty() && wishes->without_labels.empty());
}

/// Nodes with other labels are not among those that are spoken of.
std::string labels_of_node(const Part& part) {
  return asks_labels(part) ? " with the requested labels (" + labels_wanted(*part.wishes()) + ")" : "";
}

std::string layout_wanted(const Part& part) {
  const PlaceRequest& wishes = *part.wishes();
  const std::string count = std::to_string(part.gpu_count);
  std::string text = wishes.names_devices()                 ? "the GPUs in its gpu_ids"
                     : wishes.layout == Layout::kContiguous ? count + " contiguous GPUs"
                                                            : count + " GPUs";
  if (wishes.bandwidth_min > 0)
    text += " with at least " + std::to_string(wishes.bandwidth_min) + " GB/s between any two";
  return text;
}

std::string share_wanted(const Part& part) {
  std::string milli = std::to_string(kMilliPerGpu + part.gpu_milli).substr(1);
  while (milli.ends_with('0')) milli.pop_back();
  std::string text = "a share of 0." + milli + " of a GPU";
  text += models_wanted(part);
  if (part.gpu_share_mb > 0) text += " with " + std::to_string(part.gpu_share_mb) + " MB of its memory";
  return text;
}

std::string gpus_wanted(const Part& part) {
  if (part.is_slice()) return "a MIG slice " + part.mig_profile + models_wanted(part);
  if (part.is_share()) return share_wanted(part);
  std::string text = std::to_string(part.gpu_count) + (part.gpu_count == 1 ? " GPU" : " GPUs");
  text += models_wanted(part);
  if (part.gpu_memory_mb > 0) text += " with at least " + std::to_string(part.gpu_memory_mb) + " MB each";
  return text;
}

std::string cores_wanted(const Part& part) {
  return cores_text(part.cpu_milli) + (part.cpu_milli == 1'000 ? " CPU core" : " CPU cores");
}

std::string box_wanted(const Part& part) {
  return cores_wanted(part) + " and " + std::to_string(part.memory_mb) + " MB of memory";
}

std::string too_large(const Part& part) {
  std::string gpus;
  if (part.gpu_count > 0) gpus = (asks_labels(part) ? " and " : " with ") + gpus_wanted(part);
  return "no registered node" + labels_of_node(part) + gpus + " has " + box_wanted(part);
}

std::string member_wanted(const Part& part) {
  return part.gpu_count > 0 ? gpus_wanted(part) : box_wanted(part);
}

/// The other obstacle, where the job waits for room.
std::string held_too(const WaitReason& reason) {
  if (reason.nodes_held == 0 || reason.code == WaitCode::kNodesHeld) return "";
  return (reason.nodes_held == 1
              ? std::string("; a node has room and takes no new jobs")
              : "; " + std::to_string(reason.nodes_held) + " nodes have room and take no new jobs") +
         " (draining or validating)";
}

/// Says of all nodes that fit the request what none of them has.
std::string none_fitting(int64_t nodes, const std::string& has, const std::string& has_not) {
  return nodes == 1 ? "the only matching node " + has_not
                    : "none of the " + std::to_string(nodes) + " matching nodes " + has;
}

std::string gpus_busy(const WaitReason& reason) {
  const Part& part = reason.wanted;
  if (part.is_slice()) {
    return "requests " + gpus_wanted(part) + "; " +
           none_fitting(reason.nodes_fitting, "has room for it beside the present slices",
                        "has no room for it beside the present slices");
  }
  if (part.is_share()) {
    return "requests " + gpus_wanted(part) + "; " +
           none_fitting(reason.nodes_fitting, "has that much of one GPU free",
                        "does not have that much of one GPU free");
  }
  const bool none = reason.gpus_free_max == 0;
  const std::string free = std::to_string(reason.gpus_free_max) + " free";
  return "requests " + gpus_wanted(part) + (reason.nodes_fitting == 1 ? "; " : " on one node; ") +
         none_fitting(reason.nodes_fitting, none ? "has a free GPU" : "has more than " + free,
                      none ? "has no free GPU" : "has only " + free);
}

std::string gang_wanted(const WaitReason& reason) {
  return std::to_string(reason.members_wanted) + " members (" + member_wanted(reason.wanted) + " each)";
}

std::string quota_reached(const WaitReason& reason) {
  const std::string resource(to_string(reason.resource));
  if (!reason.tenant.valid()) return std::string(kTenantAbove) + " has reached its limit of " + resource;
  const bool cpu = reason.resource == Resource::kCpu;
  if (reason.requested > reason.limit) {
    return "requests " + (cpu ? cores_text(reason.requested) : std::to_string(reason.requested)) + " " +
           resource + ", more than the limit of tenant " + name_of(reason.tenant) + " of " +
           (cpu ? cores_text(reason.limit) : std::to_string(reason.limit)) +
           "; request less, or raise the limit";
  }
  return "tenant " + name_of(reason.tenant) + " uses " +
         (cpu ? cores_text(reason.current) : std::to_string(reason.current)) + " of its " +
         (cpu ? cores_text(reason.limit) : std::to_string(reason.limit)) + " " + resource;
}

std::string limit_of(const WaitReason& reason) {
  if (reason.resource == Resource::kNone)
    return "the pool of " + std::string(reason.wanted.work == WorkClass::kOnline ? "online" : "batch") +
           " work";
  const std::string resource(to_string(reason.resource));
  if (!reason.tenant.valid()) return "the limit of " + resource + " of " + std::string(kTenantAbove);
  return "the limit of " + resource + " of tenant " + name_of(reason.tenant);
}

std::string reserved(const WaitReason& reason) {
  return (reason.of_limit ? "what is left of " + limit_of(reason) + " is"
                          : std::string("the free resources are")) +
         " reserved for " + name_of(reason.reserved_for) +
         ", which is ahead in the queue and would otherwise start later; a shorter time limit may let this "
         "job "
         "start at once";
}

std::string gpu_time_used(const WaitReason& reason) {
  const std::string next = "GPU hours of this window; the next window begins at " + utc_text(reason.lifts_at);
  if (!reason.tenant.valid()) return std::string(kTenantAbove) + " has used its " + next;
  return "tenant " + name_of(reason.tenant) + " has used " + gpu_hours(reason.current) + " of its " +
         gpu_hours(reason.limit) + " " + next;
}

/// "the cluster", "one rack", "one rack of its reservation": what would have to hold all members.
std::string holder_of_gang(const WaitReason& reason) {
  const std::string whole = reason.of_booking ? "its reservation" : "the cluster";
  if (reason.domain == DomainLevel::kAny) return whole;
  return "one " + std::string(to_string(reason.domain)) + (reason.of_booking ? " of " + whole : "");
}

std::string describe_alone(const WaitReason& reason) {
  const Part& part = reason.wanted;
  switch (reason.code) {
    case WaitCode::kQueued:
      return "waits for its turn in the queue";
    case WaitCode::kNoNode:
      return "no node is registered; start gpu-agent on a machine";
    case WaitCode::kNoMatchingGpu:
      if (part.is_slice()) {
        return "no registered node has a GPU" + models_wanted(part) + " in MIG mode that can be cut into " +
               part.mig_profile;
      }
      return "no registered node" + labels_of_node(part) + " has " + gpus_wanted(part);
    case WaitCode::kTooLarge:
      return too_large(part);
    case WaitCode::kNodesUnreachable:
      if (reason.nodes_away > 0) {
        return reason.nodes_away == 1
                   ? std::string("a node that has room for it does not report")
                   : std::to_string(reason.nodes_away) + " nodes that have room for it do not report";
      }
      return none_fitting(reason.nodes_fitting, "is reporting", "is not reporting");
    case WaitCode::kGpusUnhealthy:
      return "a node has " + gpus_wanted(part) + ", but some are unhealthy, missing or quarantined";
    case WaitCode::kDevicesHot:
      return "a node has " + gpus_wanted(part) +
             ", but some are too hot for new jobs; they return to service when they have cooled down";
    case WaitCode::kGpusBusy:
      return gpus_busy(reason);
    case WaitCode::kCpuBusy:
      return "requests " + cores_wanted(part) + "; none of the nodes with enough GPUs has that many free";
    case WaitCode::kMemoryBusy:
      return "requests " + std::to_string(part.memory_mb) +
             " MB of memory; none of the nodes with enough GPUs has that much free";
    case WaitCode::kNodeFull:
      return "every matching node has reached its limit of running attempts";
    case WaitCode::kQuota:
      return quota_reached(reason);
    case WaitCode::kNoFeature:
      if ((part.features & kFeatureExternal) != 0)
        return "no external node is registered, and an external job runs only there; connect the "
               "program that starts external jobs";
      if ((part.features & kFeatureContainer) == 0)
        return "every registered node is external and takes only external jobs; start gpu-agent on a machine";
      return "no registered node can run container images; install podman, docker or apptainer on one";
    case WaitCode::kNodesHeld:
      if (reason.nodes_held > 0) {
        return (reason.nodes_held == 1
                    ? std::string("a node that has room for it takes")
                    : std::to_string(reason.nodes_held) + " nodes that have room for it take") +
               " no new jobs (draining or validating); gpu-cli node list shows why";
      }
      return "the matching nodes take no new jobs (draining or validating); gpu-cli node list shows why";
    case WaitCode::kReserved:
      return reserved(reason);
    case WaitCode::kGpuTime:
      return gpu_time_used(reason);
    case WaitCode::kPool:
      return std::string(part.work == WorkClass::kOnline ? "online" : "batch") + " work holds " +
             std::to_string(reason.current) + " of the " + std::to_string(reason.limit) + " GPUs of its pool";
    case WaitCode::kReservedForOthers:
      if (reason.booking_over)
        return "its reservation has ended or was cancelled; cancel the job, and submit it without a "
               "reservation or "
               "with another one";
      if (reason.booking != 0)
        return "its reservation has not begun; the job runs only on the nodes of its reservation";
      return "the matching nodes are reserved for others, now or before the job's time limit would end; a "
             "shorter time limit may let it start at once";
    case WaitCode::kGangPartiallyFits: {
      const bool insists = reason.domain != DomainLevel::kAny;
      return "requests " + gang_wanted(reason) +
             (insists ? " in one " + std::string(to_string(reason.domain)) : std::string()) +
             " at once; at most " + std::to_string(reason.members_fitting) + " fit now";
    }
    case WaitCode::kGangTooLarge: {
      const bool insists = reason.domain != DomainLevel::kAny;
      return "requests " + gang_wanted(reason) + ", but " + holder_of_gang(reason) + " holds at most " +
             std::to_string(reason.members_fitting) +
             " of them even when it is empty; request fewer or smaller members" +
             (insists ? ", or do not require one " + std::string(to_string(reason.domain)) : std::string());
    }
    case WaitCode::kNoDomain:
      return "requires one " + std::string(to_string(reason.domain)) +
             ", but no node has a label that names its " + std::string(to_string(reason.domain)) +
             "; label the nodes with gpu-cli node label, or do not require one";
    case WaitCode::kNoLabels:
      if (!asks_labels(part)) return "no node is left that it does not avoid";
      return "no registered node has the requested labels (" + labels_wanted(*part.wishes()) +
             "); label a node with gpu-cli node label";
    case WaitCode::kNoSuchLayout:
      return "no registered node has " + layout_wanted(part);
    case WaitCode::kNodesTaken:
      if (part.is_exclusive()) {
        return "requests an exclusive node; " + none_fitting(reason.nodes_fitting, "is empty", "is in use");
      }
      return "the matching nodes are allocated to exclusive jobs";
    case WaitCode::kLayoutUnavailable:
      return "requests " + layout_wanted(part) + "; a node has enough free GPUs, but not in that layout";
  }
  UNREACHABLE();
}

/// No node of its reservation could run it.
std::string outgrown_booking(const WaitReason& reason) {
  const Part& part = reason.wanted;
  std::string wanted = gpus_wanted(part);
  if (reason.code == WaitCode::kTooLarge)
    wanted += ", " + cores_wanted(part) + " and " + std::to_string(part.memory_mb) + " MB of memory";
  return "requests " + wanted +
         ", and no node of its reservation can ever run that; request less, or submit it " +
         "without the reservation";
}

/// The nodes that would not start it: the one that it may use soonest is named.
std::string avoided_too(const Part& part) {
  if (part.wishes() == nullptr) return {};
  const AvoidedNode* soonest = nullptr;
  int64_t count = 0;
  for (const AvoidedNode& one : part.wishes()->avoided) {
    if (!one.until.valid()) continue;
    ++count;
    if (soonest == nullptr || one.until < soonest->until) soonest = &one;
  }
  if (soonest == nullptr) return {};
  std::string text = "; node " + soonest->node;
  if (count > 1) text += " and " + std::to_string(count - 1) + " more";
  return text + " did not start it; " + (count > 1 ? "the first of them" : "that node") +
         " is tried again after " + utc_text(soonest->until);
}

}  // namespace

std::string describe(const WaitReason& reason) {
  if (reason.of_booking && reason.code != WaitCode::kGangTooLarge) return outgrown_booking(reason);
  return describe_alone(reason) + held_too(reason) + avoided_too(reason.wanted);
}

PromiseFacts promise_facts(const State& state, const Promise& promise) {
  const Node* node = state.find_node(promise.members.front().node);
  CHECK(node != nullptr);
  PromiseFacts facts{.node = node->name,
                     .moves = promise.moves,
                     .job = promise.moves ? promise.moved_for : promise.victims.front().job,
                     .victims = promise.victims.size(),
                     .running = 0};
  for (const Preemption& victim : promise.victims) {
    if (state.find_attempt(victim.job, victim.attempt) != nullptr) ++facts.running;
  }
  return facts;
}

std::string describe(const PromiseFacts& facts) {
  if (facts.moves) {
    return "is moved to node " + facts.node + " so that " + name_of(facts.job) +
           " can start; it continues there";
  }
  std::string who = name_of(facts.job);
  if (facts.victims > 1) who += " and " + std::to_string(facts.victims - 1) + " more";
  if (facts.running == 0) {
    return who + (facts.victims > 1 ? " were" : " was") + " preempted for it; it starts on node " +
           facts.node + " when " + (facts.victims > 1 ? "their" : "its") + " resources are confirmed free";
  }
  return who + (facts.victims > 1 ? " are" : " is") + " being preempted for it; it starts on node " +
         facts.node + " when " + (facts.victims > 1 ? "they have" : "that job has") + " ended";
}

namespace {

/// Events that lift the reason, whatever else may start the job.
std::vector<std::string> events_of(const WaitReason& reason) {
  switch (reason.code) {
    case WaitCode::kQueued:
      return {};
    case WaitCode::kNoNode:
      return {"NodeAdded"};
    case WaitCode::kNoMatchingGpu:
    case WaitCode::kTooLarge:
      if (asks_labels(reason.wanted)) return {"NodeLabeled", "NodeAdded"};
      return {"NodeAdded"};
    case WaitCode::kNodesUnreachable:
      return {"NodeBack", "NodeAdded"};
    case WaitCode::kGpusUnhealthy:
      return {"DeviceHealthy", "NodeAdded"};
    case WaitCode::kDevicesHot:
      return {"DeviceCooled", "NodeAdded"};
    case WaitCode::kGpusBusy:
    case WaitCode::kCpuBusy:
    case WaitCode::kMemoryBusy:
    case WaitCode::kNodeFull:
      return {"JobEnded", "NodeAdded"};
    case WaitCode::kQuota:
      if (reason.requested > reason.limit) return {"QuotaRaised"};
      return {"JobEnded", "QuotaRaised"};
    case WaitCode::kNoFeature:
      return {"NodeAdded"};
    case WaitCode::kNodesHeld:
      return {"NodeResumed", "NodeAdded"};
    case WaitCode::kReserved:
      return {"JobStarted", "JobEnded", "NodeAdded"};
    case WaitCode::kGpuTime:
      return {"WindowEnded", "QuotaRaised"};
    case WaitCode::kPool:
      return {"JobEnded", "NodeAdded", "PoolChanged"};
    case WaitCode::kReservedForOthers:
      if (reason.booking_over) return {};
      return {"ReservationBegan", "ReservationEnded", "NodeAdded"};
    case WaitCode::kGangPartiallyFits:
      return {"JobEnded", "NodeAdded"};
    case WaitCode::kGangTooLarge:
      return {"NodeAdded"};
    case WaitCode::kNoDomain:
      return {"NodeLabeled", "NodeAdded"};
    case WaitCode::kNoLabels:
      if (!asks_labels(reason.wanted)) return {"NodeAdded"};
      return {"NodeLabeled", "NodeAdded"};
    case WaitCode::kNoSuchLayout:
      return {"NodeAdded"};
    case WaitCode::kNodesTaken:
    case WaitCode::kLayoutUnavailable:
      return {"JobEnded", "NodeAdded"};
  }
  UNREACHABLE();
}

}  // namespace

std::vector<std::string> lifted_by(const WaitReason& reason) {
  if (reason.of_booking) {
    if (reason.code == WaitCode::kNoLabels) return {"NodeLabeled"};
    return {};
  }
  std::vector<std::string> events = events_of(reason);
  if (reason.nodes_held > 0 && reason.code != WaitCode::kNodesHeld) {
    const auto added = std::ranges::find(events, "NodeAdded");
    events.insert(added, "NodeResumed");
  }
  return events;
}

}  // namespace gpusched
