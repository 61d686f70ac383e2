#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace gpusched::cli {

/// "90s", "45m", "2h", "1d", and sums such as "1h30m": whole seconds, more than 0. A number without a unit is
/// refused, because some tools mean minutes by it. kInvalidArgument says what is expected.
Result<int64_t> parse_duration_seconds(std::string_view text);

/// "8G", "512M", "1.5T", "8192" (MB): MB of 1024 * 1024 bytes, rounded up. Units may end in "B" or "iB"; all
/// are powers of 1024.
Result<int64_t> parse_size_mb(std::string_view text);

/// "0s", "59s", "5m03s", "2h05m", "3d04h".
std::string format_duration(int64_t seconds);

/// "512M", "80G", "1.5T"; at most one decimal.
std::string format_size_mb(int64_t mb);

/// "4", "0.5": at most two decimals.
std::string format_cores(double cores);

/// "2025-01-31T09:00:00.123Z", or with an offset such as "+01:00". Zero when `text` is no such time.
Time parse_rfc3339(std::string_view text);

/// "2025-01-31T09:00:00Z", in whole seconds.
std::string format_rfc3339(Time time);

/// "12s ago", "in 3m00s", "now".
std::string format_relative(Time then, Time now);

/// "0.25" for 250 thousandths of a GPU.
std::string format_share(int64_t milli);

}  // namespace gpusched::cli
