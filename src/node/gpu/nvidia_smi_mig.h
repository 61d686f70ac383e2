#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "node/ports/ports.h"

/// What nvidia-smi prints of MIG, as values. Its tables are for people, and the words in them are the only
/// way to a slice's processes; what is not understood is left out. All functions are thread-safe.
namespace gpusched::smi {

/// Of `--query-gpu`, as for kGpuQuery. Old drivers do not know it.
inline constexpr const char* kMigQuery = "--query-gpu=uuid,index,mig.mode.current,mig.mode.pending";

struct MigMode {
  uint32_t index = 0;  ///< As nvidia-smi numbers GPUs, for its `-i`.
  bool on = false;
  bool changes = false;  ///< With the next reset.
};
/// Of kMigQuery's answer, by uuid; those that cannot be in MIG mode are not among them.
std::map<std::string, MigMode> mig_modes(std::string_view text);

/// A line of `nvidia-smi mig -lgi`.
struct GpuInstance {
  uint32_t gpu = 0;
  int32_t profile = 0;  ///< Its number.
  int32_t instance = 0;
  int32_t start = 0;
};
std::vector<GpuInstance> gpu_instances(std::string_view text);
/// What that says when there is none, and fails.
bool says_none(std::string_view text);

/// A line of the table "MIG devices" that nvidia-smi prints without arguments.
struct MigDevice {
  uint32_t gpu = 0;
  int32_t instance = 0, compute_instance = 0, device = 0;
  int64_t memory_used_mb = 0;
};
std::vector<MigDevice> mig_devices(std::string_view text);

/// A line of the table "Processes" there, of a process in an instance.
struct MigProcess {
  uint32_t gpu = 0;
  int32_t instance = 0;
  int64_t pid = 0;
};
std::vector<MigProcess> mig_processes(std::string_view text);

/// Of `nvidia-smi -L`: the uuids of MIG devices, by GPU and number of the device.
std::map<std::pair<uint32_t, int32_t>, std::string> mig_uuids(std::string_view text);

/// The slices of one GPU, from the three texts.
std::vector<SliceReading> slices_of(uint32_t gpu, const std::string& model, int64_t memory_mb,
                                    std::string_view instances, std::string_view tables,
                                    std::string_view list);

}  // namespace gpusched::smi
