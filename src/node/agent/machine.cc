#include "node/agent/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/errors.h"
#include "sign/keys/token_proof.h"

namespace gpusched {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// A line of /proc/meminfo in kilobytes; 0 when it is not there.
int64_t memory_kb(const std::string& name) {
  std::ifstream in("/proc/meminfo");
  std::string word;
  int64_t kb = 0;
  std::string unit;
  while (in >> word >> kb && std::getline(in, unit)) {
    if (word == name) return kb;
  }
  return 0;
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<uint8_t>(byte) >> 4];
    text += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

}  // namespace

std::string read_boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

int64_t usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
}

int64_t total_memory_mb() { return memory_kb("MemTotal:") / 1024; }

std::string mark_of_instance(const std::string& instance) {
  constexpr std::size_t kOlderLength = 16;
  if (instance.size() <= kOlderLength) return instance;
  return hexadecimal(sign::prove(instance, "gpusched-mark", "").substr(0, kOlderLength / 2));
}

Result<std::string> load_or_make_instance(const std::string& data_folder) {
  const std::string path = data_folder + "/instance";
  const std::string present = first_line(path);
  if (!present.empty()) {
    // Older agents left it for all to read: with it, whoever has the token could speak for this node.
    if (chmod(path.c_str(), 0600) != 0) return io_error("cannot protect " + path + " from other users");
    return present;
  }
  const std::string name = hexadecimal(sign::make_nonce().substr(0, 16));
  const std::string draft = path + ".new";
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return io_error("cannot make " + draft);
  const std::string line = name + "\n";
  const bool written =
      write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(file) == 0;
  close(file);
  if (!written || rename(draft.c_str(), path.c_str()) != 0) return io_error("cannot write " + path);
  return name;
}

void tell_mark(const std::string& data_folder, const std::string& instance) {
  const std::string path = data_folder + "/mark";
  const std::string mark = mark_of_instance(instance);
  if (first_line(path) == mark) return;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return;
  const std::string line = mark + "\n";
  (void)!write(file, line.data(), line.size());
  close(file);
}

Result<FolderLock> FolderLock::take(const std::string& data_folder) {
  const std::string path = data_folder + "/agent.lock";
  const auto held_by_another = [&] {
    const std::string holder = first_line(path);
    return Error{
        .code = ErrorCode::kLocked,
        .message = "another gpu-agent is using " + data_folder + (holder.empty() ? "" : ": pid " + holder)};
  };
  const int folder = open(data_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return io_error("cannot open " + data_folder);
  FolderLock lock(folder, -1);
  // Some network file systems lock no folders; there the file has to do.
  if (flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return held_by_another();
  lock.file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock.file_ < 0) return io_error("cannot open " + path);
  if (flock(lock.file_, LOCK_EX | LOCK_NB) != 0) return held_by_another();
  const std::string line = std::to_string(getpid()) + "\n";
  if (ftruncate(lock.file_, 0) != 0 || pwrite(lock.file_, line.data(), line.size(), 0) < 0) {
    return io_error("cannot write " + path);
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : folder_(std::exchange(other.folder_, -1)), file_(std::exchange(other.file_, -1)) {}
FolderLock::~FolderLock() {
  // The file is the one that others wait for (flock agent.lock): by then all is free.
  if (folder_ >= 0) close(folder_);
  if (file_ >= 0) close(file_);
}

HostLoad ProcMeter::load() {
  std::istringstream words(first_line("/proc/stat"));
  std::string name;
  std::array<uint64_t, 8> ticks{};  // user nice system idle iowait irq softirq steal
  words >> name;
  for (uint64_t& value : ticks) words >> value;
  uint64_t total = 0;
  for (const uint64_t value : ticks) total += value;
  const uint64_t busy = total - ticks[3] - ticks[4];
  HostLoad load;
  if (total > total_) load.cpu = static_cast<double>(busy - busy_) / static_cast<double>(total - total_);
  load.cpu = std::clamp(load.cpu, 0.0, 1.0);
  busy_ = busy;
  total_ = total;
  const int64_t all_kb = memory_kb("MemTotal:");
  if (all_kb > 0) {
    load.memory = 1 - static_cast<double>(memory_kb("MemAvailable:")) / static_cast<double>(all_kb);
  }
  return load;
}

}  // namespace gpusched
