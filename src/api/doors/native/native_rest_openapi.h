#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/doors/native/native_rest.h"

namespace gpusched::api {

/// The OpenAPI 3.1 document of all doors: of the native API by its routes and messages, of the others by
/// doors/docs/call_words.h.
std::string openapi_json(std::span<const NativeRoute> routes, std::string_view version);

}  // namespace gpusched::api
