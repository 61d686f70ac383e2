#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/topology.h"
#include "node/watch/device_watch.h"

/// How a machine's GPUs are linked, as drivers tell it. All functions are pure and thread-safe.
namespace gpusched {

/// Usual bandwidth of a link of this kind in one direction, in GB/s: for PCIe what transfers between two GPUs
/// reach over generation 4 with 16 lanes; for NVLink `nvlinks` times `nvlink_gbs`.
int64_t usual_gbs(LinkKind kind, int64_t nvlinks, int64_t nvlink_gbs);
/// One NVLink's, in one direction, by the GPU's model: 50 for Blackwell, 20 for Pascal, 25 for all others.
int64_t nvlink_gbs_of(std::string_view model);

namespace smi {

/// Reads the output of `nvidia-smi topo -m` about so many devices, in their order. `model` is the first
/// one's. kInvalidArgument says what is wrong with the text: then nothing of it is believed.
Result<DeviceTopology> topology_of(std::string_view text, std::size_t devices, std::string_view model);

}  // namespace smi

/// Simulated links: sizes of islands of NVLink with commas between, such as "4,4", each on a NUMA node of its
/// own. kInvalidArgument when they are not as many devices as there are.
Result<DeviceTopology> parse_sim_links(std::string_view text, std::size_t devices);

}  // namespace gpusched
