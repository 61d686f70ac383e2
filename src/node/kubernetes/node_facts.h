#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node/watch/device_watch.h"

/// Facts about a machine with GPUs that Kubernetes is told. Thread-safe.
namespace gpusched::kubernetes {

/// An RDMA adapter of the machine.
struct RdmaAdapter {
  std::string name;          ///< In the kernel: "mlx5_0".
  int32_t active_ports = 0;  ///< Ports whose link is up.
  int64_t gbps = 0;          ///< Rate of its fastest active port, in Gbit/s.
  friend bool operator==(const RdmaAdapter&, const RdmaAdapter&) = default;
};

struct MachineFacts {
  std::string driver;                 ///< Version of the kernel's GPU driver; empty: none is loaded.
  std::vector<RdmaAdapter> adapters;  ///< By name.
  bool rdma = false;     ///< An adapter is active, and the module is loaded by which it reads GPUs' memory.
  bool cu_file = false;  ///< The module is loaded by which GPUs read storage.
};

/// Reads the kernel's folders below `root`, such as `root/sys/class/infiniband`; empty: the machine's own.
MachineFacts read_machine_facts(const std::string& root = {});

/// Devices of which each two are linked directly.
struct DeviceIsland {
  std::string name;           ///< Empty: the device is linked with no other.
  int64_t gbs_both_ways = 0;  ///< What each two of them have at least, both directions together, in GB/s.
  friend bool operator==(const DeviceIsland&, const DeviceIsland&) = default;
};

/// The island of each device. Devices that reach each other only over a third one are in different islands.
std::vector<DeviceIsland> islands_of(const DeviceTopology& topology, std::size_t devices);

}  // namespace gpusched::kubernetes
