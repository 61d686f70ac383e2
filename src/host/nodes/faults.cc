#include "host/nodes/faults.h"

#include <algorithm>

#include "base/limits.h"
#include "base/text/plain_words.h"

namespace gpusched::hub {

std::optional<Command> Faults::command_of(Connection& connection, const v1::Report& report) {
  const v1::DeviceFault& fault = report.device_fault();
  const std::optional<uint32_t> slot = connection.slot_of(fault.index());
  if (!slot) return std::nullopt;
  // As for conditions, only the last word counts.
  uint64_t& newest = connection.faults[fault.index()];
  if (report.id() < newest) return std::nullopt;
  newest = report.id();
  const int known = std::clamp<int>(fault.fault(), 0, static_cast<int>(kFaultClassLast));
  return NoteDeviceFault{.node = connection.node,
                         .device = *slot,
                         .fault = static_cast<FaultClass>(known),
                         .code = plain_words(fault.code(), limits::kLabelBytesMax),
                         .detail = plain_words(fault.detail(), limits::kLabelBytesMax),
                         .id = fault.id()};
}

void Faults::order_clear(const Connection& connection, uint32_t slot) const {
  const Node* node = hooks_.state().find_node(connection.node);
  const std::optional<uint32_t> index = connection.agent_index(slot);
  if (node == nullptr || slot >= node->devices.size() || !index) return;
  const Device& device = node->devices[slot];
  if (device.fault != FaultClass::kNone) return;
  v1::SchedulerMessage message;
  message.mutable_clear_fault()->set_index(*index);
  message.mutable_clear_fault()->set_id(device.fault_id);
  connection.send(message);
}

}  // namespace gpusched::hub
