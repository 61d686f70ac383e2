#include "provision/pool.h"

#include <algorithm>

#include "model/types.h"

namespace gpusched::provision {

Node node_of(const Pool& pool, const std::string& name) {
  Node node{.name = name, .cpu_milli = pool.shape.cpu_milli, .memory_mb = pool.shape.memory_mb};
  for (int32_t i = 0; i < pool.shape.gpus; ++i)
    node.devices.push_back({.uuid = name + "-" + std::to_string(i), .memory_mb = pool.shape.gpu_memory_mb});
  node.features = pool.shape.features;
  // A machine of a pool has an agent of ours, so it is no external node, whatever its features say.
  if (std::ranges::find(node.features, "container") != node.features.end())
    node.feature_bits = kFeatureContainer;
  node.agent_labels = pool.shape.labels;
  node.agent_labels.push_back({.name = std::string(kPoolLabel), .value = pool.name});
  std::ranges::sort(node.agent_labels, {}, &Label::name);
  return node;
}

std::vector<DeviceClass> classes_of(const Pool& pool) {
  return {DeviceClass{.model = pool.shape.gpu_model, .memory_mb = pool.shape.gpu_memory_mb}};
}

}  // namespace gpusched::provision
