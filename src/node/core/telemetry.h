#pragma once

#include <cstdint>
#include <vector>

#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/core/activity.h"
#include "node/core/slices.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"

namespace gpusched::agent {

/// Content of heartbeats: use of devices and the machine, what attempts prepare, which have saved their work,
/// what running ones do, and where those of services are reached.
class Telemetry {
 public:
  Telemetry(const NodePorts& ports, AttemptTable& attempts, const DeviceWatch& watch, const Slices& slices,
            const Activity& activity)
      : ports_(ports), attempts_(attempts), watch_(watch), slices_(slices), activity_(activity) {}

  /// An attempt that ends said that its work is saved: it is told with the next heartbeat.
  void note_saved(const AttemptKey& key, int64_t unix_ns);
  void send(uint64_t sequence);

 private:
  void add_saved(v1::Heartbeat& out);
  void add_saved(const SavedWork& work, v1::Heartbeat& out);
  void add_endpoints(v1::Heartbeat& out) const;

  const NodePorts& ports_;
  AttemptTable& attempts_;
  const DeviceWatch& watch_;
  const Slices& slices_;
  const Activity& activity_;
  std::vector<SavedWork> last_words_;  ///< Saved work of attempts that end, for the next heartbeat.
};

}  // namespace gpusched::agent
