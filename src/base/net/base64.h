#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpusched {

inline constexpr std::string_view kBase64Letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648, with padding.
inline std::string base64_encoded(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = bytes.size() - at < 3 ? bytes.size() - at : 3;
    uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) out += i <= count ? kBase64Letters[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

/// Returns nothing if the text is not the output of `base64_encoded`.
inline std::optional<std::string> base64_decoded(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    std::size_t padding = 0;
    uint32_t group = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const char letter = text[at + i];
      if (letter == '=' && last && i >= 2) {
        padding += 1;
        group <<= 6;
        continue;
      }
      const std::size_t value = kBase64Letters.find(letter);
      if (value == std::string_view::npos || padding > 0) return std::nullopt;
      group = group << 6 | static_cast<uint32_t>(value);
    }
    if ((padding == 1 && (group & 0xFF) != 0) || (padding == 2 && (group & 0xFFFF) != 0)) return std::nullopt;
    for (std::size_t i = 0; i + padding < 3; ++i) out += static_cast<char>(group >> (16 - 8 * i) & 0xFF);
  }
  return out;
}

}  // namespace gpusched
