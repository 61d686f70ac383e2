#pragma once

#include <cstdint>
#include <string>

#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/types.h"

/// The commands that make, change and remove tenants; see commands.h.
namespace gpusched {

struct CreateTenant {
  std::string name, email, organization;
  TenantId parent;  ///< None: a root.
  Limits limits;
  int32_t priority_tier = 500;
  int64_t weight_milli = 1000;
  bool allow_preemption = false;
  bool can_preempt_others = false;
  std::string request_key;
  Amount guarantee;
  Duration gpu_time_window;  ///< Zero: no limit of GPU hours.
  int64_t gpu_time_max_ms = 0;
  bool anonymous = false;        ///< Callers without a credential may use the tenant.
  bool name_may_repeat = false;  ///< Other tenants may have the name already.
  std::string by;                ///< Caller who asked, for people, as in the other commands; may be empty.
  std::string name_key;          ///< See Tenant; the door makes it.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "name", self.name);
    visit(2, "email", self.email);
    visit(3, "organization", self.organization);
    visit(4, "parent", self.parent);
    visit(5, "limits", self.limits);
    visit(6, "priority_tier", self.priority_tier);
    visit(7, "weight_milli", self.weight_milli);
    visit(8, "allow_preemption", self.allow_preemption);
    visit(9, "can_preempt_others", self.can_preempt_others);
    visit(10, "request_key", self.request_key);
    visit(30, "guarantee_gpus", self.guarantee.gpus);
    visit(31, "guarantee_gpu_memory_mb", self.guarantee.gpu_memory_mb);
    visit(32, "guarantee_cpu_milli", self.guarantee.cpu_milli);
    visit(33, "guarantee_memory_mb", self.guarantee.memory_mb);
    visit(34, "guarantee_jobs", self.guarantee.jobs);
    visit(35, "gpu_time_window", self.gpu_time_window);
    visit(36, "gpu_time_max_ms", self.gpu_time_max_ms);
    visit(90, "anonymous", self.anonymous);
    visit(91, "name_may_repeat", self.name_may_repeat);
    visit(92, "by", self.by);
    visit(93, "name_key", self.name_key);
  }
};

/// The given fields of UpdateTenant.
enum TenantField : uint32_t {
  kTenantName = 1u << 0,
  kTenantEmail = 1u << 1,
  kTenantOrganization = 1u << 2,
  kTenantMaxGpus = 1u << 3,
  kTenantMaxGpuMemory = 1u << 4,
  kTenantMaxCpu = 1u << 5,
  kTenantMaxMemory = 1u << 6,
  kTenantMaxJobs = 1u << 7,
  kTenantPriorityTier = 1u << 8,
  kTenantWeight = 1u << 9,
  kTenantAllowPreemption = 1u << 10,
  kTenantCanPreempt = 1u << 11,
  kTenantGuaranteeGpus = 1u << 12,
  kTenantGuaranteeGpuMemory = 1u << 13,
  kTenantGuaranteeCpu = 1u << 14,
  kTenantGuaranteeMemory = 1u << 15,
  kTenantGuaranteeJobs = 1u << 16,
  kTenantGpuTimeWindow = 1u << 17,
  kTenantGpuTimeMax = 1u << 18,
  kTenantWaiting = 1u << 19,
  kTenantSoftWaiting = 1u << 20,
  kTenantAnonymous = 1u << 21,
};

/// Changes what `given` names. A new priority tier holds for jobs submitted after it. A limit below what is
/// used ends nothing: nothing more starts until less is used. Another length of the window for GPU hours
/// begins to count from zero.
struct UpdateTenant {
  TenantId tenant;
  uint32_t given = 0;  ///< Bits of TenantField.
  std::string name;
  std::string email;
  std::string organization;
  Limits limits;
  int32_t priority_tier = 0;
  int64_t weight_milli = 0;
  bool allow_preemption = false;
  bool can_preempt_others = false;
  Amount guarantee;
  Duration gpu_time_window;
  int64_t gpu_time_max_ms = 0;
  bool anonymous = false;  ///< Callers without a credential may use the tenant.
  std::string by;
  std::string name_key;  ///< Key of `name`: see Tenant.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "given", self.given);
    visit(3, "name", self.name);
    visit(4, "email", self.email);
    visit(5, "organization", self.organization);
    visit(6, "limits", self.limits);
    visit(7, "priority_tier", self.priority_tier);
    visit(8, "weight_milli", self.weight_milli);
    visit(9, "allow_preemption", self.allow_preemption);
    visit(10, "can_preempt_others", self.can_preempt_others);
    visit(30, "guarantee_gpus", self.guarantee.gpus);
    visit(31, "guarantee_gpu_memory_mb", self.guarantee.gpu_memory_mb);
    visit(32, "guarantee_cpu_milli", self.guarantee.cpu_milli);
    visit(33, "guarantee_memory_mb", self.guarantee.memory_mb);
    visit(34, "guarantee_jobs", self.guarantee.jobs);
    visit(35, "gpu_time_window", self.gpu_time_window);
    visit(36, "gpu_time_max_ms", self.gpu_time_max_ms);
    visit(90, "anonymous", self.anonymous);
    visit(92, "by", self.by);
    visit(93, "name_key", self.name_key);
  }
};

/// Refused while the tenant has unfinished jobs or children.
struct DeleteTenant {
  TenantId tenant;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "by", self.by);
  }
};

}  // namespace gpusched
