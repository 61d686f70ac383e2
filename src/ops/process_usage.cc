#include "ops/process_usage.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace gpusched {
namespace {

// Fields of /proc/self/stat, by their numbers in proc(5).
constexpr int kStartTime = 22;
constexpr int kVirtualSize = 23;
constexpr int kResidentPages = 24;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::optional<double> stat_field(const std::string& line, int number) {
  // The second is a name in brackets, which may hold blanks.
  std::size_t begin = line.rfind(')');
  for (int field = 2; begin != std::string::npos && field < number; ++field)
    begin = line.find(' ', begin + 1);
  if (begin == std::string::npos) return std::nullopt;
  return std::strtod(line.c_str() + begin, nullptr);
}

std::optional<double> boot_time() {
  timespec now{};
  timespec up{};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0 || clock_gettime(CLOCK_BOOTTIME, &up) != 0)
    return std::nullopt;
  return static_cast<double>(now.tv_sec - up.tv_sec) + static_cast<double>(now.tv_nsec - up.tv_nsec) / 1e9;
}

std::optional<double> open_files() {
  std::error_code failed;
  int64_t count = 0;
  std::filesystem::directory_iterator at("/proc/self/fd", failed);
  for (const std::filesystem::directory_iterator end; !failed && at != end; at.increment(failed)) ++count;
  if (failed) return std::nullopt;
  return static_cast<double>(count);
}

}  // namespace

ProcessUsage process_usage() {
  ProcessUsage usage;
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0)
    usage.cpu_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    usage.max_files = static_cast<double>(limit.rlim_cur);
  usage.open_files = open_files();
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  usage.virtual_bytes = stat_field(line, kVirtualSize);
  if (const auto pages = stat_field(line, kResidentPages))
    usage.resident_bytes = *pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  const std::optional<double> ticks = stat_field(line, kStartTime);
  const std::optional<double> boot = boot_time();
  if (ticks && boot) usage.start_time_seconds = *boot + *ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return usage;
}

}  // namespace gpusched
