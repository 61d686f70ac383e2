#pragma once

#include <algorithm>
#include <string_view>

namespace gpusched {

/// Whether the text has a character that moves a terminal or a log line: a line break, a tab, an escape, a
/// NUL.
constexpr bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

}  // namespace gpusched
