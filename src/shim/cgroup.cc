#include "shim/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <string_view>

#include "shim/processes.h"

namespace gpusched::shim {
namespace {

constexpr int kFreezeLooks = 50;
constexpr std::size_t kListBytesMax = 4 << 20;
constexpr long kFreezePauseNs = 200'000;

/// 0, or errno.
int write_value(int file, std::string_view value) {
  return write(file, value.data(), value.size()) == static_cast<ssize_t>(value.size()) ? 0 : errno;
}

/// 0, or errno.
int write_file(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const int error = write_value(file, text);
  close(file);
  return error;
}

/// Settings of one file stand together, such as the devices that are allowed: it is opened once for them.
class SettingsWriter {
 public:
  explicit SettingsWriter(const std::string& path) : path_(path) {}
  ~SettingsWriter() { close_file(); }
  SettingsWriter(const SettingsWriter&) = delete;
  SettingsWriter& operator=(const SettingsWriter&) = delete;

  /// 0, or errno.
  int write(const CgroupSetting& setting) {
    if (file_ < 0 || setting.file != name_) {
      close_file();
      name_ = setting.file;
      file_ = open((path_ + '/' + name_).c_str(), O_WRONLY | O_CLOEXEC);
    }
    return file_ < 0 ? errno : write_value(file_, setting.value);
  }

 private:
  void close_file() {
    if (file_ >= 0) close(file_);
    file_ = -1;
  }

  const std::string& path_;
  std::string name_;
  int file_ = -1;
};

bool has_file(const std::string& path, const char* name) {
  return access((path + '/' + name).c_str(), F_OK) == 0;
}

/// Groups right below this one.
std::vector<std::string> groups_below(const std::string& path) {
  std::vector<std::string> below;
  struct stat facts{};
  // A folder's count of links tells whether there are any, without reading it.
  if (stat(path.c_str(), &facts) != 0 || facts.st_nlink <= 2) return below;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return below;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    below.push_back(path + '/' + entry->d_name);
  }
  closedir(folder);
  return below;
}

void append_processes(const std::string& path, std::vector<pid_t>& found) {
  const std::string text = read_small_file((path + "/cgroup.procs").c_str(), kListBytesMax);
  const char* from = text.data();
  const char* const end = text.data() + text.size();
  while (from < end) {
    pid_t pid = 0;
    const auto [next, error] = std::from_chars(from, end, pid);
    if (error != std::errc{}) break;
    if (pid > 0) found.push_back(pid);  // 0: a process of another namespace.
    from = next + 1;
  }
  for (const std::string& below : groups_below(path)) append_processes(below, found);
}

/// The number behind `name` in a file of lines "name number".
uint64_t count_in(const std::string& path, std::string_view name) {
  const std::string text = '\n' + read_small_file(path.c_str(), 4096);
  const std::string start = '\n' + std::string(name) + ' ';
  const std::size_t found = text.find(start);
  uint64_t count = 0;
  if (found != std::string::npos) {
    std::from_chars(text.data() + found + start.size(), text.data() + text.size(), count);
  }
  return count;
}

/// The number that a file consists of; 0 when there is none, or it is negative.
int64_t number_in(const std::string& path) {
  const std::string text = read_small_file(path.c_str(), 64);
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number > 0 ? number : 0;
}

void freeze(const std::string& path) {
  if (write_file(path + "/freezer.state", "FROZEN") != 0) return;
  for (int look = 0; look < kFreezeLooks; ++look) {
    if (read_small_file((path + "/freezer.state").c_str(), 16).starts_with("FROZEN")) return;
    const timespec pause{.tv_sec = 0, .tv_nsec = kFreezePauseNs};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

std::string make_cgroup(const CgroupFolder& folder) {
  if (mkdir(folder.path.c_str(), 0755) != 0 && errno != EEXIST) {
    return "cannot create the cgroup " + folder.path + ": " + strerrordesc_np(errno);
  }
  SettingsWriter writer(folder.path);
  for (const CgroupSetting& setting : folder.settings) {
    const int error = writer.write(setting);
    if (error == 0 || !setting.needed) continue;
    return "cannot set " + setting.file + " of the cgroup " + folder.path + " to " + setting.value + ": " +
           strerrordesc_np(error);
  }
  return {};
}

std::vector<pid_t> cgroup_processes(const std::string& path) {
  std::vector<pid_t> found;
  append_processes(path, found);
  return found;
}

bool kill_cgroup(const std::string& path) {
  const std::vector<pid_t> seen = cgroup_processes(path);
  if (seen.empty()) return true;
  if (write_file(path + "/cgroup.kill", "1") == 0) return false;
  const bool has_freezer = has_file(path, "freezer.state");
  if (has_freezer) freeze(path);
  for (const pid_t pid : has_freezer ? cgroup_processes(path) : seen) {
    if (pid != getpid()) kill(pid, SIGKILL);
  }
  if (has_freezer) write_file(path + "/freezer.state", "THAWED");
  return false;
}

const CgroupFolder* killing_cgroup(const std::vector<CgroupFolder>& folders) {
  for (const CgroupFolder& folder : folders) {
    if (folder.unified && has_file(folder.path, "cgroup.kill")) return &folder;
  }
  const CgroupFolder* best = nullptr;
  for (const CgroupFolder& folder : folders) {
    if (best == nullptr || has_file(folder.path, "freezer.state")) best = &folder;
  }
  return best;
}

bool remove_cgroup(const std::string& path) {
  if (rmdir(path.c_str()) == 0 || errno == ENOENT) return true;
  if (errno != EBUSY && errno != ENOTEMPTY) return false;
  for (const std::string& below : groups_below(path)) remove_cgroup(below);
  return rmdir(path.c_str()) == 0 || errno == ENOENT;
}

void remove_left_folder(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  if (folder.substr(folder.rfind('/') + 1).starts_with("gpusched-")) rmdir(folder.c_str());
}

uint64_t cgroup_oom_kills(const std::string& path) {
  const uint64_t kills = count_in(path + "/memory.events", "oom_kill");
  return kills > 0 ? kills : count_in(path + "/memory.oom_control", "oom_kill");
}

uint64_t cgroup_refused_forks(const std::string& path) { return count_in(path + "/pids.events", "max"); }

int64_t cgroup_peak_memory_bytes(const CgroupFolder& folder) {
  return number_in(folder.path + (folder.unified ? "/memory.peak" : "/memory.max_usage_in_bytes"));
}

int64_t cgroup_cpu_ns(const CgroupFolder& folder) {
  if (!folder.unified) return number_in(folder.path + "/cpuacct.usage");
  const uint64_t us = count_in(folder.path + "/cpu.stat", "usage_usec");
  return static_cast<int64_t>(std::min<uint64_t>(us, INT64_MAX / 1'000)) * 1'000;
}

}  // namespace gpusched::shim
