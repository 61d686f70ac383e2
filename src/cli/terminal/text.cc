#include "cli/terminal/text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/check.h"

namespace gpusched::cli {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Unicode 15: the blocks of marks that take no column of their own, and of what takes two.
constexpr Range kZeroWidth[] = {{0x0300, 0x036F}, {0x0483, 0x0489},   {0x0591, 0x05BD},  {0x0610, 0x061A},
                                {0x064B, 0x065F}, {0x0E31, 0x0E31},   {0x0E34, 0x0E3A},  {0x0E47, 0x0E4E},
                                {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},   {0x200B, 0x200F},  {0x202A, 0x202E},
                                {0x2060, 0x2064}, {0x20D0, 0x20FF},   {0xFE00, 0xFE0F},  {0xFE20, 0xFE2F},
                                {0xFEFF, 0xFEFF}, {0x1F3FB, 0x1F3FF}, {0xE0100, 0xE01EF}};
constexpr Range kDoubleWidth[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x2614, 0x2615},   {0x26A1, 0x26A1},
    {0x2705, 0x2705},   {0x274C, 0x274C},   {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
    {0xFE30, 0xFE6F},   {0xFF01, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F004, 0x1F004}, {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};

template <size_t kCount>
bool is_in(const Range (&ranges)[kCount], char32_t c) {
  const Range* const after =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return after != std::begin(ranges) && c <= (after - 1)->last;
}

struct Character {
  char32_t code = 0;
  size_t bytes = 0;  ///< 0: what stands there is not UTF-8.
};

Character first_character(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return {};
  auto code = static_cast<char32_t>(first & (0x7F >> length));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (overlong || surrogate || code > 0x10FFFF) return {};
  return {code, length};
}

int width_of(char32_t code) {
  if (is_in(kZeroWidth, code)) return 0;
  return is_in(kDoubleWidth, code) ? 2 : 1;
}

}  // namespace

std::string printable(std::string_view text) {
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_character(text);
    const bool control = c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0);
    // The marks that turn the direction of writing could make one text look like another.
    const bool turns = (c.code >= 0x202A && c.code <= 0x202E) || (c.code >= 0x2066 && c.code <= 0x2069);
    if (c.bytes == 0 || control || turns) {
      out += kReplacement;
    } else {
      out += text.substr(0, c.bytes);
    }
    text.remove_prefix(std::max<size_t>(c.bytes, 1));
  }
  return out;
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Character c = first_character(text);
    width += c.bytes == 0 ? 1 : width_of(c.code);
    text.remove_prefix(std::max<size_t>(c.bytes, 1));
  }
  return width;
}

std::string fitted(std::string_view text, int width) {
  CHECK(width >= 1);
  if (display_width(text) <= width) return std::string(text);
  int used = 0;
  size_t end = 0;
  while (end < text.size()) {
    const Character c = first_character(text.substr(end));
    const int next = c.bytes == 0 ? 1 : width_of(c.code);
    if (used + next > width - 1) break;  // One column is the ellipsis's.
    used += next;
    end += std::max<size_t>(c.bytes, 1);
  }
  return std::string(text.substr(0, end)) + "…";
}

std::vector<std::string> wrapped(std::string_view text, int width) {
  CHECK(width >= 1);
  std::vector<std::string> lines;
  while (display_width(text) > width) {
    size_t end = 0;       // Behind what has room.
    size_t blank_at = 0;  // The last blank up to there.
    for (int used = 0; end < text.size();) {
      const Character c = first_character(text.substr(end));
      used += c.bytes == 0 ? 1 : width_of(c.code);
      if (c.code == ' ' && end > 0) blank_at = end;
      if (used > width && end > 0) break;
      end += std::max<size_t>(c.bytes, 1);
    }
    if (blank_at > 0) end = blank_at;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(blank_at > 0 ? end + 1 : end);
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace gpusched::cli
