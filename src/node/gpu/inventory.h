#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "node/gpu/gpu_driver.h"

namespace gpusched {

/// A device that this node has or had, in the slot that it keeps.
struct KnownDevice {
  DeviceFacts facts;
  std::string missing_since;  ///< The boot in which it was missed first; empty: it was there.
};

/// The devices of this node by their slots, in `<data folder>/inventory`, a line each: uuid, memory in MB,
/// model; of one that is missing, `missing` and the boot before it. A driver that does not answer after an
/// upgrade is a node out of service, not a node without GPUs; and one lost GPU does not renumber the others.
Result<Unit> keep_inventory(const std::string& data_folder, const std::vector<KnownDevice>& devices);
/// Empty when none was ever kept. Lines that do not parse are passed over.
Result<std::vector<KnownDevice>> load_inventory(const std::string& data_folder);

/// The driver's present devices in the kept slots. One that it no longer shows stays as missing until the
/// boot after the one in which it was missed, and as long as an attempt has it (`held`, by uuid).
std::vector<KnownDevice> settle_inventory(const std::vector<KnownDevice>& before,
                                          const std::vector<DeviceFacts>& shown,
                                          const std::set<std::string>& held, const std::string& boot_id);

/// The driver's devices in these slots, by their uuids; those that it does not have are missing, for this
/// reason. `driver` null: it cannot be opened, and all are.
std::shared_ptr<GpuDriver> make_slot_driver(std::shared_ptr<GpuDriver> driver,
                                            const std::vector<KnownDevice>& slots, std::string reason);

}  // namespace gpusched
