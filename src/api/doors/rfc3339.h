#pragma once

#include <optional>
#include <string_view>

#include "base/time.h"

namespace gpusched::api {

/// "2025-01-31T09:00:00Z", with a fraction or another offset too; from 1970 to 2200. Nothing when it is none.
std::optional<Time> parse_rfc3339(std::string_view text);

}  // namespace gpusched::api
