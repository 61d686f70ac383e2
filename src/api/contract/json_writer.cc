#include "api/contract/json_writer.h"

#include <cmath>

#include "base/text/civil_time.h"
#include "log/line.h"

namespace gpusched::api {
namespace {

void append_digits(std::string& out, int64_t number, int width) {
  char buffer[24];
  for (int i = width - 1; i >= 0; --i) {
    buffer[i] = static_cast<char>('0' + number % 10);
    number /= 10;
  }
  out.append(buffer, static_cast<std::size_t>(width));
}

}  // namespace

void append_json_text(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    // The rare text that needs escaping, or is not ASCII, goes the careful way.
    if (byte < 0x20 || byte >= 0x7F || byte == '"' || byte == '\\') {
      append_whole_json_string(out, text);
      return;
    }
  }
  out.push_back('"');
  out.append(text);
  out.push_back('"');
}

void append_time(std::string& out, Time wall) {
  constexpr int64_t kSecond = 1'000'000'000;
  append_civil_time(out, civil_time_of(wall));
  const int64_t nanosecond = (wall.ns % kSecond + kSecond) % kSecond;
  if (nanosecond != 0) {
    out.push_back('.');
    append_digits(out, nanosecond / 1'000, 6);
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  out.push_back('Z');
}

JsonWriter& JsonWriter::value(double number) {
  comma();
  if (!std::isfinite(number)) {
    out_.append("null");
    return *this;
  }
  char buffer[40];
  out_.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
  return *this;
}

JsonWriter& JsonWriter::value(Time wall) {
  if (!wall.valid()) return null();
  comma();
  out_.push_back('"');
  append_time(out_, wall);
  out_.push_back('"');
  return *this;
}

}  // namespace gpusched::api
