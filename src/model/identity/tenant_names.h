#pragma once

#include <algorithm>
#include <string_view>

namespace gpusched {

/// Latin letters alike, whatever their case: what people take for one name.
inline bool is_same_name(std::string_view a, std::string_view b) {
  const auto folded = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, folded, folded);
}

}  // namespace gpusched
