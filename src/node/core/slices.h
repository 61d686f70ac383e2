#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/core/release_fence.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"

namespace gpusched::agent {

/// MIG slices: made before an attempt starts, destroyed when nothing is in them any more. The driver does one
/// after the other and is given time for each.
class Slices {
 public:
  Slices(const NodePorts& ports, AttemptTable& attempts, DeviceWatch& watch, ReleaseFence& fence,
         Time orphans_from);

  /// The attempt's slices are asked for by `make`, when its intent is on record.
  void begin(AttemptRow& attempt, const v1::StartAttempt& order);
  void make();
  /// The answers of SliceMaker. `problem` empty: it was made, or is gone. Gives the attempt whose last slice
  /// this was, which Orders goes on with; null: none.
  AttemptRow* on_made(uint32_t index, const std::string& profile, int32_t start, const MadeSlice& made,
                      const std::string& problem);
  void on_destroyed(uint32_t index, const std::string& profile, int32_t start, const std::string& problem);
  /// The attempts for which the driver took too long, with the problem noted; Orders ends them.
  std::vector<AttemptRow*> give_up_late(Time now);

  /// Nothing is in it; its release is told when it is gone.
  void destroy(const HeldDevice& slice);
  /// Destroys what this agent, or an earlier one, made and nobody has: of attempts whose end this node could
  /// not watch.
  void destroy_orphans(Time now);
  void add_progress(v1::Heartbeat& out) const;

 private:
  using Place = std::pair<uint32_t, int32_t>;  ///< Device and first slot.
  void note_driver_works();

  const NodePorts& ports_;
  AttemptTable& attempts_;
  DeviceWatch& watch_;
  ReleaseFence& fence_;
  std::set<Place> destroying_;
  std::vector<uint64_t> looks_for_orphans_;  ///< DeviceWatch::looks when they were looked for last.
  Time orphans_from_;                        ///< Not before this.
};

}  // namespace gpusched::agent
