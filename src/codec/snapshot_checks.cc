#include "codec/snapshot_checks.h"

#include <algorithm>

#include "base/limits.h"
#include "engine/messages/commands.h"

namespace gpusched::snapshot {

bool possible(Time at) { return Time{} <= at && at <= limits::kTimeMax + limits::kSettingMax; }

bool possible(Duration length) { return Duration{} <= length && length <= limits::kRuntimeMax; }

bool possible(const Part& part) {
  return between(1, part.member_count, limits::kMembersMax) &&
         (part.member_max == 0 || between(part.member_count, part.member_max, limits::kMembersMax)) &&
         part.domain <= kDomainLevelLast && between(0, part.gpu_count, limits::kGpusPerJobMax) &&
         between(0, part.gpu_memory_mb, limits::kMegabytesMax) && part.cpu_milli >= 0 &&
         between(0, part.memory_mb, limits::kMegabytesMax) && (part.features & ~kFeaturesKnown) == 0 &&
         part.work <= kWorkClassLast && part.has_sound_share();
}

bool possible(const std::vector<Part>& parts) {
  int64_t members = 0;
  for (const Part& part : parts) {
    const bool own = parts.size() == 1 || (part.gpu_count <= int32_t{limits::kDevicesPerNodeMax} &&
                                           (!part.is_elastic() || &part == &parts.back()));
    if (!possible(part) || !own) return false;
    members += part.members_most();
  }
  return between(1, static_cast<int64_t>(parts.size()), int64_t{limits::kPartsMax}) &&
         members <= limits::kMembersMax;
}

namespace {

bool possible_shares(const Device& device) {
  const bool shared = device.state == DeviceState::kShared;
  if (device.shares.empty()) return !shared;
  const bool ascending =
      std::is_sorted(device.shares.begin(), device.shares.end(),
                     [](const Share& a, const Share& b) { return a.held_by <= b.held_by; });
  const bool each = std::all_of(device.shares.begin(), device.shares.end(), [](const Share& share) {
    return share.milli > 0 && share.memory_mb >= 0 && possible(share.draining_since);
  });
  return ascending && each && device.milli_left() >= 0 &&
         (shared || device.state == DeviceState::kQuarantined);
}

}  // namespace

bool possible_slices(const Device& device, const DeviceClass& kind) {
  const mig::Table* table = kind.table();
  std::vector<mig::Instance> present;
  for (const Share& share : device.shares) {
    if (table == nullptr && (!share.mig_profile.empty() || share.mig_start != 0)) return false;
    if (table == nullptr) continue;
    const mig::Profile* profile = table->profile(share.mig_profile);
    if (profile == nullptr || !mig::fits(*table, present, *profile, share.mig_start)) return false;
    present.push_back({.profile = profile, .start = share.mig_start});
  }
  return true;
}

bool possible(const Device& device) {
  return known(DeviceState::kFree, device.state, DeviceState::kShared) && possible_shares(device) &&
         known(DeviceCondition::kOk, device.condition, DeviceCondition::kMissing) &&
         between(0, device.memory_mb, limits::kMegabytesMax) && possible(device.draining_since) &&
         device.fault <= kFaultClassLast && possible(device.fault_at) && possible(device.missing_since);
}

bool holds(const Member& member, const Device& device, const AttemptKey& key) {
  if (member.gpu_milli == 0) return device.state == DeviceState::kHeld && device.held_by == key;
  const Share* share = device.share_of(key);
  return share != nullptr && !share->draining() && share->milli == member.gpu_milli &&
         share->memory_mb == member.gpu_share_mb && share->mig_profile == member.mig_profile &&
         share->mig_start == member.mig_start;
}

namespace {

bool possible_flow(const Job& job) {
  if (job.on_parent_failure > OnParentFailure::kWait) return false;
  const std::vector<JobDependency> list = job.dependency_list();
  if (list.size() * 9 != job.dependencies.view().size() || list.size() > limits::kDependenciesMax)
    return false;
  const bool good = std::all_of(list.begin(), list.end(), [&](const JobDependency& one) {
    // Before feature level 4 one that was no job yet could be named twice.
    return one.parent.valid() && one.parent < job.id &&
           known(DependencyKind::kAfterOk, one.kind, kDependencyKindLast) &&
           one.verdict <= JobDependency::Verdict::kImpossible;
  });
  const auto unmet = std::count_if(list.begin(), list.end(), [](const JobDependency& one) {
    return one.verdict != JobDependency::Verdict::kMet;
  });
  return good && unmet == job.unmet && (unmet == 0 || job.state == JobState::kPending || is_final(job.state));
}

}  // namespace

bool possible(const Job& job) {
  return known(JobState::kPending, job.state, JobState::kPreempted) && job.reason <= kJobReasonLast &&
         job.last_cause <= kEndCauseLast && possible(job.submitted_at) && possible(job.scheduled_at) &&
         possible(job.started_at) && possible(job.ended_at) && possible(job.not_before) &&
         possible(job.max_runtime) && possible(job.retry.kill_after_lost_contact) &&
         possible(job.extras->preempted_at) && possible(job.extras->saved_at) && job.attained_gpu_ms >= 0 &&
         job.given_gpu_memory_mb >= 0 && job.preemption_mode <= kPreemptionModeLast &&
         job.extras->watch <= kWatchKindLast && possible(job.extras->watch_since) &&
         (job.state == JobState::kPending || (!job.not_before.valid() && !job.held && !job.promised)) &&
         !(job.promised && (job.not_before.valid() || job.held || job.unmet > 0)) &&
         (!job.parked || (job.state == JobState::kPending && job.is_element() && !job.promised)) &&
         (job.retry.causes & ~kRetryKnown) == 0 && possible(job.deadline) && possible_flow(job);
}

namespace {

bool is_there(const State& state, TenantId home) {
  const Tenant* const tenant = state.find_tenant(home);
  return !home.valid() || (tenant != nullptr && !tenant->deleted);
}

}  // namespace

bool possible(const State& state, const AccessKey& key) {
  return is_possible(key) && possible(key.created_at) && possible(key.expires_at) &&
         possible(key.revoked_at) && (key.revoked_at.valid() || is_there(state, key.tenant));
}
bool possible(const State& state, const Person& person) {
  return is_possible(person) && possible(person.created_at) && possible(person.updated_at) &&
         state.people.find(person.id) == nullptr && (!person.active || is_there(state, person.tenant));
}
bool possible(const NodeIdentity& identity) {
  return is_possible(identity) && possible(identity.admitted_at) && possible(identity.renewed_at) &&
         possible(identity.expires_at) && possible(identity.revoked_at);
}
bool possible(const JobArray& array) {
  if (!array.id.valid() || array.ranges.empty() || !well_formed(array.ranges)) return false;
  if (array.count != count_of(array.ranges) || array.at_once < 0 || array.closed > kJobReasonLast)
    return false;
  if (!between(0, array.next, array.count) || array.completed < 0 || array.failed < 0 || array.cancelled < 0)
    return false;
  int64_t last = array.next;
  for (const int64_t position : array.early) {
    if (position <= last || position >= array.count) return false;
    last = position;
  }
  return true;
}

bool possible(const Amount& amount) {
  return between(0, amount.gpus, limits::kGuaranteeMax) &&
         between(0, amount.gpu_memory_mb, limits::kGuaranteeMax) &&
         between(0, amount.cpu_milli, limits::kGuaranteeMax) &&
         between(0, amount.memory_mb, limits::kGuaranteeMax) &&
         between(0, amount.jobs, limits::kGuaranteeMax) &&
         between(0, amount.gpu_milli, limits::kGuaranteeMax);
}

bool possible(const GpuTime& gpu_time) {
  return Duration{} <= gpu_time.length && gpu_time.length <= limits::kGpuTimeWindowMax &&
         between(0, gpu_time.max_ms, limits::kGpuTimeMaxMs) &&
         between(0, gpu_time.used_ms, limits::kGpuTimeMaxMs) && between(0, gpu_time.rest, kMilliPerGpu - 1) &&
         possible(gpu_time.at);
}

bool possible(const DecayedUse& use) {
  constexpr int64_t kPartMax = (int64_t{1} << 20) - 1;
  return between(0, use.gpus_part, kPartMax) && between(0, use.gpu_memory_mb_part, kPartMax) &&
         between(0, use.cpu_milli_part, kPartMax) && between(0, use.memory_mb_part, kPartMax);
}

bool possible(const Tenant& tenant) {
  if (!possible(tenant.guarantee) || !possible(tenant.gpu_time) || !possible(tenant.use)) return false;
  const ResourceLimits& limit = tenant.limits.resources;
  return limit.gpus.value_or(0) >= 0 && limit.gpu_memory_mb.value_or(0) >= 0 &&
         limit.cpu_milli.value_or(0) >= 0 && limit.memory_mb.value_or(0) >= 0 && limit.jobs.value_or(0) >= 0;
}

bool possible(const Member& member) {
  return known(MemberState::kPlaced, member.state, kMemberStateLast) && member.cpu_milli >= 0 &&
         between(0, member.memory_mb, limits::kMegabytesMax) && member.outcome.cause <= kEndCauseLast;
}

}  // namespace gpusched::snapshot
