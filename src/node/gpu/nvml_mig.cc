#include "node/gpu/nvml_mig.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "model/mig.h"
#include "node/gpu/nvml_calls.h"

// The declarations that we need, after NVIDIA's documentation of NVML (API version 12), "Multi Instance GPU
// Management".
namespace gpusched {
namespace {

using nvml::find;
using nvml::kBytesPerMb;
using nvml::kInsufficientSize;
using nvml::kNotSupported;
using nvml::kProcessesMax;
using nvml::kSuccess;

constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;
/// Profiles are asked for by their number among all models', which grows with new models; most have none
/// there.
constexpr unsigned kProfilesMax = 32;
constexpr unsigned kComputeProfilesMax = 16;
constexpr unsigned kEnginesShared = 0;
constexpr std::size_t kInstancesMax = 16;

/// As the tables call it; of a profile that they do not have, its number.
std::string name_of(const mig::Table* table, unsigned profile_id) {
  if (table != nullptr) {
    for (const mig::Profile& profile : table->profiles) {
      if (static_cast<unsigned>(profile.id) == profile_id) return std::string(profile.name);
    }
  }
  return "profile-" + std::to_string(profile_id);
}

}  // namespace

NvmlMig::NvmlMig(void* library) {
  complete_ = find(library, "nvmlErrorString", call_.error_string) &&
              find(library, "nvmlDeviceGetUUID", call_.uuid) &&
              find(library, "nvmlDeviceGetMemoryInfo", call_.memory) &&
              find(library, "nvmlDeviceGetComputeRunningProcesses_v3", call_.processes) &&
              find(library, "nvmlDeviceGetMigMode", call_.mode) &&
              find(library, "nvmlDeviceGetMaxMigDeviceCount", call_.max_mig_devices) &&
              find(library, "nvmlDeviceGetMigDeviceHandleByIndex", call_.mig_device) &&
              find(library, "nvmlDeviceGetGpuInstanceId", call_.gpu_instance_id) &&
              find(library, "nvmlDeviceGetComputeInstanceId", call_.compute_instance_id) &&
              find(library, "nvmlDeviceGetGpuInstanceProfileInfo", call_.profile) &&
              find(library, "nvmlDeviceCreateGpuInstanceWithPlacement", call_.create) &&
              find(library, "nvmlGpuInstanceDestroy", call_.destroy) &&
              find(library, "nvmlDeviceGetGpuInstances", call_.instances) &&
              find(library, "nvmlGpuInstanceGetInfo", call_.info) &&
              find(library, "nvmlGpuInstanceGetComputeInstanceProfileInfo", call_.compute_profile) &&
              find(library, "nvmlGpuInstanceCreateComputeInstance", call_.create_compute) &&
              find(library, "nvmlComputeInstanceDestroy", call_.destroy_compute) &&
              find(library, "nvmlGpuInstanceGetComputeInstances", call_.compute_instances) &&
              find(library, "nvmlComputeInstanceGetInfo_v2", call_.compute_info);
}

Error NvmlMig::failure(const std::string& what, NvmlReturn code) const {
  if (code == kNoPermission) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "the driver allows only root to " + what + ": run gpu-agent as root"};
  }
  return Error{.code = ErrorCode::kUnavailable,
               .message = "NVML cannot " + what + ": " + call_.error_string(code)};
}

void NvmlMig::look_at_mode(NvmlDevice device, DeviceFacts& facts) const {
  unsigned current = 0;
  unsigned pending = 0;
  if (!complete_ || call_.mode(device, &current, &pending) != kSuccess) return;
  facts.mig = current != 0;
  facts.mig_pending = current != pending;
}

Result<std::vector<NvmlMig::Instance>> NvmlMig::instances(NvmlDevice device) const {
  std::vector<Instance> all;
  for (unsigned number = 0; number < kProfilesMax; ++number) {
    GpuInstanceProfile profile{};
    if (call_.profile(device, number, &profile) != kSuccess) continue;
    std::array<NvmlGpuInstance, kInstancesMax> handles{};
    unsigned count = std::min<unsigned>(profile.instance_count, kInstancesMax);
    const NvmlReturn code = call_.instances(device, profile.id, handles.data(), &count);
    if (code == kNotSupported || code == kNotFound) continue;
    if (code != kSuccess) return failure("list the GPU's MIG instances", code);
    for (unsigned i = 0; i < std::min<unsigned>(count, kInstancesMax); ++i) {
      Instance instance{.handle = handles[i]};
      if (const NvmlReturn seen = call_.info(instance.handle, &instance.info); seen != kSuccess)
        return failure("access a MIG instance", seen);
      all.push_back(instance);
    }
  }
  return all;
}

Result<std::vector<NvmlMig::MigDevice>> NvmlMig::mig_devices(NvmlDevice device) const {
  unsigned count = 0;
  if (const NvmlReturn code = call_.max_mig_devices(device, &count); code != kSuccess)
    return failure("count the GPU's MIG devices", code);
  std::vector<MigDevice> found;
  for (unsigned index = 0; index < count; ++index) {
    MigDevice one;
    NvmlReturn code = call_.mig_device(device, index, &one.handle);
    if (code == kNotFound) continue;
    unsigned compute_instance = 0;
    std::array<char, 96> uuid{};
    if (code == kSuccess) code = call_.gpu_instance_id(one.handle, &one.gpu_instance);
    if (code == kSuccess) code = call_.compute_instance_id(one.handle, &compute_instance);
    if (code == kSuccess) code = call_.uuid(one.handle, uuid.data(), uuid.size());
    if (code != kSuccess) return failure("access a MIG device", code);
    one.made = {.uuid = clean_text(uuid.data(), uuid.size()),
                .gpu_instance = static_cast<int32_t>(one.gpu_instance),
                .compute_instance = static_cast<int32_t>(compute_instance)};
    found.push_back(std::move(one));
  }
  return found;
}

Result<std::vector<SliceReading>> NvmlMig::slices(NvmlDevice device, const DeviceFacts& facts) const {
  const Result<std::vector<Instance>> all = instances(device);
  if (!all) return all.error();
  const Result<std::vector<MigDevice>> devices = mig_devices(device);
  if (!devices) return devices.error();
  const mig::Table* const table = mig::table_of(facts.model, facts.memory_mb);
  std::vector<SliceReading> slices;
  for (const Instance& instance : *all) {
    SliceReading& slice =
        slices.emplace_back(SliceReading{.profile = name_of(table, instance.info.profile_id),
                                         .start = static_cast<int32_t>(instance.info.placement.start)});
    slice.made.gpu_instance = static_cast<int32_t>(instance.info.id);
    for (const MigDevice& one : *devices) {
      if (one.gpu_instance != instance.info.id) continue;
      slice.made = one.made;
      if (const Result<Unit> read = read_usage(one, slice); !read) return read.error();
    }
  }
  return slices;
}

Result<Unit> NvmlMig::read_usage(const MigDevice& device, SliceReading& slice) const {
  Memory memory{};
  if (const NvmlReturn code = call_.memory(device.handle, &memory); code != kSuccess)
    return failure("read the memory of " + device.made.uuid, code);
  slice.memory_used_mb = static_cast<int64_t>(memory.used) / kBytesPerMb;
  std::vector<Process> processes(16);
  while (true) {
    auto count = static_cast<unsigned>(processes.size());
    const NvmlReturn code = call_.processes(device.handle, &count, processes.data());
    if (code == kInsufficientSize && processes.size() < kProcessesMax) {
      processes.resize(processes.size() * 2);
      continue;
    }
    if (code != kSuccess) return failure("read the processes of " + device.made.uuid, code);
    for (unsigned i = 0; i < count; ++i) slice.processes.push_back(processes[i].pid);
    return Unit{};
  }
}

/// The driver numbers profiles as `nvidia-smi mig -lgip` and the tables do.
Result<MadeSlice> NvmlMig::make(NvmlDevice device, const DeviceFacts& facts, const std::string& profile,
                                int32_t start) const {
  const mig::Table* const table = mig::table_of(facts.model, facts.memory_mb);
  const mig::Profile* const wanted = table == nullptr ? nullptr : table->profile(profile);
  if (wanted == nullptr)
    return Error{.code = ErrorCode::kInvalidArgument, .message = "a " + facts.model + " has no such profile"};
  const Placement placement{.start = static_cast<unsigned>(start),
                            .size = static_cast<unsigned>(wanted->slots)};
  NvmlGpuInstance instance = nullptr;
  if (const NvmlReturn code = call_.create(device, static_cast<unsigned>(wanted->id), &placement, &instance);
      code != kSuccess)
    return failure("create MIG instances", code);
  GpuInstanceInfo info{};
  Result<Unit> filled = Unit{};
  if (const NvmlReturn code = call_.info(instance, &info); code != kSuccess) {
    filled = failure("access a MIG instance", code);
  } else {
    filled = fill_with_compute(instance);
  }
  if (filled) {
    const Result<std::vector<MigDevice>> devices = mig_devices(device);
    if (!devices) filled = devices.error();
    for (std::size_t i = 0; devices && i < devices->size(); ++i) {
      if ((*devices)[i].gpu_instance == info.id) return (*devices)[i].made;
    }
  }
  // Nothing can run in it.
  [[maybe_unused]] const Result<Unit> gone = destroy(instance);
  if (!filled) return filled.error();
  return Error{.code = ErrorCode::kUnavailable,
               .message = "NVML does not list the MIG instance that it created"};
}

/// One compute instance that has all of the GPU instance: the widest that there is.
Result<Unit> NvmlMig::fill_with_compute(NvmlGpuInstance instance) const {
  ComputeInstanceProfile widest{};
  for (unsigned number = 0; number < kComputeProfilesMax; ++number) {
    ComputeInstanceProfile profile{};
    if (call_.compute_profile(instance, number, kEnginesShared, &profile) != kSuccess) continue;
    if (profile.slice_count > widest.slice_count) widest = profile;
  }
  NvmlComputeInstance made = nullptr;
  if (const NvmlReturn code = call_.create_compute(instance, widest.id, &made); code != kSuccess)
    return failure("create compute instances", code);
  return Unit{};
}

Result<Unit> NvmlMig::destroy_compute_of(NvmlGpuInstance instance) const {
  for (unsigned number = 0; number < kComputeProfilesMax; ++number) {
    ComputeInstanceProfile profile{};
    if (call_.compute_profile(instance, number, kEnginesShared, &profile) != kSuccess) continue;
    std::array<NvmlComputeInstance, kInstancesMax> handles{};
    unsigned count = std::min<unsigned>(profile.instance_count, kInstancesMax);
    if (call_.compute_instances(instance, profile.id, handles.data(), &count) != kSuccess) continue;
    for (unsigned i = 0; i < std::min<unsigned>(count, kInstancesMax); ++i) {
      if (const NvmlReturn code = call_.destroy_compute(handles[i]); code != kSuccess)
        return failure("destroy the compute instance", code);
    }
  }
  return Unit{};
}

Result<Unit> NvmlMig::destroy(NvmlGpuInstance instance) const {
  if (const Result<Unit> gone = destroy_compute_of(instance); !gone) return gone;
  if (const NvmlReturn code = call_.destroy(instance); code != kSuccess)
    return failure("destroy the MIG instance", code);
  return Unit{};
}

Result<Unit> NvmlMig::destroy(NvmlDevice device, const DeviceFacts& facts, const std::string& profile,
                              int32_t start) const {
  const Result<std::vector<Instance>> all = instances(device);
  if (!all) return all.error();
  const mig::Table* const table = mig::table_of(facts.model, facts.memory_mb);
  for (const Instance& instance : *all) {
    if (static_cast<int32_t>(instance.info.placement.start) == start &&
        name_of(table, instance.info.profile_id) == profile)
      return destroy(instance.handle);
  }
  return Unit{};
}

}  // namespace gpusched
