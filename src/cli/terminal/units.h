#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace gpusched::cli {

/// "90s", "45m", "2h", "1d", sums such as "1h30m", and as clocks and Slurm write it "2:00:00", "1-12",
/// "1-12:30", "1-12:30:00" (days-hours:minutes:seconds): whole seconds, more than 0. A number without a unit
/// is refused, because some tools mean minutes by it, and so is "2:00". kInvalidArgument says what is
/// expected.
Result<int64_t> parse_duration_seconds(std::string_view text);

/// "8G", "512M", "1.5T", "8192" (MB): MB of 1024 * 1024 bytes, rounded up. Units may end in "B", "i" or "iB";
/// all are powers of 1024.
Result<int64_t> parse_size_mb(std::string_view text);

/// "0s", "59s", "5m03s", "2h05m", "3d04h".
std::string format_duration(int64_t seconds);

/// "512M", "80G", "1.5T"; at most one decimal.
std::string format_size_mb(int64_t mb);

/// "4", "0.5": at most two decimals.
std::string format_cores(double cores);

/// "2025-01-31T09:00:00.123Z", or with an offset such as "+01:00". Zero when `text` is no such time.
Time parse_rfc3339(std::string_view text);

/// Meaning of a time of day alone: the next one, or the last one.
enum class TimeOfDay { kNext, kLast };
/// "tomorrow 10:00", "today", "yesterday 18:30", "10:00", "noon", "midnight", "2025-01-31", "2025-01-31
/// 10:00", "2025-01-31T10:00:00", "now", "now+2hours" (Slurm's words), in this machine's zone, and what
/// `parse_rfc3339` reads. Zero when `text` is no such time.
Time parse_local_time(std::string_view text, Time now, TimeOfDay alone);

/// `utc_text` in the process's time zone, for people: "2025-01-31T10:00:00+01:00"; in UTC it ends with Z.
std::string format_local(Time time);

/// `sentence` with each instant in UTC, such as 2025-01-31T09:00:00.5Z, in the process's time zone.
std::string with_local_times(std::string_view sentence);

/// "12s ago", "in 3m00s", "now".
std::string format_relative(Time then, Time now);

/// "0.25" for 250 thousandths of a GPU.
std::string format_share(int64_t milli);

}  // namespace gpusched::cli
