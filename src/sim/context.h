#pragma once

#include "base/prng.h"
#include "sim/audit/auditor.h"
#include "sim/faults.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace gpusched::sim {

/// Common parts of one simulated world. `faults` becomes empty when the world heals.
struct Context {
  Schedule& schedule;
  Prng& prng;
  Trace& trace;
  Auditor& auditor;
  FaultSet faults;

  bool on(Fault fault) const { return faults.has(fault); }
  /// Uniform, in milliseconds.
  Duration some_ms(int64_t low, int64_t high) { return milliseconds(prng.between(low, high)); }
  Duration some_us(int64_t low, int64_t high) { return microseconds(prng.between(low, high)); }
  /// How long a quick thing takes; under kDelay, now and then, much longer.
  Duration some_delay() {
    if (on(Fault::kDelay) && prng.chance(30)) return some_ms(1, 3'000);
    return some_us(20, 900);
  }
};

}  // namespace gpusched::sim
