#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"

namespace gpusched {

using NvmlDevice = struct NvmlDeviceOpaque*;

/// MIG through NVML. Each of its functions may be missing in an old library: then no device is in MIG mode.
/// Not thread-safe.
class NvmlMig {
 public:
  /// `library`: of dlopen, open as long as this lives.
  explicit NvmlMig(void* library);

  /// Sets what `facts` says of MIG.
  void look_at_mode(NvmlDevice device, DeviceFacts& facts) const;
  /// The slices of a device in MIG mode, with what is in them.
  Result<std::vector<SliceReading>> slices(NvmlDevice device, const DeviceFacts& facts) const;
  Result<MadeSlice> make(NvmlDevice device, const DeviceFacts& facts, const std::string& profile,
                         int32_t start) const;
  Result<Unit> destroy(NvmlDevice device, const DeviceFacts& facts, const std::string& profile,
                       int32_t start) const;

 private:
  using NvmlGpuInstance = struct NvmlGpuInstanceOpaque*;
  using NvmlComputeInstance = struct NvmlComputeInstanceOpaque*;
  using NvmlReturn = int;

  struct Placement {
    unsigned start, size;
  };
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Process {
    unsigned pid;
    unsigned long long used_gpu_memory;
    unsigned gpu_instance, compute_instance;
  };
  struct GpuInstanceProfile {
    unsigned id, is_p2p_supported, slice_count, instance_count, multiprocessor_count, copy_engine_count,
        decoder_count, encoder_count, jpeg_count, ofa_count;
    unsigned long long memory_size_mb;
  };
  struct GpuInstanceInfo {
    NvmlDevice device;
    unsigned id, profile_id;
    Placement placement;
  };
  struct ComputeInstanceProfile {
    unsigned id, slice_count, instance_count, multiprocessor_count, shared_copy_engine_count,
        shared_decoder_count, shared_encoder_count, shared_jpeg_count, shared_ofa_count;
  };
  struct ComputeInstanceInfo {
    NvmlDevice device;
    NvmlGpuInstance gpu_instance;
    unsigned id, profile_id;
    Placement placement;
  };
  struct Functions {
    const char* (*error_string)(NvmlReturn) = nullptr;
    NvmlReturn (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
    NvmlReturn (*memory)(NvmlDevice, Memory*) = nullptr;
    NvmlReturn (*processes)(NvmlDevice, unsigned*, Process*) = nullptr;
    NvmlReturn (*mode)(NvmlDevice, unsigned*, unsigned*) = nullptr;
    NvmlReturn (*max_mig_devices)(NvmlDevice, unsigned*) = nullptr;
    NvmlReturn (*mig_device)(NvmlDevice, unsigned, NvmlDevice*) = nullptr;
    NvmlReturn (*gpu_instance_id)(NvmlDevice, unsigned*) = nullptr;
    NvmlReturn (*compute_instance_id)(NvmlDevice, unsigned*) = nullptr;
    NvmlReturn (*profile)(NvmlDevice, unsigned, GpuInstanceProfile*) = nullptr;
    NvmlReturn (*create)(NvmlDevice, unsigned, const Placement*, NvmlGpuInstance*) = nullptr;
    NvmlReturn (*destroy)(NvmlGpuInstance) = nullptr;
    NvmlReturn (*instances)(NvmlDevice, unsigned, NvmlGpuInstance*, unsigned*) = nullptr;
    NvmlReturn (*info)(NvmlGpuInstance, GpuInstanceInfo*) = nullptr;
    NvmlReturn (*compute_profile)(NvmlGpuInstance, unsigned, unsigned, ComputeInstanceProfile*) = nullptr;
    NvmlReturn (*create_compute)(NvmlGpuInstance, unsigned, NvmlComputeInstance*) = nullptr;
    NvmlReturn (*destroy_compute)(NvmlComputeInstance) = nullptr;
    NvmlReturn (*compute_instances)(NvmlGpuInstance, unsigned, NvmlComputeInstance*, unsigned*) = nullptr;
    NvmlReturn (*compute_info)(NvmlComputeInstance, ComputeInstanceInfo*) = nullptr;
  };
  struct Instance {
    NvmlGpuInstance handle = nullptr;
    GpuInstanceInfo info = {};
  };
  /// A MIG device: a compute instance in which programs run.
  struct MigDevice {
    NvmlDevice handle = nullptr;
    unsigned gpu_instance = 0;
    MadeSlice made = {};
  };

  Result<std::vector<Instance>> instances(NvmlDevice device) const;
  Result<std::vector<MigDevice>> mig_devices(NvmlDevice device) const;
  Result<Unit> read_usage(const MigDevice& device, SliceReading& slice) const;
  Result<Unit> fill_with_compute(NvmlGpuInstance instance) const;
  Result<Unit> destroy_compute_of(NvmlGpuInstance instance) const;
  Result<Unit> destroy(NvmlGpuInstance instance) const;
  Error failure(const std::string& what, NvmlReturn code) const;

  Functions call_;
  bool complete_ = false;  ///< No function is missing.
};

}  // namespace gpusched
