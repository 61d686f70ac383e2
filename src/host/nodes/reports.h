#pragma once

#include <optional>

#include "engine/engine.h"
#include "gpusched/v1/node.pb.h"
#include "host/nodes/connections.h"
#include "host/nodes/faults.h"
#include "host/nodes/release_fence.h"

namespace gpusched::hub {

/// Agents' reports: each becomes a command and is acknowledged when that is durable, a rejection included. An
/// agent repeats what is not acknowledged. A report that a newer one overtook is acknowledged and not taken.
class Reports {
 public:
  Reports(const Hooks& hooks, Connections& connections, ReleaseFence& fence, Faults& faults)
      : hooks_(hooks), connections_(connections), fence_(fence), faults_(faults) {}

  void on_report(Connection& connection, const v1::Report& report);

 private:
  /// Nothing: it says nothing that the state knows of, or nothing any more.
  std::optional<Command> command_of(Connection& connection, const v1::Report& report) const;
  /// Another node has the attempt: this one's word on its end is not taken, and it must not forget it.
  bool is_of_another_node(const AttemptEnded& ended) const;

  const Hooks& hooks_;
  Connections& connections_;
  ReleaseFence& fence_;
  Faults& faults_;
};

}  // namespace gpusched::hub
