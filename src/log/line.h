#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/time.h"
#include "log/log.h"

namespace gpusched {

/// Longest string value of a line, in bytes of the input; the rest is cut and an ellipsis put in its place.
inline constexpr size_t kLogValueBytesMax = 8 * 1024;

/// Appends `text` as a JSON string with its quotes. Any bytes are allowed: each byte that is no part of valid
/// UTF-8 becomes U+FFFD, so that the result is always valid JSON.
void append_json_string(std::string& out, std::string_view text);
/// The same, however long it is.
void append_whole_json_string(std::string& out, std::string_view text);

/// "2025-01-31T09:00:00.123Z". `wall` is since the Unix epoch.
void append_rfc3339(std::string& out, Time wall);

/// One log line with its newline.
std::string format_log_line(Time wall, LogLevel level, std::string_view component, std::string_view event,
                            const LogSubject& subject, std::initializer_list<LogField> details);

}  // namespace gpusched
