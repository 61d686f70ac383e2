// The auditor's books of guarantees and GPU hours, counted from what was placed and what ended.
#include <algorithm>
#include <bit>

#include "sim/audit/auditor.h"

namespace gpusched::sim {
namespace {

int64_t milli_of(const std::vector<Part>& parts) { return total_of(parts).gpu_thousandths(); }

}  // namespace

// Memory of the devices that were given, where the job names no size.
int64_t Auditor::given_mb(const ReferenceJob& job, const std::vector<Member>& members) {
  if (replica_.config.feature_level < 10) return 0;
  int64_t given = 0;
  for (const Member& member : members) {
    const Part& part = job.parts.at(member.part);
    if (part.names_gpu_memory()) continue;
    if (part.is_share()) {
      given += member.gpu_share_mb;
      continue;
    }
    for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1)
      given += device(member.node, static_cast<uint32_t>(std::countr_zero(rest)))->memory_mb;
  }
  return given;
}

Amount Auditor::usage_of(TenantId tenant) const {
  Amount usage;
  for (const JobAttempt& live : live_) {
    const ReferenceJob& job = jobs_.at(live.first);
    if (attempts_.at(live).abandoned || !is_in(job.tenant, tenant)) continue;
    usage.jobs += 1;
    usage.gpu_memory_mb += attempts_.at(live).given_mb;
    for (const Part& part : job.parts) {
      if (part.is_share()) {
        usage.gpu_milli += int64_t{part.member_count} * part.gpu_milli;
      } else {
        usage.gpus += int64_t{part.member_count} * part.gpu_count;
      }
      usage.gpu_memory_mb += int64_t{part.member_count} * part.gpu_count *
                             (part.is_share() ? part.gpu_share_mb : part.gpu_memory_mb);
      usage.cpu_milli += int64_t{part.member_count} * part.cpu_milli;
      usage.memory_mb += int64_t{part.member_count} * part.memory_mb;
    }
  }
  for (const auto& [job, promise] : promises_) {
    // Its job may have been changed since: then it ends at the next look.
    if (is_in(jobs_.at(job).tenant, tenant)) usage.add(promise.amount);
  }
  return usage;
}

void Auditor::take_quota(ReferenceTenant& tenant, const UpdateTenant& change, Time at) {
  const auto take = [&](TenantField field, int64_t& to, int64_t from) {
    if ((change.given & field) != 0) to = from;
  };
  take(kTenantGuaranteeGpus, tenant.guarantee.gpus, change.guarantee.gpus);
  take(kTenantGuaranteeGpuMemory, tenant.guarantee.gpu_memory_mb, change.guarantee.gpu_memory_mb);
  take(kTenantGuaranteeCpu, tenant.guarantee.cpu_milli, change.guarantee.cpu_milli);
  take(kTenantGuaranteeMemory, tenant.guarantee.memory_mb, change.guarantee.memory_mb);
  take(kTenantGuaranteeJobs, tenant.guarantee.jobs, change.guarantee.jobs);
  take(kTenantGpuTimeMax, tenant.gpu_ms_max, change.gpu_time_max_ms);
  if ((change.given & kTenantGpuTimeWindow) == 0 || tenant.window == change.gpu_time_window) return;
  tenant.window = change.gpu_time_window;
  tenant.window_since = at;
}

void Auditor::begin_hold(JobId job, uint32_t attempt, Time at) {
  const ReferenceJob& reference = jobs_.at(job);
  holds_[{job, attempt}] = {
      .tenant = reference.tenant, .milli = milli_of(reference.parts), .from = at, .to = kNever};
}

void Auditor::end_hold(JobId job, uint32_t attempt, Time at) {
  const auto found = holds_.find({job, attempt});
  if (found == holds_.end()) return;
  found->second.to = at;
  past_holds_.push_back(found->second);
  holds_.erase(found);
  // A window that is made longer later counts nothing from before.
  Duration longest;
  for (const auto& [id, tenant] : tenants_) longest = std::max(longest, tenant.window);
  std::erase_if(past_holds_, [&](const Hold& hold) { return hold.to + longest < at; });
}

std::pair<int64_t, int64_t> Auditor::gpu_ms_of(TenantId tenant, Time now) const {
  const ReferenceTenant& reference = tenants_.at(tenant);
  const Time start =
      std::max(Time{now.ns / reference.window.ns * reference.window.ns}, reference.window_since);
  int64_t sum = 0;
  int64_t changes = 0;
  bool shares = false;
  const auto count = [&](const Hold& hold) {
    if (!is_in(hold.tenant, tenant)) return;
    const int64_t span = std::min(hold.to, now).ms() - std::max(hold.from, start).ms();
    sum += hold.milli * std::max<int64_t>(span, 0);
    changes += 2;
    shares = shares || hold.milli % kMilliPerGpu != 0;
  };
  for (const Hold& hold : past_holds_) count(hold);
  for (const auto& [key, hold] : holds_) count(hold);
  // Before feature level 6 each settlement rounded down.
  const int64_t roundings = replica_.config.feature_level >= 6 ? 1 : changes + 1;
  return {sum / kMilliPerGpu, shares ? roundings : 0};
}

void Auditor::check_gpu_time(JobId job, const ReferenceJob& entry, Time at) {
  if (milli_of(entry.parts) == 0 || !gpu_time_known_) return;
  for (TenantId tenant = entry.tenant; tenant.valid(); tenant = tenants_.at(tenant).parent) {
    const ReferenceTenant& reference = tenants_.at(tenant);
    if (reference.window.ns == 0) continue;
    const auto [used, rounded] = gpu_ms_of(tenant, at);
    if (used - rounded < reference.gpu_ms_max) continue;
    fail(name_of(job) + " starts although tenant " + std::to_string(tenant.value) +
         " has used up its GPU hours");
  }
}

// A tenant that gives back what it borrowed keeps what it is guaranteed.
void Auditor::check_reclaim(const Promise& promise) {
  const ReferenceJob& asking = jobs_.at(promise.job);
  const bool by_gpus = milli_of(asking.parts) > 0;
  for (const Preemption& preemption : promise.victims) {
    const ReferenceJob& victim = jobs_.at(preemption.job);
    const bool judged_by_gpus = by_gpus && milli_of(victim.parts) > 0;
    for (TenantId tenant = victim.tenant; tenant.valid() && !is_in(asking.tenant, tenant);
         tenant = tenants_.at(tenant).parent) {
      const ReferenceTenant& reference = tenants_.at(tenant);
      Amount kept = usage_of(tenant);
      for (const JobAttempt& live : live_) {
        const ReferenceJob& job = jobs_.at(live.first);
        if (job.state == JobState::kPreempted && !attempts_.at(live).abandoned && is_in(job.tenant, tenant))
          kept.add(negated(total_of(job.parts)));
      }
      // Victims that give GPUs for GPUs are compared in nothing else, also where others give cores.
      for (const Preemption& other : promise.victims) {
        const ReferenceJob& gives = jobs_.at(other.job);
        if (by_gpus && milli_of(gives.parts) > 0 && is_in(gives.tenant, tenant))
          kept.cpu_milli += total_of(gives.parts).cpu_milli;
      }
      const bool fails = judged_by_gpus
                             ? kept.gpu_thousandths() < reference.guarantee.gpus * kMilliPerGpu
                             : milli_of(victim.parts) == 0 && total_of(victim.parts).cpu_milli > 0 &&
                                   kept.cpu_milli < reference.guarantee.cpu_milli;
      if (fails)
        fail(name_of(promise.job) + " takes from tenant " + std::to_string(tenant.value) +
             " what that is guaranteed");
    }
  }
}

void Auditor::on(const TenantCreated& event) {
  const Tenant& tenant = *event.tenant;
  tenants_[tenant.id] = {.parent = tenant.parent,
                         .limits = tenant.limits,
                         .guarantee = tenant.guarantee,
                         .window = tenant.gpu_time.length,
                         .gpu_ms_max = tenant.gpu_time.max_ms,
                         .window_since = tenant.created_at};
}

void Auditor::on(const TenantsForgotten& event) {
  for (const TenantId tenant : event.tenants) tenants_.erase(tenant);
}

void Auditor::on(const TenantUpdated& event) {
  const UpdateTenant& change = *event.change;
  ReferenceTenant& tenant = tenants_.at(change.tenant);
  const auto take = [&](TenantField field, Resource resource) {
    if ((change.given & field) != 0) tenant.limits.set(resource, change.limits.get(resource));
  };
  take(kTenantMaxGpus, Resource::kGpus);
  take(kTenantMaxGpuMemory, Resource::kGpuMemory);
  take(kTenantMaxCpu, Resource::kCpu);
  take(kTenantMaxMemory, Resource::kMemory);
  take(kTenantMaxJobs, Resource::kJobs);
  if ((change.given & kTenantWaiting) != 0) tenant.limits.waiting_max = change.limits.waiting_max;
  if ((change.given & kTenantSoftWaiting) != 0)
    tenant.limits.soft_waiting_max = change.limits.soft_waiting_max;
  take_quota(tenant, change, event.at);
}

}  // namespace gpusched::sim
