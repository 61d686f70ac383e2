// A library with NVML's names, for tests: two devices whose state the test sets through fake_nvml_set.
#include <cstdio>
#include <cstring>

namespace {

struct Device {
  unsigned process_count;
  unsigned long long used_mb;
  unsigned long long ecc_errors;
  int error;  ///< What reading it returns.
};
Device g_devices[2];

struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance, compute_instance;
};

Device& device_of(void* handle) { return *static_cast<Device*>(handle); }

}  // namespace

extern "C" {

void fake_nvml_set(unsigned index, unsigned process_count, unsigned long long used_mb,
                   unsigned long long ecc_errors, int error) {
  g_devices[index] = {process_count, used_mb, ecc_errors, error};
}

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &g_devices[index];
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-fake-%d", static_cast<int>(static_cast<Device*>(device) - g_devices));
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "NVIDIA A100-SXM4-80GB");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (device_of(device).error != 0) return device_of(device).error;
  *memory = {81'920ULL << 20, 0, device_of(device).used_mb << 20};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const unsigned have = device_of(device).process_count;
  if (*count < have) {
    *count = have;
    return 7;
  }
  *count = have;
  for (unsigned i = 0; i < have; ++i) processes[i] = {1000 + i, 0, 0, 0};
  return 0;
}
int nvmlDeviceGetTemperature(void*, unsigned, unsigned* celsius) {
  *celsius = 55;
  return 0;
}
int nvmlDeviceGetTemperatureThreshold(void*, int kind, unsigned* celsius) {
  *celsius = kind == 1 ? 87 : 92;  // 1: where it slows down.
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 123'456;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, unsigned, unsigned, unsigned long long* errors) {
  *errors = device_of(device).ecc_errors;
  return 0;
}

}  // extern "C"
