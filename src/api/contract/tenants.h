#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/types.h"

/// Tenants, and changes that are made together.
namespace gpusched::api {

/// A tenant's settings, as any door has read or shows them; src/api/fields/tenants/tenant_rows.h has a row
/// for each member. Not given: the default, and for a limit none. Cores are in thousandths, spans in
/// milliseconds.
struct TenantSettings {
  std::optional<std::string> name, email, organization;
  std::optional<int64_t> max_gpus, max_gpu_memory_mb, max_cpu_milli, max_memory_mb, max_concurrent_jobs;
  std::optional<int64_t> max_waiting_jobs;   ///< One more is refused.
  std::optional<int64_t> soft_waiting_jobs;  ///< While more wait, each user's jobs are let in one by one.
  std::optional<int64_t> priority_tier;
  std::optional<int64_t> weight_milli;  ///< Fair-share weight in thousandths.
  std::optional<bool> allow_preemption, can_preempt_others;
  std::optional<bool> anonymous;  ///< Callers without a credential may use it.
  std::optional<int64_t> guaranteed_gpus, guaranteed_gpu_memory_mb, guaranteed_cpu_milli;
  std::optional<int64_t> guaranteed_memory_mb, guaranteed_jobs;
  std::optional<int64_t> gpu_ms_max;     ///< GPU time in each window.
  std::optional<int64_t> gpu_window_ms;  ///< In a request not given: what it is, or a week.
  std::optional<std::string> parent;     ///< Requests only: the parent's name or id; empty: none.
};

/// Values to create or update a tenant with. An update changes only those that are given.
struct TenantRequest : TenantSettings {
  std::vector<std::string> unlimited;  ///< Update: names of limits to lift, such as "max_gpus".
  std::string request_key;
  std::string by;                ///< Requester, for people.
  bool name_may_repeat = false;  ///< Creation: other tenants may have the name already.
};

/// Changes that are made together or not at all.
struct EditsRequest {
  struct Labels {
    std::string node;
    std::vector<Label> set;
    std::vector<std::string> remove;
  };
  /// Each named: created where nobody has the name, else what is given of it is changed. A parent may be the
  /// name of one before it.
  std::vector<TenantRequest> tenants;
  std::vector<Labels> nodes;  ///< Each node once.
  bool dry_run = false;       ///< Only tell whether all would be accepted.
};

struct EditsView {
  bool dry_run = false;
  int32_t tenants_created = 0;
  int32_t tenants_updated = 0;
  int32_t nodes_labeled = 0;
};

struct TenantView {
  TenantId id;
  TenantId parent;
  TenantSettings settings;        ///< All but its parent.
  int64_t current_gpu_milli = 0;  ///< Used by shares, beside the whole ones.
  int64_t current_gpus = 0, current_gpu_memory_mb = 0, current_cpu_milli = 0, current_memory_mb = 0;
  int64_t running_jobs = 0, waiting_jobs = 0;
  int64_t gpu_milliseconds = 0;  ///< Used so far, ended and running attempts.
  int64_t total_jobs = 0, successful_jobs = 0, failed_jobs = 0;
  int64_t gpu_ms_used = 0;  ///< In the present window, when its GPU time is limited.
  Time gpu_window_ends;
  int64_t reclaims = 0;  ///< Its jobs that started on what others had to give back; and their waits for it.
  int64_t reclaim_ms = 0, reclaim_ms_max = 0;
  Time created_at, updated_at;
};

/// Tenants, and changes that are made together. Everything is thread-safe and returns at once; answers come
/// by `Done`.
class TenantBackend {
 public:
  virtual ~TenantBackend() = default;

  virtual void create_tenant(const CallerPtr& caller, TenantRequest request, Done<TenantView> done) = 0;
  virtual void update_tenant(const CallerPtr& caller, const std::string& tenant, TenantRequest request,
                             Done<TenantView> done) = 0;
  virtual void delete_tenant(const CallerPtr& caller, const std::string& tenant, const std::string& by,
                             Done<Unit> done) = 0;
  /// The error's field names the edit that is refused, such as "tenants[2].max_gpus".
  virtual void edit_cluster(const CallerPtr& caller, EditsRequest request, Done<EditsView> done) = 0;
  virtual void get_tenant(const CallerPtr& caller, const std::string& tenant, Done<TenantView> done) = 0;
  virtual void list_tenants(const CallerPtr& caller, Done<std::vector<TenantView>> done) = 0;
};

}  // namespace gpusched::api
