#include "main/billing/time_zone.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <ctime>

namespace gpusched {
namespace {

// Since 1970 no zone has changed its clock but at a quarter of an hour.
constexpr int64_t kStep = 15 * 60;
constexpr const char* kDatabase = "/usr/share/zoneinfo/";

int64_t local_begin(const Month& month) {
  std::tm begin{};
  begin.tm_year = month.year - 1900;
  begin.tm_mon = month.month - 1;
  begin.tm_mday = 1;
  begin.tm_isdst = -1;
  return std::mktime(&begin);
}

int64_t offset_at(int64_t unix_second) {
  const std::time_t at = unix_second;
  std::tm local{};
  ::localtime_r(&at, &local);
  return local.tm_gmtoff;
}

bool is_number(std::string_view text, int& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stop == text.data() + text.size();
}

}  // namespace

Result<Month> parse_month(const std::string& text) {
  Month month;
  const bool is_month = text.size() == 7 && text[4] == '-' &&
                        is_number(std::string_view(text).substr(0, 4), month.year) &&
                        is_number(std::string_view(text).substr(5), month.month) && month.year >= 1970 &&
                        month.month >= 1 && month.month <= 12;
  if (is_month) return month;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "\"" + text + "\" is no month; write it as 2026-11"};
}

Month month_before(int64_t unix_second) {
  const std::time_t at = unix_second;
  std::tm utc{};
  ::gmtime_r(&at, &utc);
  Month month{.year = utc.tm_year + 1900, .month = utc.tm_mon};
  if (month.month == 0) month = {.year = month.year - 1, .month = 12};
  return month;
}

std::string to_string(const Month& month) {
  return std::to_string(month.year) + (month.month < 10 ? "-0" : "-") + std::to_string(month.month);
}

Result<std::vector<history::OffsetSpan>> offsets_in(const std::string& zone, const Month& month) {
  const bool is_name = !zone.empty() && zone.find("..") == std::string::npos && zone.front() != '/' &&
                       zone.front() != ':' && zone.size() < 64;
  if (!is_name || ::access((kDatabase + zone).c_str(), R_OK) != 0) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "this system has no time zone \"" + zone +
                            "\": write one such as Europe/Berlin, and install tzdata if it is missing"};
  }
  ::setenv("TZ", zone.c_str(), 1);
  ::tzset();
  const Month next = month.month == 12 ? Month{.year = month.year + 1, .month = 1}
                                       : Month{.year = month.year, .month = month.month + 1};
  const int64_t begin = local_begin(month);
  const int64_t end = local_begin(next);
  std::vector<history::OffsetSpan> spans;
  for (int64_t at = begin; at < end; at = (at / kStep + 1) * kStep) {
    const int64_t offset = offset_at(at);
    if (spans.empty() || spans.back().offset_s != offset) {
      if (!spans.empty()) spans.back().until_ms = at * 1'000;
      spans.push_back({.from_ms = at * 1'000, .until_ms = end * 1'000, .offset_s = offset});
    }
  }
  return spans;
}

}  // namespace gpusched
