#include "anticipate/plain_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace gpusched::anticipate {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kBell = '\x07';

/// Bytes of the escape sequence that `text`, which begins with ESC, begins with.
std::size_t escape_bytes(std::string_view text) {
  if (text.size() < 2) return text.size();
  const char kind = text[1];
  if (kind == '[') {  // CSI: ends with a byte from '@' to '~'.
    std::size_t at = 2;
    while (at < text.size() && text[at] >= 0x20 && text[at] <= 0x3f) ++at;
    return std::min(at + 1, text.size());
  }
  if (kind == ']' || kind == 'P' || kind == 'X' || kind == '^' ||
      kind == '_') {  // Strings: end with BEL or ST.
    for (std::size_t at = 2; at < text.size(); ++at) {
      if (text[at] == kBell || text[at] == '\n') return at + (text[at] == kBell ? 1 : 0);
      if (text[at] == kEscape) return std::min(at + 2, text.size());
    }
    return text.size();
  }
  return 2;
}

/// Whether a character of several bytes is invisible or changes the direction of its line: C1 controls,
/// U+200B to U+200F, U+202A to U+202E, U+2060 to U+2069, U+FEFF.
bool is_hidden(std::string_view character) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(character[at]); };
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() != 3) return false;
  if (byte(0) == 0xE2 && byte(1) == 0x80)
    return (byte(2) >= 0x8B && byte(2) <= 0x8F) || (byte(2) >= 0xAA && byte(2) <= 0xAE);
  if (byte(0) == 0xE2 && byte(1) == 0x81) return byte(2) >= 0xA0 && byte(2) <= 0xA9;
  return byte(0) == 0xEF && byte(1) == 0xBB && byte(2) == 0xBF;
}

}  // namespace

std::string plain_text(std::string_view bytes, std::size_t bytes_max) {
  std::string out;
  while (!bytes.empty() && out.size() < bytes_max) {
    const char first = bytes.front();
    std::size_t size = utf8_character_bytes(bytes);
    if (first == kEscape) {
      size = escape_bytes(bytes);
    } else if (first == '\t' || first == '\r') {
      out.push_back(' ');
    } else if (size == 0) {
      out.push_back('?');
      size = 1;
    } else if (size == 1) {
      const bool shown = (first >= ' ' && first != 0x7f) || first == '\n';
      if (shown) out.push_back(first);
    } else if (!is_hidden(bytes.substr(0, size))) {
      out.append(bytes.substr(0, size));
    }
    bytes.remove_prefix(size);
  }
  out.resize(utf8_cut(out, bytes_max).size());
  return out;
}

std::vector<std::string> LineSplitter::feed(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    const std::size_t kept = std::min(piece.size(), kLineBytesMax - line_.size());
    line_.append(piece.substr(0, kept));
    dropped_bytes_ += piece.size() - kept;
    if (end == std::string_view::npos) break;
    if (!line_.empty()) lines.push_back(std::move(line_));
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
  return lines;
}

void LineSplitter::reset() { line_.clear(); }

}  // namespace gpusched::anticipate
