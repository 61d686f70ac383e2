#include "api/backend/tenant_commands.h"

#include "api/fields/tenants/tenant_name.h"
#include "api/fields/tenants/tenant_rows.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

Limits limits_of(const TenantSettings& given) {
  Limits out;
  if (given.max_gpus) out.set(Resource::kGpus, *given.max_gpus);
  if (given.max_gpu_memory_mb) out.set(Resource::kGpuMemory, *given.max_gpu_memory_mb);
  if (given.max_cpu_milli) out.set(Resource::kCpu, *given.max_cpu_milli);
  if (given.max_memory_mb) out.set(Resource::kMemory, *given.max_memory_mb);
  if (given.max_concurrent_jobs) out.set(Resource::kJobs, *given.max_concurrent_jobs);
  out.waiting_max = given.max_waiting_jobs;
  out.soft_waiting_max = given.soft_waiting_jobs;
  return out;
}

Amount guarantee_of(const TenantSettings& given) {
  return {.gpus = given.guaranteed_gpus.value_or(0),
          .gpu_memory_mb = given.guaranteed_gpu_memory_mb.value_or(0),
          .cpu_milli = given.guaranteed_cpu_milli.value_or(0),
          .memory_mb = given.guaranteed_memory_mb.value_or(0),
          .jobs = given.guaranteed_jobs.value_or(0)};
}

}  // namespace

CreateTenant create_command(const TenantRequest& request, TenantId parent) {
  return CreateTenant{
      .name = request.name.value_or(""),
      .email = request.email.value_or(""),
      .organization = request.organization.value_or(""),
      .parent = parent,
      .limits = limits_of(request),
      .priority_tier = static_cast<int32_t>(request.priority_tier.value_or(500)),
      .weight_milli = request.weight_milli.value_or(1'000),
      .allow_preemption = request.allow_preemption.value_or(false),
      .can_preempt_others = request.can_preempt_others.value_or(false),
      .request_key = request.request_key,
      .guarantee = guarantee_of(request),
      .gpu_time_window = request.gpu_ms_max
                             ? milliseconds(request.gpu_window_ms.value_or(limits::kGpuTimeWindow.ms()))
                             : Duration{},
      .gpu_time_max_ms = request.gpu_ms_max.value_or(0),
      .anonymous = request.anonymous.value_or(false),
      .name_may_repeat = request.name_may_repeat,
      .by = request.by,
      .name_key = tenant_name_key(request.name.value_or(""))};
}

UpdateTenant update_command(const TenantRequest& request, TenantId tenant) {
  return UpdateTenant{.tenant = tenant,
                      .given = given_bits(request),
                      .name = request.name.value_or(""),
                      .email = request.email.value_or(""),
                      .organization = request.organization.value_or(""),
                      .limits = limits_of(request),
                      .priority_tier = static_cast<int32_t>(request.priority_tier.value_or(0)),
                      .weight_milli = request.weight_milli.value_or(0),
                      .allow_preemption = request.allow_preemption.value_or(false),
                      .can_preempt_others = request.can_preempt_others.value_or(false),
                      .guarantee = guarantee_of(request),
                      .gpu_time_window = milliseconds(request.gpu_window_ms.value_or(0)),
                      .gpu_time_max_ms = request.gpu_ms_max.value_or(0),
                      .anonymous = request.anonymous.value_or(false),
                      .by = request.by,
                      .name_key = tenant_name_key(request.name.value_or(""))};
}

}  // namespace gpusched::api
