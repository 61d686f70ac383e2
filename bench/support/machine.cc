#include "support/machine.h"

#include <fcntl.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/check.h"

namespace gpusched::bench {

std::string machine_line() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    model = line.substr(line.find(':') + 2);
    break;
  }
  utsname system{};
  ::uname(&system);
  struct sysinfo memory{};
  ::sysinfo(&memory);
  const double gigabytes = static_cast<double>(memory.totalram) * memory.mem_unit / 1e9;
  return text_of("%s, %u cores, %.0f GB, %s %s", model.c_str(), std::thread::hardware_concurrency(),
                 gigabytes, system.sysname, system.release);
}

std::string file_system_of(const std::string& folder) {
  std::error_code failed;
  const std::string path = std::filesystem::canonical(folder, failed).string();
  std::ifstream mounts("/proc/self/mounts");
  std::string best, type;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, point, kind;
    words >> device >> point >> kind;
    const bool holds = path == point || point == "/" || path.starts_with(point + "/");
    if (!holds || point.size() < best.size()) continue;
    best = point;
    type = kind + " on " + device;
  }
  return type.empty() ? "unknown" : type;
}

int64_t now_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

double Samples::percentile_ms(double share) const {
  if (values_.empty()) return 0;
  const auto index = static_cast<std::ptrdiff_t>(share * static_cast<double>(values_.size() - 1));
  std::nth_element(values_.begin(), values_.begin() + index, values_.end());
  return static_cast<double>(values_[static_cast<std::size_t>(index)]) / 1e6;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double seconds_between(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) / 1e9;
}

Samples measure_disk_sync(const std::string& folder, int count) {
  constexpr std::size_t kBytes = 4096;
  constexpr std::size_t kFileBytes = 16u << 20;
  const std::string path = folder + "/sync_probe";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(file >= 0);
  const std::string zeros(kFileBytes, '\0');
  CHECK(::pwrite(file, zeros.data(), zeros.size(), 0) == static_cast<ssize_t>(zeros.size()));
  CHECK(::fsync(file) == 0);
  const std::string record(kBytes, 'r');
  Samples samples;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<off_t>(static_cast<std::size_t>(i) * kBytes % kFileBytes);
    const int64_t begin = now_ns();
    CHECK(::pwrite(file, record.data(), record.size(), at) == static_cast<ssize_t>(record.size()));
    CHECK(::fdatasync(file) == 0);
    samples.add(now_ns() - begin);
  }
  ::close(file);
  ::unlink(path.c_str());
  return samples;
}

void print_line(const char* name, const std::string& text) {
  std::printf("%-14s %s\n", name, text.c_str());
  std::fflush(stdout);
}

std::string text_of(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char buffer[1024];
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

void print_head(const std::string& folder) {
  print_line("machine", machine_line() + "; client and server share it");
  const Samples sync = measure_disk_sync(folder, 2'000);
  print_line("disk",
             text_of("%s; 4 KiB pwrite + fdatasync p50 %.3f ms, p99 %.3f ms", file_system_of(folder).c_str(),
                     sync.percentile_ms(0.5), sync.percentile_ms(0.99)));
  print_line("durability", "one fdatasync for each group of commands, before any of them is answered");
}

}  // namespace gpusched::bench
