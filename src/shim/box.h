#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

/// Environment of an attempt's processes, as the agent decides it and as the shim carries it out. Plain
/// values: the agent has resolved every name before, because a forked shim must not ask a name service.
namespace gpusched::shim {

/// Credentials of the attempt's processes.
struct Credentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups = {};  ///< Supplementary ones, complete.

  friend bool operator==(const Credentials&, const Credentials&) = default;

  template <typename Self, typename Visit>
  static void members(Self& self, Visit&& visit) {
    visit(self.uid);
    visit(self.gid);
    visit(self.groups);
  }
};

/// A resource limit as setrlimit(2) takes it. RLIM_INFINITY (all bits set): unlimited.
struct ResourceLimit {
  int32_t resource = 0;  ///< RLIMIT_*
  uint64_t soft = 0;
  uint64_t hard = 0;

  friend bool operator==(const ResourceLimit&, const ResourceLimit&) = default;

  template <typename Self, typename Visit>
  static void members(Self& self, Visit&& visit) {
    visit(self.resource);
    visit(self.soft);
    visit(self.hard);
  }
};

/// One file of a cgroup, written before the first process enters it.
struct CgroupSetting {
  std::string file;
  std::string value;
  bool needed = true;  ///< Else a kernel without this file is no failure.

  friend bool operator==(const CgroupSetting&, const CgroupSetting&) = default;

  template <typename Self, typename Visit>
  static void members(Self& self, Visit&& visit) {
    visit(self.file);
    visit(self.value);
    visit(self.needed);
  }
};

/// The attempt's group in one hierarchy: made by the shim, removed when the attempt is over.
struct CgroupFolder {
  std::string path;      ///< Absolute.
  bool unified = false;  ///< Whether the hierarchy is of cgroup version 2.
  std::vector<CgroupSetting> settings = {};

  friend bool operator==(const CgroupFolder&, const CgroupFolder&) = default;

  template <typename Self, typename Visit>
  static void members(Self& self, Visit&& visit) {
    visit(self.path);
    visit(self.unified);
    visit(self.settings);
  }
};

/// Device nodes that may be used.
struct DeviceRule {
  bool block = false;  ///< Else a character device.
  int32_t major = -1;  ///< -1: any.
  int32_t minor = -1;  ///< -1: any.
  bool read = true;
  bool write = true;
  bool make = true;  ///< mknod.

  friend bool operator==(const DeviceRule&, const DeviceRule&) = default;

  template <typename Self, typename Visit>
  static void members(Self& self, Visit&& visit) {
    visit(self.block);
    visit(self.major);
    visit(self.minor);
    visit(self.read);
    visit(self.write);
    visit(self.make);
  }
};

/// Everything that is not said leaves the attempt as the agent itself is.
struct Box {
  std::optional<Credentials> user = {};
  std::vector<CgroupFolder> cgroups = {};  ///< Empty: none is writable.
  /// The only devices that may be used. With `fence_by_program` a BPF program on the version 2 group says so;
  /// else these are among the settings of the version 1 group, or the fence is advisory.
  std::vector<DeviceRule> devices = {};
  bool fence_by_program = false;
  std::vector<uint32_t> cpus = {};  ///< Cores that the attempt has for itself; empty: any.

  std::vector<ResourceLimit> limits = {};
  std::optional<uint32_t> umask = {};
  std::optional<int32_t> oom_score = {};  ///< Added to what the kernel chooses victims by: -1000..1000.
  bool no_new_privileges = false;
  std::optional<uint32_t> login_uid = {};  ///< Login uid for the kernel's audit.

  /// `work/` and `tmp/` in the attempt's folder, the user's own; `tmp/` goes at the end.
  bool own_folders = false;
  bool open_tmp = false;     ///< Only a tmp folder, which whoever sees it may write to: of a container.
  bool private_shm = false;  ///< A /dev/shm of its own, in a mount namespace.
  bool private_ipc =
      false;  ///< System V's and POSIX's queues, semaphores and memory of its own, gone with it.
  bool private_tmp = false;   ///< /tmp and /var/tmp are the attempt's own folder, in a mount namespace.
  int64_t shm_bytes_max = 0;  ///< Size of a private /dev/shm; 0: the kernel's default, half of the memory.

  /// Opened by the user, appended to, relative to the working directory; empty: the agent's own files, and
  /// nothing to read.
  std::string stdin_path = {};
  std::string stdout_path = {};
  std::string stderr_path = {};

  /// Limit by the cgroups' settings, for messages; 0: none. With `watched` there is no such group: the shim
  /// itself counts, from time to time, and ends the attempt that has passed one.
  int64_t memory_bytes_max = 0;
  int64_t processes_max = 0;
  bool watched = false;

  friend bool operator==(const Box&, const Box&) = default;

  template <typename Self, typename Visit>
  static void members(Self& self, Visit&& visit) {
    visit(self.user);
    visit(self.cgroups);
    visit(self.devices);
    visit(self.fence_by_program);
    visit(self.cpus);
    visit(self.limits);
    visit(self.umask);
    visit(self.oom_score);
    visit(self.no_new_privileges);
    visit(self.login_uid);
    visit(self.own_folders);
    visit(self.open_tmp);
    visit(self.private_shm);
    visit(self.private_ipc);
    visit(self.private_tmp);
    visit(self.shm_bytes_max);
    visit(self.stdin_path);
    visit(self.stdout_path);
    visit(self.stderr_path);
    visit(self.memory_bytes_max);
    visit(self.processes_max);
    visit(self.watched);
  }
};

void put_box(ByteWriter& out, const Box& box);
/// Fails the reader when the bytes are no box.
Box get_box(ByteReader& in);

}  // namespace gpusched::shim
