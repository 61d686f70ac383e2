#include "api/backend/tenant_commands.h"

#include "base/limits.h"

namespace gpusched::api {
namespace {

Limits to_engine(const TenantLimits& limits) {
  Limits out;
  if (limits.gpus) out.set(Resource::kGpus, *limits.gpus);
  if (limits.gpu_memory_mb) out.set(Resource::kGpuMemory, *limits.gpu_memory_mb);
  if (limits.cpu_cores) out.set(Resource::kCpu, *limits.cpu_cores * 1'000);
  if (limits.memory_mb) out.set(Resource::kMemory, *limits.memory_mb);
  if (limits.concurrent_jobs) out.set(Resource::kJobs, *limits.concurrent_jobs);
  if (limits.waiting_jobs) out.waiting_plus_one = *limits.waiting_jobs + 1;
  if (limits.soft_waiting_jobs) out.soft_waiting_plus_one = *limits.soft_waiting_jobs + 1;
  return out;
}

Amount guarantee_of(const TenantLimits& given) {
  return {.gpus = given.gpus.value_or(0),
          .gpu_memory_mb = given.gpu_memory_mb.value_or(0),
          .cpu_milli = given.cpu_cores.value_or(0) * 1'000,
          .memory_mb = given.memory_mb.value_or(0),
          .jobs = given.concurrent_jobs.value_or(0)};
}

uint32_t given_bits(const TenantRequest& request) {
  uint32_t given = 0;
  const auto give = [&given](bool is_given, TenantField field) { given |= is_given ? uint32_t{field} : 0u; };
  const TenantLimits& limits = request.limits;
  give(request.name.has_value(), kTenantName);
  give(request.email.has_value(), kTenantEmail);
  give(request.organization.has_value(), kTenantOrganization);
  give(limits.gpus.has_value(), kTenantMaxGpus);
  give(limits.gpu_memory_mb.has_value(), kTenantMaxGpuMemory);
  give(limits.cpu_cores.has_value(), kTenantMaxCpu);
  give(limits.memory_mb.has_value(), kTenantMaxMemory);
  give(limits.concurrent_jobs.has_value(), kTenantMaxJobs);
  give(limits.waiting_jobs.has_value(), kTenantWaiting);
  give(limits.soft_waiting_jobs.has_value(), kTenantSoftWaiting);
  give(request.priority_tier.has_value(), kTenantPriorityTier);
  give(request.weight_milli.has_value(), kTenantWeight);
  give(request.allow_preemption.has_value(), kTenantAllowPreemption);
  give(request.can_preempt_others.has_value(), kTenantCanPreempt);
  give(request.anonymous.has_value(), kTenantAnonymous);
  give(request.guarantee.gpus.has_value(), kTenantGuaranteeGpus);
  give(request.guarantee.gpu_memory_mb.has_value(), kTenantGuaranteeGpuMemory);
  give(request.guarantee.cpu_cores.has_value(), kTenantGuaranteeCpu);
  give(request.guarantee.memory_mb.has_value(), kTenantGuaranteeMemory);
  give(request.guarantee.concurrent_jobs.has_value(), kTenantGuaranteeJobs);
  give(request.gpu_ms_max.has_value(), kTenantGpuTimeMax);
  give(request.gpu_window.has_value(), kTenantGpuTimeWindow);
  for (const std::string& name : request.unlimited) {
    give(name == "max_gpu_hours", kTenantGpuTimeWindow);
    give(name == "max_gpus", kTenantMaxGpus);
    give(name == "max_gpu_memory_mb", kTenantMaxGpuMemory);
    give(name == "max_cpu_cores", kTenantMaxCpu);
    give(name == "max_memory_mb", kTenantMaxMemory);
    give(name == "max_concurrent_jobs", kTenantMaxJobs);
    give(name == "max_waiting_jobs", kTenantWaiting);
    give(name == "soft_waiting_jobs", kTenantSoftWaiting);
  }
  return given;
}

}  // namespace

CreateTenant create_command(const TenantRequest& request, TenantId parent) {
  return CreateTenant{.name = request.name.value_or(""),
                      .email = request.email.value_or(""),
                      .organization = request.organization.value_or(""),
                      .parent = parent,
                      .limits = to_engine(request.limits),
                      .priority_tier = request.priority_tier.value_or(500),
                      .weight_milli = request.weight_milli.value_or(1'000),
                      .allow_preemption = request.allow_preemption.value_or(false),
                      .can_preempt_others = request.can_preempt_others.value_or(false),
                      .request_key = request.request_key,
                      .guarantee = guarantee_of(request.guarantee),
                      .gpu_time_window = request.gpu_ms_max
                                             ? request.gpu_window.value_or(limits::kGpuTimeWindow)
                                             : Duration{},
                      .gpu_time_max_ms = request.gpu_ms_max.value_or(0),
                      .anonymous = request.anonymous.value_or(false)};
}

UpdateTenant update_command(const TenantRequest& request, TenantId tenant) {
  return UpdateTenant{.tenant = tenant,
                      .given = given_bits(request),
                      .name = request.name.value_or(""),
                      .email = request.email.value_or(""),
                      .organization = request.organization.value_or(""),
                      .limits = to_engine(request.limits),
                      .priority_tier = request.priority_tier.value_or(0),
                      .weight_milli = request.weight_milli.value_or(0),
                      .allow_preemption = request.allow_preemption.value_or(false),
                      .can_preempt_others = request.can_preempt_others.value_or(false),
                      .guarantee = guarantee_of(request.guarantee),
                      .gpu_time_window = request.gpu_window.value_or(Duration{}),
                      .gpu_time_max_ms = request.gpu_ms_max.value_or(0),
                      .anonymous = request.anonymous.value_or(false)};
}

}  // namespace gpusched::api
