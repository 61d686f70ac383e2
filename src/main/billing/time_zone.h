#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "history/billing/prices.h"

namespace gpusched {

/// A month as people write it: "2026-11".
struct Month {
  int year = 0;
  int month = 0;  ///< From 1.
};
/// kInvalidArgument: it is no month from 1970-01 to 9999-12.
Result<Month> parse_month(const std::string& text);
/// The month before the one of `unix_second`, in UTC.
Month month_before(int64_t unix_second);
std::string to_string(const Month& month);

/// The month on the clocks of a zone of the system's time zone database: how far they are ahead of UTC when.
/// Sets the time zone of the whole process: for a command that does nothing else. kInvalidArgument: the
/// system has no such zone.
Result<std::vector<history::OffsetSpan>> offsets_in(const std::string& zone, const Month& month);

}  // namespace gpusched
