#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shim/box.h"

namespace gpusched {

enum class Controller : uint8_t { kMemory, kCpu, kCpuset, kPids, kDevices, kFreezer };
inline constexpr std::size_t kControllerCount = 6;

/// Limits of one attempt. Zero or empty: no limit of that kind.
struct CgroupLimits {
  int64_t memory_bytes = 0;
  int64_t cpu_milli = 0;     ///< Its share when cores are scarce...
  bool cpu_is_most = false;  ///< ...and, if so, also the most that it gets when they are not.
  std::vector<uint32_t> cpus = {};
  int64_t processes = 0;
  std::optional<std::vector<shim::DeviceRule>> devices = {};  ///< Nothing: no fence.
};

/// This machine's cgroups as far as we may use them: version 1, version 2 or both side by side, each
/// controller where it is. Below our own place in each hierarchy we have one folder, and in it one group for
/// each attempt. Not thread-safe.
class CgroupTree {
 public:
  struct Source {
    std::string mountinfo;    ///< As /proc/self/mountinfo.
    std::string memberships;  ///< As /proc/self/cgroup.
    std::string name;         ///< Name of our folder: "gpusched-<instance>".
    std::string root = {};    ///< Put before every path, for tests; what mountinfo says stays as it is.
  };
  /// Reads /proc. `name` as above. Makes our folders; what cannot be made is not used, and `notes` says why.
  static CgroupTree detect(const std::string& name);
  static CgroupTree detect(const Source& source);
  /// Uses nothing.
  CgroupTree() = default;

  bool has(Controller controller) const { return places_[index_of(controller)].has_value(); }
  /// Memory and processes are held to their limits by the kernel.
  bool limits() const { return has(Controller::kMemory) && has(Controller::kPids); }
  /// By a version 1 group or a program on a version 2 group.
  bool can_fence() const { return has(Controller::kDevices) || unified_.has_value(); }
  /// "cgroup:v1", "cgroup:v2" or "cgroup:none": what limits the memory.
  std::string feature() const;
  const std::vector<std::string>& notes() const { return notes_; }

  /// Fills the cgroup part of a box.
  void fill(const std::string& key_text, const CgroupLimits& limits, shim::Box& box) const;
  /// Every folder in which an attempt's group may be.
  std::vector<std::string> folders_of(const std::string& key_text) const;
  /// Names of groups that are there, of attempts or not.
  std::vector<std::string> groups() const;
  /// Removes our folders if nothing is in them; others are removed by the last attempt that has a group
  /// there.
  void remove_if_empty() const;

 private:
  struct Hierarchy {
    std::string folder;  ///< Ours.
    bool unified = false;
    std::string cores = {};   ///< All cores of a version 1 cpuset.
    std::string memory = {};  ///< All memory nodes of a version 1 cpuset.
  };

  static std::size_t index_of(Controller controller) { return static_cast<std::size_t>(controller); }
  std::optional<std::string> make_folder(const std::string& parent, const std::string& name, bool unified);
  void use(const std::string& mount, const std::string& own, const std::vector<std::string>& controllers,
           const std::string& name);
  void use_unified(const std::string& mount, const std::string& own, const std::string& name);
  bool enable(const std::string& parent, const std::string& folder);

  std::vector<Hierarchy> hierarchies_;
  std::array<std::optional<std::size_t>, kControllerCount> places_ = {};  ///< Each controller's hierarchy.
  std::optional<std::size_t> unified_;
  std::vector<std::string> notes_;
};

/// "0-3,7" as numbers; empty when it is no such list.
std::vector<uint32_t> parse_cores(std::string_view text);
/// The inverse of parse_cores.
std::string format_cores(const std::vector<uint32_t>& cores);

}  // namespace gpusched
