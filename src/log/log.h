#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"
#include "base/result.h"

/// The log: one JSON object a line, for people and machines alike.
///
///   {"timestamp":"2025-01-31T09:00:00.123Z","level":"info","component":"scheduler","event":"task_submitted",
///    "task_id":"job-12","details":{"gpus":2}}
///
/// A call formats its line on the caller's thread and hands it to a writer thread, which rests for 2 ms after
/// each write. It never waits for the disk: when 8,192 lines wait, the oldest is dropped, and a
/// `log_lines_dropped` line says how many were. All functions are thread-safe. A process that was forked
/// without exec must not log.
namespace gpusched {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

std::string_view to_string(LogLevel level);
/// "debug", "info", "warning" or "error"; anything else is kInvalidArgument.
Result<LogLevel> parse_log_level(std::string_view name);

/// Subject of a line. Both empty: no subject, and the line has no `task_id`.
struct LogSubject {
  std::string_view job = {};  ///< Id as clients see it, such as "job-12". Takes precedence over `id`.
  JobId id = {};              ///< Printed as "job-<number>".
};

/// One key of a line's `details`. Holds views: it lives as long as the call that it is an argument of.
class LogField {
 public:
  template <typename T>
    requires std::convertible_to<const T&, std::string_view>
  LogField(std::string_view key, const T& value) : key_(key), value_(std::string_view(value)) {}
  LogField(std::string_view key, std::same_as<bool> auto value) : key_(key), value_(value) {}
  LogField(std::string_view key, std::floating_point auto value)
      : key_(key), value_(static_cast<double>(value)) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  LogField(std::string_view key, T value) : key_(key) {
    if constexpr (std::signed_integral<T>) {
      value_ = static_cast<int64_t>(value);
    } else {
      value_ = static_cast<uint64_t>(value);
    }
  }

  using Value = std::variant<std::string_view, int64_t, uint64_t, double, bool>;
  std::string_view key() const { return key_; }
  const Value& value() const { return value_; }

 private:
  std::string_view key_;
  Value value_;
};

struct LogOptions {
  std::string path = {};             ///< Appended to, created with mode 0640. Empty: standard error.
  LogLevel level = LogLevel::kInfo;  ///< Lines below it cost one comparison.
};

/// Starts the log; before, nothing is written. Called once by `main`; another call ends the log before it.
/// Pending lines are written when the process exits normally.
Result<Unit> log_set_up(const LogOptions& options);
/// Goes on with `options`, as after a rotation of the file: opens it again, even under the same name. No line
/// is lost. When the file cannot be opened the log stays as it was.
Result<Unit> log_reopen(const LogOptions& options);
/// Writes what waits and ends the log. Lines after it are dropped.
void log_shut_down();
/// Returns when everything logged before it is written.
void log_flush();
void log_set_level(LogLevel level);

namespace log_internal {
/// The lowest level that is written, as an integer; above kError while there is no log.
extern std::atomic<int> g_level_min;
void write_line(LogLevel level, std::string_view component, std::string_view event, const LogSubject& subject,
                std::initializer_list<LogField> details);
}  // namespace log_internal

/// Whether a line of `level` would be written. For callers whose details are costly to collect.
inline bool log_enabled(LogLevel level) {
  return static_cast<int>(level) >= log_internal::g_level_min.load(std::memory_order_relaxed);
}

/// Writes one line: `log_event(LogLevel::kInfo, "scheduler", "task_submitted", {.id = job}, {{"gpus", 2}})`.
/// `component` and `event` are lower-case words. Strings may hold any bytes: what is not UTF-8 becomes
/// U+FFFD, and a value ends after 8 KiB with an ellipsis.
inline void log_event(LogLevel level, std::string_view component, std::string_view event,
                      const LogSubject& subject = {}, std::initializer_list<LogField> details = {}) {
  if (log_enabled(level)) log_internal::write_line(level, component, event, subject, details);
}

}  // namespace gpusched
