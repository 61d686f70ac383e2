#include "ops/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <ctime>

#include "base/check.h"

namespace gpusched {
namespace {

constexpr int kLookMs = 50;
constexpr std::size_t kOutputMax = 1024 * 1024;

Time monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Time{int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> found;
  for (const std::string& word : words) found.push_back(const_cast<char*>(word.c_str()));
  found.push_back(nullptr);
  return found;
}

/// Reads once from each of both streams that has something; false: neither had.
bool read_some(std::array<pollfd, 2>& sources, CommandResult& result) {
  bool any = false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].fd < 0 || sources[i].revents == 0) continue;
    std::array<char, 4096> buffer{};
    const ssize_t size = read(sources[i].fd, buffer.data(), buffer.size());
    if (size <= 0) sources[i].fd = -1;
    std::string& sink = i == 0 ? result.output : result.errors;
    if (size > 0 && sink.size() < kOutputMax) sink.append(buffer.data(), static_cast<std::size_t>(size));
    any = any || size > 0;
  }
  return any;
}

/// An end to read from that has `input` and then ends; nobody waits to write. -1: there is none.
int input_end(std::string_view input) {
  if (input.empty()) return open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return -1;
  const bool whole = write(ends[1], input.data(), input.size()) == static_cast<ssize_t>(input.size());
  close(ends[1]);
  if (whole && fcntl(ends[0], F_SETFL, 0) == 0) return ends[0];
  close(ends[0]);
  return -1;
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                          Duration patience, const std::atomic<bool>* stop, std::string_view input) {
  CHECK(input.size() <= kCommandInputMax);
  CommandResult result;
  std::array<int, 2> output{-1, -1};
  std::array<int, 2> errors{-1, -1};
  const int source = input_end(input);
  if (source < 0 || pipe2(output.data(), O_CLOEXEC) != 0 || pipe2(errors.data(), O_CLOEXEC) != 0) {
    for (const int each : {source, output[0], output[1]}) close(each);
    return result;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, source, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
  // Our sockets are not all closed on exec; what a program leaves behind would hold their ports.
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, words.front().c_str(), &actions, &attributes, pointers(words).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(source);
  close(output[1]);
  close(errors[1]);
  const Time give_up = monotonic_now() + patience;
  bool killed = false;
  std::array<pollfd, 2> sources = {pollfd{.fd = output[0], .events = POLLIN, .revents = 0},
                                   pollfd{.fd = errors[0], .events = POLLIN, .revents = 0}};
  while (error == 0) {
    poll(sources.data(), sources.size(), kLookMs);
    read_some(sources, result);
    const bool late = monotonic_now() >= give_up || (stop != nullptr && stop->load());
    if (late && !killed) {
      kill(-pid, SIGKILL);  // It leads a session of its own.
      killed = true;
    }
    if (sources[0].fd >= 0 && sources[1].fd >= 0 && !killed) continue;
    int status = 0;
    const pid_t ended = waitpid(pid, &status, killed ? 0 : WNOHANG);
    if (ended == 0) continue;
    if (ended == pid && !killed && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    // Its last words are still in the pipes; whoever it started may hold them open for longer.
    while (monotonic_now() < give_up && poll(sources.data(), sources.size(), 0) > 0 &&
           read_some(sources, result)) {
    }
    break;
  }
  close(output[0]);
  close(errors[0]);
  return result;
}

}  // namespace gpusched
