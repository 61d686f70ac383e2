#include "log/line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "base/text/civil_time.h"
#include "base/utf8.h"

namespace gpusched {
namespace {

/// True for characters of ASCII that a JSON string holds as they are.
bool stands_for_itself(char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; }

void append_escaped_byte(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
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
      break;
  }
  if (c >= 0x20 && c != 0x7F) {
    out += static_cast<char>(c);
    return;
  }
  static constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\u00";
  out += kHex[c >> 4];
  out += kHex[c & 15];
}

template <typename Number>
void append_number(std::string& out, Number value) {
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  CHECK(error == std::errc{});
  out.append(digits.data(), end);
}

void append_padded(std::string& out, int64_t value, int width) {
  std::array<char, 20> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  CHECK(error == std::errc{});
  for (auto length = end - digits.data(); length < width; ++length) out += '0';
  out.append(digits.data(), end);
}

struct ValuePrinter {
  std::string& out;

  void operator()(std::string_view value) const { append_json_string(out, value); }
  void operator()(int64_t value) const { append_number(out, value); }
  void operator()(uint64_t value) const { append_number(out, value); }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(double value) const {
    if (!std::isfinite(value)) {
      out += "null";  // JSON has no infinity.
      return;
    }
    append_number(out, value);
  }
};

void append_subject(std::string& out, const LogSubject& subject) {
  if (!subject.job.empty()) {
    out += ",\"task_id\":";
    append_json_string(out, subject.job);
    return;
  }
  if (!subject.id.valid()) return;
  out += ",\"task_id\":\"job-";
  append_number(out, subject.id.value);
  out += '"';
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  const bool cut = text.size() > kLogValueBytesMax;
  if (cut) {
    size_t end = kLogValueBytesMax;
    // The cut falls between characters: a continuation byte is never the first one left out.
    for (int i = 0; i < 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80; ++i) --end;
    text = text.substr(0, end);
  }
  append_whole_json_string(out, text);
  if (!cut) return;
  out.pop_back();
  out += "…\"";
}

void append_whole_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    // Most texts are one run of characters that stand for themselves.
    const size_t plain =
        static_cast<size_t>(std::find_if_not(text.begin(), text.end(), stands_for_itself) - text.begin());
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const size_t length = utf8_character_bytes(text);
    if (length == 1) {
      append_escaped_byte(out, static_cast<unsigned char>(text[0]));
    } else if (length == 0) {
      out += "\\ufffd";
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

void append_rfc3339(std::string& out, Time wall) {
  append_civil_time(out, civil_time_of(wall));
  // Rounded down, also before 1970.
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t ms = (wall.ns % kSecond + kSecond) % kSecond / 1'000'000;
  out += '.';
  append_padded(out, ms, 3);
  out += 'Z';
}

std::string format_log_line(Time wall, LogLevel level, std::string_view component, std::string_view event,
                            const LogSubject& subject, std::initializer_list<LogField> details) {
  std::string out;
  out.reserve(256);
  out += "{\"timestamp\":\"";
  append_rfc3339(out, wall);
  out += "\",\"level\":\"";
  out += to_string(level);
  out += "\",\"component\":";
  append_json_string(out, component);
  out += ",\"event\":";
  append_json_string(out, event);
  append_subject(out, subject);
  out += ",\"details\":{";
  bool first = true;
  for (const LogField& field : details) {
    if (!first) out += ',';
    first = false;
    append_json_string(out, field.key());
    out += ':';
    std::visit(ValuePrinter{out}, field.value());
  }
  out += "}}\n";
  return out;
}

}  // namespace gpusched
