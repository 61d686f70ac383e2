#include "base/text/plain_words.h"

#include <algorithm>

#include "base/utf8.h"

namespace gpusched {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

void append_escaped(std::string& out, unsigned code) {
  switch (code) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\x";
      out += kDigits[code >> 4];
      out += kDigits[code & 0xF];
  }
}

/// U+0080 to U+009F, which begin sequences on some terminals.
bool is_high_control(std::string_view text) {
  return text.size() >= 2 && text[0] == '\xC2' && static_cast<unsigned char>(text[1]) >= 0x80 &&
         static_cast<unsigned char>(text[1]) < 0xA0;
}

bool is_low_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

}  // namespace

std::string plain_words(std::string_view text, std::size_t bytes_max) {
  // Nothing becomes shorter by this.
  std::string clean = utf8_cleaned(utf8_cut(text, bytes_max));
  const auto may_be_control = [](char c) { return is_low_control(c) || c == '\xC2'; };
  if (std::none_of(clean.begin(), clean.end(), may_be_control)) return clean;
  std::string out;
  for (std::string_view rest = clean; !rest.empty();) {
    const bool high = is_high_control(rest);
    if (high || is_low_control(rest[0])) {
      append_escaped(out, static_cast<unsigned char>(rest[high ? 1 : 0]));
    } else {
      out += rest[0];
    }
    rest.remove_prefix(high ? 2 : 1);
  }
  return std::string(utf8_cut(out, bytes_max));
}

}  // namespace gpusched
