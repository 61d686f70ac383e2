#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "ops/doctor.h"

/// Checks of the doctors of both daemons. Each says what it found, what that costs, and the command that
/// repairs it. Paths of the system are taken below `root`, which is empty but in tests.
namespace gpusched::ops {

/// The daemon that is examined, for the words and the commands.
struct Patient {
  std::string unit;  ///< "gpu-agent"
  bool runs_jobs = false;
  std::string root = {};
};

// Limits of this process, which its children inherit.
Finding check_open_files(const Patient& patient);
Finding check_locked_memory(const Patient& patient);
Finding check_processes(const Patient& patient);

// Files.
/// Free space, inodes and the kind of file system of `folder`, or of the nearest folder above that exists.
std::vector<Finding> check_disk(const Patient& patient, const std::string& folder);
/// Checks that the volume of `folder` is large enough for what grows there.
Finding check_volume(const std::string& folder, uint64_t recommended_bytes);
/// How long a durable write of 4 KiB takes there: writes and removes a file. Nothing for an absent folder.
std::vector<Finding> check_sync(const std::string& folder);
/// Checks that the folder is owned by this user, and closed to others if it holds secrets.
Finding check_folder(const Patient& patient, const std::string& folder, bool private_to_us);
/// Jobs of other users have their folders below `folder` and must be able to pass all that is above it.
Finding check_way_to(const std::string& folder);
/// Checks that the token file exists, is readable only by its owner, and holds a token.
Finding check_token(const std::string& path, const std::string& how_to_get_one);
Finding check_shared_memory(const Patient& patient);

// The kernel.
/// Version and writability of cgroups, and whether device access can be fenced by them.
std::vector<Finding> check_cgroups(const Patient& patient);
Finding check_user_switch(const Patient& patient);

// Time.
Finding check_clock_synchronised();
/// `ahead`: how much this machine's clock is ahead of `peer`'s.
Finding check_clock_skew(Duration ahead, Duration uncertainty, const std::string& peer);

// Other programs.
/// A port that the daemon listens on: free, its own (`own_pid`, 0: none runs), or somebody else's.
Finding check_port(const Patient& patient, const std::string& key, uint16_t port, int64_t own_pid);
Finding check_unit(const Patient& patient);

// GPUs.
/// NVIDIA's kernel module and library, and whether they are of one version.
std::vector<Finding> check_nvidia(const Patient& patient, const std::string& library);

}  // namespace gpusched::ops
