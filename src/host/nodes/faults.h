#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "gpusched/v1/node.pb.h"
#include "host/nodes/connections.h"

namespace gpusched::hub {

/// Faults of GPUs: the agent's newest word on each device, and the order to forget it once an operator
/// released the device. The node goes by what it found until it hears of the release.
class Faults {
 public:
  explicit Faults(const Hooks& hooks) : hooks_(hooks) {}

  /// Nothing: it says nothing any more, or is about a device that the state does not have.
  static std::optional<Command> command_of(Connection& connection, const v1::Report& report);
  /// Says again which word on the device is released, if nothing stands against it.
  void order_clear(const Connection& connection, uint32_t slot) const;

 private:
  const Hooks& hooks_;
};

}  // namespace gpusched::hub
