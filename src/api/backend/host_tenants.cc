// HostBackend: tenants.
#include <utility>
#include <vector>

#include "api/backend/host_backend.h"
#include "api/backend/tenant_commands.h"
#include "api/contract/names.h"
#include "api/views/state_views.h"

namespace gpusched::api {

void HostBackend::propose_for_tenant(Command command, TenantId tenant, Done<TenantView> done) {
  propose(std::move(command), [this, tenant, done](Result<Decided> decided) {
    if (auto refused = refusal(decided)) return done(std::move(*refused));
    const TenantId id = tenant.valid() ? tenant : TenantId{decided->applied.first_id};
    host_.observer().read(decided->sequence, [id, done](const Observer::View& view) {
      const Tenant* found = view.state.find_tenant(id);
      if (found == nullptr)
        return done(ApiError{ErrorKind::kTenantNotFound, "no such tenant: " + tenant_name(id), "tenant_id"});
      done(view_of(*found, view.state.last.at));
    });
  });
}

void HostBackend::create_tenant(TenantRequest request, Done<TenantView> done) {
  const auto propose = [this, request, done](TenantId parent) {
    propose_for_tenant(create_command(request, parent), TenantId{}, done);
  };
  if (!request.parent || request.parent->empty()) return propose(TenantId{});
  with_tenant(*request.parent, propose, [done](ApiError error) {
    if (error.kind == ErrorKind::kTenantNotFound) error.kind = ErrorKind::kTenantParentInvalid;
    error.field = "parent_id";
    done(std::move(error));
  });
}

void HostBackend::update_tenant(const std::string& tenant, TenantRequest request, Done<TenantView> done) {
  with_tenant(
      tenant,
      [this, request, done](TenantId id) { propose_for_tenant(update_command(request, id), id, done); },
      done);
}

void HostBackend::delete_tenant(const std::string& tenant, const std::string& by, Done<Unit> done) {
  with_tenant(
      tenant,
      [this, by, done](TenantId id) {
        propose(DeleteTenant{.tenant = id, .by = by}, [this, done](Result<Decided> decided) {
          if (auto refused = refusal(decided)) return done(std::move(*refused));
          // Answered once reads no longer show it.
          host_.observer().read(decided->sequence, [done](const Observer::View&) { done(Unit{}); });
        });
      },
      done);
}

void HostBackend::get_tenant(const std::string& tenant, Done<TenantView> done) {
  if (sheds_read(done)) return;
  read([tenant, done = std::move(done)](const Observer::View& view) {
    const Answer<const Tenant*> found = find_tenant(view.state, tenant);
    if (!found) return done(found.error());
    done(view_of(**found, view.state.last.at));
  });
}

void HostBackend::list_tenants(Done<std::vector<TenantView>> done) {
  if (sheds_scan(done)) return;
  scan_once([done = std::move(done)](const Observer::View& view) {
    std::vector<TenantView> out;
    for (const auto& [id, tenant] : view.state.tenants) {
      if (!tenant.deleted) out.push_back(view_of(tenant, view.state.last.at));
    }
    done(std::move(out));
  });
}

}  // namespace gpusched::api
