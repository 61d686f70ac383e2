#pragma once

#include "gpusched/v1/node.pb.h"
#include "host/nodes/attempt_table.h"
#include "host/nodes/connections.h"
#include "host/nodes/rules/watchdog.h"

namespace gpusched::hub {

/// Compares what running attempts do, as heartbeats tell, with what they may, and proposes what the watchdog
/// finds: one finding of an attempt at a time.
class Activity {
 public:
  Activity(const Hooks& hooks, Connections& connections, AttemptTable& attempts, WatchLimits limits)
      : hooks_(hooks), connections_(connections), attempts_(attempts), limits_(limits) {}

  void on_heartbeat(Connection& connection, const v1::Heartbeat& message);

 private:
  void look_at(const Attempt& attempt, AttemptRow& row);
  const WatchPolicy& policy_of(const Job& job, AttemptRow& row) const;

  const Hooks& hooks_;
  Connections& connections_;
  AttemptTable& attempts_;
  WatchLimits limits_;
};

}  // namespace gpusched::hub
