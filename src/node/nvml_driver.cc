#include <dlfcn.h>

#include <array>
#include <cstring>
#include <utility>

#include "node/gpu_driver.h"

// The declarations that we need, after NVIDIA's documentation of NVML (API version 12); the library keeps
// them stable, a changed structure gets a new function name.
namespace gpusched {
namespace {

using NvmlDevice = struct NvmlDeviceOpaque*;
using NvmlReturn = int;

constexpr NvmlReturn kSuccess = 0;
constexpr NvmlReturn kInsufficientSize = 7;
constexpr NvmlReturn kGpuIsLost = 15;
constexpr unsigned kTemperatureGpu = 0;
constexpr int kThresholdSlowdown = 1;
constexpr unsigned kUncorrectedError = 1;
constexpr unsigned kVolatileEcc = 0;
constexpr int64_t kBytesPerMb = 1 << 20;
constexpr unsigned kProcessesMax = 4'096;

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
  NvmlReturn (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;                        ///< Optional.
  NvmlReturn (*temperature)(NvmlDevice, unsigned, unsigned*) = nullptr;                     ///< Optional.
  NvmlReturn (*temperature_threshold)(NvmlDevice, int, unsigned*) = nullptr;                ///< Optional.
  NvmlReturn (*power_milliwatts)(NvmlDevice, unsigned*) = nullptr;                          ///< Optional.
  NvmlReturn (*ecc_errors)(NvmlDevice, unsigned, unsigned, unsigned long long*) = nullptr;  ///< Optional.
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  void* const symbol = dlsym(library, name);
  std::memcpy(&function, &symbol, sizeof function);  // A function's address, by POSIX.
  return symbol != nullptr;
}

bool find_all(void* library, Functions& out) {
  find(library, "nvmlDeviceGetUtilizationRates", out.utilization);
  find(library, "nvmlDeviceGetTemperature", out.temperature);
  find(library, "nvmlDeviceGetTemperatureThreshold", out.temperature_threshold);
  find(library, "nvmlDeviceGetPowerUsage", out.power_milliwatts);
  find(library, "nvmlDeviceGetTotalEccErrors", out.ecc_errors);
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
  NvmlDriver(void* library, Functions functions) : library_(library), call_(functions) {}
  ~NvmlDriver() override {
    call_.shutdown();
    dlclose(library_);
  }

  std::string_view name() const override { return "nvml"; }
  const std::vector<DeviceFacts>& inventory() const override { return facts_; }
  bool may_block() const override { return true; }

  Result<Unit> take_inventory() {
    unsigned count = 0;
    if (const NvmlReturn code = call_.device_count(&count); code != kSuccess)
      return failure("count devices", code);
    for (unsigned index = 0; index < count; ++index) {
      NvmlDevice device = nullptr;
      std::array<char, 96> uuid{};
      std::array<char, 96> model{};
      NvmlMemory memory{};
      NvmlReturn code = call_.device_by_index(index, &device);
      if (code == kSuccess) code = call_.uuid(device, uuid.data(), uuid.size());
      if (code == kSuccess) code = call_.device_name(device, model.data(), model.size());
      if (code == kSuccess) code = call_.memory(device, &memory);
      if (code != kSuccess) return failure("look at device " + std::to_string(index), code);
      devices_.push_back(device);
      facts_.push_back({.uuid = uuid.data(),
                        .model = model.data(),
                        .memory_mb = static_cast<int64_t>(memory.total) / kBytesPerMb,
                        .slowdown_celsius = slowdown_of(device)});
    }
    return Unit{};
  }

  DeviceReading read(uint32_t index) override {
    NvmlDevice device = devices_.at(index);
    DeviceReading reading;
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
        call_.ecc_errors(device, kUncorrectedError, kVolatileEcc, &errors) == kSuccess && errors > 0) {
      reading.condition = v1::DEVICE_CONDITION_UNHEALTHY;
      reading.detail = std::to_string(errors) + " uncorrected memory errors since the driver was loaded";
    }
    return reading;
  }

 private:
  int32_t slowdown_of(NvmlDevice device) const {
    unsigned celsius = 0;
    if (call_.temperature_threshold == nullptr) return 0;
    if (call_.temperature_threshold(device, kThresholdSlowdown, &celsius) != kSuccess) return 0;
    return static_cast<int32_t>(celsius);
  }

  bool read_processes(NvmlDevice device, DeviceReading& reading) {
    std::vector<NvmlProcess> processes(16);
    while (true) {
      auto count = static_cast<unsigned>(processes.size());
      const NvmlReturn code = call_.processes(device, &count, processes.data());
      if (code == kInsufficientSize && processes.size() < kProcessesMax) {
        processes.resize(processes.size() * 2);
        continue;
      }
      if (!require(code, "its processes", reading)) return false;
      for (unsigned i = 0; i < count; ++i) reading.processes.push_back(processes[i].pid);
      return true;
    }
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
  std::vector<NvmlDevice> devices_;
  std::vector<DeviceFacts> facts_;
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> open_nvml_driver(const std::string& library) {
  const std::string path = library.empty() ? "libnvidia-ml.so.1" : library;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Error{.code = ErrorCode::kNotFound, .message = std::string("no NVML: ") + dlerror()};
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
    return Error{.code = ErrorCode::kNotFound, .message = "NVML does not start: " + why};
  }
  auto driver = std::make_unique<NvmlDriver>(handle, functions);
  if (const Result<Unit> taken = driver->take_inventory(); !taken) return taken.error();
  return std::unique_ptr<GpuDriver>(std::move(driver));
}

}  // namespace gpusched
