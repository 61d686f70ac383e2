#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "node/ports/ports.h"
#include "shim/container/container_plan.h"

namespace gpusched {

/// Places where a machine describes its GPUs to container runtimes.
struct GpuPlaces {
  std::vector<std::string> cdi_folders = {"/etc/cdi", "/var/run/cdi"};
  std::string driver_folder = "/proc/driver/nvidia/gpus";
  std::string device_folder = "/dev";
  std::string root = {};  ///< Put before the /proc that names MIG slices' device nodes.
};

struct ContainerGpus {
  std::vector<std::string> options = {};  ///< Options of the runtime's `run`.
  std::string note = {};                  ///< Lack of the container, and how to repair it; empty: none.
};

/// The device names of one CDI specification (YAML or JSON), each with its kind:
/// "nvidia.com/gpu=GPU-8f3c...".
std::vector<std::string> cdi_devices(std::string_view specification);

/// Options that give a container exactly the devices `uuids`: by CDI where this machine's specifications name
/// them, else by device nodes with a note. Simulated GPUs are no devices and need none. `slices`: of each of
/// them the MIG slice that is given instead of all of it; empty: none is.
ContainerGpus container_gpus(shim::ContainerRuntime runtime, const std::vector<std::string>& uuids,
                             const GpuPlaces& places, const std::vector<MadeSlice>& slices = {});

}  // namespace gpusched
