#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shim/box.h"

namespace gpusched {

/// Place of a GPU on this machine, as its driver and the kernel say.
struct GpuPlace {
  int32_t minor = -1;                ///< Number of /dev/nvidia<minor>.
  std::vector<uint32_t> cores = {};  ///< Near it; empty: unknown.
};

/// Reads it from /proc/driver/nvidia and /sys, by uuid. `root` is put before both, for tests.
std::map<std::string, GpuPlace> find_gpu_places(const std::string& root = "");

/// The rule for a device node; nothing when there is none at `path`.
std::optional<shim::DeviceRule> rule_of_node(const std::string& path);
/// "c 10:200 rwm", "b *:*" or the path of a device node; nothing when it is none of these.
std::optional<shim::DeviceRule> parse_device_rule(const std::string& text);

/// Rules for every job: null, zero, full, random, urandom, terminals, fuse, tun, InfiniBand; and to make, not
/// open, any node.
std::vector<shim::DeviceRule> common_device_rules();
/// An NVIDIA GPU that a job has, or its MIG slice of one.
struct NvidiaGrant {
  int32_t minor = -1;             ///< Number of /dev/nvidia<minor>.
  int32_t gpu_instance = -1;      ///< Instance of a slice; -1: all of the GPU.
  int32_t compute_instance = -1;  ///< Compute instance of a slice.
};

/// Minors of /dev/nvidia-caps/nvidia-cap<minor> that stand for what is granted: a slice's two, or those of
/// all of the GPU's slices. `root` is put before /proc.
std::vector<int32_t> mig_minors(const NvidiaGrant& grant, const std::string& root = "");

/// Rules for a job with these: their nodes, nvidiactl, nvidia-uvm*, nvidia-modeset and the capabilities of
/// their MIG slices.
std::vector<shim::DeviceRule> nvidia_device_rules(const std::vector<NvidiaGrant>& grants,
                                                  const std::string& root = "");

}  // namespace gpusched
