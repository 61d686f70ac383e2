#include "node/hooks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "log/log.h"

namespace gpusched {
namespace {

constexpr std::size_t kWorkersMax = 8;
constexpr std::size_t kOutputKept = 400;
constexpr const char* kPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

using Steady = std::chrono::steady_clock;

int ms_until(Steady::time_point due) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Steady::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// The last line that holds something, bounded.
std::string last_line(std::string output) {
  while (!output.empty() && (output.back() == '\n' || output.back() == ' ')) output.pop_back();
  const std::size_t line = output.rfind('\n');
  if (line != std::string::npos) output.erase(0, line + 1);
  return clean_text(output, kOutputKept);
}

/// Starts the program with its output in a pipe; the pid, or the negative error.
int start(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
          int output) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t defaults;
  sigfillset(&defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, arguments.front().c_str(), &files, &attributes,
                                pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? pid : -error;
}

/// Reads until everybody closed the pipe or the time is over; keeps the end.
bool read_output(int pipe, Steady::time_point due, std::string& output) {
  char buffer[4096];
  while (true) {
    pollfd wanted{.fd = pipe, .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, ms_until(due));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t size = read(pipe, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    output.append(buffer, static_cast<std::size_t>(size));
    if (output.size() > 4 * sizeof buffer) output.erase(0, output.size() - sizeof buffer);
  }
}

/// The exit status once it ended; nothing at the time limit.
bool wait_for(pid_t pid, Steady::time_point due, int& status) {
  while (true) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return true;
    if (ended < 0 && errno != EINTR) return true;
    if (Steady::now() >= due) return false;
    usleep(2'000);
  }
}

}  // namespace

ScriptResult run_script(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment, Duration timeout) {
  const std::string& program = arguments.front();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {program + " was not run: " + std::strerror(errno)};
  const int pid = start(arguments, environment, ends[1]);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return {program + " cannot be run: " + std::strerror(-pid)};
  }
  const Steady::time_point due = Steady::now() + std::chrono::nanoseconds(timeout.ns);
  std::string output;
  int status = 0;
  const bool ended = read_output(ends[0], due, output) && wait_for(pid, due, status);
  close(ends[0]);
  kill(-pid, SIGKILL);  // What it left in its group must not outlive it.
  if (!ended) {
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return {program + " did not end within " + std::to_string(timeout.ms() / 1'000) + " s and was killed"};
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const std::string how = WIFEXITED(status) ? "exited with " + std::to_string(WEXITSTATUS(status))
                                            : "was ended by signal " + std::to_string(WTERMSIG(status));
  const std::string said = last_line(std::move(output));
  return {program + " " + how + (said.empty() ? std::string() : ": " + said)};
}

ScriptHooks::ScriptHooks(HookOptions options, Facts facts)
    : options_(std::move(options)),
      facts_(std::move(facts)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ScriptHooks::~ScriptHooks() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  queue_.clear();
  idle_.wait(lock, [this] { return workers_ == 0; });
  lock.unlock();
  if (event_ >= 0) close(event_);
}

std::vector<std::string> ScriptHooks::environment_of(const AttemptKey& key,
                                                     const std::vector<HeldDevice>& devices,
                                                     const char* hook) const {
  std::string uuids;
  for (const HeldDevice& device : devices) {
    if (device.index >= facts_.device_uuids.size()) continue;
    uuids += (uuids.empty() ? "" : ",") + facts_.device_uuids[device.index];
  }
  return {kPath,
          "GPU_SCHEDULER_HOOK=" + std::string(hook),
          "GPU_SCHEDULER_NODE=" + facts_.node_name,
          "GPU_SCHEDULER_JOB_ID=job-" + std::to_string(key.job.value),
          "GPU_SCHEDULER_ATTEMPT_NUMBER=" + std::to_string(key.attempt),
          "GPU_SCHEDULER_GPU_UUIDS=" + uuids};
}

void ScriptHooks::prolog(const AttemptKey& key, const std::vector<HeldDevice>& devices) {
  enqueue({.kind = Finished::Kind::kProlog,
           .key = key,
           .program = options_.prolog,
           .environment = environment_of(key, devices, "prolog")});
}

void ScriptHooks::epilog(const AttemptKey& key, const std::vector<HeldDevice>& devices,
                         const v1::Outcome& outcome) {
  std::vector<std::string> environment = environment_of(key, devices, "epilog");
  environment.push_back("GPU_SCHEDULER_CAUSE=" + v1::Outcome::Cause_Name(outcome.cause()));
  environment.push_back("GPU_SCHEDULER_EXIT_CODE=" + std::to_string(outcome.exit_code()));
  enqueue({.kind = Finished::Kind::kEpilog,
           .key = key,
           .program = options_.epilog,
           .environment = std::move(environment)});
}

void ScriptHooks::check() {
  enqueue({.kind = Finished::Kind::kCheck,
           .key = {},
           .program = options_.health_script,
           .environment = {kPath, "GPU_SCHEDULER_HOOK=health", "GPU_SCHEDULER_NODE=" + facts_.node_name}});
}

void ScriptHooks::reboot(const std::string& reason) {
  log_event(LogLevel::kWarning, "agent", "reboot", {},
            {{"reason", reason}, {"command", options_.reboot_command}});
  if (options_.reboot_command.empty()) return;
  const std::vector<std::string> arguments = {"/bin/sh", "-c", options_.reboot_command};
  const std::vector<std::string> environment = {kPath, "GPU_SCHEDULER_HOOK=reboot",
                                                "GPU_SCHEDULER_NODE=" + facts_.node_name,
                                                "GPU_SCHEDULER_REASON=" + reason};
  std::thread([arguments, environment, timeout = options_.timeout] {
    const ScriptResult result = run_script(arguments, environment, timeout);
    if (!result.problem.empty())
      log_event(LogLevel::kError, "agent", "reboot_failed", {}, {{"problem", result.problem}});
  }).detach();
}

void ScriptHooks::reset_device(uint32_t index) {
  const std::string uuid = index < facts_.device_uuids.size() ? facts_.device_uuids[index] : std::string();
  enqueue({.kind = Finished::Kind::kReset,
           .key = {},
           .program = "/bin/sh",
           .environment = {kPath, "GPU_SCHEDULER_HOOK=gpu_reset", "GPU_SCHEDULER_NODE=" + facts_.node_name,
                           "GPU_SCHEDULER_GPU_UUID=" + uuid},
           .device = index});
}

void ScriptHooks::enqueue(Work work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  if (workers_ >= kWorkersMax || workers_ >= queue_.size()) return;
  ++workers_;
  std::thread([this] { run_worker(); }).detach();
}

void ScriptHooks::run_worker() {
  std::unique_lock lock(mutex_);
  while (!queue_.empty() && !stopping_) {
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::string problem = carry_out(work);
    lock.lock();
    finished_.push_back(
        {.kind = work.kind, .key = work.key, .problem = std::move(problem), .device = work.device});
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = write(event_, &one, sizeof one);
  }
  --workers_;
  idle_.notify_all();
}

std::vector<ScriptHooks::Finished> ScriptHooks::take_finished() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = read(event_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(finished_, {});
}

std::string ScriptHooks::carry_out(const Work& work) const {
  if (work.kind == Finished::Kind::kCheck) {
    std::string problem = check_machine();
    if (!problem.empty() || work.program.empty()) return problem;
  }
  std::vector<std::string> words = {work.program};
  if (work.kind == Finished::Kind::kReset) words.insert(words.end(), {"-c", options_.gpu_reset_command});
  const std::string problem = run_script(words, work.environment, options_.timeout).problem;
  if (problem.empty() || work.kind == Finished::Kind::kReset) return problem;
  const char* what = work.kind == Finished::Kind::kProlog   ? "the prolog "
                     : work.kind == Finished::Kind::kEpilog ? "the epilog "
                                                            : "the health script ";
  return what + problem;
}

std::string ScriptHooks::check_machine() const {
  struct statvfs disk{};
  if (statvfs(facts_.data_folder.c_str(), &disk) != 0) {
    return "the data folder " + facts_.data_folder + " cannot be read: " + std::strerror(errno);
  }
  const auto free_mb = static_cast<int64_t>(disk.f_bavail * (disk.f_frsize / 1024) / 1024);
  const auto total_mb = static_cast<int64_t>(disk.f_blocks * (disk.f_frsize / 1024) / 1024);
  const int64_t free_mb_min =
      options_.disk_free_mb_min >= 0 ? options_.disk_free_mb_min : std::min<int64_t>(512, total_mb / 20);
  if (free_mb < free_mb_min) {
    return "the disk of " + facts_.data_folder + " has " + std::to_string(free_mb) + " MB left, less than " +
           std::to_string(free_mb_min) + " MB; free some (old output is under attempts/)";
  }
  if (disk.f_files > 0 && disk.f_favail < 1'000) {
    return "the disk of " + facts_.data_folder + " has " + std::to_string(disk.f_favail) +
           " free inodes left; remove files there";
  }
  return facts_.fault ? facts_.fault() : std::string();
}

}  // namespace gpusched
