#include "api/grpc/grpc_log.h"

#include <grpc/support/log.h>

#include <chrono>

#include "log/log.h"

namespace gpusched::api {
namespace {

constexpr int64_t kLinesAMinute = 60;

Time log_now() {
  return Time{std::chrono::duration_cast<std::chrono::nanoseconds>(
                  std::chrono::steady_clock::now().time_since_epoch())
                  .count()};
}

void tell_log(LogLevel level, const gpr_log_func_args& said, int64_t left_out) {
  log_event(level, "grpc", "grpc_said", {},
            {{"severity", gpr_log_severity_string(said.severity)},
             {"text", said.message},
             {"file", said.file},
             {"line", said.line},
             {"left_out", left_out}});
}

/// On any of gRPC's threads.
void take_line(gpr_log_func_args* said) {
  // Never destroyed: gRPC's threads may outlive what is.
  static LineAllowance& warnings = *new LineAllowance(1, minutes(1));
  static LineAllowance& others = *new LineAllowance(kLinesAMinute, minutes(1));
  const Time now = log_now();
  const bool is_error = said->severity == GPR_LOG_SEVERITY_ERROR;
  if (const auto left_out = is_error ? warnings.take(now) : std::nullopt)
    return tell_log(LogLevel::kWarning, *said, *left_out);
  if (!log_enabled(LogLevel::kDebug)) return;
  if (const auto left_out = others.take(now)) tell_log(LogLevel::kDebug, *said, *left_out);
}

}  // namespace

std::optional<int64_t> LineAllowance::take(Time now) {
  const std::lock_guard lock(mutex_);
  if (!began_.valid() || now - began_ >= span_) {
    began_ = now;
    taken_ = 0;
  }
  if (taken_ == lines_) {
    ++left_out_;
    return std::nullopt;
  }
  ++taken_;
  const int64_t left_out = left_out_;
  left_out_ = 0;
  return left_out;
}

void route_grpc_log() { gpr_set_log_function(take_line); }

}  // namespace gpusched::api
