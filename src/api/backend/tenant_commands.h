#pragma once

#include "api/contract/tenants.h"
#include "engine/messages/commands.h"

/// Translates clients' requests about tenants into the engine's commands.
namespace gpusched::api {

CreateTenant create_command(const TenantRequest& request, TenantId parent);
/// Changes what is given; a parent is not.
UpdateTenant update_command(const TenantRequest& request, TenantId tenant);

}  // namespace gpusched::api
