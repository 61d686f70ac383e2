#include "api/doors/rfc3339.h"

#include <algorithm>

#include "base/text/civil_time.h"

namespace gpusched::api {
namespace {

/// Takes so many digits from the front.
std::optional<int32_t> take_digits(std::string_view& text, std::size_t count) {
  if (text.size() < count) return std::nullopt;
  int32_t number = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    number = number * 10 + (text[i] - '0');
  }
  text.remove_prefix(count);
  return number;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

/// Seconds east of UTC.
std::optional<int64_t> take_offset(std::string_view& text) {
  if (take(text, "Zz")) return 0;
  if (text.empty() || (text.front() != '+' && text.front() != '-')) return std::nullopt;
  const int64_t sign = text.front() == '-' ? -1 : 1;
  text.remove_prefix(1);
  const auto hour = take_digits(text, 2);
  if (!hour || !take(text, ":")) return std::nullopt;
  const auto minute = take_digits(text, 2);
  if (!minute || *hour > 23 || *minute > 59) return std::nullopt;
  return sign * (*hour * 3'600 + *minute * 60);
}

}  // namespace

std::optional<Time> parse_rfc3339(std::string_view text) {
  const auto year = take_digits(text, 4);
  if (!year || !take(text, "-")) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || !take(text, "-")) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day || !take(text, "Tt ")) return std::nullopt;
  const auto hour = take_digits(text, 2);
  if (!hour || !take(text, ":")) return std::nullopt;
  const auto minute = take_digits(text, 2);
  if (!minute || !take(text, ":")) return std::nullopt;
  const auto second = take_digits(text, 2);
  if (!second) return std::nullopt;
  int64_t nanosecond = 0;
  if (take(text, ".")) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits == 0 || digits > 9) return std::nullopt;
    nanosecond = *take_digits(text, digits);
    for (std::size_t i = digits; i < 9; ++i) nanosecond *= 10;
  }
  const auto offset = take_offset(text);
  if (!offset || !text.empty()) return std::nullopt;
  if (*year < 1970 || *year > 2200) return std::nullopt;
  if (!is_date(*year, *month, *day) || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const CivilTime civil{*year, *month, *day, *hour, *minute, *second};
  const int64_t seconds = unix_second_of(civil) - *offset;
  if (seconds < 0) return std::nullopt;
  return Time{seconds * 1'000'000'000 + nanosecond};
}

}  // namespace gpusched::api
