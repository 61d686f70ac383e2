#include "node/process/hooks.h"

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
#include "node/output/folder_files.h"
#include "ops/trusted_path.h"

namespace gpusched {
namespace {

/// More hooks at once wait for their turn: threads are not for nothing.
constexpr std::size_t kWorkersMax = 256;
/// A killed program is gone by then, or the kernel holds it.
constexpr auto kGoneMax = std::chrono::seconds(1);
/// How often a program that runs is looked at for being given up.
constexpr int kGiveUpLookMs = 50;
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
bool read_output(int pipe, Steady::time_point due, const GiveUp& give_up, std::string& output) {
  char buffer[4096];
  while (true) {
    pollfd wanted{.fd = pipe, .events = POLLIN, .revents = 0};
    const int left = ms_until(due);
    const int ready = poll(&wanted, 1, give_up ? std::min(left, kGiveUpLookMs) : left);
    if (give_up && give_up()) return false;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && left > 0) continue;
    if (ready <= 0) return false;
    const ssize_t size = read(pipe, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    output.append(buffer, static_cast<std::size_t>(size));
    if (output.size() > 4 * sizeof buffer) output.erase(0, output.size() - sizeof buffer);
  }
}

/// Whether it ended before the time limit. It is not reaped: until then its number, which is its group's too,
/// is nobody else's.
bool wait_for(pid_t pid, Steady::time_point due, const GiveUp& give_up) {
  while (true) {
    siginfo_t ended{};
    const int failed = waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (failed == 0 && ended.si_pid == pid) return true;
    if (failed != 0 && errno != EINTR) return true;
    if (Steady::now() >= due || (give_up && give_up())) return false;
    usleep(2'000);
  }
}

/// Children that were killed and did not go: reaped whenever another program was run.
class LeftBehind {
 public:
  void add(pid_t pid) {
    const std::lock_guard lock(mutex_);
    pids_.push_back(pid);
  }
  void reap() {
    const std::lock_guard lock(mutex_);
    std::erase_if(pids_, [](pid_t pid) {
      int status = 0;
      return waitpid(pid, &status, WNOHANG) != 0;
    });
  }

 private:
  std::mutex mutex_;
  std::vector<pid_t> pids_;
};
LeftBehind& left_behind() {
  static LeftBehind all;
  return all;
}

}  // namespace

ScriptResult run_script(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment, Duration timeout,
                        const GiveUp& give_up) {
  left_behind().reap();
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
  const bool ended = read_output(ends[0], due, give_up, output) && wait_for(pid, due, give_up);
  close(ends[0]);
  kill(-pid, SIGKILL);  // Processes left in its group must not outlive it.
  const bool gone = ended || wait_for(pid, Steady::now() + kGoneMax, {});
  int status = 0;
  if (gone) waitpid(pid, &status, 0);
  if (!ended) {
    if (!gone) left_behind().add(pid);
    return {program + " did not end within " + std::to_string(timeout.ms() / 1'000) + " s and " +
            (gone ? "was killed" : "cannot be killed: the kernel holds pid " + std::to_string(pid))};
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const std::string how = WIFEXITED(status) ? "exited with " + std::to_string(WEXITSTATUS(status))
                                            : "was ended by signal " + std::to_string(WTERMSIG(status));
  const std::string said = last_line(std::move(output));
  return {program + " " + how + (said.empty() ? std::string() : ": " + said)};
}

std::string untrusted_hook(const std::string& program) {
  if (program.empty() || geteuid() != 0) return "";
  const std::optional<std::string> problem = ops::changeable_by_others(program);
  if (!problem) return "";
  return "the hook " + program +
         " is not run as root, because other users can change what it does: " + *problem;
}

ScriptHooks::Shared::Shared(HookOptions hook_options, Facts hook_facts)
    : options(std::move(hook_options)),
      facts(std::move(hook_facts)),
      event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ScriptHooks::Shared::~Shared() {
  if (event >= 0) close(event);
}

ScriptHooks::ScriptHooks(HookOptions options, Facts facts)
    : shared_(std::make_shared<Shared>(std::move(options), std::move(facts))),
      options_(shared_->options),
      facts_(shared_->facts) {}

ScriptHooks::~ScriptHooks() {
  shared_->stopping = true;
  std::unique_lock lock(shared_->mutex);
  shared_->queue.clear();
  shared_->idle.wait_for(lock, kGoneMax, [this] { return shared_->workers == 0; });
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
          std::string(kHookMark) + facts_.instance,
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
           .environment = {kPath, std::string(kHookMark) + facts_.instance, "GPU_SCHEDULER_HOOK=health",
                           "GPU_SCHEDULER_NODE=" + facts_.node_name}});
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

// All workers are busy: they end with the queue.
void ScriptHooks::enqueue(Work work) {
  const std::lock_guard lock(shared_->mutex);
  shared_->queue.push_back(std::move(work));
  if (shared_->workers >= kWorkersMax) return;
  ++shared_->workers;
  std::thread([shared = shared_] { run_worker(*shared); }).detach();
}

void ScriptHooks::run_worker(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  while (!shared.queue.empty() && !shared.stopping) {
    const Work work = std::move(shared.queue.front());
    shared.queue.pop_front();
    lock.unlock();
    std::string problem = carry_out(shared, work);
    lock.lock();
    if (shared.stopping) break;  // It was given up: that says nothing of it.
    shared.finished.push_back(
        {.kind = work.kind, .key = work.key, .problem = std::move(problem), .device = work.device});
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = write(shared.event, &one, sizeof one);
  }
  --shared.workers;
  shared.idle.notify_all();
}

std::vector<ScriptHooks::Finished> ScriptHooks::take_finished() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = read(shared_->event, &count, sizeof count);
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->finished, {});
}

std::string ScriptHooks::carry_out(const Shared& shared, const Work& work) {
  if (work.kind == Finished::Kind::kCheck) {
    std::string problem = check_machine(shared);
    if (!problem.empty() || work.program.empty()) return problem;
  }
  if (const std::string untrusted = untrusted_hook(work.program); !untrusted.empty()) return untrusted;
  std::vector<std::string> words = {work.program};
  if (work.kind == Finished::Kind::kReset)
    words.insert(words.end(), {"-c", shared.options.gpu_reset_command});
  const std::string problem = run_script(words, work.environment, shared.options.timeout, [&shared] {
                                return shared.stopping.load();
                              }).problem;
  if (problem.empty() || work.kind == Finished::Kind::kReset) return problem;
  const char* what = work.kind == Finished::Kind::kProlog   ? "the prolog "
                     : work.kind == Finished::Kind::kEpilog ? "the epilog "
                                                            : "the health script ";
  return what + problem;
}

std::string ScriptHooks::check_machine(const Shared& shared) {
  struct statvfs disk{};
  if (statvfs(shared.facts.data_folder.c_str(), &disk) != 0) {
    return "the data folder " + shared.facts.data_folder + " cannot be read: " + std::strerror(errno);
  }
  const auto free_mb = static_cast<int64_t>(disk.f_bavail * (disk.f_frsize / 1024) / 1024);
  const auto total_mb = static_cast<int64_t>(disk.f_blocks * (disk.f_frsize / 1024) / 1024);
  const int64_t free_mb_min = shared.options.disk_free_mb_min >= 0 ? shared.options.disk_free_mb_min
                                                                   : std::min<int64_t>(512, total_mb / 20);
  if (free_mb < free_mb_min) {
    return "the disk of " + shared.facts.data_folder + " has " + std::to_string(free_mb) +
           " MB left, less than " + std::to_string(free_mb_min) +
           " MB; free some space (old output is under attempts/)";
  }
  if (disk.f_files > 0 && disk.f_favail < 1'000) {
    return "the disk of " + shared.facts.data_folder + " has " + std::to_string(disk.f_favail) +
           " free inodes left; remove files there";
  }
  for (const std::string* hook : {&shared.options.prolog, &shared.options.epilog}) {
    if (std::string untrusted = untrusted_hook(*hook); !untrusted.empty()) return untrusted;
  }
  // Makes the attempts' folder again if somebody removed it.
  if (const Result<Unit> made = make_attempts_folder(shared.facts.data_folder); !made)
    return made.error().message + "; no attempt can start without it";
  return shared.facts.fault ? shared.facts.fault() : std::string();
}

}  // namespace gpusched
