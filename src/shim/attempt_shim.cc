#include "shim/attempt_shim.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/time.h"
#include "shim/log_bound.h"
#include "shim/processes.h"
#include "shim/protocol.h"

namespace gpusched::shim {
namespace {

constexpr Duration kKillPauseFirst = milliseconds(1);
constexpr Duration kKillPauseMax = milliseconds(100);
constexpr Duration kResendPause = milliseconds(10);
constexpr Duration kDiskPause = milliseconds(200);
constexpr Duration kContactPauseMin = milliseconds(20);
constexpr Duration kContactPauseMax = seconds(1);
constexpr std::size_t kChildStackBytes = 64 * 1024;

Time clock_now(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return Time{int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}
/// Counts while the machine sleeps, so that a promise to be dead after a silence holds.
Time boot_now() { return clock_now(CLOCK_BOOTTIME); }
Time wall_now() { return clock_now(CLOCK_REALTIME); }

timespec to_timespec(Duration span) {
  const int64_t ns = std::max<int64_t>(span.ns, 0);
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

std::string error_words(int error) {
  const char* words = strerrordesc_np(error);
  const char* name = strerrorname_np(error);
  return std::string(words == nullptr ? "unknown error" : words) + " (" + (name == nullptr ? "?" : name) +
         ")";
}

/// What the new process needs between clone and execve. It shares our memory and must not allocate.
struct ExecPlan {
  pid_t parent = 0;
  int input = -1;
  int output = -1;
  int error_output = -1;
  int folder = -1;
  const char* working_directory = nullptr;  ///< Null: `folder`.
  char* const* paths = nullptr;             ///< Tried in order; ends with null.
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  bool in_directory = false;  ///< Result: the working directory was entered.
  bool failed = false;        ///< Result: there is no command, because of `error`.
  int error = 0;
};

int exec_child(void* argument) {
  ExecPlan& plan = *static_cast<ExecPlan*>(argument);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // The shim died before the line above could help.
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  dup2(plan.input, STDIN_FILENO);
  dup2(plan.output, STDOUT_FILENO);
  dup2(plan.error_output, STDERR_FILENO);
  const int entered = plan.working_directory == nullptr ? fchdir(plan.folder) : chdir(plan.working_directory);
  if (entered != 0) {
    plan.error = errno;
    plan.failed = true;
    _exit(127);
  }
  plan.in_directory = true;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  plan.error = ENOENT;
  for (char* const* path = plan.paths; *path != nullptr; ++path) {
    execve(*path, plan.arguments, plan.environment);
    // As a shell does: what exists but may not run is a better answer than what does not exist.
    if (errno != ENOENT && errno != ENOTDIR && plan.error == ENOENT) plan.error = errno;
  }
  plan.failed = true;
  _exit(127);
}

/// The value of PATH in an environment block; the system's default when there is none.
std::string search_path(char* const* environment) {
  for (char* const* entry = environment; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "PATH=", 5) == 0) return *entry + 5;
  }
  return "/usr/local/bin:/usr/bin:/bin";
}

std::vector<std::string> command_candidates(const char* command, char* const* environment) {
  if (std::strchr(command, '/') != nullptr || *command == '\0') return {command};
  std::vector<std::string> candidates;
  const std::string folders = search_path(environment);
  std::size_t from = 0;
  while (from <= folders.size()) {
    const std::size_t end = std::min(folders.find(':', from), folders.size());
    const std::string folder = folders.substr(from, end - from);
    candidates.push_back((folder.empty() ? "." : folder) + "/" + command);
    from = end + 1;
  }
  return candidates;
}

class AttemptShim {
 public:
  AttemptShim(const ShimContext& context, const StartView& request) : context_(context), request_(request) {}

  void run() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!make_folder()) return;
    silent_since_ = last_contact(boot_now());
    if (may_start() && start_command()) {
      send(Event{.kind = EventKind::kStarted,
                 .key = request_.key,
                 .pid = child_,
                 .shim_pid = getpid(),
                 .started_unix_ns = outcome_.started_unix_ns});
      supervise();
    }
    outcome_.ended_unix_ns = wall_now().ns;
    record_outcome();
    send(Event{.kind = EventKind::kEnded, .key = request_.key, .outcome = outcome_});
    flush_events();
  }

 private:
  enum class Phase { kRunning, kGrace, kKilling };

  /// The attempt's folder comes to be exactly once: whoever finds it there does not run the attempt.
  bool make_folder() {
    const std::string folder = key_text(request_.key);
    int made = take_spare_folder(folder);
    if (made != 0 && made != EEXIST) {
      made = mkdirat(context_.attempts_folder, folder.c_str(), 0750) == 0 ? 0 : errno;
    }
    if (made == EEXIST) {
      send(Event{.kind = EventKind::kExists, .key = request_.key});
      flush_events();
      return false;
    }
    if (made != 0) {
      fail_start("cannot make the attempt's folder " + folder + ": " + error_words(made));
      return false;
    }
    folder_ = openat(context_.attempts_folder, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_ >= 0) return true;
    fail_start("cannot open the attempt's folder " + folder + ": " + error_words(errno));
    return false;
  }

  /// 0, or why there is none; EEXIST: the attempt has its folder already.
  int take_spare_folder(const std::string& folder) {
    if (*request_.spare_folder == '\0') return ENOENT;
    const std::string spare = std::string("../") + kSpareFolder + "/" + request_.spare_folder;
    const int renamed = renameat2(context_.attempts_folder, spare.c_str(), context_.attempts_folder,
                                  folder.c_str(), RENAME_NOREPLACE);
    return renamed == 0 ? 0 : errno;
  }

  /// For failures before there is a place for the outcome: only the agent learns of it.
  void fail_start(std::string detail) {
    outcome_.cause = Cause::kStartFailed;
    outcome_.detail = std::move(detail);
    outcome_.ended_unix_ns = wall_now().ns;
    send(Event{.kind = EventKind::kEnded, .key = request_.key, .outcome = outcome_});
    flush_events();
  }

  int open_output(const char* name) {
    return openat(folder_, name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
  }

  bool start_command() {
    outcome_.started_unix_ns = wall_now().ns;
    ExecPlan plan{.parent = getpid(),
                  .input = context_.null_input,
                  .output = output_ = open_output(kStdoutFile),
                  .error_output = error_output_ = open_output(kStderrFile),
                  .folder = folder_,
                  .arguments = request_.arguments.data(),
                  .environment = request_.environment.data()};
    outcome_.cause = Cause::kStartFailed;
    if (plan.output < 0 || plan.error_output < 0) {
      outcome_.detail = "cannot make the output files: " + error_words(errno);
      return false;
    }
    if (*request_.working_directory != '\0') plan.working_directory = request_.working_directory;
    const std::vector<std::string> candidates =
        command_candidates(request_.arguments.front(), plan.environment);
    std::vector<char*> paths;
    for (const std::string& path : candidates) paths.push_back(const_cast<char*>(path.c_str()));
    paths.push_back(nullptr);
    plan.paths = paths.data();

    alignas(16) static char stack[kChildStackBytes];
    child_ = clone(exec_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
    const int clone_error = errno;
    if (child_ < 0) {
      outcome_.detail = "cannot make a process: " + error_words(clone_error);
      return false;
    }
    if (!plan.failed) {
      outcome_.cause = Cause::kUnspecified;
      return true;
    }
    waitpid(child_, nullptr, 0);
    outcome_.detail = plan.in_directory
                          ? "cannot start '" + std::string(request_.arguments.front())
                          : "cannot enter the working directory '" + std::string(request_.working_directory);
    outcome_.detail += "': " + error_words(plan.error);
    if (plan.in_directory) end_as_a_shell_would(plan.error);
    return false;
  }

  /// A command that is not there or may not run is the job's own mistake: trying again changes nothing. It
  /// ends with a shell's exit code for that, and its error output says why.
  void end_as_a_shell_would(int error) {
    const bool absent = error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
    const bool unfit = error == EACCES || error == EPERM || error == ENOEXEC || error == EISDIR;
    if (!absent && !unfit) return;
    outcome_.cause = Cause::kExited;
    outcome_.exit_code = absent ? 127 : 126;
    const int file = openat(folder_, kStderrFile, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0) return;  // The outcome has it too.
    const std::string line = outcome_.detail + "\n";
    static_cast<void>(!write(file, line.data(), line.size()));
    close(file);
  }

  /// An order may have lain about for so long that its attempt is taken for over already.
  bool may_start() {
    if (!contact_lost(boot_now())) return true;
    outcome_.cause = Cause::kContactLost;
    outcome_.started_unix_ns = wall_now().ns;
    outcome_.detail =
        "not started: no contact to the scheduler for " + std::to_string(request_.lost_contact.ms()) + " ms";
    return false;
  }

  void supervise() {
    const Time started = boot_now();
    if (request_.max_runtime.ns > 0) deadline_ = started + request_.max_runtime;
    LogBound logs(folder_, output_, error_output_, request_.log_bytes_max);
    Time next_log_look = started + LogBound::kLookFirst;
    while (true) {
      reap();
      if (none_left_) break;
      flush_events_now();
      const Time now = boot_now();
      advance(now);
      if (now >= next_log_look) next_log_look = now + logs.look(now, wall_now());
      wait_for_signal(std::min(next_wake(now), next_log_look) - now);
    }
    logs.finish(wall_now());
    finish_outcome();
  }

  void advance(Time now) {
    if (child_ended_ && phase_ == Phase::kRunning) phase_ = Phase::kKilling;
    if (phase_ == Phase::kRunning) {
      if (stop_wanted_) begin_stop(Cause::kStopped, now);
      if (now >= deadline_) begin_stop(Cause::kTimeout, now);
      if (contact_lost(now)) begin_stop(Cause::kContactLost, now);
    }
    if (phase_ == Phase::kGrace) {
      if (stop_wanted_)
        kill_at_ = std::min(kill_at_, now + stop_grace_);  // A later order may be less patient.
      stop_wanted_ = false;
      if (now >= kill_at_) phase_ = Phase::kKilling;
    }
    if (phase_ == Phase::kKilling) kill_round();
  }

  void begin_stop(Cause cause, Time now) {
    if (phase_ != Phase::kRunning) return;
    phase_ = Phase::kGrace;
    outcome_.cause = cause;
    kill_at_ = now + (cause == Cause::kStopped ? stop_grace_ : request_.grace);
    stop_wanted_ = false;
    kill(-child_, SIGTERM);  // Not reaped yet, so that the group is surely ours.
  }

  bool contact_lost(Time now) {
    if (request_.lost_contact.ns <= 0) return false;
    silent_since_ = std::max(silent_since_, last_contact(silent_since_));
    return now - silent_since_ >= request_.lost_contact;
  }

  /// What the agent says of it; `otherwise` when it never said anything in this boot.
  Time last_contact(Time otherwise) const {
    int64_t contact = 0;
    const bool known = pread(context_.contact, &contact, sizeof contact, 0) == sizeof contact;
    return known && contact <= boot_now().ns ? Time{contact} : otherwise;
  }

  void kill_round() {
    for (const pid_t pid : descendants_of(getpid())) kill(pid, SIGKILL);
  }

  Time next_wake(Time now) {
    Time wake = kNever;
    if (!unsent_.empty()) wake = now + kResendPause;
    switch (phase_) {
      case Phase::kRunning:
        wake = std::min(wake, deadline_);
        if (request_.lost_contact.ns > 0) {
          const Duration pause{
              std::clamp(request_.lost_contact.ns / 8, kContactPauseMin.ns, kContactPauseMax.ns)};
          wake = std::min(wake, now + pause);
        }
        return wake;
      case Phase::kGrace:
        return std::min(wake, kill_at_);
      case Phase::kKilling:
        kill_pause_ = std::min(kill_pause_ * 2, kKillPauseMax);
        return std::min(wake, now + kill_pause_);
    }
    UNREACHABLE();
  }

  void wait_for_signal(Duration span) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, stop_signal());
    siginfo_t info{};
    const timespec limit = to_timespec(std::min(span, hours(24)));
    const int signal = sigtimedwait(&set, &info, &limit);
    if (signal == SIGTERM) want_stop(request_.grace);
    if (signal == stop_signal()) want_stop(milliseconds(info.si_value.sival_int));
  }

  void want_stop(Duration grace) {
    stop_grace_ = stop_wanted_ ? std::min(stop_grace_, grace) : grace;
    stop_wanted_ = true;
  }

  void reap() {
    while (true) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid == 0) return;
      if (pid < 0) {
        if (errno == EINTR) continue;
        none_left_ = true;
        return;
      }
      if (pid != child_ || child_ended_) continue;
      child_ended_ = true;
      if (WIFEXITED(status)) outcome_.exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
    }
  }

  void finish_outcome() {
    switch (outcome_.cause) {
      case Cause::kStopped:
        outcome_.detail = "stopped by order";
        return;
      case Cause::kTimeout:
        outcome_.detail =
            "ended at its maximum runtime of " + std::to_string(request_.max_runtime.ms()) + " ms";
        return;
      case Cause::kContactLost:
        outcome_.detail =
            "no contact to the scheduler for " + std::to_string(request_.lost_contact.ms()) + " ms";
        return;
      default:
        break;
    }
    outcome_.cause = outcome_.signal != 0 ? Cause::kSignaled : Cause::kExited;
    if (outcome_.signal == 0) return;
    const char* name = sigabbrev_np(outcome_.signal);
    outcome_.detail = name == nullptr ? "ended by a signal" : std::string("ended by SIG") + name;
  }

  /// Tries until it is on disk: a full disk delays an outcome and never loses it.
  void record_outcome() {
    const std::string text = format_outcome(request_.key, outcome_);
    while (true) {
      const int file = openat(folder_, kOutcomeFile, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
      if (file >= 0) {
        const ssize_t written = write(file, text.data(), text.size());
        close(file);
        if (written == static_cast<ssize_t>(text.size())) return;
      } else if (errno == ENOENT) {
        return;  // The folder itself was removed: the agent is told, and nothing else can be done.
      }
      const timespec pause = to_timespec(kDiskPause);
      nanosleep(&pause, nullptr);
    }
  }

  void send(const Event& event) {
    unsent_.push_back(encode(event));
    flush_events_now();
  }

  void flush_events_now() {
    while (!unsent_.empty() && send_first(MSG_DONTWAIT)) unsent_.erase(unsent_.begin());
  }
  void flush_events() {
    while (!unsent_.empty() && send_first(0)) unsent_.erase(unsent_.begin());
  }

  /// False only when there is no room now. An agent that is gone finds the outcome on disk.
  bool send_first(int flags) {
    const std::string& packet = unsent_.front();
    while (true) {
      if (::send(context_.events, packet.data(), packet.size(), flags | MSG_NOSIGNAL) >= 0) return true;
      if (errno == EINTR) continue;
      return errno != EAGAIN && errno != ENOBUFS;
    }
  }

  const ShimContext& context_;
  const StartView& request_;
  Outcome outcome_;
  std::vector<std::string> unsent_;
  int folder_ = -1;
  int output_ = -1;        ///< Our own end of the command's, to bound what is kept.
  int error_output_ = -1;  ///< The same.
  pid_t child_ = -1;
  bool child_ended_ = false;
  bool none_left_ = false;
  Phase phase_ = Phase::kRunning;
  bool stop_wanted_ = false;
  Duration stop_grace_;
  Duration kill_pause_ = kKillPauseFirst;
  Time deadline_ = kNever;
  Time kill_at_ = kNever;
  Time silent_since_;
};

}  // namespace

void block_shim_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, stop_signal()}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

void run_attempt_shim(const ShimContext& context, std::string_view packet) {
  const std::optional<StartView> request = decode_start(packet);
  if (!request) _exit(2);  // The agent encodes what we decode: this is another version's agent.
  AttemptShim shim(context, *request);
  shim.run();
  _exit(0);
}

}  // namespace gpusched::shim
