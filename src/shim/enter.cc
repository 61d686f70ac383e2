#include "shim/enter.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "shim/processes.h"
#include "shim/start_child.h"

extern char** environ;

namespace gpusched::shim {
namespace {

constexpr int kCannotEnter = 125;
constexpr std::size_t kEnvironmentBytesMax = 8 << 20;

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// "1000:100:100,44"
std::string format_user(const Credentials& user) {
  std::string text = std::to_string(user.uid) + ':' + std::to_string(user.gid) + ':';
  for (const uint32_t group : user.groups) text += std::to_string(group) + ',';
  return text;
}

bool parse_user(std::string_view text, Credentials& user) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return false;
  if (!parse_number(parts[0], user.uid) || !parse_number(parts[1], user.gid)) return false;
  if (parts.size() < 3) return true;
  for (const std::string_view group : split(parts[2], ',')) {
    if (!parse_number(group, user.groups.emplace_back())) return false;
  }
  return true;
}

int fail(const std::string& what, int error) {
  std::fprintf(stderr, "cannot enter the job's box: %s: %s\n", what.c_str(), error_words(error).c_str());
  return kCannotEnter;
}

std::string proc(int64_t pid, const char* file) { return "/proc/" + std::to_string(pid) + '/' + file; }

/// What stands behind `name` in /proc/<pid>/status.
std::string status_word(int64_t pid, std::string_view name) {
  const std::string text = read_small_file(proc(pid, "status").c_str(), 16 * 1024);
  const std::size_t at = text.find(name);
  if (at == std::string::npos) return {};
  const std::size_t from = text.find_first_not_of(" \t", at + name.size());
  return from == std::string::npos ? std::string()
                                   : text.substr(from, text.find_first_of(" \t\n", from) - from);
}

/// The attempt's command's environment with ours over it.
std::vector<std::string> merged_environment(int64_t pid) {
  std::map<std::string, std::string, std::less<>> entries;
  const auto add = [&entries](std::string_view entry) {
    const std::size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string_view::npos) return;
    entries[std::string(entry.substr(0, equals))] = std::string(entry.substr(equals + 1));
  };
  const std::string theirs = read_small_file(proc(pid, "environ").c_str(), kEnvironmentBytesMax);
  for (const std::string_view entry : split(theirs, '\0')) add(entry);
  for (char** entry = environ; *entry != nullptr; ++entry) add(*entry);
  std::vector<std::string> words;
  for (const auto& [name, value] : entries) words.push_back(name + '=' + value);
  return words;
}

/// To see another user's limits takes a right that even root may lack: asked again as that user.
void copy_limits(int64_t pid) {
  const auto target = static_cast<pid_t>(pid);
  for (int resource = 0; resource < RLIMIT_NLIMITS; ++resource) {
    rlimit value{};
    if (prlimit(target, static_cast<__rlimit_resource>(resource), nullptr, &value) != 0) continue;
    static_cast<void>(setrlimit(static_cast<__rlimit_resource>(resource), &value));
  }
}

/// As the attempt's command has them: cores, mask, what the kernel thinks of it.
void copy_settings(int64_t pid) {
  const auto target = static_cast<pid_t>(pid);
  cpu_set_t cores;
  if (sched_getaffinity(target, sizeof cores, &cores) == 0) {
    static_cast<void>(sched_setaffinity(0, sizeof cores, &cores));
  }
  const std::string score = read_small_file(proc(pid, "oom_score_adj").c_str(), 32);
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file >= 0) {
    static_cast<void>(!write(file, score.data(), score.size()));
    close(file);
  }
  const std::string mask = status_word(pid, "\nUmask:");
  if (!mask.empty()) umask(static_cast<mode_t>(std::strtoul(mask.c_str(), nullptr, 8)));
  if (status_word(pid, "\nNoNewPrivs:") == "1") prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/// Before the mount namespace changes: the groups' folders may not be seen from there.
int enter_cgroups(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/cgroup.procs";
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const bool entered = file >= 0 && write(file, "0", 1) == 1;
    const int error = errno;
    if (file >= 0) close(file);
    if (!entered) return fail(path, error);
  }
  return 0;
}

int enter_mounts(int64_t pid, int pidfd) {
  struct stat ours{};
  struct stat theirs{};
  if (stat("/proc/self/ns/mnt", &ours) != 0 || stat(proc(pid, "ns/mnt").c_str(), &theirs) != 0) {
    return fail("its mount namespace", errno);
  }
  if (ours.st_ino == theirs.st_ino) return 0;
  if (setns(pidfd, CLONE_NEWNS) == 0) return 0;
  // Made by the job itself, without us: whoever has no right to it stays outside.
  return geteuid() == 0 ? fail("its mount namespace", errno) : 0;
}

int enter_directory(const EnterRequest& request, int working_folder) {
  if (!request.directory.empty()) {
    if (chdir(request.directory.c_str()) == 0) return 0;
    return fail("the directory '" + request.directory + "'", errno);
  }
  if (working_folder >= 0 && fchdir(working_folder) == 0) return 0;
  return chdir("/") == 0 ? 0 : fail("the directory '/'", errno);
}

void take_terminal() {
  setsid();
  ioctl(STDIN_FILENO, TIOCSCTTY, 0);
}

/// The attempt's command's parent is its shim, whose name nobody else's process has.
bool is_command_of(const EnterRequest& request) {
  int64_t parent = 0;
  if (!parse_number(std::string_view(status_word(request.pid, "\nPPid:")), parent)) return false;
  const std::vector<std::string> words = command_line(static_cast<pid_t>(parent));
  return words.size() >= 2 && words[0] == "gpu-shim" && words[1] == request.title;
}

int execute(const EnterRequest& request, const std::vector<std::string>& environment) {
  std::vector<char*> entries;
  for (const std::string& entry : environment) entries.push_back(const_cast<char*>(entry.c_str()));
  entries.push_back(nullptr);
  std::vector<char*> words;
  for (const std::string& word : request.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int error = ENOENT;
  for (const std::string& path : command_candidates(words.front(), entries.data())) {
    execve(path.c_str(), words.data(), entries.data());
    if (errno != ENOENT && errno != ENOTDIR && error == ENOENT) error = errno;
  }
  std::fprintf(stderr, "cannot start '%s': %s\n", words.front(), error_words(error).c_str());
  return error == ENOENT ? 127 : 126;
}

}  // namespace

std::vector<std::string> enter_words(const std::string& shim_program, const EnterRequest& request) {
  std::vector<std::string> words = {shim_program, kEnterFlag, "pid=" + std::to_string(request.pid),
                                    "title=" + request.title};
  if (request.user) words.push_back("user=" + format_user(*request.user));
  for (const std::string& folder : request.cgroups) words.push_back("cgroup=" + folder);
  if (!request.directory.empty()) words.push_back("directory=" + request.directory);
  if (request.terminal) words.emplace_back("terminal=1");
  words.emplace_back("--");
  words.insert(words.end(), request.command.begin(), request.command.end());
  return words;
}

std::optional<EnterRequest> parse_enter_words(const std::vector<std::string>& words) {
  EnterRequest request;
  if (words.size() < 2 || words[1] != kEnterFlag) return std::nullopt;
  std::size_t at = 2;
  for (; at < words.size() && words[at] != "--"; ++at) {
    const std::string_view word = words[at];
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    if (name == "pid" && parse_number(value, request.pid)) continue;
    if (name == "user" && parse_user(value, request.user.emplace())) continue;
    if (name == "title") {
      request.title = value;
    } else if (name == "cgroup") {
      request.cgroups.emplace_back(value);
    } else if (name == "directory") {
      request.directory = value;
    } else if (name == "terminal") {
      request.terminal = true;
    } else {
      return std::nullopt;
    }
  }
  if (at + 1 >= words.size() || request.pid <= 0 || request.title.empty()) return std::nullopt;
  request.command.assign(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
  return request;
}

int run_enter(const std::vector<std::string>& words) {
  const std::optional<EnterRequest> request = parse_enter_words(words);
  if (!request) {
    std::fprintf(stderr, "gpu-shim --enter is run by gpu-agent\n");
    return kCannotEnter;
  }
  // Pinned first: everything that is read below is this process's, or nothing's.
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(request->pid), 0));
  if (pidfd < 0) return fail("its command has ended", errno);
  if (!is_command_of(*request)) return fail("its command has ended", ESRCH);
  const std::vector<std::string> environment = merged_environment(request->pid);
  const int working_folder = open(proc(request->pid, "cwd").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (request->terminal) take_terminal();
  if (const int status = enter_cgroups(request->cgroups); status != 0) return status;
  copy_limits(request->pid);
  copy_settings(request->pid);
  if (const int status = enter_mounts(request->pid, pidfd); status != 0) return status;
  if (request->user) {
    if (const int error = become(*request->user); error != 0) return fail("its user", error);
    copy_limits(request->pid);
  }
  if (const int status = enter_directory(*request, working_folder); status != 0) return status;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  return execute(*request, environment);
}

}  // namespace gpusched::shim
