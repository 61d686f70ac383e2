#pragma once

#include <cstdint>

#include "base/prng.h"
#include "base/result.h"
#include "consensus/log/log_store.h"

namespace gpusched::consensus {

/// The disk of a replica in the simulation.
class SimulatedDisk {
 public:
  virtual ~SimulatedDisk() = default;
  /// The disk as a process that starts finds it. What an earlier call gave is used no more.
  virtual Result<LogStore*> open() = 0;
  /// The power fails: of what was not synced, the first writes may stay, as `draw` decides. Ends what
  /// `fail_after` began.
  virtual void lose_power(Prng& draw) = 0;
  /// The operation after so many fails, and all later ones. `done`: it still took effect.
  virtual void fail_after(uint64_t operations, bool done) = 0;
  /// Ends what `fail_after` began, unless an operation failed already.
  virtual void heal() = 0;
};

}  // namespace gpusched::consensus
