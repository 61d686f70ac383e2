#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gpusched::api {

/// The name that is nearest to `wanted` (Damerau-Levenshtein distance); empty when none is near.
std::string nearest_name(std::string_view wanted, std::span<const std::string> names);

}  // namespace gpusched::api
