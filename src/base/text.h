#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpusched {

/// Whether the text has a character that moves a terminal or a log line: a line break, a tab, an escape, a
/// NUL.
constexpr bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

/// Thousandths of a core as people write cores: 1500 is "1.500", 2000 is "2".
inline std::string cores_text(int64_t milli) {
  std::string text = std::to_string(milli / 1000);
  if (milli % 1000 != 0) text += "." + std::to_string(1000 + milli % 1000).substr(1);
  return text;
}

}  // namespace gpusched
