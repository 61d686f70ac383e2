#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "node/kubernetes/node_facts.h"

/// The GpuNodeStatus of a Kubernetes node (docs/reference/kubernetes.md) as text. Pure; thread-safe.
namespace gpusched::kubernetes {

/// One device, as its node's object says it.
struct DeviceStatus {
  DeviceFacts facts;
  DeviceIsland island;
  enum class Health : uint8_t { kHealthy, kUnhealthy, kUnknown } health = Health::kUnknown;
  std::string message = {};                 ///< Why it is not healthy.
  std::vector<std::string> in_use_by = {};  ///< Uids of pods, sorted.
};

struct NodeStatus {
  std::string node;
  std::vector<DeviceStatus> devices;  ///< By their ids.
  MachineFacts machine;
  std::string message = {};  ///< What is wrong with the node; empty: nothing.
};

/// The object without its status, for an apply of the object itself.
std::string object_json(const NodeStatus& status);
/// The object with its status, for an apply of the status.
std::string object_with_status_json(const NodeStatus& status);

/// Uids of the pods that use each device, sorted, by `list`: the API server's list of the node's pods that
/// have not ended, or of their metadata alone. A pod says in its annotations which devices of which node it
/// was bound with. kInvalidArgument when it is no such list.
Result<std::vector<std::vector<std::string>>> users_of(std::string_view list, const std::string& node,
                                                       std::size_t devices);

}  // namespace gpusched::kubernetes
