#include "cli/terminal/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/text/civil_time.h"

namespace gpusched::cli {
namespace {

constexpr int64_t kMinute = 60;
constexpr int64_t kHour = 60 * kMinute;
constexpr int64_t kDay = 24 * kHour;
constexpr int64_t kClockPartMax = 1'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;

Error bad_duration(std::string_view text) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = "\"" + std::string(text) +
                     "\" is not a duration; write it as 90s, 45m, 2h, 1d, 1h30m or 2:00:00"};
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

/// Digits with colons, or a dash behind the days: nothing else looks like it.
bool is_clock_span(std::string_view text) {
  return text.find_first_not_of("0123456789:-") == std::string_view::npos && !text.starts_with('-') &&
         text.find_first_of(":-") != std::string_view::npos;
}

/// Takes the digits at the front of `text`; -1: there are none, or more than a duration has.
int64_t take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || value < 0 || value > kClockPartMax) return -1;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return value;
}

/// "[D-]HH[:MM[:SS]]"; without days all three parts.
Result<int64_t> parse_clock_span(std::string_view text) {
  std::string_view rest = text;
  int64_t total = 0;
  const bool has_days = text.find('-') != std::string_view::npos;
  if (has_days) {
    const int64_t days = take_number(rest);
    if (days < 0 || !rest.starts_with('-')) return bad_duration(text);
    rest.remove_prefix(1);
    total = days * kDay;
  }
  size_t parts = 0;
  for (const int64_t unit : {kHour, kMinute, int64_t{1}}) {
    const int64_t number = take_number(rest);
    if (number < 0 || (parts > 0 && number >= 60)) return bad_duration(text);
    total += number * unit;
    ++parts;
    if (rest.empty()) break;
    if (!rest.starts_with(':')) return bad_duration(text);
    rest.remove_prefix(1);
    if (rest.empty()) return bad_duration(text);
  }
  if (!rest.empty() || total == 0) return bad_duration(text);
  if (!has_days && parts == 2) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "\"" + std::string(text) +
                            "\" could be hours and minutes, or minutes and seconds; write " +
                            std::string(text) + ":00, or 2h and 2m"};
  }
  return total;
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
  if (is_clock_span(text)) return parse_clock_span(text);
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
    if (!unit.empty() && unit != "B" && unit != "b" && unit != "i" && unit != "iB") return bad_size(text);
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
  const CivilTime civil{.year = digits_at(text, 0, 4),
                        .month = digits_at(text, 5, 2),
                        .day = digits_at(text, 8, 2),
                        .hour = digits_at(text, 11, 2),
                        .minute = digits_at(text, 14, 2),
                        .second = digits_at(text, 17, 2)};
  if (civil.year < 1'900 || !is_date(civil.year, civil.month, civil.day)) return {};
  if (civil.hour < 0 || civil.hour > 23 || civil.minute < 0 || civil.minute > 59) return {};
  if (civil.second < 0 || civil.second > 60) return {};  // 60: a leap second.
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
  const int64_t unix_seconds = unix_second_of(civil) - offset_seconds;
  // Nanoseconds reach into the year 2262.
  if (__builtin_mul_overflow(unix_seconds, int64_t{1'000'000'000}, &time.ns)) return {};
  if (__builtin_add_overflow(time.ns, fraction_ns, &time.ns)) return {};
  return time;
}

namespace {

std::tm local_day(Time now) {
  const std::time_t whole = now.ns / kSecondNs;
  std::tm day{};
  ::localtime_r(&whole, &day);
  day.tm_hour = day.tm_min = day.tm_sec = 0;
  day.tm_isdst = -1;
  return day;
}

/// "HH:MM[:SS]" into `day`.
bool take_time_of_day(std::string_view text, std::tm& day) {
  if (text == "noon") return day.tm_hour = 12, true;
  if (text == "midnight") return true;
  const size_t colon = text.find(':');
  const bool has_seconds = text.size() == colon + 6;
  if (colon == std::string_view::npos || colon < 1 || colon > 2) return false;
  if (text.size() != colon + 3 && (!has_seconds || text[colon + 3] != ':')) return false;
  day.tm_hour = digits_at(text, 0, colon);
  day.tm_min = digits_at(text, colon + 1, 2);
  day.tm_sec = has_seconds ? digits_at(text, colon + 4, 2) : 0;
  return day.tm_hour >= 0 && day.tm_hour < 24 && day.tm_min >= 0 && day.tm_min < 60 && day.tm_sec >= 0 &&
         day.tm_sec < 60;
}

/// "today", "2025-01-31" into `day`, which is today.
bool take_date(std::string_view text, std::tm& day) {
  if (text == "today") return true;
  if (text == "tomorrow") return day.tm_mday += 1, true;
  if (text == "yesterday") return day.tm_mday -= 1, true;
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  day.tm_year = digits_at(text, 0, 4) - 1900;
  day.tm_mon = digits_at(text, 5, 2) - 1;
  day.tm_mday = digits_at(text, 8, 2);
  return day.tm_year >= 70 && day.tm_year < 300 && is_date(day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

/// "now+2hours", "now+1h30m", "now+90" (seconds).
Time parse_from_now(std::string_view text, Time now) {
  if (text == "now") return now;
  text.remove_prefix(std::string_view("now").size());
  if (!text.starts_with('+')) return {};
  text.remove_prefix(1);
  if (const Result<int64_t> span = parse_duration_seconds(text)) return now + seconds(*span);
  const int64_t number = take_number(text);
  if (number < 0) return {};
  if (text.ends_with('s')) text.remove_suffix(1);
  const int64_t unit = text.empty() || text == "second" ? 1
                       : text == "minute"               ? kMinute
                       : text == "hour"                 ? kHour
                       : text == "day"                  ? kDay
                       : text == "week"                 ? 7 * kDay
                                                        : 0;
  return unit == 0 ? Time{} : now + seconds(number * unit);
}

}  // namespace

Time parse_local_time(std::string_view text, Time now, TimeOfDay alone) {
  if (const Time exact = parse_rfc3339(text); exact.valid()) return exact;
  if (text.starts_with("now")) return parse_from_now(text, now);
  std::tm day = local_day(now);
  const bool has_t = text.size() > 11 && text[10] == 'T';
  const size_t gap = has_t ? 10 : text.find(' ');
  bool only_time = false;
  if (gap != std::string_view::npos) {
    if (!take_date(text.substr(0, gap), day) || !take_time_of_day(text.substr(gap + 1), day)) return {};
  } else if (!take_date(text, day)) {
    day = local_day(now);
    only_time = take_time_of_day(text, day);
    if (!only_time) return {};
  }
  std::tm whole = day;
  const auto as_time = [](std::tm& local) {
    return Time{static_cast<int64_t>(::mktime(&local)) * kSecondNs};
  };
  Time time = as_time(whole);
  if (only_time && alone == TimeOfDay::kNext && time <= now) day.tm_mday += 1, time = as_time(day);
  if (only_time && alone == TimeOfDay::kLast && time > now) day.tm_mday -= 1, time = as_time(day);
  return time;
}

std::string format_local(Time time) {
  const std::time_t whole = time.ns / 1'000'000'000;
  std::tm local{};
  ::localtime_r(&whole, &local);
  if (local.tm_gmtoff == 0) return utc_text(time);
  std::string text;
  append_civil_time(text, civil_time_of(int64_t{whole + local.tm_gmtoff}));
  const int64_t minutes = std::abs(local.tm_gmtoff) / kMinute;
  std::array<char, 8> zone;
  const int zone_size =
      std::snprintf(zone.data(), zone.size(), "%c%02d:%02d", local.tm_gmtoff < 0 ? '-' : '+',
                    static_cast<int>(minutes / 60) % 100, static_cast<int>(minutes % 60));
  return text.append(zone.data(), static_cast<size_t>(zone_size));
}

std::string with_local_times(std::string_view sentence) {
  std::string out;
  for (size_t at = 0; at < sentence.size();) {
    const size_t end = sentence.find('Z', at);
    if (end == std::string_view::npos) return out.append(sentence.substr(at));
    // The instant is what stands before the Z, without a blank.
    size_t begin = end;
    while (begin > at &&
           std::string_view("0123456789-:.T").find(sentence[begin - 1]) != std::string_view::npos)
      --begin;
    const std::string_view instant = sentence.substr(begin, end + 1 - begin);
    const Time time = parse_rfc3339(instant);
    out.append(sentence.substr(at, begin - at));
    time.valid() ? out.append(format_local(time)) : out.append(instant);
    at = end + 1;
  }
  return out;
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
