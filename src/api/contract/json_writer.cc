#include "api/contract/json_writer.h"

#include <cmath>

#include "log/line.h"

namespace gpusched::api {
namespace {

// Splits days since 1970-01-01 into a civil date (H. Hinnant, "chrono-compatible low-level date algorithms").
struct Civil {
  int64_t year;
  unsigned month, day;
};
Civil civil_of_days(int64_t days) {
  days += 719'468;
  const int64_t era = (days >= 0 ? days : days - 146'096) / 146'097;
  const auto day_of_era = static_cast<unsigned>(days - era * 146'097);
  const unsigned year_of_era =
      (day_of_era - day_of_era / 1'460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const unsigned day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const unsigned month_index = (5 * day_of_year + 2) / 153;
  const unsigned day = day_of_year - (153 * month_index + 2) / 5 + 1;
  const unsigned month = month_index < 10 ? month_index + 3 : month_index - 9;
  return {static_cast<int64_t>(year_of_era) + era * 400 + (month <= 2 ? 1 : 0), month, day};
}

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
  int64_t second = wall.ns / kSecond;
  int64_t nanosecond = wall.ns % kSecond;
  if (nanosecond < 0) {
    nanosecond += kSecond;
    second -= 1;
  }
  int64_t day = second / 86'400;
  int64_t rest = second % 86'400;
  if (rest < 0) {
    rest += 86'400;
    day -= 1;
  }
  const Civil civil = civil_of_days(day);
  append_digits(out, civil.year, 4);
  out.push_back('-');
  append_digits(out, civil.month, 2);
  out.push_back('-');
  append_digits(out, civil.day, 2);
  out.push_back('T');
  append_digits(out, rest / 3'600, 2);
  out.push_back(':');
  append_digits(out, rest / 60 % 60, 2);
  out.push_back(':');
  append_digits(out, rest % 60, 2);
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
