#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "gpusched/v1/node.pb.h"
#include "host/nodes/connections.h"
#include "host/nodes/telemetry.h"

namespace gpusched::hub {

/// The scheduler's side of the release fence: a device that an attempt had is free again when its agent has
/// seen it empty. Asks agents about devices that should be empty, and proposes quarantine for one that stays
/// busy past the limit. Attempts' generations of devices tell late words from those that count.
class ReleaseFence {
 public:
  ReleaseFence(const Hooks& hooks, Connections& connections, TelemetryTable& telemetry)
      : hooks_(hooks), connections_(connections), telemetry_(telemetry) {}

  /// Nothing: it is about a device that the state does not have.
  std::optional<Command> command_of(const Connection& connection, const v1::Released& released) const;
  /// An attempt has the device in this very generation.
  bool is_held(const DeviceReleased& release) const;
  /// The agent says why a device is not empty. Only what quarantines is proposed.
  void on_draining(Connection& connection, const v1::Draining& draining);

  /// Asks about every device of the agent's that is not empty by what is known.
  void ask_all(const Connection& connection) const;
  /// Asks again about those that should be empty by now. An agent says once why a device is not.
  void ask_late(const Connection& connection) const;
  void ask(const Connection& connection, uint32_t slot) const;

 private:
  /// About the whole device, or one attempt's share of it.
  static void add(const Connection& connection, const Node& node, uint32_t slot, const AttemptKey& share_of,
                  v1::SchedulerMessage& check);

  const Hooks& hooks_;
  Connections& connections_;
  TelemetryTable& telemetry_;
};

}  // namespace gpusched::hub
