#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "engine/decide/decide.h"
#include "engine/decide/guarantees.h"
#include "model/topology.h"

// Preemption's safety. The choice of victims, and whether it is worth it, is policy: the planner's to say,
// and not looked at again here; but no guarantee is broken for it.
namespace gpusched::rules {
namespace {

/// The attempt runs or is placed, goes on by itself, and its job is not exempt.
const Attempt* victim_of(const State& state, const Preemption& preemption) {
  const Attempt* attempt = state.find_attempt(preemption.job, preemption.attempt);
  if (attempt == nullptr || attempt->abandoned || attempt->stop != StopReason::kNone) return nullptr;
  const Job* job = state.jobs.find(preemption.job);
  if (job == nullptr || job->attempt_count != preemption.attempt || job->preemption_exempt) return nullptr;
  return attempt;
}

/// Adds what the attempt's end gives back on its nodes, with only those devices that another job may have.
void give(const State& state, const Attempt& attempt, std::vector<Given>& given) {
  for (const Member& member : attempt.members) {
    if (member.state == MemberState::kEnded) continue;
    const Node* node = state.find_node(member.node);
    CHECK(node != nullptr);
    Given back{
        .node = member.node, .cpu_milli = member.cpu_milli, .memory_mb = member.memory_mb, .attempts = 1};
    back.exclusive = member.exclusive ? 1 : 0;
    for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1) {
      const Device& device = node->devices[static_cast<std::size_t>(std::countr_zero(rest))];
      if (device.state == DeviceState::kHeld && device.fit() && !device.promised_to.valid())
        back.device_mask |= rest & (~rest + 1);
    }
    given.push_back(back);
  }
}

bool all_give(const State& state, const std::vector<const Attempt*>& victims, const Attempt* but,
              const PlanGroup& group, const std::vector<Part>& parts) {
  std::vector<Given> given;
  for (const Attempt* victim : victims) {
    if (victim != but) give(state, *victim, given);
  }
  return group_fits(state, group, parts, given);
}

/// A promised device is there for its job, or will be.
bool device_keeps(const Node& node, uint64_t mask) {
  for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
    const Device& device = node.devices[static_cast<std::size_t>(std::countr_zero(rest))];
    if (!device.fit() || device.state == DeviceState::kQuarantined) return false;
  }
  return true;
}

/// A job that is moved is not over, held or placed again.
bool goes_on(const Promise& promise, const Job* job) {
  return job != nullptr && job->attempt_count == promise.attempt && !job->held && !job->cancel_requested &&
         (job->state == JobState::kPreempted || job->state == JobState::kPending);
}

/// True if the promise holds what the job's parts are now, with as many members of each as the job asks for.
bool is_of(const State& state, const Promise& promise, const std::vector<Part>& parts) {
  std::vector<int64_t> members(parts.size());
  for (const Member& member : promise.members) {
    if (member.part >= parts.size()) return false;
    if (std::popcount(member.device_mask) != parts[member.part].gpu_count) return false;
    ++members[member.part];
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (part.is_share() || part.is_elastic() || part.is_exclusive()) return false;
    if (members[i] != part.member_count) return false;
  }
  Amount wanted = total_of(parts);
  if (state.config.feature_level >= 10)
    wanted.gpu_memory_mb += state.given_gpu_memory(parts, promise.members);
  return promise.moves || promise.amount == wanted;
}

/// The job still waits for what was promised to it, or is on its way there.
bool still_wants(const State& state, const Promise& promise) {
  const Job* job = state.jobs.find(promise.job);
  if (promise.moves && !goes_on(promise, job)) return false;
  const bool waits =
      job != nullptr && job->state == JobState::kPending && !job->held && !job->not_before.valid();
  if (!promise.moves && !waits) return false;
  const std::vector<Part>& parts = state.class_of(*job).parts;
  if (state.config.feature_level >= 6 && !is_of(state, promise, parts)) return false;
  return std::all_of(promise.members.begin(), promise.members.end(), [&](const Member& member) {
    if (member.part >= parts.size()) return false;
    const Part& part = parts[member.part];
    return part.cpu_milli == member.cpu_milli && part.memory_mb == member.memory_mb;
  });
}

bool over_limit(const State& state, const Promise& promise) {
  for (const Tenant* at = state.find_tenant(promise.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    if (at->limits == Limits{}) continue;
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t own = amount_of(promise.amount, resource);
      if (own > 0 && amount_of(at->usage, resource) > at->limits.get(resource)) return true;
    }
  }
  return false;
}

std::optional<PromiseEnd> broken(const State& state, const Promise& promise, Time at) {
  if (!still_wants(state, promise)) return PromiseEnd::kNotWaiting;
  for (const Member& member : promise.members) {
    const Node* node = state.find_node(member.node);
    CHECK(node != nullptr);
    if (!node->in_service()) return PromiseEnd::kNode;
    if (!device_keeps(*node, member.device_mask)) return PromiseEnd::kDevice;
    const Part& part = state.class_of(state.job_at(promise.job)).parts[member.part];
    if (!devices_serve(state, *node, part, member.device_mask)) return PromiseEnd::kDevice;
    if (!node->offers_features(part)) return PromiseEnd::kNode;
    if (part.wishes() != nullptr && !place_allows(*node, *part.wishes())) return PromiseEnd::kNode;
    if (node->cpu_milli < part.cpu_milli || node->memory_mb < part.memory_mb) return PromiseEnd::kNode;
  }
  if (over_limit(state, promise)) return PromiseEnd::kQuota;
  // A moved job runs on; a job that has not begun does not begin with GPU hours that are used up.
  if (state.config.feature_level >= 10 && !promise.moves &&
      guarantees::out_of_gpu_time(state, promise.tenant, promise.amount, at) != nullptr)
    return PromiseEnd::kQuota;
  return std::nullopt;
}

/// A job that was moved is in line, and its tenant may have what nothing has kept for it.
bool may_begin(const State& state, const Promise& promise, const Job& job, Stamp stamp) {
  if (promise.amount != Amount{}) return job.is_queued();  // It is counted already, and goes on where it was.
  const Amount amount = total_of(state.class_of(job).parts);
  return job.is_queued() && !over_quota(state, job.tenant, amount, true) &&
         guarantees::out_of_gpu_time(state, job.tenant, amount, stamp.at) == nullptr;
}

}  // namespace

bool starts_as_moved(const Promise& promise, const PlanGroup& group) {
  return std::equal(promise.members.begin(), promise.members.end(), group.members.begin(),
                    group.members.end(), [](const Member& kept, const MemberPlacement& wanted) {
                      return wanted.node == kept.node && wanted.part == kept.part &&
                             wanted.device_mask == kept.device_mask;
                    });
}

bool preempt_group(const State& state, const Job& job, const PlanGroup& group, Stamp stamp, Events& events) {
  if (state.promises.size() >= limits::kPromisesMax) return false;
  const std::vector<Part>& parts = state.class_of(job).parts;
  // A promise is of whole devices, and of as many as the job has members at least and at most.
  const bool other = std::any_of(parts.begin(), parts.end(), [](const Part& part) {
    return part.is_share() || part.is_elastic() || part.is_exclusive();
  });
  if (other) return false;
  std::vector<const Attempt*> victims;
  std::vector<const Job*> ended;
  for (const Preemption& preemption : group.preemptions) {
    const Attempt* victim = victim_of(state, preemption);
    if (victim == nullptr || std::find(victims.begin(), victims.end(), victim) != victims.end()) return false;
    victims.push_back(victim);
    ended.push_back(state.jobs.find(preemption.job));
  }
  if (!all_give(state, victims, nullptr, group, parts)) return false;
  // Nobody is ended for nothing.
  for (const Attempt* victim : victims) {
    if (all_give(state, victims, victim, group, parts)) return false;
  }
  Amount amount = total_of(parts);
  if (state.config.feature_level >= 10)
    amount.gpu_memory_mb += state.given_gpu_memory(parts, members_of(state, group, parts));
  if (over_quota(state, job.tenant, amount, true)) return false;
  if (guarantees::out_of_gpu_time(state, job.tenant, amount, stamp.at) != nullptr) return false;
  const Tenant* covering = group.reclaims ? guarantees::covering(state, job.tenant, amount, {}) : nullptr;
  if (group.reclaims && covering == nullptr) return false;
  if (!guarantees::preserves_guarantees(state, job.tenant, amount, covering, ended, {})) return false;
  for (const Preemption& preemption : group.preemptions) {
    events.push_back(
        StopRequested{.job = preemption.job, .attempt = preemption.attempt, .reason = StopReason::kPreempt});
  }
  events.push_back(DevicesPromised{.promise = Promise{.job = job.id,
                                                      .tenant = job.tenant,
                                                      .since = stamp.at,
                                                      .members = members_of(state, group, parts),
                                                      .victims = group.preemptions,
                                                      .amount = amount,
                                                      .reclaims = group.reclaims,
                                                      .asked_at = group.asked_at,
                                                      .work = work_of(parts)}});
  return true;
}

bool place_promised(const State& state, const Promise& promise, const PlanGroup& group, Stamp stamp,
                    Events& events) {
  if (broken(state, promise, stamp.at).has_value() || group.members.size() != promise.members.size())
    return false;
  std::vector<Given> given;
  for (std::size_t i = 0; i < promise.members.size(); ++i) {
    const Member& kept = promise.members[i];
    const MemberPlacement& wanted = group.members[i];
    if (wanted.node != kept.node || wanted.part != kept.part || wanted.device_mask != kept.device_mask)
      return false;
    const Node& node = state.node_at(kept.node);
    for (uint64_t rest = kept.device_mask; rest != 0; rest &= rest - 1) {
      const Device& device = node.devices[static_cast<std::size_t>(std::countr_zero(rest))];
      if (device.state != DeviceState::kFree || device.promised_to != promise.job) return false;
    }
    // It is counted there already.
    given.push_back({.node = kept.node,
                     .device_mask = kept.device_mask,
                     .cpu_milli = kept.cpu_milli,
                     .memory_mb = kept.memory_mb,
                     .attempts = 1,
                     .exclusive = kept.exclusive ? std::size_t{1} : 0});
  }
  const Job& job = state.job_at(promise.job);
  const std::vector<Part>& parts = state.class_of(job).parts;
  if (!group_fits(state, group, parts, given)) return false;
  if (promise.moves && !may_begin(state, promise, job, stamp)) return false;
  events.push_back(
      PromiseEnded{.job = job.id, .why = PromiseEnd::kPlaced, .at = stamp.at, .asked_at = promise.asked_at});
  events.push_back(AttemptPlaced{
      .job = job.id, .attempt = group.attempt, .members = members_of(state, group, parts), .at = stamp.at});
  return true;
}

bool end_broken_promises(const State& state, Time at, Events& events) {
  const std::size_t before = events.size();
  JobId over;  // If several promises are too much together, only the newest job's goes at a time.
  for (const auto& [job, promise] : state.promises) {
    const std::optional<PromiseEnd> why = broken(state, promise, at);
    if (why == PromiseEnd::kQuota) over = job;
    if (why.has_value() && why != PromiseEnd::kQuota)
      events.push_back(PromiseEnded{.job = job, .why = *why, .at = at});
  }
  if (events.size() == before && over.valid())
    events.push_back(PromiseEnded{.job = over, .why = PromiseEnd::kQuota, .at = at});
  return events.size() > before;
}

Applied checkpoint_saved(const State& state, const CheckpointSaved& command, Stamp stamp, Events& events) {
  const Attempt* attempt = state.find_attempt(command.job, command.attempt);
  if (attempt == nullptr || attempt->abandoned || !attempt->was_placed(command.placed_at))
    return reject(RejectionCode::kAttemptNotFound);
  const bool there = std::any_of(attempt->members.begin(), attempt->members.end(),
                                 [&](const Member& member) { return member.node == command.node; });
  if (!there) return reject(RejectionCode::kAttemptNotFound);
  const Job* job = state.jobs.find(command.job);
  CHECK(job != nullptr);
  const Applied accepted{.rejection = {}, .first_id = job->id.value, .id_count = 1};
  const Time saved_at = stamp.at - command.age;
  if (saved_at == job->extras->saved_at) return accepted;  // Said again.
  const Time begin = attempt->started_at.valid() ? attempt->started_at : attempt->placed_at;
  if (command.age.ns < 0 || saved_at < begin || saved_at < job->extras->saved_at)
    return reject(RejectionCode::kStale);
  events.push_back(JobCheckpointed{.job = job->id, .attempt = attempt->number, .saved_at = saved_at});
  return accepted;
}

}  // namespace gpusched::rules

namespace gpusched {

std::string_view to_string(PromiseEnd why) {
  switch (why) {
    case PromiseEnd::kPlaced:
      return "placed";
    case PromiseEnd::kNotWaiting:
      return "not_waiting";
    case PromiseEnd::kNode:
      return "node";
    case PromiseEnd::kDevice:
      return "device";
    case PromiseEnd::kQuota:
      return "quota";
    case PromiseEnd::kTime:
      return "time";
  }
  UNREACHABLE();
}

}  // namespace gpusched
