#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace gpusched {

std::size_t utf8_character_bytes(std::string_view text) {
  const auto in = [&](std::size_t at, unsigned low, unsigned high) {
    if (at >= text.size()) return false;
    const auto byte = static_cast<unsigned char>(text[at]);
    return byte >= low && byte <= high;
  };
  if (text.empty()) return 0;
  const unsigned first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return in(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = first == 0xED ? 0x9F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xF4 ? 0x8F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) && in(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

std::size_t utf8_prefix_bytes(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080'8080'8080'8080;
  std::size_t at = 0;
  while (at < text.size()) {
    // Most texts are ASCII: eight of its bytes at a time.
    uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & kHighBits) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const std::size_t bytes = utf8_character_bytes(text.substr(at));
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

bool is_utf8(std::string_view text) { return utf8_prefix_bytes(text) == text.size(); }

std::string utf8_cleaned(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t good = utf8_prefix_bytes(text);
    clean += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    clean += '?';
    text.remove_prefix(1);
  }
  return clean;
}

std::string_view utf8_cut(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  // The first byte left out is never a continuation. A character has three of these at most.
  for (int i = 0; i < 3 && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80; ++i) --end;
  return text.substr(0, end);
}

}  // namespace gpusched
