// A library with NVML's names, for tests: two devices whose state the test sets through fake_nvml_set.
#include <cstdio>
#include <cstring>

namespace {

struct Device {
  unsigned process_count;
  unsigned long long used_mb;
  unsigned long long ecc_errors;
  int error;  ///< Result of reading it.
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
unsigned g_graphics[2];

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

/// MIG instances of a device: at most one begins at each slot. A handle of any of its three kinds is this.
struct Instance {
  bool there = false, has_compute = false;
  unsigned id = 0, profile = 0, start = 0, size = 0;
  unsigned process_count = 0;
  unsigned long long used_mb = 0;
};
constexpr unsigned kSlots = 8;
Instance g_instances[2][kSlots];
struct Mig {
  unsigned mode = 0, pending = 0;
  int create_error = 0, compute_error = 0, destroy_error = 0, list_error = 0;
};
Mig g_mig[2];
struct MigProfile {
  unsigned number, id, slices, size, most;
};
constexpr MigProfile kMigProfiles[] = {{0, 19, 1, 1, 7}, {1, 14, 2, 2, 3}, {2, 9, 3, 4, 2}, {3, 5, 4, 4, 1},
                                       {4, 0, 7, 8, 1},  {7, 20, 1, 1, 1}, {9, 15, 1, 2, 4}};
unsigned g_next_instance = 1;

Instance* instance_of(void* handle) {
  auto* const instance = static_cast<Instance*>(handle);
  return instance >= &g_instances[0][0] && instance <= &g_instances[1][kSlots - 1] ? instance : nullptr;
}
int parent_of(const Instance* instance) { return instance < &g_instances[1][0] ? 0 : 1; }

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

/// Lets so many processes draw on it; the first of them computes, too, where any does.
void fake_nvml_graphics(unsigned index, unsigned process_count) { g_graphics[index] = process_count; }

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) {
  switch (code) {
    case 15:
      return "GPU is lost";
    case 19:
      return "In use by another client";
    case 23:
      return "Insufficient Resources";
    default:
      return "Unknown Error";
  }
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &g_devices[index];
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  if (const Instance* const instance = instance_of(device); instance != nullptr) {
    std::snprintf(text, size, "MIG-fake-%d-%u-%u", parent_of(instance), instance->profile, instance->start);
    return 0;
  }
  std::snprintf(text, size, "GPU-fake-%d", static_cast<int>(static_cast<Device*>(device) - g_devices));
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "NVIDIA A100-SXM4-80GB");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (const Instance* const instance = instance_of(device); instance != nullptr) {
    *memory = {(10'240ULL << 20) * instance->size, 0, instance->used_mb << 20};
    return 0;
  }
  if (device_of(device).error != 0) return device_of(device).error;
  *memory = {81'920ULL << 20, 0, device_of(device).used_mb << 20};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const Instance* const instance = instance_of(device);
  const unsigned have = instance != nullptr ? instance->process_count : device_of(device).process_count;
  if (*count < have) {
    *count = have;
    return 7;
  }
  *count = have;
  for (unsigned i = 0; i < have; ++i) processes[i] = {1000 + i, (i == 0 ? ~0ULL : i * 1024ULL << 20), 0, 0};
  return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const unsigned have = instance_of(device) != nullptr ? 0 : g_graphics[index_of(device)];
  if (*count < have) {
    *count = have;
    return 7;
  }
  *count = have;
  for (unsigned i = 0; i < have; ++i) processes[i] = {i == 0 ? 1000 : 5000 + i, 64ULL << 20, 0, 0};
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

// MIG.

/// Sets a device's mode; what was there is gone.
void fake_nvml_mig(unsigned index, unsigned mode, unsigned pending) {
  g_mig[index] = {mode, pending, 0, 0, 0, 0};
  for (Instance& instance : g_instances[index]) instance = {};
}
/// Sets the results of the next calls: of making an instance, of making its compute instance, of destroying
/// either, of listing.
void fake_nvml_mig_errors(unsigned index, int create, int compute, int destroy, int list) {
  g_mig[index].create_error = create;
  g_mig[index].compute_error = compute;
  g_mig[index].destroy_error = destroy;
  g_mig[index].list_error = list;
}
/// Something runs in the instance that begins at this slot.
void fake_nvml_mig_use(unsigned index, unsigned start, unsigned process_count, unsigned long long used_mb) {
  g_instances[index][start].process_count = process_count;
  g_instances[index][start].used_mb = used_mb;
}

int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = g_mig[index_of(device)].mode;
  *pending = g_mig[index_of(device)].pending;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** handle) {
  for (Instance& instance : g_instances[index_of(device)]) {
    if (!instance.there || !instance.has_compute || index-- != 0) continue;
    *handle = &instance;
    return 0;
  }
  return 6;
}
int nvmlDeviceGetGpuInstanceId(void* device, unsigned* id) {
  *id = instance_of(device)->id;
  return 0;
}
int nvmlDeviceGetComputeInstanceId(void*, unsigned* id) {
  *id = 0;
  return 0;
}

struct GpuInstanceProfile {
  unsigned id, p2p, slices, most, multiprocessors, copiers, decoders, encoders, jpegs, ofas;
  unsigned long long memory_mb;
};
int nvmlDeviceGetGpuInstanceProfileInfo(void*, unsigned number, GpuInstanceProfile* info) {
  for (const MigProfile& profile : kMigProfiles) {
    if (profile.number != number) continue;
    *info = {profile.id, 0, profile.slices,         profile.most, 14 * profile.slices, 1, 0, 0,
             0,          0, 9'728ULL * profile.size};
    return 0;
  }
  return number < 20 ? 3 : 2;
}

struct Placement {
  unsigned start, size;
};
int nvmlDeviceCreateGpuInstanceWithPlacement(void* device, unsigned profile_id, const Placement* placement,
                                             void** handle) {
  const int index = index_of(device);
  if (g_mig[index].create_error != 0) return g_mig[index].create_error;
  const MigProfile* profile = nullptr;
  for (const MigProfile& one : kMigProfiles) {
    if (one.id == profile_id) profile = &one;
  }
  if (profile == nullptr || placement->size != profile->size) return 2;
  for (const Instance& one : g_instances[index]) {
    if (one.there && one.start < placement->start + placement->size &&
        placement->start < one.start + one.size)
      return 23;
  }
  Instance& made = g_instances[index][placement->start];
  made = {true, false, g_next_instance++, profile_id, placement->start, placement->size, 0, 0};
  *handle = &made;
  return 0;
}
int nvmlGpuInstanceDestroy(void* handle) {
  Instance* const instance = instance_of(handle);
  if (instance->has_compute) return 19;
  *instance = {};
  return 0;
}
int nvmlDeviceGetGpuInstances(void* device, unsigned profile_id, void** handles, unsigned* count) {
  const int index = index_of(device);
  if (g_mig[index].list_error != 0) return g_mig[index].list_error;
  *count = 0;
  for (Instance& one : g_instances[index]) {
    if (one.there && one.profile == profile_id) handles[(*count)++] = &one;
  }
  return 0;
}
struct GpuInstanceInfo {
  void* device;
  unsigned id, profile_id;
  Placement placement;
};
int nvmlGpuInstanceGetInfo(void* handle, GpuInstanceInfo* info) {
  const Instance* const instance = instance_of(handle);
  *info = {
      &g_devices[parent_of(instance)], instance->id, instance->profile, {instance->start, instance->size}};
  return 0;
}

struct ComputeInstanceProfile {
  unsigned id, slices, most, multiprocessors, copiers, decoders, encoders, jpegs, ofas;
};
int nvmlGpuInstanceGetComputeInstanceProfileInfo(void* handle, unsigned number, unsigned,
                                                 ComputeInstanceProfile* info) {
  unsigned slices = 0;
  for (const MigProfile& one : kMigProfiles) {
    if (one.id == instance_of(handle)->profile) slices = one.slices;
  }
  const unsigned asked = number == 4 ? 7 : number + 1;
  if (number > 4 || asked > slices) return 3;
  *info = {number, asked, slices / asked, 14 * asked, 1, 0, 0, 0, 0};
  return 0;
}
int nvmlGpuInstanceCreateComputeInstance(void* handle, unsigned profile_id, void** made) {
  Instance* const instance = instance_of(handle);
  const Mig& mig = g_mig[parent_of(instance)];
  if (mig.compute_error != 0) return mig.compute_error;
  for (const MigProfile& one : kMigProfiles) {
    const unsigned asked = profile_id == 4 ? 7 : profile_id + 1;
    if (one.id == instance->profile && one.slices != asked) return 2;  // Not all of it.
  }
  instance->has_compute = true;
  *made = instance;
  return 0;
}
int nvmlComputeInstanceDestroy(void* handle) {
  Instance* const instance = instance_of(handle);
  if (g_mig[parent_of(instance)].destroy_error != 0) return g_mig[parent_of(instance)].destroy_error;
  if (instance->process_count != 0) return 19;
  instance->has_compute = false;
  return 0;
}
int nvmlGpuInstanceGetComputeInstances(void* handle, unsigned profile_id, void** handles, unsigned* count) {
  Instance* const instance = instance_of(handle);
  *count = 0;
  for (const MigProfile& one : kMigProfiles) {
    const unsigned asked = profile_id == 4 ? 7 : profile_id + 1;
    if (one.id == instance->profile && one.slices == asked && instance->has_compute)
      handles[(*count)++] = instance;
  }
  return 0;
}
struct ComputeInstanceInfo {
  void* device;
  void* gpu_instance;
  unsigned id, profile_id;
  Placement placement;
};
int nvmlComputeInstanceGetInfo_v2(void* handle, ComputeInstanceInfo* info) {
  const Instance* const instance = instance_of(handle);
  *info = {&g_devices[parent_of(instance)], handle, 0, 0, {0, instance->size}};
  return 0;
}

}  // extern "C"
