#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "node/ports/ports.h"

/// Reads nvidia-smi's output about MIG. Its tables are for people, and the words in them are the only way to
/// a slice's processes; text that is not understood is left out. All functions are thread-safe.
namespace gpusched::smi {

/// Fields of `--query-gpu`, as kGpuQuery. Old drivers do not know them.
inline constexpr const char* kMigQuery = "--query-gpu=uuid,index,mig.mode.current,mig.mode.pending";

struct MigMode {
  uint32_t index = 0;  ///< As nvidia-smi numbers GPUs, for its `-i`.
  bool on = false;
  bool changes = false;  ///< With the next reset.
};
/// Modes in kMigQuery's answer, by uuid; devices that cannot be in MIG mode are not among them.
std::map<std::string, MigMode> mig_modes(std::string_view text);

/// A line of `nvidia-smi mig -lgi`.
struct GpuInstance {
  uint32_t gpu = 0;
  int32_t profile = 0;  ///< Its number.
  int32_t instance = 0;
  int32_t start = 0;
};
std::vector<GpuInstance> gpu_instances(std::string_view text);
/// True for the text of `mig -lgi` when there is none, and it fails.
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

/// The uuids of MIG devices in `nvidia-smi -L`, by GPU and number of the device.
std::map<std::pair<uint32_t, int32_t>, std::string> mig_uuids(std::string_view text);

/// The slices of one GPU, from the three texts.
std::vector<SliceReading> slices_of(uint32_t gpu, const std::string& model, int64_t memory_mb,
                                    std::string_view instances, std::string_view tables,
                                    std::string_view list);

}  // namespace gpusched::smi
