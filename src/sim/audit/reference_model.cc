// The auditor's books of what is durable: each event is held against what it must not contradict.
#include <algorithm>
#include <bit>

#include "codec/group.h"
#include "gpusched/v1/types.pb.h"
#include "node/ports/ports.h"
#include "sim/audit/auditor.h"

namespace gpusched::sim {
namespace {

/// Between a group's time and the true one: wall clocks are off by hours, and time that was lost while one
/// was not believed adds to that.
constexpr Duration kTimeOffMax = hours(24);

std::string tag_of(const Blob& spec) {
  v1::JobSpec parsed;
  const std::string_view bytes = spec.view();
  if (!parsed.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || parsed.command_size() < 2)
    return {};
  return parsed.command(1);
}

}  // namespace

void Auditor::on_durable(const JournalRecord& record) {
  if (record.position <= position_) {
    if (payloads_[record.position - 1] != record.payload) {
      fail("journal record " + std::to_string(record.position) + " is not what it was");
    }
    return;
  }
  if (record.position != position_ + 1) return fail("a journal record is missing");
  if (record.first_sequence != replica_.last.sequence + 1)
    return fail("a journal record has the wrong sequence");
  position_ = record.position;
  payloads_.emplace_back(record.payload);
  const Result<CommandGroup> group = decode_group(record.payload);
  if (!group) return fail("a journal record cannot be decoded: " + group.error().message);
  if (group->digest_before != replica_.digest.value())
    fail("journal record " + std::to_string(record.position) +
         " names another digest than the state's before it");
  const Duration off = group->at - MachineClock::true_wall(schedule_);
  if (off > kTimeOffMax || off < Duration{} - kTimeOffMax)
    fail("journal record " + std::to_string(record.position) + " is stamped " +
         std::to_string(off.ms() / 3'600'000) + " hours from the true time");
  if (!group->proposers.empty() && replica_.config.feature_level < 11)
    fail("journal record " + std::to_string(record.position) +
         " says who proposed to programs that cannot read it");
  Events events;
  for (const Command& command : group->commands) {
    events.clear();
    apply(replica_, command, Stamp{.sequence = replica_.last.sequence + 1, .at = group->at}, events);
    on_command(command, events);
  }
}

void Auditor::on_command(const Command& command, const Events& events) {
  // A fault of a device may be forgotten when all else is at rest.
  const bool by_itself =
      std::holds_alternative<AdvanceTime>(command) || std::holds_alternative<NoteDeviceFault>(command);
  (by_itself ? advance_count_ : command_count_) += 1;
  const auto* condition = std::get_if<SetDeviceCondition>(&command);
  by_operator_ =
      std::holds_alternative<ConfirmNodeDead>(command) || (condition != nullptr && condition->by_operator);
  if (const auto* cancel = std::get_if<CancelJob>(&command)) {
    const auto job = jobs_.find(cancel->job);
    if (job != jobs_.end()) job->second.cancel_asked = true;
    cancelling_ = cancel->job;
  }
  begin_plan(command, events);
  planned_.clear();
  if (const auto* plan = std::get_if<CommitPlan>(&command)) {
    for (const PlanGroup& group : plan->groups) planned_.insert(group.job);
  }
  for (const Event& event : events) {
    std::visit([this](const auto& known) { on(known); }, event);
    note_line(event, replica_.last.at);
  }
  cancelling_ = {};
  if (!unclaimed_.empty()) fail(name_of(unclaimed_.begin()->first) + " is ended for nobody");
  if (!fulfilled_.empty()) fail(name_of(fulfilled_.begin()->first) + " lost its promise and did not start");
  by_operator_ = false;
  end_plan(command, events);
}

Auditor::ReferenceDevice* Auditor::device(NodeId node, uint32_t index) {
  return &nodes_.at(node).devices.at(index);
}

void Auditor::on(const JobSubmitted& event) {
  ReferenceJob job{.tag = tag_of(event.request.spec),
                   .tenant = event.tenant,
                   .parts = event.request.parts,
                   .last_least = event.request.parts.back().member_count,
                   .last_most = event.request.parts.back().members_most(),
                   .retry = event.request.retry,
                   .max_runtime = event.request.max_runtime,
                   .held = event.request.held,
                   .exempt = event.request.preemption_exempt,
                   .preemption_mode = event.request.preemption_mode};
  book_submission(event, job);
  const auto submission = submission_of_tag_.find(job.tag);
  if (submission == submission_of_tag_.end()) {
    fail(name_of(event.job) + " was submitted by nobody");
  } else if (submissions_.at(submission->second).open_tries <= 0) {
    fail(name_of(event.job) + " appears after its submission was answered");
  }
  if (!job_by_tag_.emplace(job.tag, event.job).second) {
    fail(job.tag + " is there twice: as " + name_of(job_by_tag_.at(job.tag)) + " and " + name_of(event.job));
  }
  if (!jobs_.emplace(event.job, std::move(job)).second) fail(name_of(event.job) + " was given to two jobs");
}

bool Auditor::is_in(TenantId tenant, TenantId ancestor) const {
  while (tenant.valid()) {
    if (tenant == ancestor) return true;
    tenant = tenants_.at(tenant).parent;
  }
  return false;
}

// With the new attempt in the reference already: no limit of its tenants may be broken by it.
void Auditor::check_quota(JobId job, const ReferenceJob& entry) {
  for (TenantId tenant = entry.tenant; tenant.valid(); tenant = tenants_.at(tenant).parent) {
    const ReferenceTenant& reference = tenants_.at(tenant);
    if (reference.limits == Limits{}) continue;
    const Amount usage = usage_of(tenant);
    const Amount own = total_of(entry.parts);
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      if (amount_of(own, resource) == 0 || amount_of(usage, resource) <= reference.limits.get(resource))
        continue;
      fail(name_of(job) + " starts over tenant " + std::to_string(tenant.value) + "'s limit of " +
           std::to_string(reference.limits.get(resource)) + " " + std::string(to_string(resource)) + ": " +
           std::to_string(amount_of(usage, resource)));
    }
  }
}

void Auditor::check_member_placement(JobId job, const ReferenceJob& entry, const Member& member) {
  const Part& part = entry.parts.at(member.part);
  ReferenceNode& node = nodes_.at(member.node);
  if (node.state != NodeState::kReady)
    fail(name_of(job) + " is placed on node " + node.name + ", which is not ready");
  if (node.availability != Availability::kInService)
    fail(name_of(job) + " is placed on node " + node.name + ", which is out of service");
  const auto booked = booked_.find(member.node);
  if (part.booking != (booked == booked_.end() ? 0 : booked->second.value))
    fail(name_of(job) + " is placed on node " + node.name +
         ", which is reserved, or not, otherwise than it asks");
  if (!heard_.contains(member.node))
    fail(name_of(job) + " is placed on node " + node.name + ", which this scheduler has not heard");
  if (std::popcount(member.device_mask) != part.gpu_count)
    fail(name_of(job) + " gets a wrong number of devices");
  std::string model;
  for (uint32_t i = 0; i < node.devices.size(); ++i) {
    if (((member.device_mask >> i) & 1) == 0) continue;
    const ReferenceDevice& reference = node.devices[i];
    if (part.is_share()) {
      check_share(job, part, reference, member);
    } else if (reference.state != DeviceState::kFree) {
      fail(name_of(job) + " is placed on " + reference.uuid + ", which is " +
           std::string(to_string(reference.state)));
    } else if (reference.mig) {
      fail(name_of(job) + " gets the whole " + reference.uuid + ", which is in MIG mode");
    }
    if (reference.promised_to.valid())
      fail(name_of(job) + " is placed on " + reference.uuid + ", which is promised to " +
           name_of(reference.promised_to));
    if (reference.barred)
      fail(name_of(job) + " is placed on " + reference.uuid + ", which an operator took out of use");
    if (reference.condition != DeviceCondition::kOk)
      fail(name_of(job) + " is placed on the unfit " + reference.uuid);
    if (reference.faulty) fail(name_of(job) + " is placed on " + reference.uuid + ", which has a fault");
    if (reference.hot) fail(name_of(job) + " is placed on " + reference.uuid + ", which is too hot");
    if (reference.memory_mb < part.gpu_memory_mb)
      fail(name_of(job) + " is placed on the too small " + reference.uuid);
    if (!gpu_model_matches(reference.model, part.gpu_model))
      fail(name_of(job) + " is placed on another model");
    if (!part.place.empty() && !part.place.front().gpu_models.empty()) {
      const std::vector<std::string>& models = part.place.front().gpu_models;
      const bool any = std::any_of(models.begin(), models.end(), [&](const std::string& wanted) {
        return gpu_model_matches(reference.model, wanted);
      });
      if (!any) fail(name_of(job) + " is placed on none of its models");
    }
    if (!model.empty() && model != reference.model) fail(name_of(job) + " gets devices of two models");
    model = reference.model;
  }
  check_wishes(job, part, member);
  check_lonely(job, part, member);
  int64_t cpu_milli = part.cpu_milli;
  int64_t memory_mb = part.memory_mb;
  for (const JobAttempt& live : live_) {
    for (const Member& other : attempts_.at(live).members) {
      if (other.node != member.node || other.state == MemberState::kEnded) continue;
      cpu_milli += other.cpu_milli;
      memory_mb += other.memory_mb;
    }
  }
  for (const auto& [other, promise] : promises_) {
    for (const Member& kept : promise.members) {
      if (kept.node != member.node) continue;
      cpu_milli += kept.cpu_milli;
      memory_mb += kept.memory_mb;
    }
  }
  if (cpu_milli > node.cpu_milli) fail(name_of(job) + " is placed over the CPUs of node " + node.name);
  if (memory_mb > node.memory_mb) fail(name_of(job) + " is placed over the memory of node " + node.name);
}

// No more of a device is given away than it has, in thousandths and in memory.
void Auditor::check_share(JobId job, const Part& part, const ReferenceDevice& reference,
                          const Member& member) {
  const std::string what = name_of(job) + " gets a share of " + reference.uuid;
  if (reference.state != DeviceState::kFree && reference.state != DeviceState::kShared)
    fail(what + ", which is " + std::string(to_string(reference.state)));
  if (reference.mig != !part.mig_profile.empty()) fail(what + ", which is in the other mode");
  if (reference.mig != reference.mig_next) fail(what + ", whose mode was switched");
  if (!part.mig_profile.empty()) return check_slice(what, part, reference, member);
  const int64_t wanted_mb =
      part.gpu_share_mb > 0 ? part.gpu_share_mb : reference.memory_mb * part.gpu_milli / kMilliPerGpu;
  if (member.gpu_milli != part.gpu_milli || member.gpu_share_mb != wanted_mb) {
    fail(what + " of another size: " + std::to_string(member.gpu_milli) + " thousandths and " +
         std::to_string(member.gpu_share_mb) + " MB instead of " + std::to_string(part.gpu_milli) + " and " +
         std::to_string(wanted_mb));
  }
  int64_t milli = member.gpu_milli;
  int64_t memory_mb = member.gpu_share_mb;
  for (const auto& [key, share] : reference.shares) {
    milli += share.milli;
    memory_mb += share.memory_mb;
  }
  if (milli > kMilliPerGpu) fail(what + ", of which more than all is given away");
  if (memory_mb > reference.memory_mb) fail(what + ", of whose memory more than all is given away");
}

// By what is said of profiles in their names: on GPUs of seven slices of compute and eight of memory a slice
// has as many of the latter as its gigabytes are of the whole, and begins at a multiple of that.
void Auditor::check_slice(const std::string& what, const Part& part, const ReferenceDevice& reference,
                          const Member& member) {
  const auto compute_of = [](const std::string& profile) { return std::stoi(profile); };
  const auto slots_of = [&](const std::string& profile) {
    const int64_t mb = std::stoll(profile.substr(profile.find('.') + 1)) * 1024;
    return static_cast<int32_t>((mb * 8 + reference.memory_mb / 2) / reference.memory_mb);
  };
  if (member.mig_profile != part.mig_profile || member.gpu_milli != part.gpu_milli)
    fail(what + " of another size: " + member.mig_profile + " with " + std::to_string(member.gpu_milli) +
         " thousandths instead of " + part.mig_profile);
  const int32_t slots = slots_of(member.mig_profile);
  const int32_t end = member.mig_start + slots;
  if (member.mig_start < 0 || end > 8 || member.mig_start % slots != 0) fail(what + " where none may begin");
  int32_t compute = compute_of(member.mig_profile);
  int32_t media = member.mig_profile.ends_with("+me") ? 1 : 0;
  for (const auto& [key, other] : reference.shares) {
    compute += compute_of(other.profile);
    media += other.profile.ends_with("+me") ? 1 : 0;
    if (other.start < end && member.mig_start < other.start + slots_of(other.profile))
      fail(what + " over that of " + name_of(key));
  }
  if (compute > 7) fail(what + ", which has no compute left");
  if (media > 1) fail(what + ", whose media engines are taken");
}

void Auditor::end_share(const AttemptKey& key, ReferenceDevice& shared, bool devices_free) {
  const auto share = shared.shares.find(key);
  if (share == shared.shares.end() || share->second.draining)
    return fail(name_of(key) + " ended and had no share of " + shared.uuid);
  share->second.draining = true;
  if (devices_free) drop_share(key, shared);
}

void Auditor::on(const ShareFreed& event) { drop_share(event.held_by, *device(event.node, event.device)); }

void Auditor::on(const AttemptPlaced& event) {
  ReferenceJob& job = jobs_.at(event.job);
  if (job.final || job.state != JobState::kPending) fail(name_of(event.job) + " is placed and does not wait");
  if (job.held || replica_.config.pause.on()) fail(name_of(event.job) + " is placed and is held or paused");
  if (job.promised) fail(name_of(event.job) + " is placed beside what is promised to it");
  check_gang(event, job);
  if (!fulfilled_.contains(event.job)) check_overtaking(event);
  if (const auto kept = fulfilled_.find(event.job); kept != fulfilled_.end()) {
    const bool same = std::equal(
        event.members.begin(), event.members.end(), kept->second.members.begin(), kept->second.members.end(),
        [](const Member& a, const Member& b) { return a.node == b.node && a.device_mask == b.device_mask; });
    if (!same) fail(name_of(event.job) + " does not start on what was promised to it");
    fulfilled_.erase(kept);
  } else {
    check_gpu_time(event.job, job, event.at);
    check_growth(event, job);
    check_first_kept(event, job);
    check_ends_before_bookings(event, job);
  }
  begin_hold(event.job, event.attempt, event.at);
  if (job.backs_off) fail(name_of(event.job) + " is placed before its back-off is over");
  check_may_start(event.job, job, event.at);
  if (event.attempt != job.attempts + 1) fail(name_of(event.job) + " skips an attempt's number");
  for (const JobAttempt& live : live_) {
    if (live.first == event.job && !attempts_.at(live).abandoned) {
      fail(name_of(event.job) + " has a second attempt while the first goes on");
    }
  }
  for (const Member& member : event.members) {
    check_member_placement(event.job, job, member);
    if (job.refusals.forbid(nodes_.at(member.node).name, event.at))
      fail(name_of(event.job) + " is placed again where it was not started a short while ago");
  }
  job.attempts = event.attempt;
  job.state = JobState::kScheduled;
  job.reason = JobReason::kPlaced;
  const JobAttempt name{event.job, event.attempt};
  attempts_[name] = ReferenceAttempt{.members = event.members, .given_mb = given_mb(job, event.members)};
  live_.insert(name);
  check_quota(event.job, job);
  for (uint32_t i = 0; i < event.members.size(); ++i) {
    for (uint64_t rest = event.members[i].device_mask; rest != 0; rest &= rest - 1) {
      ReferenceDevice* held = device(event.members[i].node, static_cast<uint32_t>(std::countr_zero(rest)));
      const AttemptKey key{.job = event.job, .attempt = event.attempt, .member = i};
      const Member& member = event.members[i];
      held->state = member.gpu_milli > 0 ? DeviceState::kShared : DeviceState::kHeld;
      if (member.gpu_milli > 0) {
        held->shares[key] = {.milli = member.gpu_milli,
                             .memory_mb = member.gpu_share_mb,
                             .profile = member.mig_profile,
                             .start = member.mig_start};
      } else {
        held->held_by = key;
      }
    }
  }
}

void Auditor::on(const MemberPrepared& event) {
  ReferenceAttempt& attempt = attempts_.at({event.job, event.attempt});
  attempt.members.at(event.member).state = MemberState::kPrepared;
  if (!attempt.prepared.insert(event.member).second)
    fail(name_of(event.job) + " has a member that is prepared twice");
}

void Auditor::on(const MemberStarted& event) {
  ReferenceAttempt& attempt = attempts_.at({event.job, event.attempt});
  const AttemptKey key{.job = event.job, .attempt = event.attempt, .member = event.member};
  if (!truths_.contains(key) || !truths_.at(key).started)
    fail(name_of(key) + " is recorded as started and never was");
  attempt.members.at(event.member).state = MemberState::kRunning;
  const bool all = std::all_of(attempt.members.begin(), attempt.members.end(),
                               [](const Member& member) { return has_begun(member.state); });
  if (attempt.abandoned || !all) return;
  ReferenceJob& job = jobs_.at(event.job);
  job.ever_started = true;
  if (job.array.valid()) jobs_.at(job.array).ever_started = true;
  if (job.state == JobState::kPreempted) return;
  job.state = JobState::kRunning;
  job.reason = JobReason::kStarted;
}

// The journal's clock leans towards the wall clock by at most a twentieth of what passes, whatever that does.
void Auditor::on(const StopRequested& event) {
  if (event.reason == StopReason::kRequeue) attempts_.at({event.job, event.attempt}).requeue_asked = true;
  if (event.reason == StopReason::kGang && !attempts_.at({event.job, event.attempt}).failed)
    fail(name_of(event.job) + " is ended as a gang and no member ended badly");
  if (event.reason == StopReason::kPreempt) {
    ReferenceAttempt& attempt = attempts_.at({event.job, event.attempt});
    ReferenceJob& victim = jobs_.at(event.job);
    if (!attempt.live || attempt.abandoned || attempt.preempted || victim.cancel_answered)
      fail(name_of(event.job) + " is preempted and ends already");
    if (victim.exempt) fail(name_of(event.job) + " is preempted and exempt from that");
    attempt.preempted = true;
    victim.state = JobState::kPreempted;
    unclaimed_.insert({event.job, event.attempt});
  }
  if (event.reason != StopReason::kTimeout) return;
  attempts_.at({event.job, event.attempt}).timed_out = true;
  const ReferenceJob& job = jobs_.at(event.job);
  const Truth& truth = truths_[AttemptKey{.job = event.job, .attempt = event.attempt, .member = 0}];
  const Duration ran = schedule_.now() - truth.started_at;
  if (!truth.started || job.max_runtime.ns == 0 || ran + Duration{ran.ns / 20} < job.max_runtime)
    fail(name_of(event.job) + " is stopped for its runtime after " + std::to_string(ran.ms()) + " ms");
}

// The driver did not make the slice that it was to run in.
bool Auditor::lacked_its_slice(const AttemptKey& key) {
  const Member& member = attempts_.at({key.job, key.attempt}).members.at(key.member);
  if (member.mig_profile.empty()) return false;
  const ReferenceDevice* reference =
      device(member.node, static_cast<uint32_t>(std::countr_zero(member.device_mask)));
  return refused_slices_.contains({reference->uuid, member.mig_start});
}

void Auditor::check_truth_of_end(const AttemptKey& key, const Outcome& outcome) {
  const Truth& truth = truths_[key];
  if (truth.alive) {
    return fail(name_of(key) + " is recorded as ended (" + std::string(to_string(outcome.cause)) + ", " +
                outcome.detail + ") and still runs");
  }
  const bool same = truth.outcome.cause == outcome.cause && truth.outcome.exit_code == outcome.exit_code &&
                    truth.outcome.signal == outcome.signal;
  switch (outcome.cause) {
    case EndCause::kTimeout:
      if (truth.forced) return;
      [[fallthrough]];
    case EndCause::kExited:
    case EndCause::kSignaled:
    case EndCause::kStartFailed:
    case EndCause::kOutOfMemory:
    case EndCause::kNodeFault:
    case EndCause::kOverLimit:
    case EndCause::kNotStarted:
      if (!truth.started || !same) fail(name_of(key) + " is recorded with an outcome that it did not have");
      return;
    case EndCause::kDeviceFault: {
      if (!truth.started && lacked_its_slice(key)) return;
      const bool failed = truth.outcome.cause == EndCause::kSignaled ||
                          (truth.outcome.cause == EndCause::kExited && truth.outcome.exit_code != 0);
      const bool blamed = std::any_of(truth.devices.begin(), truth.devices.end(),
                                      [&](const std::string& uuid) { return ever_faulty_.contains(uuid); });
      if (!truth.started || !failed || truth.outcome.exit_code != outcome.exit_code)
        fail(name_of(key) + " is recorded with an outcome that it did not have");
      if (!blamed) fail(name_of(key) + " failed by itself, and a device that was well is blamed");
      return;
    }
    case EndCause::kStopped:
      if (truth.started && !same) fail(name_of(key) + " is recorded as stopped and was not");
      return;
    case EndCause::kShimLost:
    case EndCause::kNodeLost:
    case EndCause::kContactLost:
      // An outcome on the node's disk for good must not be lost, unless an operator gave the node up.
      if (truth.outcome_kept && !by_operator_ && outcome.cause != EndCause::kContactLost && !same) {
        fail(name_of(key) + " ended " + std::string(to_string(truth.outcome.cause)) + " with code " +
             std::to_string(truth.outcome.exit_code) + ", its node kept that, and it is recorded as " +
             std::string(to_string(outcome.cause)));
      }
      return;
    case EndCause::kNone:
      return fail(name_of(key) + " ended without a cause");
  }
}

/// A gang goes on without a lost member only when its job wants that and enough of each part are left.
void Auditor::check_borne(const ReferenceAttempt& attempt, const MemberEnded& event) {
  const ReferenceJob& job = jobs_.at(event.job);
  const EndCause cause = event.outcome.cause;
  const bool loss = cause == EndCause::kShimLost || cause == EndCause::kNodeLost ||
                    cause == EndCause::kContactLost || cause == EndCause::kNodeFault;
  if (!job.retry.tolerates_node_loss || !loss || event.member == 0)
    fail(name_of(event.job) + " goes on without member " + std::to_string(event.member));
  std::vector<int64_t> left(job.parts.size());
  for (const Member& one : attempt.members) left.at(one.part) += one.lost_tolerated ? 0 : 1;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const bool elastic = i + 1 == left.size() && job.last_most > job.last_least;
    if (left[i] < (elastic ? job.last_least : job.parts[i].member_count))
      fail(name_of(event.job) + " goes on with too few members");
  }
}

/// Notes the attempt's outcome: what a node did to any member, else how the first ended that did not end
/// well, else how the last did. Tolerated ends of members do not count.
void Auditor::note_outcome(ReferenceAttempt& attempt, const MemberEnded& event) {
  const bool well = event.outcome.cause == EndCause::kExited && event.outcome.exit_code == 0;
  if (event.lost_tolerated) check_borne(attempt, event);
  if (!well && !event.lost_tolerated && !attempt.failed) attempt.failed = event.member;
  attempt.outcome = attempt.failed ? attempt.members.at(*attempt.failed).outcome
                    : well         ? event.outcome
                                   : attempt.members.front().outcome;
  for (const Member& one : attempt.members) {
    if (one.lost_tolerated) continue;
    const EndCause cause = one.state == MemberState::kEnded ? one.outcome.cause : EndCause::kNone;
    if (cause != EndCause::kShimLost && cause != EndCause::kNodeLost && cause != EndCause::kContactLost &&
        cause != EndCause::kNodeFault)
      continue;
    attempt.outcome = one.outcome;
    return;
  }
}

void Auditor::on(const MemberEnded& event) {
  ReferenceAttempt& attempt = attempts_.at({event.job, event.attempt});
  const AttemptKey key{.job = event.job, .attempt = event.attempt, .member = event.member};
  Member& member = attempt.members.at(event.member);
  if (!attempt.live || member.state == MemberState::kEnded) return fail(name_of(key) + " ended twice");
  check_truth_of_end(key, event.outcome);
  member.state = MemberState::kEnded;
  member.outcome = event.outcome;
  member.lost_tolerated = event.lost_tolerated;
  note_outcome(attempt, event);
  for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1) {
    ReferenceDevice* held = device(member.node, static_cast<uint32_t>(std::countr_zero(rest)));
    if (member.gpu_milli > 0) {
      end_share(key, *held, event.devices_free);
      continue;
    }
    if (held->state != DeviceState::kHeld || held->held_by != key) {
      fail(name_of(key) + " ended and did not hold " + held->uuid);
    }
    held->state = event.devices_free ? DeviceState::kFree : DeviceState::kDraining;
    held->held_by = {};
    if (!event.devices_free) continue;
    held->generation += 1;
    held->mig = held->mig_next;
    if (device_in_use(held->uuid)) fail("device " + held->uuid + " is freed and still in use");
  }
  if (!event.last) return;
  end_hold(event.job, event.attempt, event.at);
  attempt.live = false;
  attempt.over_at = position_;
  live_.erase({event.job, event.attempt});
}

void Auditor::on(const AttemptAbandoned& event) {
  const ReferenceJob& abandoned = jobs_.at(event.job);
  if (abandoned.retry.tolerates_node_loss && attempts_.at({event.job, event.attempt}).members.size() > 1)
    fail(name_of(event.job) + " is abandoned and its other members go on");
  if (!abandoned.retry.overlap_allowed) fail(name_of(event.job) + " is abandoned and allows no overlap");
  attempts_.at({event.job, event.attempt}).abandoned = true;
  // Older feature levels do not say when; what of it counts as use is not known then.
  if (!event.at.valid()) gpu_time_known_ = false;
  end_hold(event.job, event.attempt, event.at);
}

void Auditor::on(const JobFinished& event) {
  ReferenceJob& job = jobs_.at(event.job);
  if (job.final) return fail(name_of(event.job) + " ended twice");
  const bool waited = job.state == JobState::kPending;
  const bool without_attempt = check_flow_end(event, job);
  job.final = true;
  job.state = event.state;
  job.reason = event.reason;
  job.outcome = event.outcome;
  finished_.push_back(event.job);
  if (without_attempt) return;
  const auto last = attempts_.find({event.job, job.attempts});
  if (last != attempts_.end() && last->second.live && !last->second.abandoned) {
    fail(name_of(event.job) + " is final while its attempt goes on");
  }
  if (event.state == JobState::kCancelled) {
    const bool asked = job.cancel_asked || (job.array.valid() && jobs_.at(job.array).cancel_asked);
    const bool preempted = event.reason == JobReason::kPreempted;
    if (preempted && (job.preemption_mode != PreemptionMode::kCancel || last == attempts_.end() ||
                      !last->second.preempted)) {
      fail(name_of(event.job) + " is cancelled as preempted and was not, or asked to be requeued");
    }
    if (!preempted && !asked) fail(name_of(event.job) + " is cancelled and nobody asked");
    return;
  }
  if (waited || last == attempts_.end()) return fail(name_of(event.job) + " ended without an attempt");
  if (last->second.abandoned) return;
  const Outcome& outcome = last->second.outcome;
  const bool well = outcome.cause == EndCause::kExited && outcome.exit_code == 0;
  if (well != (event.state == JobState::kCompleted))
    fail(name_of(event.job) + " ended in a state that is not true");
  if (outcome.cause != event.outcome.cause || outcome.exit_code != event.outcome.exit_code ||
      outcome.signal != event.outcome.signal) {
    fail(name_of(event.job) + " has another outcome than its last attempt");
  }
}

void Auditor::on(const JobRequeued& event) {
  ReferenceJob& job = jobs_.at(event.job);
  if (job.final) fail(name_of(event.job) + " is tried again after its end");
  if (job.cancel_answered) fail(name_of(event.job) + " is tried again after its cancellation was answered");
  if (event.free_of_charge) {
    const ReferenceAttempt& attempt = attempts_.at({event.job, job.attempts});
    const bool asked = attempt.requeue_asked || (attempt.preempted && event.preempted);
    if (event.preempted && !attempt.preempted)
      fail(name_of(event.job) + " is tried again as preempted and was not");
    if (event.preempted) ++job.preempt_count;
    if (!asked && !is_no_fault_of_job(event.outcome.cause))
      fail(name_of(event.job) + " is tried again for nothing, and nobody asked");
  } else {
    (event.by_exit_code ? job.exit_requeues : job.system_requeues) += 1;
  }
  const bool timed_out = attempts_.at({event.job, job.attempts}).timed_out;
  const uint32_t cause = timed_out                                       ? kRetryTimeout
                         : event.outcome.cause == EndCause::kExited      ? kRetryExit
                         : event.outcome.cause == EndCause::kSignaled    ? kRetrySignal
                         : event.outcome.cause == EndCause::kTimeout     ? kRetryTimeout
                         : event.outcome.cause == EndCause::kOutOfMemory ? kRetryOutOfMemory
                                                                         : kRetryOverLimit;
  if (event.by_exit_code && !job.retry.covers(cause, event.outcome.exit_code))
    fail(name_of(event.job) + " is tried again for what it does not ask for");
  if (job.exit_requeues > std::max(job.retry.exit_code_retries, 0)) {
    fail(name_of(event.job) + " is tried again more often than it asked for");
  }
  if (job.retry.system_retries != 0 && job.system_requeues > std::max(job.retry.system_retries, 0)) {
    fail(name_of(event.job) + " is tried again more often than it allows");
  }
  job.state = JobState::kPending;
  job.reason = JobReason::kBackoff;
  job.backs_off = true;
  job.held = event.hold;
  note_on_its_way(event.job, event.at);
  for (const Member& member : attempts_.at({event.job, job.attempts}).members) {
    const bool refused = member.outcome.cause == EndCause::kNotStarted;
    if (refused && replica_.config.feature_level >= 12 && !attempts_.at({event.job, job.attempts}).abandoned)
      job.refusals.note(nodes_.at(member.node).name, event.at);
  }
  // A job that began in time and makes room for others does not end by its deadline.
  const bool displaced =
      event.preempted || (event.free_of_charge && !is_no_fault_of_job(event.outcome.cause));
  const Job* known = replica_.jobs.find(event.job);
  const bool is_interactive = known != nullptr && known->interactive;
  if (replica_.config.feature_level >= 10 && displaced && job.ever_started && !is_interactive)
    job.deadline = {};
}

void Auditor::on(const BackoffEnded& event) { jobs_.at(event.job).backs_off = false; }

void Auditor::on(const JobHoldChanged& event) { jobs_.at(event.job).held = event.held; }

void Auditor::on(const JobUpdated& event) {
  const UpdateJob& change = *event.change;
  ReferenceJob& reference = jobs_.at(change.job);
  if ((change.given & kJobMaxRuntime) != 0) {
    reference.longest = std::max(reference.longest, run_of(reference));
    reference.max_runtime = change.max_runtime;
  }
  if ((change.given & kJobBegin) != 0) {
    reference.begin_at = change.begin_at;
    reference.backs_off = reference.begin_at.valid();
  }
  if ((change.given & kJobDeadline) != 0) reference.deadline = change.deadline;
  if ((change.given & kJobParts) != 0) take_parts(reference, change.parts);
}

void Auditor::on(const JobsForgotten& event) {
  for (uint32_t i = 0; i < event.count && !finished_.empty(); ++i) {
    jobs_.at(finished_.front()).forgotten = true;
    finished_.pop_front();
  }
}

}  // namespace gpusched::sim
