#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpusched {

inline constexpr std::string_view kBase64UrlLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// RFC 4648's alphabet for URLs, without padding, as RFC 7515 has it.
inline std::string base64url_encoded(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() * 4 + 2) / 3);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = bytes.size() - at < 3 ? bytes.size() - at : 3;
    uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i <= count; ++i) out += kBase64UrlLetters[group >> (18 - 6 * i) & 63];
  }
  return out;
}

/// Returns nothing if the text is not the output of `base64url_encoded`: padding, other letters, and bits
/// behind the last byte that are not zero are refused, so that bytes have one spelling.
inline std::optional<std::string> base64url_decoded(std::string_view text) {
  static constexpr std::array<uint8_t, 256> kValues = [] {
    std::array<uint8_t, 256> values{};
    for (uint8_t& value : values) value = 0xFF;
    for (std::size_t i = 0; i < kBase64UrlLetters.size(); ++i)
      values[static_cast<unsigned char>(kBase64UrlLetters[i])] = static_cast<uint8_t>(i);
    return values;
  }();
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t group = 0;
  unsigned bits = 0;
  for (const char letter : text) {
    const uint8_t value = kValues[static_cast<unsigned char>(letter)];
    if (value == 0xFF) return std::nullopt;
    group = (group << 6 | value) & 0xFFFF;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>(group >> bits & 0xFF);
  }
  if ((group & ((1u << bits) - 1)) != 0) return std::nullopt;
  return out;
}

}  // namespace gpusched
