#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace gpusched {

/// Date and time of day in UTC, to the second, in the proleptic Gregorian calendar and without leap seconds.
struct CivilTime {
  int32_t year = 1970;
  int32_t month = 1;  ///< 1 to 12.
  int32_t day = 1;    ///< 1 to 31.
  int32_t hour = 0;
  int32_t minute = 0;
  int32_t second = 0;

  friend bool operator==(const CivilTime&, const CivilTime&) = default;
};

/// Date and time of a second since 1970. The year must lie between 0 and 9999.
CivilTime civil_time_of(int64_t unix_second);
/// The same of a time since 1970, rounded down to the second, also before 1970.
CivilTime civil_time_of(Time wall);
/// Seconds since 1970. A field beyond its range counts on as in timegm(3): January 32 is February 1.
int64_t unix_second_of(const CivilTime& civil);
/// True if the calendar has that day: it has no February 30.
bool is_date(int32_t year, int32_t month, int32_t day);

/// Appends "2026-11-21T09:30:00". `between` stands between date and time of day.
void append_civil_time(std::string& out, const CivilTime& civil, char between = 'T');
/// "2026-11-21T09:30:00Z", the second in which `wall` lies.
std::string utc_text(Time wall);
/// Seconds since 1970 of "2026-11-21T09:30:00Z". Nothing for any other form, and for a day that is none.
std::optional<int64_t> parse_utc(std::string_view text);
/// "Sat, 21 Nov 2026 09:30:00 GMT", as HTTP writes dates (RFC 9110, section 5.6.7).
std::string http_date(int64_t unix_second);

}  // namespace gpusched
