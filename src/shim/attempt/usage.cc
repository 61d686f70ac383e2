#include "shim/attempt/usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>

#include "shim/cgroup.h"
#include "shim/processes.h"

namespace gpusched::shim {
namespace {

/// The number behind `name` in a file of lines such as "Pss:   123 kB"; -1 when it is not there.
int64_t number_behind(const std::string& text, std::string_view name) {
  std::size_t at = text.find(name);
  if (at == std::string::npos) return -1;
  at = text.find_first_not_of(" \t", at + name.size());
  if (at == std::string::npos) return -1;
  int64_t number = -1;
  std::from_chars(text.data() + at, text.data() + text.size(), number);
  return number;
}

std::string read_of(pid_t pid, const char* file) {
  std::array<char, 48> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/%s", pid, file);
  return read_small_file(path.data(), 16 * 1024);
}

int64_t to_ns(const timeval& span) {
  return int64_t{span.tv_sec} * 1'000'000'000 + int64_t{span.tv_usec} * 1'000;
}

/// Whether the group limits something by files that begin so, such as "memory.".
bool limits_by(const CgroupFolder& folder, std::string_view files) {
  return std::any_of(folder.settings.begin(), folder.settings.end(),
                     [files](const CgroupSetting& setting) { return setting.file.starts_with(files); });
}

/// The first number that is not 0; groups that `is_likely` names are asked before the others. Each one asked
/// in vain costs as much as a file made.
template <typename Likely, typename Count>
int64_t first_count(const std::vector<CgroupFolder>& folders, Likely&& is_likely, Count&& count) {
  for (const bool likely : {true, false}) {
    for (const CgroupFolder& folder : folders) {
      if (is_likely(folder) != likely) continue;
      if (const int64_t number = count(folder); number > 0) return number;
    }
  }
  return 0;
}

}  // namespace

Usage usage_of(const std::vector<pid_t>& processes, int64_t memory_bytes_max) {
  Usage usage;
  std::vector<int64_t> resident(processes.size(), 0);
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const std::string status = read_of(processes[i], "status");
    const int64_t resident_kb = number_behind(status, "\nVmRSS:");
    const int64_t threads = number_behind(status, "\nThreads:");
    if (resident_kb > 0) resident[i] = resident_kb * 1024;
    if (threads > 0) usage.tasks += threads;
    usage.memory_bytes += resident[i];
  }
  if (memory_bytes_max <= 0 || usage.memory_bytes <= memory_bytes_max) return usage;
  usage.memory_bytes = 0;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const int64_t share_kb = number_behind(read_of(processes[i], "smaps_rollup"), "\nPss:");
    // A process that shows nothing is gone, or not ours to look at; that one counts whole.
    usage.memory_bytes += share_kb >= 0 ? share_kb * 1024 : resident[i];
  }
  return usage;
}

MeasuredUsage measure_usage(const Box& box, bool container) {
  MeasuredUsage usage;
  usage.peak_memory_bytes = first_count(
      box.cgroups, [](const CgroupFolder& folder) { return limits_by(folder, "memory."); },
      cgroup_peak_memory_bytes);
  // Version 2 counts processor time in every group, also where no controller is on.
  usage.cpu_ns =
      first_count(box.cgroups, [](const CgroupFolder& folder) { return folder.unified; }, cgroup_cpu_ns);
  rusage children{};
  if (container || getrusage(RUSAGE_CHILDREN, &children) != 0) return usage;
  if (usage.peak_memory_bytes == 0 && children.ru_maxrss > 0) {
    usage.peak_memory_bytes = int64_t{children.ru_maxrss} * 1024;
    usage.peak_of_process = true;
  }
  if (usage.cpu_ns == 0) usage.cpu_ns = to_ns(children.ru_utime) + to_ns(children.ru_stime);
  return usage;
}

}  // namespace gpusched::shim
