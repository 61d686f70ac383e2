#include "shim/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdio>

namespace gpusched::shim {
namespace {

constexpr std::size_t kChildrenBytesMax = 1 << 20;
constexpr std::size_t kEnvironmentBytesMax = 8 << 20;
constexpr std::size_t kCommandLineBytesMax = 64 << 10;

bool parse_pid(std::string_view text, pid_t& pid) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  return error == std::errc{} && end == text.data() + text.size() && pid > 0;
}

/// Numbers that name entries of a folder of /proc.
std::vector<pid_t> numbered_entries(const char* path) {
  std::vector<pid_t> numbers;
  DIR* folder = opendir(path);
  if (folder == nullptr) return numbers;
  while (const dirent* entry = readdir(folder)) {
    pid_t number = 0;
    if (parse_pid(entry->d_name, number)) numbers.push_back(number);
  }
  closedir(folder);
  return numbers;
}

/// A field of /proc/<pid>/stat, counted from the third, the state, which is 0; empty when the process is
/// gone.
std::string stat_field(pid_t pid, int number) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  const std::string stat = read_small_file(path.data(), 4096);
  const std::size_t name_end = stat.rfind(')');  // The name may hold anything, also parentheses.
  if (name_end == std::string::npos) return {};
  std::size_t from = name_end + 2;
  for (; number > 0 && from < stat.size(); --number) from = std::min(stat.find(' ', from), stat.size()) + 1;
  if (from >= stat.size()) return {};
  return stat.substr(from, std::min(stat.find(' ', from), stat.size()) - from);
}

/// Where the kernel has no lists of children.
std::vector<pid_t> children_by_scan(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t other : all_processes()) {
    if (parent_of(other) == pid) children.push_back(other);
  }
  return children;
}

void append_numbers(std::string_view text, std::vector<pid_t>& out) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    pid_t pid = 0;
    if (parse_pid(text.substr(0, end), pid)) out.push_back(pid);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::string read_small_file(const char* path, std::size_t size_max) {
  std::string bytes;
  // In a container a job may have put a pipe there, which nobody writes to.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return bytes;
  std::array<char, 8192> buffer;
  while (bytes.size() < size_max) {
    const ssize_t got = read(file, buffer.data(), std::min(buffer.size(), size_max - bytes.size()));
    if (got <= 0) break;
    bytes.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(file);
  return bytes;
}

bool runs_as(pid_t pid, uid_t user) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/status", pid);
  const std::string status = read_small_file(path.data(), 16 * 1024);
  const std::size_t at = status.find("\nUid:");
  std::array<unsigned, 4> uids{};
  return at != std::string::npos &&
         std::sscanf(status.c_str() + at, "\nUid: %u %u %u %u", &uids[0], &uids[1], &uids[2], &uids[3]) ==
             4 &&
         std::all_of(uids.begin(), uids.end(), [user](unsigned uid) { return uid == user; });
}

std::vector<pid_t> children_of(pid_t pid) {
  static const bool has_lists = access("/proc/thread-self/children", R_OK) == 0;
  if (!has_lists) return children_by_scan(pid);
  std::vector<pid_t> children;
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/task", pid);
  for (const pid_t thread : numbered_entries(path.data())) {
    std::snprintf(path.data(), path.size(), "/proc/%d/task/%d/children", pid, thread);
    append_numbers(read_small_file(path.data(), kChildrenBytesMax), children);
  }
  return children;
}

std::vector<pid_t> descendants_of(pid_t root) {
  std::vector<pid_t> found = children_of(root);
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const pid_t child : children_of(found[i])) {
      if (std::find(found.begin(), found.end(), child) == found.end()) found.push_back(child);
    }
  }
  return found;
}

pid_t parent_of(pid_t pid) {
  pid_t parent = 0;
  return parse_pid(stat_field(pid, 1), parent) ? parent : 0;
}

uint64_t start_ticks_of(pid_t pid) {
  constexpr int kStartTime = 19;
  const std::string text = stat_field(pid, kStartTime);
  uint64_t ticks = 0;
  std::from_chars(text.data(), text.data() + text.size(), ticks);
  return ticks;
}

bool is_shim(pid_t pid, const char* program) {
  constexpr std::string_view kName = "/gpu-shim";
  constexpr std::string_view kReplaced = " (deleted)";
  if (!runs_as(pid, geteuid())) return false;
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/exe", pid);
  std::array<char, PATH_MAX> text{};
  const ssize_t size = readlink(path.data(), text.data(), text.size());
  std::string_view name(text.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
  if (name.ends_with(kReplaced)) name.remove_suffix(kReplaced.size());
  struct stat theirs{};
  struct stat ours{};
  if (!name.ends_with(kName) || stat(path.data(), &theirs) != 0 || stat(program, &ours) != 0) return false;
  const bool of_ours = theirs.st_uid == 0 || theirs.st_uid == geteuid() || theirs.st_uid == ours.st_uid;
  return S_ISREG(theirs.st_mode) && (theirs.st_mode & (S_ISUID | S_ISGID)) == 0 && of_ours;
}

std::vector<pid_t> all_processes() { return numbered_entries("/proc"); }

bool descends_from(pid_t pid, pid_t ancestor) {
  constexpr int kDepthMax = 256;  // A pid that was given again while we look could close a circle.
  for (int depth = 0; pid > 1 && depth < kDepthMax; ++depth) {
    if (pid == ancestor) return true;
    pid = parent_of(pid);
  }
  return false;
}

bool has_environment(pid_t pid, std::string_view entry) {
  const std::string first = std::string(entry) + '\0';
  const std::string later = '\0' + first;
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/environ", pid);
  const std::string environment = read_small_file(path.data(), kEnvironmentBytesMax);
  return environment.starts_with(first) || environment.find(later) != std::string::npos;
}

std::vector<pid_t> processes_with_environment(std::string_view entry) {
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    if (has_environment(pid, entry)) found.push_back(pid);
  }
  const std::size_t marked = found.size();
  for (std::size_t i = 0; i < marked; ++i) {
    for (const pid_t child : descendants_of(found[i])) {
      if (std::find(found.begin(), found.end(), child) == found.end()) found.push_back(child);
    }
  }
  return found;
}

std::vector<std::string> command_line(pid_t pid) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/cmdline", pid);
  const std::string text = read_small_file(path.data(), kCommandLineBytesMax);
  std::vector<std::string> words;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find('\0', from), text.size());
    words.emplace_back(text, from, end - from);
    from = end + 1;
  }
  return words;
}

}  // namespace gpusched::shim
