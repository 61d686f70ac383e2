#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/core/orders.h"
#include "node/core/release_fence.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"

namespace gpusched::agent {

/// Use of devices by running attempts, from the readings and their output: told with each heartbeat. Ends an
/// attempt that uses more memory than its share for too long.
class Activity {
 public:
  /// `share_memory_grace`: for so long an attempt may use more memory than its share; zero: for ever.
  /// `grace`: between SIGTERM and SIGKILL.
  Activity(const NodePorts& ports, AttemptTable& attempts, DeviceWatch& watch, ReleaseFence& fence,
           Orders& orders, Duration share_memory_grace, Duration grace)
      : ports_(ports),
        attempts_(attempts),
        watch_(watch),
        fence_(fence),
        orders_(orders),
        share_memory_grace_(share_memory_grace),
        grace_(grace) {}

  void look(Time now);
  void add_to(v1::Heartbeat& out) const;

 private:
  /// Its processes among those that a reading shows.
  struct OwnProcesses {
    bool any = false;
    bool all_told = true;   ///< The driver says of each how much memory it has.
    int64_t memory_mb = 0;  ///< Sum over those whose memory the driver tells.
  };

  OwnProcesses own_processes(const AttemptRow& attempt, const DeviceReading& reading) const;
  std::optional<int64_t> gpu_memory_mb(const AttemptRow& attempt, Time now) const;
  ActivityMeter::Look look_of(const AttemptRow& attempt, Time now) const;
  bool is_alone_on(const AttemptRow& attempt, uint32_t index) const;
  std::vector<int32_t> gpu_percents(const AttemptRow& attempt, Time now) const;
  void end_over_share(AttemptRow& attempt);

  const NodePorts& ports_;
  AttemptTable& attempts_;
  DeviceWatch& watch_;
  ReleaseFence& fence_;
  Orders& orders_;
  Duration share_memory_grace_;
  Duration grace_;
};

}  // namespace gpusched::agent
