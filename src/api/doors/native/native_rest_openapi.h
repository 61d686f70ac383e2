#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/doors/native/native_rest.h"

namespace gpusched::api {

/// The OpenAPI 3.0 document of the routes, with the schemas of all their messages.
std::string openapi_json(std::span<const NativeRoute> routes, std::string_view version);

}  // namespace gpusched::api
