#include "cli/terminal/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace gpusched::cli {
namespace {

constexpr int64_t kMinute = 60;
constexpr int64_t kHour = 60 * kMinute;
constexpr int64_t kDay = 24 * kHour;

Error bad_duration(std::string_view text) {
  return {
      .code = ErrorCode::kInvalidArgument,
      .message = "\"" + std::string(text) + "\" is not a duration; write it as 90s, 45m, 2h, 1d or 1h30m"};
}

Error bad_size(std::string_view text) {
  return {
      .code = ErrorCode::kInvalidArgument,
      .message = "\"" + std::string(text) + "\" is not an amount of memory; write it as 512M, 8G or 1.5T"};
}

int64_t seconds_of_unit(char unit) {
  switch (unit) {
    case 's':
      return 1;
    case 'm':
      return kMinute;
    case 'h':
      return kHour;
    case 'd':
      return kDay;
    default:
      return 0;
  }
}

std::string printed(const char* format, long long first, long long second) {
  std::array<char, 64> out;
  const int size = std::snprintf(out.data(), out.size(), format, first, second);
  return {out.data(), static_cast<size_t>(size)};
}

/// The number at `at` with exactly `digits` digits, or -1.
int digits_at(std::string_view text, size_t at, size_t digits) {
  if (at + digits > text.size()) return -1;
  int value = 0;
  const char* const end = text.data() + at + digits;
  const auto [stop, failure] = std::from_chars(text.data() + at, end, value);
  return failure == std::errc{} && stop == end && text[at] != '-' ? value : -1;
}

}  // namespace

Result<int64_t> parse_duration_seconds(std::string_view text) {
  std::string_view rest = text;
  int64_t total = 0;
  int64_t last_unit = INT64_MAX;  // Units get smaller: "1h30m", never "30m1h".
  if (rest.empty()) return bad_duration(text);
  while (!rest.empty()) {
    int64_t number = 0;
    const auto [stop, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (failure != std::errc{} || number < 0) return bad_duration(text);
    rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
    const int64_t unit = rest.empty() ? 0 : seconds_of_unit(rest.front());
    if (unit == 0 || unit >= last_unit) return bad_duration(text);
    rest.remove_prefix(1);
    last_unit = unit;
    int64_t part = 0;
    if (__builtin_mul_overflow(number, unit, &part)) return bad_duration(text);
    if (__builtin_add_overflow(total, part, &total)) return bad_duration(text);
  }
  if (total == 0) return bad_duration(text);
  return total;
}

Result<int64_t> parse_size_mb(std::string_view text) {
  double number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || !std::isfinite(number) || number < 0) return bad_size(text);
  std::string_view unit = text.substr(static_cast<size_t>(stop - text.data()));
  double scale = 1;
  if (!unit.empty()) {
    switch (unit.front()) {
      case 'k':
      case 'K':
        scale = 1.0 / 1024;
        break;
      case 'm':
      case 'M':
        break;
      case 'g':
      case 'G':
        scale = 1024;
        break;
      case 't':
      case 'T':
        scale = 1024.0 * 1024;
        break;
      default:
        return bad_size(text);
    }
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "b" && unit != "iB") return bad_size(text);
  }
  const double mb = std::ceil(number * scale);
  if (mb > 1e15) return bad_size(text);
  return static_cast<int64_t>(mb);
}

std::string format_duration(int64_t seconds) {
  if (seconds < 0) seconds = 0;
  if (seconds < kMinute) return std::to_string(seconds) + "s";
  if (seconds < kHour) return printed("%lldm%02llds", seconds / kMinute, seconds % kMinute);
  if (seconds < kDay) return printed("%lldh%02lldm", seconds / kHour, seconds % kHour / kMinute);
  return printed("%lldd%02lldh", seconds / kDay, seconds % kDay / kHour);
}

std::string format_size_mb(int64_t mb) {
  static constexpr std::array<char, 4> kUnits = {'M', 'G', 'T', 'P'};
  auto value = static_cast<double>(mb);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 64> out;
  const double rounded = std::round(value * 10) / 10;
  const bool whole = rounded == std::floor(rounded);
  const int size = std::snprintf(out.data(), out.size(), whole ? "%.0f%c" : "%.1f%c", rounded, kUnits[unit]);
  return {out.data(), static_cast<size_t>(size)};
}

std::string format_cores(double cores) {
  std::array<char, 64> out;
  const int size = std::snprintf(out.data(), out.size(), "%.2f", cores);
  std::string text(out.data(), std::min(static_cast<size_t>(size), out.size() - 1));
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

Time parse_rfc3339(std::string_view text) {
  // YYYY-MM-DDThh:mm:ss[.fraction](Z|+hh:mm|-hh:mm)
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':') return {};
  std::tm utc{};
  utc.tm_year = digits_at(text, 0, 4) - 1900;
  utc.tm_mon = digits_at(text, 5, 2) - 1;
  utc.tm_mday = digits_at(text, 8, 2);
  utc.tm_hour = digits_at(text, 11, 2);
  utc.tm_min = digits_at(text, 14, 2);
  utc.tm_sec = digits_at(text, 17, 2);
  if (utc.tm_year < 0 || utc.tm_mon < 0 || utc.tm_mday < 1 || utc.tm_hour < 0 || utc.tm_min < 0 ||
      utc.tm_sec < 0) {
    return {};
  }
  size_t at = 19;
  int64_t fraction_ns = 0;
  if (text[at] == '.') {
    int64_t scale = 100'000'000;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      fraction_ns += (text[at] - '0') * scale;
      scale /= 10;
    }
  }
  int64_t offset_seconds = 0;
  const std::string_view zone = text.substr(at);
  if (zone.size() == 6 && (zone[0] == '+' || zone[0] == '-') && zone[3] == ':') {
    const int hour = digits_at(zone, 1, 2);
    const int minute = digits_at(zone, 4, 2);
    if (hour < 0 || minute < 0) return {};
    offset_seconds = (zone[0] == '-' ? -1 : 1) * (hour * kHour + minute * kMinute);
  } else if (zone != "Z" && zone != "z") {
    return {};
  }
  Time time;
  const int64_t unix_seconds = ::timegm(&utc) - offset_seconds;
  // Nanoseconds reach into the year 2262.
  if (__builtin_mul_overflow(unix_seconds, int64_t{1'000'000'000}, &time.ns)) return {};
  if (__builtin_add_overflow(time.ns, fraction_ns, &time.ns)) return {};
  return time;
}

std::string format_rfc3339(Time time) {
  const std::time_t whole = time.ns / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&whole, &utc);
  std::array<char, 32> text;
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text.data(), size};
}

std::string format_relative(Time then, Time now) {
  const int64_t seconds_ago = (now.ns - then.ns) / 1'000'000'000;
  if (seconds_ago == 0) return "now";
  if (seconds_ago < 0) return "in " + format_duration(-seconds_ago);
  return format_duration(seconds_ago) + " ago";
}

std::string format_share(int64_t milli) {
  std::string text = std::to_string(milli / 1000) + '.' + std::to_string(1000 + milli % 1000).substr(1);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace gpusched::cli
