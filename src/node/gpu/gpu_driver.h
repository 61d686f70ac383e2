#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "node/gpu/device_topology.h"
#include "node/gpu/gpu_daemons.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"

namespace gpusched {

/// Prefix of simulated devices' uuids.
inline constexpr std::string_view kSimUuidMark = "GPU-sim-";

/// A way to look at this machine's GPUs. Not thread-safe: one thread at a time calls it.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;
  virtual std::string_view name() const = 0;
  /// The devices in the order of their indexes; the same for the driver's life.
  virtual const std::vector<DeviceFacts>& inventory() const = 0;
  /// How they are linked; the same for the driver's life.
  virtual const DeviceTopology& topology() const;
  /// One look. Never fails: what cannot be read is a condition with its reason.
  virtual DeviceReading read(uint32_t index) = 0;
  /// Whether `read` may take long, as it does when a device hangs: then it is called on a thread of its own.
  virtual bool may_block() const = 0;
  /// Its readings have the Xids that come up.
  virtual bool tells_xids() const { return false; }
  /// Program of a process of a reading; absent: it is not known.
  virtual std::optional<ProgramFacts> program_of(int64_t pid) const { return program_of_process(pid); }
  /// The MIG slices that are there, or why they cannot be told. All seem ours.
  virtual Result<std::vector<SliceReading>> slices(uint32_t index);
  /// Makes a MIG instance of this profile from this slot on, and in it a compute instance that has all of it.
  /// The error is a sentence for people. May take seconds. Should the process end meanwhile, there may be an
  /// instance in which nothing can run; `destroy_slice` takes it away.
  virtual Result<MadeSlice> make_slice(uint32_t index, const std::string& profile, int32_t start);
  /// Destroys that instance with what it is made of; of one that is not there, it has nothing to do. One
  /// that is in use stays, which the error says; its compute instance may be gone then.
  virtual Result<Unit> destroy_slice(uint32_t index, const std::string& profile, int32_t start);
};

/// NVIDIA's management library, loaded at run time. `library`: its path, or empty for the system's. kNotFound
/// when there is no such library, no driver or no device.
Result<std::unique_ptr<GpuDriver>> open_nvml_driver(const std::string& library);

/// The same devices by the text of nvidia-smi. `program`: its path, or empty for the one in $PATH; each run
/// may take `patience`, then it counts as hanging. kNotFound when there is no such program, no driver or no
/// device; kUnavailable, with what it said, when it cannot tell them: such a node has GPUs, and cannot use
/// them.
Result<std::unique_ptr<GpuDriver>> open_nvidia_smi_driver(const std::string& program, Duration patience);

/// NVML, or nvidia-smi where NVML finds nothing.
Result<std::unique_ptr<GpuDriver>> open_real_driver(const std::string& nvml_library,
                                                    const std::string& nvidia_smi);

/// Simulated devices. `shape` is such as "4xA100-SXM4-80GB,2xH100-SXM5-80GB:mig": counts, and models whose
/// last part is the memory; ":mig": in MIG mode, their slices are kept in `sim-mig` beside the control file.
/// Their uuids are "GPU-sim-<node>-<index>", those of slices "MIG-sim-<node>-<index>-<profile>-<start>".
/// `links` says
/// how they are linked, as `parse_sim_links` takes it; empty: not known. `control_file` may change them while
/// they are in use; see docs/reference/agent-disk-layout.md. kInvalidArgument names what is wrong with the
/// shape or the links.
Result<std::unique_ptr<GpuDriver>> open_sim_driver(const std::string& shape, const std::string& node_name,
                                                   const std::string& control_file,
                                                   const std::string& links = {});

/// Devices as NodeCore wants them read and cut: at once where the driver never blocks, else by a thread.
class DeviceMonitor : public DeviceReader, public SliceMaker {
 public:
  struct Finished {
    enum class Kind : uint8_t { kReading, kMade, kDestroyed };
    Kind kind = Kind::kReading;
    uint32_t index = 0;
    DeviceReading reading = {};
    std::string profile = {};  ///< Profile, for a slice.
    int32_t start = 0;
    MadeSlice made = {};
    std::string problem = {};  ///< Empty: it was made, or destroyed.
  };
  /// Readings that took time, and what became of slices, since the last call; in the order in which they were
  /// asked for.
  virtual std::vector<Finished> take_finished() = 0;
  /// Becomes readable when `take_finished` has something; -1 when it never does.
  virtual int finished_event() const = 0;
};

/// `driver` may be null: no devices. `daemons`: programs that are set apart in readings. A thread that hangs
/// in the driver is left behind when the monitor goes.
std::unique_ptr<DeviceMonitor> make_device_monitor(std::shared_ptr<GpuDriver> driver,
                                                   std::vector<std::string> daemons = default_gpu_daemons());

}  // namespace gpusched
