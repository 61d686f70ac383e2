// HostBackend: tenants.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "api/backend/host_backend.h"
#include "api/backend/tenant_commands.h"
#include "api/contract/names.h"
#include "api/views/reader_clock.h"
#include "api/views/state_views.h"
#include "api/views/tenant_visibility.h"

namespace gpusched::api {

using access::Action;

namespace {

/// `parent` names the tenant's parent, or nobody where it has none.
bool is_parent_of(const State& state, const access::Caller& caller, const std::string& parent,
                  const Tenant& tenant) {
  if (parent.empty()) return !tenant.parent.valid();
  const Answer<const Tenant*> named = find_tenant(state, caller, parent);
  return named && (*named)->id == tenant.parent;
}

/// GPU-milliseconds that running attempts have held so far, by their jobs' tenants. The state counts an
/// attempt's when it has ended.
class RunningGpuTime {
 public:
  explicit RunningGpuTime(const State& state) {
    const Time now = reader_now(state);
    for (const auto& [key, attempt] : state.attempts) {
      const Job* const job = attempt.abandoned || attempt.going == 0 ? nullptr : state.jobs.find(key.job);
      if (job == nullptr) continue;
      by_tenant_[job->tenant] +=
          gpu_ms_of(state.held_by(*job), std::max(now - attempt.placed_at, Duration{}));
    }
  }
  int64_t of(TenantId tenant) const {
    const auto found = by_tenant_.find(tenant);
    return found == by_tenant_.end() ? 0 : found->second;
  }

 private:
  std::map<TenantId, int64_t> by_tenant_;
};

TenantView view_now(const access::Caller& caller, const State& state, const Tenant& tenant,
                    const RunningGpuTime& running) {
  TenantView shown = view_for(caller, state, tenant);
  shown.gpu_milliseconds += running.of(tenant.id);
  return shown;
}

}  // namespace

void HostBackend::propose_for_tenant(const CallerPtr& caller, Command command, TenantId tenant,
                                     Done<TenantView> done) {
  propose_as(*caller, std::move(command), [this, caller, tenant, done](const Result<Decided>& decided) {
    if (auto refused = refusal(decided)) return done(std::move(*refused));
    const TenantId id = tenant.valid() ? tenant : TenantId{decided->applied.first_id};
    host_.observer().read(decided->sequence, [caller, id, done](const Observer::View& view) {
      const Tenant* found = view.state.find_tenant(id);
      if (found == nullptr)
        return done(ApiError{ErrorKind::kTenantNotFound, "no such tenant: " + tenant_name(id), "tenant_id"});
      done(view_now(*caller, view.state, *found, RunningGpuTime(view.state)));
    });
  });
}

void HostBackend::create_tenant(const CallerPtr& caller, TenantRequest request, Done<TenantView> done) {
  if (auto refused = limit_tenant(*caller, options_.anonymous, request)) return done(std::move(*refused));
  const bool is_anonymous = caller->kind == access::CallerKind::kAnonymous;
  if (is_anonymous) request.anonymous = true;
  const std::string above = request.parent.value_or("");
  const auto propose = [this, caller, request = std::move(request), done](TenantId parent) {
    propose_for_tenant(caller, create_command(request, parent), TenantId{}, done);
  };
  if (above.empty()) {
    // At the top: what such callers make there is open to all of them.
    if (decide_access(*caller, Action::kCreateTenant, {.is_open = is_anonymous}) != access::Verdict::kAllowed)
      return done(not_allowed(*caller, Action::kCreateTenant, "create a tenant"));
    return propose(TenantId{});
  }
  with_tenant(caller, Action::kCreateTenant, above, propose, [is_anonymous, done](ApiError error) {
    if (is_anonymous && error.kind == ErrorKind::kTenantNotFound) return done(std::move(error));
    if (error.kind == ErrorKind::kTenantNotFound) error.kind = ErrorKind::kTenantParentInvalid;
    error.field = "parent_id";
    done(std::move(error));
  });
}

void HostBackend::update_tenant(const CallerPtr& caller, const std::string& tenant, TenantRequest request,
                                Done<TenantView> done) {
  if (auto refused = limit_tenant(*caller, options_.anonymous, request)) return done(std::move(*refused));
  if (request.parent) {
    // A client that sends back what it has read names the parent that the tenant has.
    read([this, caller, tenant, request = std::move(request), done](const Observer::View& view) mutable {
      const Answer<const Tenant*> found = find_tenant(view.state, *caller, Action::kUpdateTenant, tenant);
      if (!found) return done(found.error());
      if (!is_parent_of(view.state, *caller, *request.parent, **found)) {
        return done(ApiError{.kind = ErrorKind::kUnprocessable,
                             .message = "a tenant's parent is set when it is created and cannot be changed; "
                                        "leave out parent_id, or create another tenant",
                             .field = "parent_id"});
      }
      request.parent.reset();
      update_tenant(caller, tenant, std::move(request), done);
    });
    return;
  }
  with_tenant(
      caller, Action::kUpdateTenant, tenant,
      [this, caller, request = std::move(request), done](TenantId id) {
        if (auto refused = keep_default(*caller, id, "change the default tenant"))
          return done(std::move(*refused));
        propose_for_tenant(caller, update_command(request, id), id, done);
      },
      done);
}

void HostBackend::delete_tenant(const CallerPtr& caller, const std::string& tenant, const std::string& by,
                                Done<Unit> done) {
  if (auto refused = limit_networks(*caller, options_.anonymous)) return done(std::move(*refused));
  with_tenant(
      caller, Action::kDeleteTenant, tenant,
      [this, caller, by = shown_by(*caller, by), done](TenantId id) {
        if (auto refused = keep_default(*caller, id, "delete the default tenant"))
          return done(std::move(*refused));
        propose_as(
            *caller, DeleteTenant{.tenant = id, .by = by}, [this, done](const Result<Decided>& decided) {
              if (auto refused = refusal(decided)) return done(std::move(*refused));
              // Answered once reads no longer show it.
              host_.observer().read(decided->sequence, [done](const Observer::View&) { done(Unit{}); });
            });
      },
      done);
}

void HostBackend::get_tenant(const CallerPtr& caller, const std::string& tenant, Done<TenantView> done) {
  if (sheds_read(done)) return;
  read([caller, tenant, done = std::move(done)](const Observer::View& view) {
    const Answer<const Tenant*> found = find_tenant(view.state, *caller, tenant);
    if (!found) return done(found.error());
    done(view_now(*caller, view.state, **found, RunningGpuTime(view.state)));
  });
}

void HostBackend::list_tenants(const CallerPtr& caller, Done<std::vector<TenantView>> done) {
  std::shared_ptr<void> place = place_for_scan(*caller, done);
  if (place == nullptr) return;
  scan_once([caller, place = std::move(place), done = std::move(done)](const Observer::View& view) {
    const bool sees_all = may_always(*caller, Action::kSeeTenant);
    const RunningGpuTime running(view.state);
    std::vector<TenantView> out;
    for (const auto& [id, tenant] : view.state.tenants) {
      if (tenant.deleted) continue;
      if (sees_all || decide(view.state, *caller, Action::kSeeTenant, tenant) == access::Verdict::kAllowed)
        out.push_back(view_now(*caller, view.state, tenant, running));
    }
    done(std::move(out));
  });
}

}  // namespace gpusched::api
