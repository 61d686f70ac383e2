#include "node/process/cgroup_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "shim/cgroup.h"

namespace gpusched {
namespace {

constexpr std::array<std::string_view, kControllerCount> kControllerNames = {"memory", "cpu",     "cpuset",
                                                                             "pids",   "devices", "freezer"};
constexpr int kMakeTriesMax = 3;
constexpr int64_t kQuotaPeriodUs = 100'000;
constexpr int64_t kSharesOfACore = 1'024;
constexpr int64_t kSharesMin = 2;
constexpr int64_t kSharesMax = 262'144;

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string first_line(const std::string& path) {
  const std::string text = read_text(path);
  return text.substr(0, text.find('\n'));
}

/// 0, or errno.
int write_text(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const int error = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : errno;
  close(file);
  return error;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

struct Mount {
  std::string root;
  std::string folder;
  bool unified = false;
  std::vector<std::string> controllers = {};
};

std::vector<Mount> parse_mounts(const std::string& mountinfo) {
  std::vector<Mount> mounts;
  for (const std::string& line : split(mountinfo, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> front = split(line.substr(0, dash), ' ');
    const std::vector<std::string> back = split(line.substr(dash + 3), ' ');
    if (front.size() < 5 || back.size() < 3 || (back[0] != "cgroup" && back[0] != "cgroup2")) continue;
    Mount mount{.root = front[3], .folder = front[4], .unified = back[0] == "cgroup2"};
    if (!mount.unified) mount.controllers = split(back[2], ',');
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

/// Our own place by controller; that of version 2 under "".
std::map<std::string, std::string> parse_memberships(const std::string& text) {
  std::map<std::string, std::string> own;
  for (const std::string& line : split(text, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    const std::string names = line.substr(first + 1, second - first - 1);
    if (names.empty()) own[""] = path;
    for (const std::string& name : split(names, ',')) own[name] = path;
  }
  return own;
}

/// The path at which our own group shows in this mount.
std::string place_in(const Mount& mount, const std::string& own) {
  if (mount.root == "/") return own == "/" ? "" : own;
  if (own == mount.root || !own.starts_with(mount.root + "/")) return "";
  return own.substr(mount.root.size());
}

/// A service manager takes its units' groups away and refuses a new start into one that has groups below it.
std::string without_unit(std::string place) {
  for (const char* ending : {".service", ".scope"}) {
    const std::size_t at = place.find(ending);
    if (at != std::string::npos) place.resize(std::min(place.rfind('/', at), place.size()));
  }
  return place;
}

int64_t shares_of(int64_t cpu_milli) {
  return std::clamp(cpu_milli * kSharesOfACore / 1'000, kSharesMin, kSharesMax);
}
/// The scale of version 2, as the kernel's documentation converts it.
int64_t weight_of(int64_t shares) { return 1 + ((shares - kSharesMin) * 9'999) / (kSharesMax - kSharesMin); }

/// A rule as the kernel takes it. Every attempt has a dozen: one that is no longer than "c 136:* rwm" takes
/// no memory of its own.
std::string rule_text(const shim::DeviceRule& rule) {
  std::array<char, 40> text{};
  char* at = text.data();
  const auto put = [&](int32_t number) {
    if (number < 0) {
      *at++ = '*';
    } else {
      at = std::to_chars(at, text.data() + text.size(), number).ptr;
    }
  };
  *at++ = rule.block ? 'b' : 'c';
  *at++ = ' ';
  put(rule.major);
  *at++ = ':';
  put(rule.minor);
  *at++ = ' ';
  if (rule.read) *at++ = 'r';
  if (rule.write) *at++ = 'w';
  if (rule.make) *at++ = 'm';
  return {text.data(), at};
}

}  // namespace

std::vector<uint32_t> parse_cores(std::string_view text) {
  std::vector<uint32_t> cores;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    uint32_t first = 0;
    uint32_t last = 0;
    const char* const stop = part.data() + part.size();
    auto [next, error] = std::from_chars(part.data(), stop, first);
    if (error != std::errc{}) return {};
    last = first;
    if (next != stop) {
      if (*next != '-') return {};
      const auto [rest, bad] = std::from_chars(next + 1, stop, last);
      if (bad != std::errc{} || rest != stop) return {};
    }
    if (last < first || last >= 65'536) return {};
    for (uint32_t core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

std::string format_cores(const std::vector<uint32_t>& cores) {
  std::string text;
  for (std::size_t from = 0; from < cores.size();) {
    std::size_t to = from;
    while (to + 1 < cores.size() && cores[to + 1] == cores[to] + 1) ++to;
    if (!text.empty()) text += ',';
    text += std::to_string(cores[from]);
    if (to > from) text += '-' + std::to_string(cores[to]);
    from = to + 1;
  }
  return text;
}

CgroupTree CgroupTree::detect(const std::string& name) {
  return detect(Source{.mountinfo = read_text("/proc/self/mountinfo"),
                       .memberships = read_text("/proc/self/cgroup"),
                       .name = name});
}

CgroupTree CgroupTree::detect(const Source& source) {
  CgroupTree tree;
  const std::map<std::string, std::string> own = parse_memberships(source.memberships);
  for (const Mount& mount : parse_mounts(source.mountinfo)) {
    const std::string folder = source.root + mount.folder;
    if (mount.unified) {
      const auto found = own.find("");
      if (!tree.unified_)
        tree.use_unified(folder, place_in(mount, found == own.end() ? "/" : found->second), source.name);
      continue;
    }
    for (const std::string& controller : mount.controllers) {
      const auto found = own.find(controller);
      if (found == own.end()) continue;  // An option, no controller.
      tree.use(folder, place_in(mount, found->second), mount.controllers, source.name);
      break;
    }
  }
  if (tree.hierarchies_.empty() && tree.notes_.empty()) tree.notes_.emplace_back("no cgroups are mounted");
  return tree;
}

std::optional<std::string> CgroupTree::make_folder(const std::string& parent, const std::string& name,
                                                   bool unified) {
  std::string folder = parent + '/' + name;
  const std::string held = folder + '/' + shim::kHeldGroup;
  // The last attempt of an agent before us may remove the folder until something is in it.
  for (int tries = 0; tries < kMakeTriesMax; ++tries) {
    if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
      notes_.push_back("cannot make " + folder + ": " + std::strerror(errno));
      return std::nullopt;
    }
    if (mkdir(held.c_str(), 0755) == 0 || errno != ENOENT) break;
  }
  if (access((folder + "/cgroup.procs").c_str(), W_OK) == 0) return folder;
  notes_.push_back("cannot write to " + folder + (unified ? " (version 2)" : ""));
  rmdir(held.c_str());
  rmdir(folder.c_str());
  return std::nullopt;
}

void CgroupTree::use(const std::string& mount, const std::string& own,
                     const std::vector<std::string>& controllers, const std::string& name) {
  std::vector<Controller> ours;
  for (std::size_t i = 0; i < kControllerCount; ++i) {
    const bool here =
        std::find(controllers.begin(), controllers.end(), kControllerNames[i]) != controllers.end();
    if (here && !places_[i]) ours.push_back(static_cast<Controller>(i));
  }
  if (ours.empty()) return;
  const std::string parent = mount + without_unit(own);
  const std::optional<std::string> folder = make_folder(parent, name, false);
  if (!folder) return;
  Hierarchy made{.folder = *folder};
  const bool is_cpuset = std::find(ours.begin(), ours.end(), Controller::kCpuset) != ours.end();
  if (is_cpuset) {  // It has to be said before any process may enter.
    made.cores = first_line(parent + "/cpuset.cpus");
    made.memory = first_line(parent + "/cpuset.mems");
    if (write_text(*folder + "/cpuset.cpus", made.cores) != 0 ||
        write_text(*folder + "/cpuset.mems", made.memory) != 0) {
      notes_.push_back("cannot set the cores of " + *folder);
      return;
    }
  }
  for (const Controller controller : ours) places_[index_of(controller)] = hierarchies_.size();
  hierarchies_.push_back(std::move(made));
}

/// Controllers are had by asking for them in every group on the way. Groups that ask may hold no processes
/// themselves, the root excepted.
bool CgroupTree::enable(const std::string& parent, const std::string& folder) {
  bool any = false;
  for (const char* controller : {"+memory", "+cpu", "+cpuset", "+pids"}) {
    if (write_text(parent + "/cgroup.subtree_control", controller) != 0 &&
        first_line(parent + "/cgroup.subtree_control").find(controller + 1) == std::string::npos) {
      continue;
    }
    any = write_text(folder + "/cgroup.subtree_control", controller) == 0 || any;
  }
  return any;
}

void CgroupTree::use_unified(const std::string& mount, const std::string& own, const std::string& name) {
  std::vector<std::string> parents = {mount + without_unit(own)};
  if (parents.front() != mount + own) parents.push_back(mount + own);
  for (const std::string& parent : parents) {
    const std::optional<std::string> folder = make_folder(parent, name, true);
    if (!folder) continue;
    const bool has_any =
        first_line(parent + "/cgroup.controllers").find_first_not_of(" \n") != std::string::npos;
    bool enabled = has_any && enable(parent, *folder);
    if (has_any && !enabled && parent == mount + own && !own.empty()) {
      // Our own group, delegated to us: we and what else is in it go one below, to make room.
      const std::string leaf = parent + "/agent";
      mkdir(leaf.c_str(), 0755);
      for (const pid_t pid : shim::cgroup_processes(parent)) {
        write_text(leaf + "/cgroup.procs", std::to_string(pid));
      }
      enabled = enable(parent, *folder);
    }
    unified_ = hierarchies_.size();
    hierarchies_.push_back({.folder = *folder, .unified = true});
    const std::string got = first_line(*folder + "/cgroup.subtree_control") + ' ';
    for (const Controller controller :
         {Controller::kMemory, Controller::kCpu, Controller::kCpuset, Controller::kPids}) {
      const std::string word(kControllerNames[index_of(controller)]);
      const bool there = (' ' + got).find(' ' + word + ' ') != std::string::npos;
      if (there && !has(controller)) places_[index_of(controller)] = *unified_;
    }
    if (has_any && !enabled) notes_.push_back("no controller of " + parent + " can be used");
    return;
  }
}

std::string CgroupTree::feature() const {
  if (!has(Controller::kMemory)) return "cgroup:none";
  return hierarchies_[*places_[index_of(Controller::kMemory)]].unified ? "cgroup:v2" : "cgroup:v1";
}

namespace {

void add_memory(int64_t limit_bytes, bool unified, std::vector<shim::CgroupSetting>& list) {
  const std::string bytes = std::to_string(limit_bytes);
  if (unified) {
    list.push_back({.file = "memory.max", .value = bytes});
    list.push_back({.file = "memory.swap.max", .value = "0", .needed = false});
    list.push_back({.file = "memory.oom.group", .value = "1", .needed = false});
  } else {
    list.push_back({.file = "memory.limit_in_bytes", .value = bytes});
    list.push_back({.file = "memory.memsw.limit_in_bytes", .value = bytes, .needed = false});
  }
}

void add_cpu(const CgroupLimits& limits, bool unified, std::vector<shim::CgroupSetting>& list) {
  const int64_t shares = shares_of(limits.cpu_milli);
  const std::string period = std::to_string(kQuotaPeriodUs);
  const std::string quota =
      std::to_string(std::max<int64_t>(limits.cpu_milli * kQuotaPeriodUs / 1'000, 1'000));
  if (unified) {
    list.push_back({.file = "cpu.weight", .value = std::to_string(weight_of(shares))});
    if (limits.cpu_is_most) list.push_back({.file = "cpu.max", .value = quota + " " + period});
    return;
  }
  list.push_back({.file = "cpu.shares", .value = std::to_string(shares)});
  if (!limits.cpu_is_most) return;
  list.push_back({.file = "cpu.cfs_period_us", .value = period});
  list.push_back({.file = "cpu.cfs_quota_us", .value = quota});
}

}  // namespace

void CgroupTree::fill(const std::string& key_text, const CgroupLimits& limits, shim::Box& box) const {
  std::map<std::size_t, std::vector<shim::CgroupSetting>> settings;
  const auto place = [&](Controller controller) -> std::pair<std::vector<shim::CgroupSetting>*, bool> {
    const std::optional<std::size_t> at = places_[index_of(controller)];
    if (!at) return {nullptr, false};
    return {&settings[*at], hierarchies_[*at].unified};
  };
  if (limits.memory_bytes > 0) {
    const auto [list, unified] = place(Controller::kMemory);
    if (list != nullptr) add_memory(limits.memory_bytes, unified, *list);
  }
  if (limits.cpu_milli > 0) {
    const auto [list, unified] = place(Controller::kCpu);
    if (list != nullptr) add_cpu(limits, unified, *list);
  }
  if (!limits.cpus.empty()) {
    const auto [list, unified] = place(Controller::kCpuset);
    if (list != nullptr) list->push_back({.file = "cpuset.cpus", .value = format_cores(limits.cpus)});
    if (list != nullptr && !unified) {
      list->push_back(
          {.file = "cpuset.mems", .value = hierarchies_[*places_[index_of(Controller::kCpuset)]].memory});
    }
  }
  if (limits.processes > 0) {
    const auto [list, unified] = place(Controller::kPids);
    if (list != nullptr) list->push_back({.file = "pids.max", .value = std::to_string(limits.processes)});
  }
  if (limits.devices) {
    box.devices = *limits.devices;
    const auto [list, unified] = place(Controller::kDevices);
    if (list != nullptr) {
      list->reserve(list->size() + 1 + limits.devices->size());  // They are many, and of every attempt.
      list->push_back({.file = "devices.deny", .value = "a"});
      for (const shim::DeviceRule& rule : *limits.devices) {
        list->push_back({.file = "devices.allow", .value = rule_text(rule)});
      }
    }
    box.fence_by_program = list == nullptr && unified_.has_value();
  }
  // All of the attempt is found and killed by this group.
  if (unified_) {
    settings[*unified_];
  } else {
    place(Controller::kFreezer);
  }
  for (auto& [at, list] : settings) {
    box.cgroups.push_back({.path = hierarchies_[at].folder + '/' + key_text,
                           .unified = hierarchies_[at].unified,
                           .settings = std::move(list)});
  }
}

std::vector<std::string> CgroupTree::folders_of(const std::string& key_text) const {
  std::vector<std::string> folders;
  // The one to kill by comes first.
  if (unified_) folders.push_back(hierarchies_[*unified_].folder + '/' + key_text);
  const std::optional<std::size_t> freezer = places_[index_of(Controller::kFreezer)];
  if (freezer) folders.push_back(hierarchies_[*freezer].folder + '/' + key_text);
  for (std::size_t i = 0; i < hierarchies_.size(); ++i) {
    if (i != unified_ && i != freezer) folders.push_back(hierarchies_[i].folder + '/' + key_text);
  }
  return folders;
}

std::vector<std::string> CgroupTree::groups() const {
  std::set<std::string> names;
  for (const Hierarchy& hierarchy : hierarchies_) {
    DIR* folder = opendir(hierarchy.folder.c_str());
    if (folder == nullptr) continue;
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_type == DT_DIR && entry->d_name[0] != '.') names.insert(entry->d_name);
    }
    closedir(folder);
  }
  names.erase(shim::kHeldGroup);
  return {names.begin(), names.end()};
}

void CgroupTree::remove_if_empty() const {
  for (const Hierarchy& hierarchy : hierarchies_) {
    rmdir((hierarchy.folder + '/' + shim::kHeldGroup).c_str());
    rmdir(hierarchy.folder.c_str());
  }
}

}  // namespace gpusched
