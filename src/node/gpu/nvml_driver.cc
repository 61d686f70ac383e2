#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "log/log.h"
#include "node/gpu/gpu_driver.h"
#include "node/gpu/nvml_calls.h"
#include "node/gpu/nvml_mig.h"
#include "node/watch/gpu_faults.h"

// The declarations that we need, after NVIDIA's documentation of NVML (API version 12); the library keeps
// them stable, a changed structure gets a new function name.
namespace gpusched {
namespace {

using NvmlReturn = int;

using nvml::find;
using nvml::kBytesPerMb;
using nvml::kInsufficientSize;
using nvml::kNotSupported;
using nvml::kProcessesMax;
using nvml::kSuccess;

constexpr NvmlReturn kGpuIsLost = 15;
constexpr unsigned kTemperatureGpu = 0;
constexpr int kThresholdSlowdown = 1;
constexpr unsigned kUncorrectedError = 1;
constexpr unsigned kVolatileEcc = 0;
constexpr unsigned long long kXidEvent = 0x8;
constexpr int kEventsAtOnce = 256;
constexpr std::array<std::pair<unsigned long long, const char*>, 3> kThrottles = {
    {{0x08, "throttle_hw_slowdown"}, {0x40, "throttle_hw_thermal"}, {0x80, "throttle_power_brake"}}};

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlUtilization {
  unsigned gpu, memory;
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance, compute_instance;
};

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
using NvmlEventSet = struct NvmlEventSetOpaque*;
struct NvmlEvent {
  NvmlDevice device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned kNvlinkPortsMax = 18;  // NVML_NVLINK_MAX_LINKS.
// nvmlGpuTopologyLevel_t.
constexpr int kTopologyNode = 40;
// nvmlIntNvLinkDeviceType_t.
constexpr int kRemoteIsSwitch = 2;

/// The functions that we call; the optional ones may be null.
struct Functions {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  NvmlReturn (*device_count)(unsigned*) = nullptr;
  NvmlReturn (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*device_name)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  // Processes that draw, and those of CUDA's multi-process service, are in lists of their own; optional.
  NvmlReturn (*graphics_processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  NvmlReturn (*mps_processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  NvmlReturn (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;                        ///< Optional.
  NvmlReturn (*temperature)(NvmlDevice, unsigned, unsigned*) = nullptr;                     ///< Optional.
  NvmlReturn (*temperature_threshold)(NvmlDevice, int, unsigned*) = nullptr;                ///< Optional.
  NvmlReturn (*power_milliwatts)(NvmlDevice, unsigned*) = nullptr;                          ///< Optional.
  NvmlReturn (*ecc_errors)(NvmlDevice, unsigned, unsigned, unsigned long long*) = nullptr;  ///< Optional.
  // All optional.
  NvmlReturn (*remapped_rows)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*retired_pending)(NvmlDevice, int*) = nullptr;
  NvmlReturn (*throttle_reasons)(NvmlDevice, unsigned long long*) = nullptr;
  NvmlReturn (*pci_info)(NvmlDevice, NvmlPciInfo*) = nullptr;
  NvmlReturn (*event_set_create)(NvmlEventSet*) = nullptr;
  NvmlReturn (*event_set_free)(NvmlEventSet) = nullptr;
  NvmlReturn (*register_events)(NvmlDevice, unsigned long long, NvmlEventSet) = nullptr;
  NvmlReturn (*event_wait)(NvmlEventSet, NvmlEvent*, unsigned) = nullptr;

  bool has_events() const {
    return event_set_create != nullptr && event_set_free != nullptr && register_events != nullptr &&
           event_wait != nullptr;
  }
  // Functions for the topology; all optional.
  NvmlReturn (*common_ancestor)(NvmlDevice, NvmlDevice, int*) = nullptr;
  NvmlReturn (*nvlink_state)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*nvlink_remote)(NvmlDevice, unsigned, NvmlPciInfo*) = nullptr;
  NvmlReturn (*nvlink_remote_type)(NvmlDevice, unsigned, int*) = nullptr;
  NvmlReturn (*memory_affinity)(NvmlDevice, unsigned, unsigned long*, unsigned) = nullptr;
};

bool find_all(void* library, Functions& out) {
  find(library, "nvmlDeviceGetGraphicsRunningProcesses_v3", out.graphics_processes);
  find(library, "nvmlDeviceGetMPSComputeRunningProcesses_v3", out.mps_processes);
  find(library, "nvmlDeviceGetUtilizationRates", out.utilization);
  find(library, "nvmlDeviceGetTemperature", out.temperature);
  find(library, "nvmlDeviceGetTemperatureThreshold", out.temperature_threshold);
  find(library, "nvmlDeviceGetPowerUsage", out.power_milliwatts);
  find(library, "nvmlDeviceGetTotalEccErrors", out.ecc_errors);
  find(library, "nvmlDeviceGetRemappedRows", out.remapped_rows);
  find(library, "nvmlDeviceGetRetiredPagesPendingStatus", out.retired_pending);
  find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", out.throttle_reasons);
  find(library, "nvmlDeviceGetPciInfo_v3", out.pci_info);
  find(library, "nvmlEventSetCreate", out.event_set_create);
  find(library, "nvmlEventSetFree", out.event_set_free);
  find(library, "nvmlDeviceRegisterEvents", out.register_events);
  find(library, "nvmlEventSetWait_v2", out.event_wait);
  find(library, "nvmlDeviceGetTopologyCommonAncestor", out.common_ancestor);
  find(library, "nvmlDeviceGetNvLinkState", out.nvlink_state);
  find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", out.nvlink_remote);
  find(library, "nvmlDeviceGetNvLinkRemoteDeviceType", out.nvlink_remote_type);
  find(library, "nvmlDeviceGetMemoryAffinity", out.memory_affinity);
  return find(library, "nvmlInit_v2", out.init) && find(library, "nvmlShutdown", out.shutdown) &&
         find(library, "nvmlErrorString", out.error_string) &&
         find(library, "nvmlDeviceGetCount_v2", out.device_count) &&
         find(library, "nvmlDeviceGetHandleByIndex_v2", out.device_by_index) &&
         find(library, "nvmlDeviceGetUUID", out.uuid) &&
         find(library, "nvmlDeviceGetName", out.device_name) &&
         find(library, "nvmlDeviceGetMemoryInfo", out.memory) &&
         find(library, "nvmlDeviceGetComputeRunningProcesses_v3", out.processes);
}

class NvmlDriver final : public GpuDriver {
 public:
  NvmlDriver(void* library, Functions functions) : library_(library), call_(functions), mig_(library) {}
  ~NvmlDriver() override {
    if (events_ != nullptr) call_.event_set_free(events_);
    call_.shutdown();
    dlclose(library_);
  }

  std::string_view name() const override { return "nvml"; }
  const std::vector<DeviceFacts>& inventory() const override { return facts_; }
  const DeviceTopology& topology() const override { return topology_; }
  bool may_block() const override { return true; }
  bool tells_xids() const override { return events_ != nullptr; }

  /// Xids of all devices that can tell them; without, the kernel's log has them.
  void listen() {
    if (!call_.has_events() || devices_.empty() || call_.event_set_create(&events_) != kSuccess) {
      events_ = nullptr;
      return;
    }
    for (NvmlDevice device : devices_) {
      if (call_.register_events(device, kXidEvent, events_) == kSuccess) continue;
      call_.event_set_free(events_);
      events_ = nullptr;
      return;
    }
  }

  Result<Unit> take_inventory() {
    unsigned count = 0;
    if (const NvmlReturn code = call_.device_count(&count); code != kSuccess)
      return failure("count devices", code);
    NvmlReturn last_failure = kSuccess;
    for (unsigned index = 0; index < count; ++index) {
      NvmlDevice device = nullptr;
      std::array<char, 96> uuid{};
      std::array<char, 96> model{};
      NvmlMemory memory{};
      NvmlReturn code = call_.device_by_index(index, &device);
      if (code == kSuccess) code = call_.uuid(device, uuid.data(), uuid.size());
      if (code == kSuccess) code = call_.device_name(device, model.data(), model.size());
      if (code == kSuccess) code = call_.memory(device, &memory);
      if (code != kSuccess) {  // The others do not go with it.
        last_failure = code;
        log_event(LogLevel::kError, "agent", "gpu_not_readable", {},
                  {{"number", index}, {"uuid", uuid.data()}, {"why", call_.error_string(code)}});
        continue;
      }
      devices_.push_back(device);
      facts_.push_back({.uuid = uuid.data(),
                        .model = model.data(),
                        .memory_mb = static_cast<int64_t>(memory.total) / kBytesPerMb,
                        .slowdown_celsius = slowdown_of(device),
                        .pci_slot = slot_of(device),
                        .numa_node = numa_of(device),
                        .pci_bus_id = bus_of(device)});
      mig_.look_at_mode(device, facts_.back());
    }
    if (devices_.empty() && last_failure != kSuccess) return failure("access any device", last_failure);
    take_topology();
    return Unit{};
  }

  DeviceReading read(uint32_t index) override {
    NvmlDevice device = devices_.at(index);
    DeviceReading reading;
    take_events();
    reading.xids = std::exchange(xids_[index], {});
    NvmlMemory memory{};
    if (!require(call_.memory(device, &memory), "its memory", reading)) return reading;
    reading.memory_used_mb = static_cast<int64_t>(memory.used) / kBytesPerMb;
    if (!read_processes(device, reading)) return reading;
    NvmlUtilization utilization{};
    if (call_.utilization != nullptr && call_.utilization(device, &utilization) == kSuccess) {
      reading.utilization_percent = static_cast<int32_t>(utilization.gpu);
    }
    unsigned value = 0;
    if (call_.temperature != nullptr && call_.temperature(device, kTemperatureGpu, &value) == kSuccess) {
      reading.temperature_celsius = static_cast<int32_t>(value);
    }
    if (call_.power_milliwatts != nullptr && call_.power_milliwatts(device, &value) == kSuccess) {
      reading.power_watts = static_cast<int32_t>(value / 1'000);
    }
    unsigned long long errors = 0;
    if (call_.ecc_errors != nullptr &&
        call_.ecc_errors(device, kUncorrectedError, kVolatileEcc, &errors) == kSuccess)
      reading.ecc_uncorrected = static_cast<int64_t>(errors);
    read_memory_faults(device, reading);
    unsigned long long reasons = 0;
    if (call_.throttle_reasons != nullptr && call_.throttle_reasons(device, &reasons) == kSuccess) {
      for (const auto& [bit, code] : kThrottles) {
        if ((reasons & bit) != 0) reading.throttles.emplace_back(code);
      }
    }
    read_slices(index, reading);
    return reading;
  }

  Result<std::vector<SliceReading>> slices(uint32_t index) override {
    return mig_.slices(devices_.at(index), facts_.at(index));
  }
  Result<MadeSlice> make_slice(uint32_t index, const std::string& profile, int32_t start) override {
    return mig_.make(devices_.at(index), facts_.at(index), profile, start);
  }
  Result<Unit> destroy_slice(uint32_t index, const std::string& profile, int32_t start) override {
    return mig_.destroy(devices_.at(index), facts_.at(index), profile, start);
  }

 private:
  /// Without them nobody knows whether one is empty.
  void read_slices(uint32_t index, DeviceReading& reading) const {
    const DeviceFacts& facts = facts_[index];
    DeviceFacts now;
    mig_.look_at_mode(devices_[index], now);
    const auto unhealthy = [&reading](std::string why) {
      reading.condition = v1::DEVICE_CONDITION_UNHEALTHY;
      reading.detail = std::move(why);
    };
    if (now.mig != facts.mig)
      return unhealthy(std::string("its MIG mode was switched ") + (now.mig ? "on" : "off") +
                       " since gpu-agent started: restart gpu-agent");
    if (!facts.mig) return;
    Result<std::vector<SliceReading>> found = mig_.slices(devices_[index], facts);
    if (!found) return unhealthy(found.error().message);
    reading.slices = std::move(*found);
  }

  void read_memory_faults(NvmlDevice device, DeviceReading& reading) const {
    unsigned corrected = 0;
    unsigned uncorrected = 0;
    unsigned pending = 0;
    unsigned failed = 0;
    if (call_.remapped_rows != nullptr &&
        call_.remapped_rows(device, &corrected, &uncorrected, &pending, &failed) == kSuccess) {
      reading.remap_pending = pending != 0;
      reading.remap_failed = failed != 0;
    }
    int retired = 0;  // Before Ampere pages are retired instead.
    if (call_.retired_pending != nullptr && call_.retired_pending(device, &retired) == kSuccess &&
        retired != 0)
      reading.remap_pending = true;
  }

  std::string slot_of(NvmlDevice device) const {
    NvmlPciInfo info{};
    if (call_.pci_info == nullptr || call_.pci_info(device, &info) != kSuccess) return {};
    info.bus_id[sizeof info.bus_id - 1] = '\0';
    return pci_slot_of(info.bus_id);
  }

  void take_events() {
    if (events_ == nullptr) return;
    for (int i = 0; i < kEventsAtOnce; ++i) {
      NvmlEvent event{};
      if (call_.event_wait(events_, &event, 0) != kSuccess) return;
      if (event.type != kXidEvent) continue;
      for (uint32_t index = 0; index < devices_.size(); ++index) {
        if (devices_[index] == event.device) xids_[index].push_back(static_cast<uint32_t>(event.data));
      }
    }
  }

  std::string bus_of(NvmlDevice device) const {
    NvmlPciInfo info{};
    if (call_.pci_info == nullptr || call_.pci_info(device, &info) != kSuccess) return {};
    info.bus_id[sizeof info.bus_id - 1] = 0;
    return clean_text(info.bus_id, sizeof info.bus_id);
  }

  /// The NUMA node whose memory is nearest; absent when none alone is, or none is told.
  std::optional<int32_t> numa_of(NvmlDevice device) const {
    std::array<unsigned long, 4> nodes{};
    constexpr unsigned kOfNode = 0;
    if (call_.memory_affinity == nullptr ||
        call_.memory_affinity(device, static_cast<unsigned>(nodes.size()), nodes.data(), kOfNode) != kSuccess)
      return std::nullopt;
    std::optional<int32_t> found;
    constexpr std::size_t kBits = 8 * sizeof(unsigned long);
    for (std::size_t node = 0; node < nodes.size() * kBits; ++node) {
      if (((nodes[node / kBits] >> (node % kBits)) & 1) == 0) continue;
      if (found) return std::nullopt;
      found = static_cast<int32_t>(node);
    }
    return found;
  }

  /// A device's NVLinks that are up: those to switches, and how many lead to which other device.
  struct Nvlinks {
    int64_t to_switches = 0;
    std::map<std::string, int64_t> to_devices;  ///< By bus id.
  };
  Nvlinks nvlinks_of(NvmlDevice device) const {
    Nvlinks found;
    for (unsigned link = 0; call_.nvlink_state != nullptr && link < kNvlinkPortsMax; ++link) {
      unsigned active = 0;
      if (call_.nvlink_state(device, link, &active) != kSuccess || active == 0) continue;
      int type = 0;
      const bool typed =
          call_.nvlink_remote_type != nullptr && call_.nvlink_remote_type(device, link, &type) == kSuccess;
      NvmlPciInfo remote{};
      if (typed && type == kRemoteIsSwitch) {
        ++found.to_switches;
      } else if (call_.nvlink_remote != nullptr && call_.nvlink_remote(device, link, &remote) == kSuccess) {
        remote.bus_id[sizeof remote.bus_id - 1] = 0;
        ++found.to_devices[remote.bus_id];
      }
    }
    return found;
  }

  Link link_between(std::size_t a, std::size_t b, const std::vector<Nvlinks>& nvlinks) const {
    int64_t count = std::min(nvlinks[a].to_switches, nvlinks[b].to_switches);
    const auto direct = nvlinks[a].to_devices.find(facts_[b].pci_bus_id);
    if (direct != nvlinks[a].to_devices.end() && !facts_[b].pci_bus_id.empty())
      count = std::max(count, direct->second);
    if (count > 0) {
      return {.kind = LinkKind::kNvlink,
              .gbs = usual_gbs(LinkKind::kNvlink, count, nvlink_gbs_of(facts_[a].model))};
    }
    int level = 0;
    if (call_.common_ancestor == nullptr ||
        call_.common_ancestor(devices_[a], devices_[b], &level) != kSuccess)
      return {};
    // On one board, behind one switch, several, one host bridge, one NUMA node; else across all.
    const LinkKind kind = level <= 10              ? LinkKind::kSwitch
                          : level <= 20            ? LinkKind::kBridges
                          : level <= 30            ? LinkKind::kHostBridge
                          : level <= kTopologyNode ? LinkKind::kNuma
                                                   : LinkKind::kSystem;
    return {.kind = kind, .gbs = usual_gbs(kind, 0, 0)};
  }

  void take_topology() {
    topology_.note = "NVML";
    if (call_.common_ancestor == nullptr && call_.nvlink_state == nullptr) {
      topology_.note = "the links between the GPUs are unknown: the driver is too old to report them";
      return;
    }
    std::vector<Nvlinks> nvlinks;
    for (const NvmlDevice device : devices_) nvlinks.push_back(nvlinks_of(device));
    for (std::size_t a = 0; a < devices_.size(); ++a) {
      for (std::size_t b = a + 1; b < devices_.size(); ++b)
        topology_.links.push_back(link_between(a, b, nvlinks).code());
    }
  }

  int32_t slowdown_of(NvmlDevice device) const {
    unsigned celsius = 0;
    if (call_.temperature_threshold == nullptr) return 0;
    if (call_.temperature_threshold(device, kThresholdSlowdown, &celsius) != kSuccess) return 0;
    return static_cast<int32_t>(celsius);
  }

  using ListProcesses = NvmlReturn (*)(NvmlDevice, unsigned*, NvmlProcess*);

  bool read_processes(NvmlDevice device, DeviceReading& reading) const {
    if (!require(add_processes(call_.processes, device, reading), "its processes", reading)) return false;
    for (const ListProcesses list : {call_.graphics_processes, call_.mps_processes}) {
      if (list == nullptr) continue;
      const NvmlReturn code = add_processes(list, device, reading);
      if (code != kNotSupported && !require(code, "its processes", reading)) return false;
    }
    return true;
  }

  /// One process may be in several lists.
  static NvmlReturn add_processes(ListProcesses list, NvmlDevice device, DeviceReading& reading) {
    std::vector<NvmlProcess> processes(16);
    auto count = static_cast<unsigned>(processes.size());
    NvmlReturn code = list(device, &count, processes.data());
    while (code == kInsufficientSize && processes.size() < kProcessesMax) {
      processes.resize(processes.size() * 2);
      count = static_cast<unsigned>(processes.size());
      code = list(device, &count, processes.data());
    }
    if (code != kSuccess) return code;
    for (unsigned i = 0; i < count; ++i) {
      constexpr unsigned long long kNotTold = ~0ULL;
      const unsigned long long used = processes[i].used_gpu_memory;
      const int64_t pid = processes[i].pid;
      if (std::find(reading.processes.begin(), reading.processes.end(), pid) != reading.processes.end())
        continue;
      reading.processes.push_back(pid);
      reading.process_memory_mb.push_back(used == kNotTold ? -1 : static_cast<int64_t>(used) / kBytesPerMb);
    }
    return kSuccess;
  }

  bool require(NvmlReturn code, const char* what, DeviceReading& reading) const {
    if (code == kSuccess) return true;
    reading.condition = code == kGpuIsLost ? v1::DEVICE_CONDITION_MISSING : v1::DEVICE_CONDITION_UNHEALTHY;
    reading.detail = std::string("the driver cannot read ") + what + ": " + call_.error_string(code);
    return false;
  }

  Error failure(const std::string& what, NvmlReturn code) const {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "NVML cannot " + what + ": " + call_.error_string(code)};
  }

  void* library_;
  Functions call_;
  NvmlMig mig_;
  std::vector<NvmlDevice> devices_;
  std::vector<DeviceFacts> facts_;
  NvmlEventSet events_ = nullptr;
  std::map<uint32_t, std::vector<uint32_t>> xids_;  ///< By device, not told yet.
  DeviceTopology topology_;
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> open_nvml_driver(const std::string& library) {
  const std::string path = library.empty() ? "libnvidia-ml.so.1" : library;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Error{.code = ErrorCode::kNotFound, .message = std::string("NVML is not available: ") + dlerror()};
  }
  Functions functions;
  if (!find_all(handle, functions)) {
    dlclose(handle);
    return Error{.code = ErrorCode::kNotFound,
                 .message = path + " lacks functions of NVML: its driver is too old"};
  }
  if (const NvmlReturn code = functions.init(); code != kSuccess) {
    const std::string why = functions.error_string(code);
    dlclose(handle);
    return Error{.code = ErrorCode::kNotFound, .message = "NVML cannot be initialized: " + why};
  }
  auto driver = std::make_unique<NvmlDriver>(handle, functions);
  if (const Result<Unit> taken = driver->take_inventory(); !taken) return taken.error();
  driver->listen();
  return std::unique_ptr<GpuDriver>(std::move(driver));
}

}  // namespace gpusched
