#include "base/text/civil_time.h"

#include <array>
#include <chrono>

#include "base/check.h"

namespace gpusched {
namespace {

using Days = std::chrono::sys_days;
using Seconds = std::chrono::sys_seconds;

constexpr int64_t kSecondMin = -62'167'219'200;  ///< Begin of the year 0.
constexpr int64_t kSecondMax = 253'402'300'799;  ///< End of the year 9999.

/// The day; one beyond the month's end, or a month beyond the year's, counts on.
Days day_of(const CivilTime& civil) {
  using namespace std::chrono;
  const year_month month = year{civil.year} / January + months{civil.month - 1};
  return Days{month / 1} + days{civil.day - 1};
}

/// Writes the last `count` digits of a number that is not negative.
void put(char* to, int32_t number, int count) {
  for (int i = count - 1; i >= 0; --i) {
    to[i] = static_cast<char>('0' + number % 10);
    number /= 10;
  }
}

/// The number that is written with so many digits at `at`; -1: there is another character.
int32_t digits(std::string_view text, std::size_t at, std::size_t count) {
  int32_t number = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

}  // namespace

CivilTime civil_time_of(int64_t unix_second) {
  CHECK(unix_second >= kSecondMin);
  CHECK(unix_second <= kSecondMax);
  const Seconds at{std::chrono::seconds{unix_second}};
  const Days day = std::chrono::floor<std::chrono::days>(at);
  const std::chrono::year_month_day date{day};
  const std::chrono::hh_mm_ss time{at - day};
  return {.year = static_cast<int32_t>(static_cast<int>(date.year())),
          .month = static_cast<int32_t>(static_cast<unsigned>(date.month())),
          .day = static_cast<int32_t>(static_cast<unsigned>(date.day())),
          .hour = static_cast<int32_t>(time.hours().count()),
          .minute = static_cast<int32_t>(time.minutes().count()),
          .second = static_cast<int32_t>(time.seconds().count())};
}

CivilTime civil_time_of(Time wall) {
  const std::chrono::nanoseconds since{wall.ns};
  return civil_time_of(int64_t{std::chrono::floor<std::chrono::seconds>(since).count()});
}

int64_t unix_second_of(const CivilTime& civil) {
  const Seconds day = day_of(civil);
  return day.time_since_epoch().count() + (int64_t{civil.hour} * 60 + civil.minute) * 60 + civil.second;
}

bool is_date(int32_t year, int32_t month, int32_t day) {
  if (month < 1 || month > 12 || day < 1 || day > 31) return false;
  const std::chrono::year_month_day date{std::chrono::year{year},
                                         std::chrono::month{static_cast<unsigned>(month)},
                                         std::chrono::day{static_cast<unsigned>(day)}};
  return date.ok();
}

void append_civil_time(std::string& out, const CivilTime& civil, char between) {
  std::array<char, 19> text;
  put(text.data(), civil.year, 4);
  text[4] = text[7] = '-';
  put(text.data() + 5, civil.month, 2);
  put(text.data() + 8, civil.day, 2);
  text[10] = between;
  put(text.data() + 11, civil.hour, 2);
  text[13] = text[16] = ':';
  put(text.data() + 14, civil.minute, 2);
  put(text.data() + 17, civil.second, 2);
  out.append(text.data(), text.size());
}

std::string utc_text(Time wall) {
  std::string out;
  append_civil_time(out, civil_time_of(wall));
  out += 'Z';
  return out;
}

std::optional<int64_t> parse_utc(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  if (text.size() != kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] != '0' && text[i] != kForm[i]) return std::nullopt;
  const CivilTime civil{.year = digits(text, 0, 4),
                        .month = digits(text, 5, 2),
                        .day = digits(text, 8, 2),
                        .hour = digits(text, 11, 2),
                        .minute = digits(text, 14, 2),
                        .second = digits(text, 17, 2)};
  if (civil.year < 0 || !is_date(civil.year, civil.month, civil.day)) return std::nullopt;
  if (civil.hour < 0 || civil.hour > 23 || civil.minute < 0 || civil.minute > 59) return std::nullopt;
  if (civil.second < 0 || civil.second > 59) return std::nullopt;
  return unix_second_of(civil);
}

std::string http_date(int64_t unix_second) {
  constexpr std::string_view kDays = "SunMonTueWedThuFriSat";
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const CivilTime civil = civil_time_of(unix_second);
  const std::chrono::weekday weekday{day_of(civil)};
  std::string time;
  append_civil_time(time, civil, ' ');
  std::string out(kDays.substr(weekday.c_encoding() * std::size_t{3}, 3));
  out.append(", ").append(time, 8, 2).append(" ");
  out.append(kMonths.substr(static_cast<std::size_t>(civil.month - 1) * 3, 3));
  return out.append(" ").append(time, 0, 4).append(time, 10).append(" GMT");
}

}  // namespace gpusched
