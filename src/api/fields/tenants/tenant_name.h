#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/contract/tenants.h"

/// Names of tenants: unique without case, and seen for what they are. Thread-safe.
namespace gpusched::api {

/// Refuses a name that looks like an id, which would be ambiguous wherever either is accepted, one that has
/// what nobody sees, and one that is written otherwise than usual (Unicode normal form NFKC, UAX #15).
std::optional<ApiError> check_tenant_name(const TenantSettings& settings);

/// See Tenant::name_key: the name in NFKC with its case folded (Unicode, section 3.13). Empty: its Latin
/// letters are all that could differ. The key of a name may change with the library's version of Unicode, so
/// it is kept with the name and never made again.
std::string tenant_name_key(std::string_view name);

}  // namespace gpusched::api
