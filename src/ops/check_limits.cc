#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "ops/checks.h"
#include "ops/machine.h"

namespace gpusched::ops {
namespace {

constexpr rlim_t kOpenFilesMin = 4'096;
constexpr rlim_t kOpenFilesGood = 65'536;
constexpr int64_t kProcessesGood = 16'384;

rlimit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit;
}

std::string shown(rlim_t value) { return value == RLIM_INFINITY ? "unlimited" : std::to_string(value); }

/// How a limit is raised for a unit that systemd runs, and for a shell.
std::string raise(const Patient& patient, const std::string& directive, const std::string& shell) {
  if (!exists(patient.root + "/run/systemd/system"))
    return "ulimit " + shell + "    # in the shell that starts " + patient.unit;
  const std::string folder = "/etc/systemd/system/" + patient.unit + ".service.d";
  return "mkdir -p " + folder + " && printf '[Service]\\n" + directive + "\\n' > " + folder +
         "/limits.conf && systemctl daemon-reload && systemctl restart " + patient.unit;
}

/// The smallest pids.max of one cgroup and those above it; -1: none.
int64_t smallest_above(const std::string& base, std::string path) {
  int64_t smallest = -1;
  for (; path.size() > 1; path = path.substr(0, path.rfind('/'))) {
    const std::optional<std::string> text = read_line(base + path + "/pids.max");
    if (!text || *text == "max") continue;
    const int64_t value = std::atoll(text->c_str());
    if (smallest < 0 || value < smallest) smallest = value;
  }
  return smallest;
}

int64_t cgroup_processes_max(const std::string& root) {
  int64_t smallest = -1;
  for (const OwnCgroup& own : own_cgroups(root)) {
    std::string base;
    if (own.controllers.empty()) base = root + "/sys/fs/cgroup";
    if (own.controllers == "pids") base = root + "/sys/fs/cgroup/pids";
    if (base.empty()) continue;
    const int64_t value = smallest_above(base, own.path);
    if (value >= 0 && (smallest < 0 || value < smallest)) smallest = value;
  }
  return smallest;
}

}  // namespace

Finding check_open_files(const Patient& patient) {
  const rlimit limit = limit_of(RLIMIT_NOFILE);
  Finding finding{.check = "nofile",
                  .detail = "open files: " + shown(limit.rlim_cur) + ", at most " + shown(limit.rlim_max)};
  if (limit.rlim_max >= kOpenFilesGood) return finding;
  finding.verdict = limit.rlim_max < kOpenFilesMin ? Verdict::kFail : Verdict::kWarn;
  finding.detail += "; many connections or jobs need " + std::to_string(kOpenFilesGood);
  finding.fix = raise(patient, "LimitNOFILE=65536:1048576", "-n 65536");
  return finding;
}

Finding check_locked_memory(const Patient& patient) {
  const rlimit limit = limit_of(RLIMIT_MEMLOCK);
  Finding finding{.check = "memlock", .detail = "locked memory: " + shown(limit.rlim_max)};
  if (limit.rlim_max == RLIM_INFINITY) return finding;
  finding.detail += " bytes";
  if (!patient.runs_jobs) return finding;
  finding.verdict = Verdict::kWarn;
  finding.detail += "; jobs that pin memory (RDMA, NCCL over InfiniBand) fail";
  finding.fix = raise(patient, "LimitMEMLOCK=infinity", "-l unlimited");
  return finding;
}

Finding check_processes(const Patient& patient) {
  const rlimit limit = limit_of(RLIMIT_NPROC);
  const int64_t cgroup = cgroup_processes_max(patient.root);
  Finding finding{.check = "nproc", .detail = "processes: " + shown(limit.rlim_max)};
  if (cgroup >= 0) finding.detail += ", " + std::to_string(cgroup) + " in its cgroup";
  if (!patient.runs_jobs) return finding;
  const bool by_limit = limit.rlim_max != RLIM_INFINITY && limit.rlim_max < rlim_t{kProcessesGood};
  const bool by_cgroup = cgroup >= 0 && cgroup < kProcessesGood;
  if (!by_limit && !by_cgroup) return finding;
  finding.verdict = Verdict::kWarn;
  finding.detail += "; this limit applies to all jobs together";
  finding.fix = raise(patient, by_cgroup ? "TasksMax=infinity" : "LimitNPROC=infinity", "-u unlimited");
  return finding;
}

}  // namespace gpusched::ops
