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
struct Trouble {
  unsigned pending, failed;
  unsigned long long throttles;
};
Trouble g_troubles[2];
struct Event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
Event g_events[16];
unsigned g_event_count = 0;

/// How the two are linked: so many NVLinks to one another, or to switches; else by PCIe at this level.
struct Links {
  unsigned nvlinks = 0;
  bool to_switches = false;
  int level = 50;
};
Links g_links;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance, compute_instance;
};

int index_of(void* handle);

Device& device_of(void* handle) { return *static_cast<Device*>(handle); }

int index_of(void* handle) { return static_cast<int>(static_cast<Device*>(handle) - g_devices); }

void write_bus(int index, PciInfo* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", 0x3A + static_cast<unsigned>(index));
}

}  // namespace

extern "C" {

void fake_nvml_link(unsigned nvlinks, int to_switches, int level) {
  g_links = {nvlinks, to_switches != 0, level};
}

void fake_nvml_set(unsigned index, unsigned process_count, unsigned long long used_mb,
                   unsigned long long ecc_errors, int error) {
  g_devices[index] = {process_count, used_mb, ecc_errors, error};
}

/// Rows that wait, rows that failed, the reasons why it is slowed down.
void fake_nvml_trouble(unsigned index, unsigned pending, unsigned failed, unsigned long long throttles) {
  g_troubles[index] = {pending, failed, throttles};
}
/// An event that whoever listens will be told next.
void fake_nvml_event(unsigned index, unsigned long long type, unsigned long long data) {
  if (g_event_count < 16) g_events[g_event_count++] = {&g_devices[index], type, data, 0, 0};
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
  for (unsigned i = 0; i < have; ++i) processes[i] = {1000 + i, (i == 0 ? ~0ULL : i * 1024ULL << 20), 0, 0};
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
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  write_bus(index_of(device), info);
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  *level = g_links.level;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  *active = link < g_links.nvlinks ? 1 : 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int* type) {
  *type = g_links.to_switches ? 2 : 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* info) {
  write_bus(1 - index_of(device), info);
  return 0;
}
int nvmlDeviceGetMemoryAffinity(void* device, unsigned size, unsigned long* nodes, unsigned) {
  for (unsigned i = 0; i < size; ++i) nodes[i] = 0;
  nodes[0] = 1UL << index_of(device);
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, unsigned, unsigned, unsigned long long* errors) {
  *errors = device_of(device).ecc_errors;
  return 0;
}

int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  const auto index = static_cast<Device*>(device) - g_devices;
  *corrected = *uncorrected = 0;
  *pending = g_troubles[index].pending;
  *failed = g_troubles[index].failed;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = g_troubles[static_cast<Device*>(device) - g_devices].throttles;
  return 0;
}
int nvmlEventSetCreate(void** set) {
  *set = g_events;
  return 0;
}
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void*, unsigned long long types, void*) { return types == 0x8 ? 0 : 2; }
int nvmlEventSetWait_v2(void*, Event* event, unsigned) {
  if (g_event_count == 0) return 10;
  *event = g_events[0];
  --g_event_count;
  for (unsigned i = 0; i < g_event_count; ++i) g_events[i] = g_events[i + 1];
  return 0;
}

}  // extern "C"
