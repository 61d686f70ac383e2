#include "shim/container/container_init.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim/container/container_tool.h"
#include "shim/processes.h"

extern char** environ;

namespace gpusched::shim {
namespace {

constexpr std::size_t kEnvironmentBytesMax = 8 * 1024 * 1024;
constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;

void say(const std::string& line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t wrote = write(kInitStatusDescriptor, line.data() + done, line.size() - done);
    if (wrote < 0 && errno != EINTR) return;  // The runner is gone, and the container soon is.
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
}

/// Entries that a runtime's own options cannot carry.
void take_environment() {
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() < kEnvironmentBytesMax) {
    const ssize_t size = read(kInitEnvironmentDescriptor, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find('\0', from), text.size());
    const std::string entry = text.substr(from, end - from);
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos && equals > 0)
      setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
    from = end + 1;
  }
}

/// How often the kernel killed a process of this container for memory, by its own control group.
int64_t oom_kills() {
  for (const char* path : {"/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"}) {
    const std::string text = read_small_file(path, 4096);
    const std::size_t at = text.find("oom_kill ");
    if (at == std::string::npos) continue;
    int64_t count = 0;
    std::from_chars(text.data() + at + 9, text.data() + text.size(), count);
    return count;
  }
  return 0;
}

/// 0 and the child's pid, or why there is none.
int start_command(char** words, pid_t& child) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(&child, words[0], nullptr, &attributes, words, environ);
  posix_spawnattr_destroy(&attributes);
  return error;
}

/// Waits until the command has ended; its wait status.
int supervise(pid_t child) {
  sigset_t all;
  sigfillset(&all);
  while (true) {
    int signal = 0;
    if (sigwait(&all, &signal) != 0) continue;
    if (signal != SIGCHLD) {
      kill(-child, signal);
      // A stopped process would run no handler before its SIGKILL.
      if (signal == SIGTERM) kill(-child, SIGCONT);
      continue;
    }
    while (true) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid <= 0) break;
      if (pid == child) return status;
    }
  }
}

template <typename Number>
Number number_after(std::string_view line, std::size_t at) {
  Number value = 0;
  if (at < line.size()) std::from_chars(line.data() + at, line.data() + line.size(), value);
  return value;
}

}  // namespace

InitStatus parse_init_status(std::string_view text) {
  InitStatus status;
  while (true) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return status;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == "started") status.started = true;
    if (line.starts_with("failed ")) status.start_error = number_after<int>(line, 7);
    if (line.starts_with("ended ")) {
      status.ended = true;
      status.wait_status = number_after<int>(line, 6);
      const std::size_t space = line.find(' ', 6);
      if (space != std::string_view::npos) status.oom_kills = number_after<int64_t>(line, space + 1);
    }
  }
}

bool is_container_init(int argc, char** argv) { return argc >= 3 && std::strcmp(argv[1], "--") == 0; }

int run_container_init(int argc, char** argv) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  fcntl(kInitStatusDescriptor, F_SETFD, FD_CLOEXEC);
  take_environment();
  close(kInitEnvironmentDescriptor);
  if (argc < 3) return kExitNotFound;

  pid_t child = -1;
  const int error = start_command(argv + 2, child);
  if (error != 0) {
    const char* name = strerrorname_np(error);
    std::fprintf(stderr, "cannot start '%s': %s (%s)\n", argv[2], strerrordesc_np(error),
                 name == nullptr ? "?" : name);
    say("failed " + std::to_string(error) + "\n");
    return error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
  }
  say("started\n");
  const int status = supervise(child);
  say("ended " + std::to_string(status) + " " + std::to_string(oom_kills()) + "\n");
  return WIFSIGNALED(status) ? kExitSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace gpusched::shim
