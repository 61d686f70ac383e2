#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "model/cluster.h"

namespace gpusched::provision {

/// Name of the label that a machine's agent has, with its pool as the value.
inline constexpr std::string_view kPoolLabel = "pool";
/// Name of the label that tells where a pool's machines are.
inline constexpr std::string_view kRegionLabel = "region";
/// Name of the label, of any value, by which an operator keeps a machine: it is neither drained nor returned.
inline constexpr std::string_view kKeepLabel = "machine.keep";
/// Author of the drains by which machines are returned, as nodes show it.
inline constexpr std::string_view kDrainedBy = "autoscaler";

/// Resources with which each machine of a pool registers as a node.
struct MachineShape {
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  int32_t gpus = 0;
  std::string gpu_model;
  int64_t gpu_memory_mb = 0;
  std::vector<std::string> features;
  std::vector<Label> labels;  ///< Beside kPoolLabel.
};

/// Machines of one shape from one provider, and how many of them there may be.
struct Pool {
  std::string name;
  MachineShape shape;
  int64_t minimum = 0;       ///< Machines that are there without demand.
  int64_t maximum = 0;       ///< Never more, those that are coming or going included.
  int64_t price_milli = 0;   ///< Price of a machine for an hour, in thousandths of the currency's unit.
  int64_t budget_milli = 0;  ///< Never a higher price of all its machines together for an hour; 0: no limit.
  Duration boot = minutes(4);         ///< Expected time from the request to a node in service.
  Duration boot_limit = minutes(20);  ///< A machine whose node has not come by then is returned.
  Duration idle_after = minutes(10);  ///< Time without work after which a machine is drained.
  int64_t requests_max = 10;          ///< Most machines that are asked for in one decision.
};

/// The machine as the node that it becomes; its one class of devices has the number 0.
Node node_of(const Pool& pool, const std::string& name);
std::vector<DeviceClass> classes_of(const Pool& pool);

}  // namespace gpusched::provision
