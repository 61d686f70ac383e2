#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include "ops/checks.h"
#include "ops/machine.h"

namespace gpusched::ops {
namespace {

constexpr const char* kNeeded[] = {"memory", "cpu", "pids"};

/// Whether a cgroup can be made below `folder`: makes one and removes it.
bool can_make_below(const std::string& folder) {
  const std::string probe = folder + "/gpu-doctor-" + std::to_string(::getpid());
  if (::mkdir(probe.c_str(), 0755) != 0) return false;
  return ::rmdir(probe.c_str()) == 0;
}

/// Where a version-1 controller is mounted; empty: nowhere.
std::string mounted_at(const std::vector<Mount>& all, const std::string& controller) {
  for (const Mount& mount : all) {
    if (mount.type != "cgroup") continue;
    const std::string padded = "," + mount.options + ",";
    if (padded.find("," + controller + ",") != std::string::npos) return mount.folder;
  }
  return {};
}

std::string own_path(const std::string& root, const std::string& controller) {
  for (const OwnCgroup& own : own_cgroups(root)) {
    const std::string padded = "," + own.controllers + ",";
    if (controller.empty() ? own.controllers.empty()
                           : padded.find("," + controller + ",") != std::string::npos)
      return own.path;
  }
  return "/";
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

/// Limits that remain where cgroups cannot be used.
constexpr const char* kWithout = "; memory, cores and processes of jobs are limited by rlimits only";

Finding version_1(const Patient& patient, const std::vector<Mount>& all, bool hybrid) {
  Finding finding{.check = "cgroup",
                  .detail = std::string("version 1") + (hybrid ? " with a version 2 tree beside it" : "")};
  std::vector<std::string> missing;
  for (const char* const controller : kNeeded) {
    const std::string mount = mounted_at(all, controller);
    const bool usable =
        !mount.empty() && can_make_below(patient.root + mount + own_path(patient.root, controller));
    if (!usable) missing.emplace_back(controller);
  }
  if (missing.empty()) {
    finding.detail += ", writable";
    return finding;
  }
  finding.verdict = Verdict::kWarn;
  finding.detail += "; cannot be used here: " + joined(missing) + kWithout;
  finding.fix = "sudo systemctl start " + patient.unit + "    # as root, or delegate a cgroup to this user";
  return finding;
}

Finding version_2(const Patient& patient) {
  const std::string folder = patient.root + "/sys/fs/cgroup" + own_path(patient.root, "");
  Finding finding{.check = "cgroup", .detail = "version 2"};
  std::istringstream given(read_line(folder + "/cgroup.controllers").value_or(""));
  std::vector<std::string> there;
  std::string word;
  while (given >> word) there.push_back(word);
  std::vector<std::string> missing;
  for (const char* const controller : kNeeded) {
    if (std::ranges::find(there, controller) == there.end()) missing.emplace_back(controller);
  }
  if (!can_make_below(folder)) {
    finding.verdict = Verdict::kWarn;
    finding.detail +=
        ", but " + folder.substr(patient.root.size()) + " is not writable for this user" + kWithout;
    finding.fix = "sudo systemctl start " + patient.unit + "    # its unit has Delegate=yes";
  } else if (!missing.empty()) {
    finding.verdict = Verdict::kWarn;
    finding.detail += ", writable, without the controllers " + joined(missing) + kWithout;
    finding.fix =
        "echo '+memory +cpu +pids' > " + folder.substr(patient.root.size()) + "/../cgroup.subtree_control";
  } else {
    finding.detail += ", writable";
  }
  return finding;
}

Finding device_fence(const Patient& patient, const std::vector<Mount>& all, bool pure_version_2) {
  Finding finding{.check = "fence"};
  const std::string mount = mounted_at(all, "devices");
  const bool by_version_1 =
      !mount.empty() && can_make_below(patient.root + mount + own_path(patient.root, "devices"));
  const bool by_bpf =
      pure_version_2 &&
      (has_capability(patient.root, CAP_SYS_ADMIN) ||
       (has_capability(patient.root, CAP_BPF) && has_capability(patient.root, CAP_NET_ADMIN)));
  if (by_version_1 || by_bpf) {
    finding.detail = std::string("device access can be restricted by ") +
                     (by_version_1 ? "the devices controller" : "a BPF program on each job's cgroup");
    return finding;
  }
  finding.verdict = Verdict::kWarn;
  finding.detail = "advisory: a job that ignores CUDA_VISIBLE_DEVICES can open other jobs' GPUs";
  finding.fix =
      "sudo systemctl start " + patient.unit + "    # as root the devices controller or BPF fences them";
  return finding;
}

}  // namespace

std::vector<Finding> check_cgroups(const Patient& patient) {
  const std::vector<Mount> all = mounts(patient.root);
  const auto is = [](const char* type) { return [type](const Mount& mount) { return mount.type == type; }; };
  const bool has_1 = std::ranges::any_of(all, is("cgroup"));
  const bool has_2 = std::ranges::any_of(all, is("cgroup2"));
  std::vector<Finding> found;
  if (!has_1 && !has_2) {
    found.push_back({.check = "cgroup",
                     .verdict = Verdict::kWarn,
                     .detail = std::string("no cgroups are mounted") + kWithout,
                     .fix = "mount -t cgroup2 none /sys/fs/cgroup"});
  } else {
    found.push_back(has_1 ? version_1(patient, all, has_2) : version_2(patient));
  }
  found.push_back(device_fence(patient, all, !has_1 && has_2));
  return found;
}

Finding check_user_switch(const Patient& patient) {
  const bool able = has_capability(patient.root, CAP_SETUID) && has_capability(patient.root, CAP_SETGID);
  if (able) return {.check = "users", .detail = "each job can run as the user who submitted it"};
  return {.check = "users",
          .verdict = Verdict::kWarn,
          .detail = "this user cannot switch users: every job runs as user " + std::to_string(::geteuid()) +
                    ", and the job of one user can access that of another",
          .fix = "sudo systemctl start " + patient.unit};
}

}  // namespace gpusched::ops
