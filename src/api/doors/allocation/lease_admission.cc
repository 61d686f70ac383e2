#include "api/doors/allocation/lease_admission.h"

#include <algorithm>
#include <utility>

#include "access/access.h"
#include "api/contract/names.h"
#include "api/doors/allocation/allocation_errors.h"
#include "api/doors/allocation/allocation_json.h"
#include "api/doors/pages.h"
#include "base/job_labels.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kLaneMax = 1'000;

/// The caller as one that sees every tenant and its leases, which the quotas of tenants above its own count.
/// Leases that it finds are counted, and never shown. Its questions take of the caller's own share. One
/// without a credential has no roles, whatever it is bound to, so an operator without a name reads for all of
/// them, and they have another share together.
CallerPtr reader_for(const access::Caller& caller) {
  access::Caller reader = caller;
  if (reader.kind == access::CallerKind::kAnonymous) reader.kind = access::CallerKind::kOperator;
  reader.bindings = {{.tenant = {}, .role = Role::kOperator}};
  return std::make_shared<const access::Caller>(std::move(reader));
}

}  // namespace

CallerPtr as_user_of(const CallerPtr& caller, TenantId tenant) {
  const auto is_admin = [](const Binding& binding) {
    return binding.role == Role::kAdmin && !binding.tenant.valid();
  };
  if (caller->kind == access::CallerKind::kAnonymous || std::ranges::none_of(caller->bindings, is_admin))
    return caller;
  auto user = std::make_shared<access::Caller>(*caller);
  user->bindings.push_back({.tenant = tenant, .role = Role::kUser});
  return user;
}

struct LeaseAdmission::Asked {
  /// A quota that the lease is held against: its tenant's, or that of one above.
  struct Quota {
    TenantId tenant;
    int64_t left = 0;  ///< GPUs, beside what is held and waits.
  };

  CallerPtr caller;
  CallerPtr reader;
  SubmitRequest request;
  Done<Submitted> done;
  TenantId tenant = {};  ///< Tenant of the lease.
  TenantId root = {};    ///< The topmost tenant above it, or itself.
  std::vector<Quota> quotas{};
  /// Places in `quotas` that a tenant's leases count in, for each tenant with waiting jobs.
  std::map<TenantId, std::vector<std::size_t>> counted_in{};

  int64_t wanted() const { return request.jobs.front().gpu_count; }
  /// The first quota that has no room for it; null: each has.
  const Quota* exceeded() const {
    const auto found = std::ranges::find_if(quotas, [](const Quota& quota) { return quota.left < 0; });
    return found == quotas.end() ? nullptr : &*found;
  }
};

void LeaseAdmission::allocate(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done) {
  const std::string home =
      request.tenant.empty() ? tenant_name(access::home_tenant(*caller)) : request.tenant;
  const auto asked = std::make_shared<Asked>(Asked{.caller = caller,
                                                   .reader = reader_for(*caller),
                                                   .request = std::move(request),
                                                   .done = std::move(done)});
  backend_.get_tenant(caller, home, [this, asked](Answer<TenantView> tenant) {
    if (!tenant) {
      ApiError error = tenant.error();
      if (error.field == "tenant_id") error.field = "organization_id";
      return asked->done(std::move(error));
    }
    asked->tenant = tenant->id;
    asked->request.tenant = tenant_name(tenant->id);
    find_root(asked, tenant->id);
  });
}

void LeaseAdmission::find_root(const AskedPtr& asked, TenantId at) {
  backend_.get_tenant(asked->reader, tenant_name(at), [this, asked](Answer<TenantView> tenant) {
    if (!tenant) return asked->done(tenant.error());
    if (tenant->parent.valid()) return find_root(asked, tenant->parent);
    asked->root = tenant->id;
    enter(asked);
  });
}

void LeaseAdmission::enter(const AskedPtr& asked) {
  bool is_full = false;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_first] = lanes_.try_emplace(asked->root);
    Lane& lane = at->second;
    is_full = !is_first && lane.waiting.size() >= kLaneMax;
    if (!is_first && !is_full) return lane.waiting.push_back(asked);
  }
  if (!is_full) return check_quotas(asked);
  asked->done(
      ApiError{.kind = ErrorKind::kThrottled,
               .message = "too many allocations of the organization wait for their turn; try again later",
               .retry_after = seconds(1)});
}

void LeaseAdmission::leave(TenantId root) {
  for (AskedPtr next = end_turn(root); next != nullptr; next = next_turn(root)) check_quotas(next);
}

LeaseAdmission::AskedPtr LeaseAdmission::end_turn(TenantId root) {
  {
    const std::lock_guard lock(mutex_);
    const auto lane = lanes_.find(root);
    CHECK(lane != lanes_.end() && lane->second.is_taken);
    lane->second.is_taken = false;
    if (lane->second.is_given) return nullptr;
    lane->second.is_given = true;
  }
  return next_turn(root);
}

LeaseAdmission::AskedPtr LeaseAdmission::next_turn(TenantId root) {
  const std::lock_guard lock(mutex_);
  const auto at = lanes_.find(root);
  CHECK(at != lanes_.end() && at->second.is_given);
  Lane& lane = at->second;
  if (lane.is_taken) {
    lane.is_given = false;  // The holder of the turn gives it on.
    return nullptr;
  }
  if (lane.waiting.empty()) {
    lanes_.erase(at);
    return nullptr;
  }
  AskedPtr next = std::move(lane.waiting.front());
  lane.waiting.pop_front();
  lane.is_taken = true;
  return next;
}

void LeaseAdmission::check_quotas(const AskedPtr& asked) {
  backend_.list_tenants(asked->reader, [this, asked](Answer<std::vector<TenantView>> listed) {
    if (!listed) return finish(asked, listed.error());
    std::map<TenantId, const TenantView*> tenants;
    for (const TenantView& tenant : *listed) tenants.emplace(tenant.id, &tenant);
    const auto for_each_above = [&tenants](TenantId from, const auto& use) {
      for (auto at = tenants.find(from); at != tenants.end(); at = tenants.find(at->second->parent))
        use(*at->second);
    };
    for_each_above(asked->tenant, [&asked](const TenantView& tenant) {
      if (!tenant.settings.max_gpus) return;
      const int64_t held = tenant.current_gpus + (tenant.current_gpu_milli + 999) / 1'000;
      asked->quotas.push_back(
          {.tenant = tenant.id, .left = *tenant.settings.max_gpus - held - asked->wanted()});
    });
    if (asked->exceeded() != nullptr) return check_known(asked);
    for (const TenantView& waiting : *listed) {
      if (waiting.waiting_jobs == 0) continue;
      for_each_above(waiting.id, [&](const TenantView& tenant) {
        const auto quota = std::ranges::find(asked->quotas, tenant.id, &Asked::Quota::tenant);
        if (quota == asked->quotas.end()) return;
        asked->counted_in[waiting.id].push_back(
            static_cast<std::size_t>(std::distance(asked->quotas.begin(), quota)));
      });
    }
    if (asked->counted_in.empty()) return submit(asked);
    count_waiting(asked, JobId{});
  });
}

void LeaseAdmission::count_waiting(const AskedPtr& asked, JobId before) {
  JobFilter filter;
  // Jobs of one tenant are found faster than those of several among all.
  if (asked->counted_in.size() == 1) filter.tenant = tenant_name(asked->counted_in.begin()->first);
  filter.state = JobState::kPending;
  filter.limit = kPageMax;
  filter.before = before;
  filter.labels = {{std::string(kLeaseLabel), std::nullopt}};
  filter.details = {.name = false, .message = false, .place = false, .gpus = false};
  backend_.list_jobs(asked->reader, std::move(filter), [this, asked](Answer<JobPage> page) {
    if (!page) return finish(asked, page.error());
    for (const JobView& job : page->jobs) {
      const auto counted = asked->counted_in.find(job.tenant);
      if (counted == asked->counted_in.end()) continue;
      for (const std::size_t quota : counted->second) asked->quotas.at(quota).left -= job.gpu_count;
    }
    if (asked->exceeded() != nullptr) return check_known(asked);
    if (page->next.valid()) return count_waiting(asked, page->next);
    submit(asked);
  });
}

void LeaseAdmission::check_known(const AskedPtr& asked) {
  const bool is_own = asked->exceeded()->tenant == asked->tenant;
  const ApiError refused{ErrorKind::kQuotaExceeded,
                         std::string(is_own ? kGpuQuotaReached : kQuotaAboveReached), "count"};
  if (asked->request.request_key.empty()) return finish(asked, refused);
  JobFilter filter;
  filter.tenant = asked->request.tenant;
  filter.labels = {{std::string(kLeaseRequestLabel), request_label(asked->request.request_key)}};
  filter.details = {.name = false, .message = false, .place = false, .gpus = false};
  backend_.list_jobs(asked->caller, std::move(filter), [this, asked, refused](Answer<JobPage> page) {
    if (!page) return finish(asked, page.error());
    if (page->jobs.empty()) return finish(asked, refused);
    submit(asked);  // The answer is the one that was given then.
  });
}

void LeaseAdmission::submit(const AskedPtr& asked) {
  backend_.submit(as_user_of(asked->caller, asked->tenant), std::move(asked->request),
                  [this, asked](Answer<Submitted> answer) { finish(asked, std::move(answer)); });
}

void LeaseAdmission::finish(const AskedPtr& asked, Answer<Submitted> answer) {
  const Done<Submitted> done = std::move(asked->done);
  leave(asked->root);
  done(std::move(answer));  // The admission may be gone now.
}

}  // namespace gpusched::api
