#include "host/nodes/rules/wire.h"

#include <algorithm>

#include "base/limits.h"
#include "base/text/plain_words.h"

namespace gpusched::hub {

AttemptKey from_wire(const v1::AttemptKey& key) {
  return {.job = JobId{key.job()}, .attempt = key.attempt(), .member = key.member()};
}

v1::AttemptKey to_wire(const AttemptKey& key) {
  v1::AttemptKey wire;
  wire.set_job(key.job.value);
  wire.set_attempt(key.attempt);
  wire.set_member(key.member);
  return wire;
}

namespace {

/// A node's word may be anything.
Usage from_wire(const v1::MeasuredUsage& wire) {
  const auto amount = [](int64_t value) { return std::clamp<int64_t>(value, 0, limits::kUsageMax); };
  const int64_t watched_ms = amount(wire.gpu_watched_ms());
  return {.peak_memory_bytes = amount(wire.peak_memory_bytes()),
          .peak_of_process = wire.peak_of_process(),
          .cpu_time = Duration{amount(wire.cpu_ns())},
          .gpu_busy_ms = std::min(amount(wire.gpu_busy_ms()), watched_ms),
          .gpu_watched_ms = watched_ms,
          .peak_gpu_memory_mb = amount(wire.peak_gpu_memory_mb())};
}

}  // namespace

Outcome from_wire(const v1::Outcome& wire) {
  Outcome outcome{.cause = EndCause::kShimLost,
                  .exit_code = wire.exit_code(),
                  .signal = wire.signal(),
                  .detail = plain_words(wire.detail(), limits::kLabelBytesMax),
                  .keep_detail = true,
                  .usage = from_wire(wire.usage())};
  const int cause = wire.cause();
  if (cause > 0 && cause <= static_cast<int>(kEndCauseLast)) outcome.cause = static_cast<EndCause>(cause);
  return outcome;
}

DeviceCondition from_wire(v1::DeviceCondition wire) {
  switch (wire) {
    case v1::DEVICE_CONDITION_UNHEALTHY:
      return DeviceCondition::kUnhealthy;
    case v1::DEVICE_CONDITION_MISSING:
      return DeviceCondition::kMissing;
    default:
      return DeviceCondition::kOk;
  }
}

}  // namespace gpusched::hub
