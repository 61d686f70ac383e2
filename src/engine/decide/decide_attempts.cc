#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "base/limits.h"
#include "engine/decide/decide.h"
#include "engine/decide/guarantees.h"
#include "model/topology.h"

namespace gpusched::rules {
namespace {

/// The one device has room for the share beside those that hold others of it, and is promised to nobody.
bool shares_fit(const State& state, const Node& node, const Part& part, const MemberPlacement& placement) {
  const auto index = static_cast<std::size_t>(std::countr_zero(placement.device_mask));
  if (index >= node.devices.size()) return false;
  const Device& device = node.devices[index];
  const DeviceClass& kind = state.device_classes[device.device_class];
  return kind.serves(part) && device.has_room_for(kind, part, placement.mig_start) &&
         !device.promised_to.valid();
}

/// The devices are there, free or given, of one class that satisfies the part, in the generation that the
/// planner saw.
bool devices_fit(const State& state, const Node& node, const Part& part, const MemberPlacement& placement,
                 uint64_t given_mask) {
  const int count = std::popcount(placement.device_mask);
  if (count != part.gpu_count) return false;
  if (placement.generations.size() != static_cast<std::size_t>(count)) return false;
  const bool room = part.is_share() ? shares_fit(state, node, part, placement)
                                    : (placement.device_mask & ~(node.free_mask | given_mask)) == 0;
  if (!room) return false;
  std::size_t at = 0;
  for (uint64_t rest = placement.device_mask; rest != 0; rest &= rest - 1, ++at) {
    const Device& device = node.devices[static_cast<std::size_t>(std::countr_zero(rest))];
    if (device.generation != placement.generations[at]) return false;
  }
  return devices_serve(state, node, part, placement.device_mask);
}

/// The node's labels, the devices' places and what else runs there are as the part asks for; and nobody has
/// the node for itself who does not give it.
/// Members of one group are no others to one another.
bool satisfies_layout(const Node& node, const Part& part, const MemberPlacement& placement,
                      const Given& gained) {
  if (node.exclusive_count > gained.exclusive) return false;
  if (part.is_exclusive() && !runs_nothing_but(node, gained.attempts)) return false;
  const PlaceRequest* wishes = part.wishes();
  if (wishes == nullptr) return true;
  return place_allows(node, *wishes) && satisfies_requested_layout(node, part, placement.device_mask);
}

/// The group's members on one node, which `at` names by their indexes, fit there together.
bool node_fits(const State& state, const PlanGroup& group, const std::vector<Part>& parts,
               const std::vector<Given>& given, std::span<const uint32_t> at) {
  const NodeId id = group.members[at.front()].node;
  const Node* node = state.find_node(id);
  if (node == nullptr || !node->in_service()) return false;
  Given gained;
  for (const Given& each : given) {
    if (each.node != id) continue;
    gained.device_mask |= each.device_mask;
    gained.cpu_milli += each.cpu_milli;
    gained.memory_mb += each.memory_mb;
    gained.attempts += each.attempts;
    gained.exclusive += each.exclusive;
  }
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  uint64_t taken = 0;
  for (const uint32_t index : at) {
    const MemberPlacement& placement = group.members[index];
    if (placement.part >= parts.size()) return false;
    const Part& part = parts[placement.part];
    if (!node->offers_features(part) || part.booking != node->booked_by) return false;
    if (part.one_member_per_node && at.size() > 1) return false;
    // First whether there are such devices at all.
    if (!devices_fit(state, *node, part, placement, gained.device_mask)) return false;
    if (!satisfies_layout(*node, part, placement, gained)) return false;
    if ((taken & placement.device_mask) != 0) return false;
    taken |= placement.device_mask;
    cpu_milli += part.cpu_milli;
    memory_mb += part.memory_mb;
  }
  return node->cpu_milli_used + cpu_milli <= node->cpu_milli + gained.cpu_milli &&
         node->memory_mb_used + memory_mb <= node->memory_mb + gained.memory_mb &&
         node->attempts.size() + node->promised_count + at.size() <=
             limits::kAttemptsPerNodeMax + gained.attempts;
}

bool in_one_domain(const State& state, const PlanGroup& group, DomainLevel level) {
  std::optional<std::string> common;
  for (const MemberPlacement& member : group.members) {
    const std::string domain = domain_of(state.config.policy, state.node_at(member.node), level);
    if (domain.empty() || (common.has_value() && *common != domain)) return false;
    common = domain;
  }
  return true;
}

/// All members are in one domain of the level that the job insists on, or of a smaller one.
bool in_required_domain(const State& state, const PlanGroup& group, const Part& part) {
  if (!part.domain_required || part.domain == DomainLevel::kAny) return true;
  for (DomainLevel level = part.domain; level != DomainLevel::kAny;
       level = static_cast<DomainLevel>(static_cast<uint8_t>(level) - 1)) {
    if (in_one_domain(state, group, level)) return true;
  }
  return false;
}

bool whole(const PlanGroup& group, const std::vector<Part>& parts) {
  for (uint32_t part = 0; part < parts.size(); ++part) {
    const auto count = std::count_if(group.members.begin(), group.members.end(),
                                     [&](const MemberPlacement& member) { return member.part == part; });
    if (count < parts[part].member_count || count > parts[part].members_most()) return false;
  }
  return true;
}

/// The amount that the group holds once it is placed.
Amount amount_of_group(const PlanGroup& group, const std::vector<Part>& parts) {
  if (!parts.back().is_elastic()) return total_of(parts);
  const auto last = std::count_if(group.members.begin(), group.members.end(),
                                  [&](const MemberPlacement& one) { return one.part + 1 == parts.size(); });
  return total_of(parts, static_cast<int32_t>(last));
}

}  // namespace

bool devices_serve(const State& state, const Node& node, const Part& part, uint64_t mask) {
  if (std::popcount(mask) != part.gpu_count) return false;
  std::optional<uint32_t> device_class;
  for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
    const Device& device = node.devices[static_cast<std::size_t>(std::countr_zero(rest))];
    if (device_class.has_value() && *device_class != device.device_class) return false;
    device_class = device.device_class;
  }
  if (!device_class.has_value()) return true;
  const DeviceClass& kind = state.device_classes[*device_class];
  return kind.serves(part);
}

bool group_fits(const State& state, const PlanGroup& group, const std::vector<Part>& parts,
                const std::vector<Given>& given) {
  if (group.members.empty() || !whole(group, parts)) return false;
  std::vector<uint32_t> order(group.members.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(group.members[a].node, a) < std::pair(group.members[b].node, b);
  });
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && group.members[order[end]].node == group.members[order[begin]].node) ++end;
    if (!node_fits(state, group, parts, given, std::span(order).subspan(begin, end - begin))) return false;
    begin = end;
  }
  return !is_gang(parts) || in_required_domain(state, group, parts.front());
}

std::vector<Member> members_of(const State& state, const PlanGroup& group, const std::vector<Part>& parts) {
  std::vector<Member> members;
  members.reserve(group.members.size());
  for (const MemberPlacement& member : group.members) {
    const Part& part = parts[member.part];
    Member held{.node = member.node,
                .device_mask = member.device_mask,
                .part = member.part,
                .cpu_milli = part.cpu_milli,
                .memory_mb = part.memory_mb,
                .exclusive = part.is_exclusive()};
    if (part.is_share()) {
      const Node* node = state.find_node(member.node);
      CHECK(node != nullptr);
      const auto index = static_cast<std::size_t>(std::countr_zero(member.device_mask));
      held.gpu_milli = part.gpu_milli;
      const Device& device = node->devices[index];
      held.gpu_share_mb = state.device_classes[device.device_class].share_mb_of(part, device.memory_mb);
      held.mig_profile = part.mig_profile;
      if (part.is_slice()) held.mig_start = member.mig_start;
    }
    members.push_back(std::move(held));
  }
  return members;
}

bool plan_group(const State& state, const PlanGroup& group, Stamp stamp, Events& events) {
  if (state.config.pause.on()) return false;  // Planned before.
  const Job* job = state.jobs.find(group.job);
  if (job == nullptr) return false;
  if (group.attempt != job->attempt_count + 1) return false;
  const Promise* promise = state.find_promise(job->id);
  // Where one is moved to is kept for it; it may start elsewhere too.
  const bool kept = promise != nullptr && (!promise->moves || starts_as_moved(*promise, group));
  if (promise != nullptr && !group.preemptions.empty()) return false;  // One promise for each job.
  if (kept) return place_promised(state, *promise, group, stamp, events);
  if (!job->is_queued()) return false;
  if (!group.preemptions.empty()) return preempt_group(state, *job, group, stamp, events);
  const std::vector<Part>& parts = state.class_of(*job).parts;
  if (!group_fits(state, group, parts, {})) return false;
  Amount amount = amount_of_group(group, parts);
  std::vector<Member> members = members_of(state, group, parts);
  if (state.config.feature_level >= 10) amount.gpu_memory_mb += state.given_gpu_memory(parts, members);
  if (over_quota(state, job->tenant, amount, true)) return false;
  if (guarantees::out_of_gpu_time(state, job->tenant, amount, stamp.at) != nullptr) return false;
  events.push_back(AttemptPlaced{
      .job = group.job, .attempt = group.attempt, .members = std::move(members), .at = stamp.at});
  return true;
}

Applied attempt_prepared(const State& state, const AttemptPrepared& command, Events& events) {
  const Attempt* attempt = state.find_attempt(command.job, command.attempt);
  if (attempt == nullptr || command.member >= attempt->members.size())
    return reject(RejectionCode::kAttemptNotFound);
  if (!attempt->was_placed(command.placed_at)) return reject(RejectionCode::kAttemptNotFound);
  const Member& member = attempt->members[command.member];
  if (member.node != command.node || !attempt->is_gang()) return reject(RejectionCode::kAttemptNotFound);
  if (member.state != MemberState::kPlaced) return accept();  // Said again.
  events.push_back(MemberPrepared{.job = command.job, .attempt = command.attempt, .member = command.member});
  return accept();
}

Applied attempt_started(const State& state, const AttemptStarted& command, Stamp stamp, Events& events) {
  const Attempt* attempt = state.find_attempt(command.job, command.attempt);
  if (attempt == nullptr || command.member >= attempt->members.size())
    return reject(RejectionCode::kAttemptNotFound);
  if (!attempt->was_placed(command.placed_at)) return reject(RejectionCode::kAttemptNotFound);
  const Member& member = attempt->members[command.member];
  if (member.node != command.node) return reject(RejectionCode::kAttemptNotFound);
  if (has_begun(member.state)) return accept();  // Said again.
  MemberStarted started{
      .job = command.job, .attempt = command.attempt, .member = command.member, .at = stamp.at};
  const Job* job = state.jobs.find(command.job);
  const bool keep = state.config.feature_level >= 2 && !attempt->abandoned && job != nullptr &&
                    job->extras->image_digest.empty();
  if (keep) started.image_digest = command.image_digest;
  events.push_back(std::move(started));
  if (attempt->unbegun == 1 && !attempt->abandoned) {
    settle_start(state, command.job, events);
    if (job != nullptr && job->is_element()) settle_start(state, job->array, events);
  }
  return accept();
}

Applied attempt_ended(const State& state, const AttemptEnded& command, Stamp stamp, Events& events) {
  const Attempt* attempt = state.find_attempt(command.job, command.attempt);
  if (attempt == nullptr || command.member >= attempt->members.size())
    return reject(RejectionCode::kAttemptNotFound);
  if (!attempt->was_placed(command.placed_at)) return reject(RejectionCode::kAttemptNotFound);
  const Member& member = attempt->members[command.member];
  if (member.node != command.node) return reject(RejectionCode::kAttemptNotFound);
  if (member.state == MemberState::kEnded) return accept();
  MemberEnds(state, stamp.at, events).end(*attempt, command.member, command.outcome, false);
  const Job* job = state.jobs.find(command.job);
  if (job != nullptr)
    judge_node(state, *attempt, command.member, job->tenant, command.outcome, stamp.at, events);
  return accept();
}

namespace {

bool is_success(const Outcome& outcome) {
  return outcome.cause == EndCause::kExited && outcome.exit_code == 0;
}

/// Neither the job's doing nor an order's: what its node did to it.
bool is_loss(const Outcome& outcome) {
  return outcome.cause == EndCause::kShimLost || outcome.cause == EndCause::kNodeLost ||
         outcome.cause == EndCause::kContactLost || outcome.cause == EndCause::kNodeFault;
}

}  // namespace

MemberEnds::Gang& MemberEnds::gang_of(const Attempt& attempt) {
  const auto [it, fresh] = gangs_.try_emplace(attempt.key());
  Gang& gang = it->second;
  if (!fresh) return gang;
  gang.going = attempt.going;
  if (attempt.first_failed) gang.failed = *attempt.first_failed;
  return gang;
}

/// The gang may go on without this member too: it was asked for, all had begun, the one whose address the
/// others have is still there, and so are as many of each part as it needs at least.
bool MemberEnds::bears(const Attempt& attempt, Gang& gang, uint32_t member, const Outcome& outcome) const {
  if (member == 0 || !is_loss(outcome) || attempt.abandoned || attempt.unbegun > 0) return false;
  if (attempt.stop != StopReason::kNone || gang.told_to_stop || gang.failed) return false;
  const Job* job = state_.jobs.find(attempt.job);
  if (job == nullptr || !job->retry.tolerates_node_loss) return false;
  const std::vector<Part>& parts = state_.class_of(*job).parts;
  if (gang.left.empty()) {
    gang.left.resize(parts.size());
    for (const Member& each : attempt.members) gang.left[each.part] += each.lost_tolerated ? 0 : 1;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int64_t lost = i == attempt.members[member].part ? 1 : 0;
    if (gang.left[i] - lost < parts[i].member_count) return false;
  }
  return true;
}

/// A gang ended as its first member that ended badly did; but where a node let one down, that is why the
/// others failed, whoever's end was heard of first. A tolerated end counts for nothing.
Outcome MemberEnds::outcome_of(const Attempt& attempt, const Gang& gang, const Outcome& last) {
  const auto outcome_of = [&](uint32_t member) -> const Outcome& {
    const auto now = gang.ended.find(member);
    return now == gang.ended.end() ? attempt.members[member].outcome : now->second;
  };
  std::optional<uint32_t> member = gang.failed;
  for (uint32_t i = 0; i < attempt.members.size(); ++i) {
    if (attempt.members[i].lost_tolerated || gang.lost_tolerated.contains(i) || !is_loss(outcome_of(i)))
      continue;
    member = i;
    break;
  }
  if (!member) return is_success(last) ? last : outcome_of(0);  // The first one is never tolerated.
  Outcome outcome = outcome_of(*member);
  outcome.detail =
      "member " + std::to_string(*member) + (outcome.detail.empty() ? "" : ": ") + outcome.detail;
  return outcome;
}

void MemberEnds::end(const Attempt& attempt, uint32_t member, const Outcome& outcome, bool devices_free) {
  MemberEnded ended{.job = attempt.job,
                    .attempt = attempt.number,
                    .member = member,
                    .outcome = outcome,
                    .last = !attempt.is_gang(),
                    .devices_free = devices_free,
                    .at = at_,
                    .node = attempt.members[member].node};
  Outcome of_job = outcome;
  if (attempt.is_gang()) {
    Gang& gang = gang_of(attempt);
    ended.lost_tolerated = bears(attempt, gang, member, outcome);
    if (ended.lost_tolerated) {
      gang.lost_tolerated.insert(member);
      --gang.left[attempt.members[member].part];
    } else if (!gang.failed && !is_success(outcome)) {
      gang.failed = member;
    }
    gang.ended[member] = outcome;
    --gang.going;
    if (gang.going > 0) {
      const bool breaks = attempt.stop == StopReason::kNone && !gang.told_to_stop && !is_success(outcome) &&
                          !ended.lost_tolerated;
      events_.push_back(std::move(ended));
      if (!breaks) return;
      gang.told_to_stop = true;
      events_.push_back(
          StopRequested{.job = attempt.job, .attempt = attempt.number, .reason = StopReason::kGang});
      return;
    }
    ended.last = true;
    of_job = outcome_of(attempt, gang, outcome);
  }
  events_.push_back(std::move(ended));
  if (attempt.abandoned) return;
  const Job* job = state_.jobs.find(attempt.job);
  CHECK(job != nullptr);
  CHECK(job->attempt_count == attempt.number);
  const StopReason stop = attempt.stop == StopReason::kGang ? StopReason::kNone : attempt.stop;
  std::vector<NodeId> refusing;
  const auto refused = [&](uint32_t i) {
    if (i == member) return outcome.cause == EndCause::kNotStarted;
    if (attempt.members[i].outcome.cause == EndCause::kNotStarted) return true;
    const auto& now = gang_of(attempt).ended;
    return now.contains(i) && now.at(i).cause == EndCause::kNotStarted;
  };
  for (uint32_t i = 0; i < attempt.members.size(); ++i) {
    if (refused(i)) refusing.push_back(attempt.members[i].node);
  }
  conclude(state_, *job, stop, of_job, at_, events_, refusing);
}

namespace {

Duration backoff(int32_t failures) {
  Duration wait = limits::kBackoffFirst;
  for (int32_t i = 1; i < failures && wait < limits::kBackoffMax; ++i) wait = wait * 2;
  return std::min(wait, limits::kBackoffMax);
}

/// The bit of RetryPolicy::causes for an end that is the job's own doing; memory and other limits are, as its
/// exit code is. Zero for what the cluster did.
uint32_t own_cause_of(EndCause cause) {
  switch (cause) {
    case EndCause::kExited:
      return kRetryExit;
    case EndCause::kSignaled:
      return kRetrySignal;
    case EndCause::kOutOfMemory:
      return kRetryOutOfMemory;
    case EndCause::kOverLimit:
      return kRetryOverLimit;
    default:
      return 0;
  }
}

JobReason failure_reason(EndCause cause) {
  switch (cause) {
    case EndCause::kNone:
    case EndCause::kStopped:
    case EndCause::kShimLost:
    case EndCause::kNodeLost:
    case EndCause::kContactLost:
      return JobReason::kLost;
    case EndCause::kExited:
      return JobReason::kExitCode;
    case EndCause::kSignaled:
      return JobReason::kSignal;
    case EndCause::kStartFailed:
      return JobReason::kStartFailed;
    case EndCause::kTimeout:
      return JobReason::kTimeout;
    case EndCause::kOutOfMemory:
      return JobReason::kOutOfMemory;
    case EndCause::kNodeFault:
    case EndCause::kDeviceFault:
    case EndCause::kNotStarted:
      return JobReason::kNodeFault;
    case EndCause::kOverLimit:
      return JobReason::kOverLimit;
  }
  UNREACHABLE();
}

}  // namespace

void conclude(const State& state, const Job& job, StopReason stop, const Outcome& outcome, Time at,
              Events& events, const std::vector<NodeId>& refusing) {
  const auto finish = [&](JobState to, JobReason reason) {
    events.push_back(JobFinished{.job = job.id, .state = to, .reason = reason, .outcome = outcome, .at = at});
  };
  const auto requeue = [&](JobRequeued requeued) {
    requeued.job = job.id;
    requeued.outcome = outcome;
    if (requeued.preempted || state.config.feature_level >= 7) requeued.at = at;
    events.push_back(std::move(requeued));
    avoid_nodes(state, job, refusing, at, events);
  };
  const uint32_t own_cause = own_cause_of(outcome.cause);
  if (outcome.cause == EndCause::kExited && outcome.exit_code == 0) {
    return finish(JobState::kCompleted, JobReason::kSucceeded);
  }
  if (stop == StopReason::kCancel) return finish(JobState::kCancelled, JobReason::kCancelled);
  if (stop == StopReason::kIdle) return finish(JobState::kCancelled, JobReason::kIdle);
  if (stop == StopReason::kHung) return finish(JobState::kCancelled, JobReason::kHung);
  // It began in time, and others took its place: it goes on where there is room for it.
  const bool displaced = state.config.feature_level >= 10 && !job.interactive &&
                         (job.started_at.valid() || job.ever_started) &&
                         (stop == StopReason::kPreempt || stop == StopReason::kRequeue);
  const bool too_late = !displaced && job.deadline.valid() && at >= job.deadline;
  if (stop == StopReason::kTimeout || outcome.cause == EndCause::kTimeout) {
    if (too_late || !job.retry.covers(kRetryTimeout, 0) || job.exit_failures >= job.retry.exit_code_retries)
      return finish(JobState::kFailed, JobReason::kTimeout);
    return requeue({.not_before = at + backoff(job.exit_failures + 1), .by_exit_code = true});
  }
  if (too_late) {
    if (job.interactive && !job.started_at.valid()) return finish(JobState::kFailed, JobReason::kNotAtOnce);
    if (job.interactive && stop == StopReason::kPreempt)
      return finish(JobState::kCancelled, JobReason::kPreempted);
    if (job.interactive && stop != StopReason::kRequeue)
      return finish(JobState::kFailed, failure_reason(outcome.cause));
    const bool asked = stop == StopReason::kRequeue || own_cause == 0;
    return finish(JobState::kFailed, asked ? JobReason::kDeadline : failure_reason(outcome.cause));
  }
  if (stop == StopReason::kRequeue) {
    return requeue({.not_before = at + limits::kBackoffFirst, .free_of_charge = true});
  }
  if (stop == StopReason::kPreempt) {
    if (job.preemption_mode == PreemptionMode::kCancel)
      return finish(JobState::kCancelled, JobReason::kPreempted);
    return requeue({.not_before = at + limits::kBackoffFirst, .free_of_charge = true, .preempted = true});
  }
  if (outcome.cause == EndCause::kNotStarted)
    return requeue({.not_before = at + limits::kBackoffFirst, .free_of_charge = true});
  if (is_of_node(outcome.cause)) {
    const int32_t faults = job.node_faults + 1;
    return requeue({.not_before = at + backoff(faults),
                    .free_of_charge = true,
                    .hold = faults >= limits::kNodeFaultsMax});
  }
  const bool by_itself = own_cause != 0;
  const int32_t failures = (by_itself ? job.exit_failures : job.system_failures) + 1;
  int32_t retries = job.retry.covers(own_cause, outcome.exit_code) ? job.retry.exit_code_retries : 0;
  if (!by_itself) {
    retries =
        job.retry.system_retries == 0 ? limits::kSystemRetriesMax : std::max(job.retry.system_retries, 0);
  }
  if (failures > retries) return finish(JobState::kFailed, failure_reason(outcome.cause));
  const bool mended_by_people = state.config.feature_level >= 7 && outcome.cause == EndCause::kStartFailed &&
                                failures >= limits::kFailedStartsMax;
  requeue({.not_before = at + backoff(failures), .by_exit_code = by_itself, .hold = mended_by_people});
}

}  // namespace gpusched::rules
