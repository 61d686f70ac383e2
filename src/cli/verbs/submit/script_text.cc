#include "cli/verbs/submit/script_text.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace gpusched::cli {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// The error about the byte at `offset`: "train.sh:3: byte 14 is ...".
Error bad_byte(std::string_view text, std::size_t offset, const std::string& name, const std::string& what) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_end = before.rfind('\n');
  const std::size_t place = offset - (line_end == std::string_view::npos ? 0 : line_end + 1) + 1;
  return {.code = ErrorCode::kInvalidArgument,
          .message = name + ":" + std::to_string(line) + ": byte " + std::to_string(place) + " is " + what};
}

/// Makes the line ends LF. Returns how many lines were changed.
std::size_t convert_line_ends(std::string& text) {
  if (text.find('\r') == std::string::npos) return 0;
  const bool only_cr = text.find('\n') == std::string::npos;
  std::size_t converted = 0;
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool before_lf = i + 1 < text.size() && text[i + 1] == '\n';
    const bool is_end = text[i] == '\r' && (before_lf || only_cr || i + 1 == text.size());
    if (is_end) ++converted;
    if (!is_end) out += text[i];
    if (is_end && !before_lf) out += '\n';
  }
  text = std::move(out);
  return converted;
}

std::string byte_text(char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto value = static_cast<unsigned char>(byte);
  return {'0', 'x', kDigits[value >> 4], kDigits[value & 15]};
}

}  // namespace

bool is_utf16(std::string_view text) { return text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"); }

std::string not_utf8(std::string_view text) {
  const std::size_t at = utf8_prefix_bytes(text);
  if (at == text.size()) return "";
  return "byte " + std::to_string(at + 1) + " is " + byte_text(text[at]) + ", which is not UTF-8";
}

Result<ScriptText> clean_script_text(std::string text, const std::string& name) {
  ScriptText clean;
  if (is_utf16(text)) {
    return bad_byte(
        text, 0, name,
        "the beginning of UTF-16; save the file as UTF-8, such as with: iconv -f UTF-16 -t UTF-8");
  }
  if (text.starts_with(kByteOrderMark)) {
    text.erase(0, kByteOrderMark.size());
    clean.notes.push_back(name + ": its byte order mark was left out");
  }
  if (const std::size_t converted = convert_line_ends(text); converted > 0) {
    clean.notes.push_back(name + ": " + std::to_string(converted) +
                          (converted == 1 ? " line that ended" : " lines that ended") +
                          " with a carriage return " + (converted == 1 ? "was" : "were") +
                          " sent with a line feed");
  }
  if (const std::size_t at = text.find('\r'); at != std::string::npos)
    return bad_byte(text, at, name, "a carriage return within the line; remove it, or write it as \\r");
  if (const std::size_t at = utf8_prefix_bytes(text); at != text.size()) {
    return bad_byte(text, at, name,
                    byte_text(text[at]) +
                        ", which is not UTF-8; save the file as UTF-8, such as with: iconv "
                        "-f LATIN1 -t UTF-8");
  }
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first != 0 && first != std::string::npos && text.compare(first, 2, "#!") == 0) {
    return bad_byte(
        text, first, name,
        "the beginning of a #! line, which counts only at the very beginning of the script; remove "
        "the blanks and lines before it");
  }
  clean.text = std::move(text);
  return clean;
}

}  // namespace gpusched::cli
