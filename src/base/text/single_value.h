#pragma once

#include <optional>
#include <string_view>

namespace gpusched {

/// The value of a name among names and values, such as those of a query. Nothing: there is none, or several,
/// of which two readers could take different ones. It points into `pairs`.
std::optional<std::string_view> single_value(const auto& pairs, std::string_view name) {
  std::optional<std::string_view> found;
  for (const auto& [key, value] : pairs) {
    if (key != name) continue;
    if (found) return std::nullopt;
    found = value;
  }
  return found;
}

}  // namespace gpusched
