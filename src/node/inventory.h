#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "node/gpu_driver.h"

namespace gpusched {

/// The devices that this node last had, in `<data folder>/inventory`, a line each: uuid, memory in MB, model.
/// A driver that does not answer after an upgrade is a node out of service, not a node without GPUs.
Result<Unit> keep_inventory(const std::string& data_folder, const std::vector<DeviceFacts>& devices);
/// Empty when none was ever kept. Lines that do not parse are passed over.
Result<std::vector<DeviceFacts>> load_inventory(const std::string& data_folder);

/// Stands for a driver that cannot be opened: these devices, each missing for this reason.
std::shared_ptr<GpuDriver> make_lost_driver(std::vector<DeviceFacts> devices, std::string reason);

}  // namespace gpusched
