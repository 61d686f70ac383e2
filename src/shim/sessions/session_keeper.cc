// The keeper: one process for each interactive session, connection to a port or file read.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/limits.h"
#include "shim/file_source.h"
#include "shim/processes.h"
#include "shim/sessions/port_relay.h"
#include "shim/sessions/running_box.h"
#include "shim/sessions/session.h"

namespace gpusched::shim {
namespace {

constexpr Duration kHangUpGrace = seconds(2);   // Between SIGHUP and SIGKILL, when the client went away.
constexpr Duration kMarkedGrace = seconds(10);  // For processes left in the container that start again.
constexpr int kKillPauseMs = 5;
constexpr int kKillPauseMaxMs = 200;
constexpr std::size_t kPasswdBytesMax = 4u << 20;
constexpr const char* kSessionVariable = "GPU_SCHEDULER_SESSION";
constexpr int kExitNotFound = 127, kExitNotRunnable = 126;  // As a shell's.
constexpr int32_t kNoListener = -1;                         // In place of an errno: the port does not answer.

Time now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return Time{int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

void send_event(const SessionEvent& event) {
  const std::string packet = encode(event);
  while (send(kSessionSocket, packet.data(), packet.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

int fail(const std::string& code, const std::string& message) {
  send_event({.kind = SessionEvent::Kind::kFailed, .code = code, .message = message});
  return 1;
}

int fail(const Error& error) {
  if (error.code == ErrorCode::kNotFound) return fail("job_not_running", error.message);
  return fail(error.code == ErrorCode::kUnavailable ? "unprocessable" : "session_failed", error.message);
}

std::optional<SessionRequest> read_request() {
  struct stat facts{};
  if (fstat(kSessionRequestFile, &facts) != 0) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  if (pread(kSessionRequestFile, bytes.data(), bytes.size(), 0) != facts.st_size) return std::nullopt;
  close(kSessionRequestFile);
  return decode_session_request(bytes);
}

/// The user's shell by /etc/passwd, as it is in the box; nothing where neither it nor $SHELL names one.
std::string login_shell(uint32_t uid) {
  const std::string users = read_small_file("/etc/passwd", kPasswdBytesMax);
  const std::string wanted = std::to_string(uid);
  std::size_t at = 0;
  while (at < users.size()) {
    const std::size_t end = std::min(users.find('\n', at), users.size());
    const std::string line = users.substr(at, end - at);
    at = end + 1;
    std::vector<std::string> fields;
    std::size_t from = 0;
    for (std::size_t colon = 0; colon != std::string::npos; from = colon + 1) {
      colon = line.find(':', from);
      fields.push_back(line.substr(from, colon == std::string::npos ? colon : colon - from));
    }
    if (fields.size() >= 7 && fields[2] == wanted && access(fields[6].c_str(), X_OK) == 0) return fields[6];
  }
  const char* const named = getenv("SHELL");
  if (named != nullptr && *named == '/' && access(named, X_OK) == 0) return named;
  return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
}

/// Failure between fork and exec, as the parent reads it from a pipe that exec closes.
struct Report {
  int32_t error = 0;
  std::array<char, 256> words{};
};

class Keeper {
 public:
  explicit Keeper(SessionRequest request) : request_(std::move(request)) {}

  int run() {
    // An agent that dies before it said anything leaves its end closed, which the loop below sees.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE}) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signals_ = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    Result<RunningBox> box =
        RunningBox::of(static_cast<pid_t>(request_.target), request_.title, request_.identity);
    if (!box) return fail(box.error());
    is_container_ = box->is_container();
    if (!start(*box)) return 1;
    supervise();
    return 0;
  }

 private:
  bool start(const RunningBox& box) {
    std::array<int, 2> pipe_ends{};
    if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return fail("session_failed", "cannot create a pipe"), false;
    const pid_t pid = fork();
    if (pid < 0) return fail("session_failed", std::string("cannot fork: ") + std::strerror(errno)), false;
    if (pid == 0) {
      close(pipe_ends[0]);
      be_command(box, pipe_ends[1]);
    }
    child_ = pid;
    close(pipe_ends[1]);
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(descriptor);
    await_begin(pipe_ends[0]);
    Report report;
    const ssize_t size = read(pipe_ends[0], &report, sizeof report);
    close(pipe_ends[0]);
    if (size <= 0) {
      send_event({.kind = SessionEvent::Kind::kStarted});
      return true;
    }
    waitpid(child_, nullptr, 0);
    const std::string words(report.words.data());
    if (report.error == kNoListener) {
      return fail("unavailable",
                  "nothing answers on port " + std::to_string(request_.port) + " inside the job: " + words),
             false;
    }
    if (report.error == ENOENT || report.error == ENOTDIR || report.error == EACCES ||
        report.error == ENOEXEC) {
      // As a shell would end: a mistake in the command, no failure of ours.
      const bool absent = report.error == ENOENT || report.error == ENOTDIR;
      send_event({.kind = SessionEvent::Kind::kExited,
                  .exit_code = absent ? kExitNotFound : kExitNotRunnable,
                  .message = words});
      return false;
    }
    return fail("session_failed", words), false;
  }

  /// Until the command has begun, or will not. Its job sees it before that, and could stop it: when the
  /// client is gone it is ended all the same.
  static void await_begin(int pipe) {
    std::array<pollfd, 2> sources = {{{.fd = pipe, .events = POLLIN, .revents = 0},
                                      {.fd = kSessionSocket, .events = POLLRDHUP, .revents = 0}}};
    while (sources[0].revents == 0) {
      const bool gone = sources[1].revents != 0;
      if (gone) kill_all();
      poll(sources.data(), gone ? 1 : 2, gone ? kKillPauseMs : -1);
    }
  }

  [[noreturn]] static void report(int pipe, int error, const std::string& words) {
    Report report{.error = error};
    words.copy(report.words.data(), report.words.size() - 1);
    static_cast<void>(!write(pipe, &report, sizeof report));
    _exit(kExitNotFound);
  }

  [[noreturn]] void be_command(const RunningBox& box, int pipe) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(kSessionSocket);
    if (!is_container_) lead();
    if (const Result<Unit> entered = box.enter(request_.terminal ? STDIN_FILENO : -1); !entered)
      report(pipe, 0, entered.error().message);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // Changing the user has cleared it.
    if (is_container_) {
      go_on_as_child(pipe);
      lead();
    }
    if (request_.kind == SessionRequest::Kind::kPort) join_port(pipe);
    if (fchdir(box.working_directory()) != 0)
      report(pipe, EIO, std::string("cannot enter the working directory: ") + std::strerror(errno));
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    clearenv();
    for (const std::vector<std::string>* entries : {&box.environment(), &request_.environment}) {
      for (const std::string& entry : *entries) {
        const std::size_t equals = entry.find('=');
        setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
      }
    }
    if (is_container_) setenv(kSessionVariable, mark_value_.c_str(), 1);
    execute(pipe);
  }

  /// This process is the connection: what it may reach is what the job's own processes may.
  [[noreturn]] void join_port(int pipe) const {
    const int socket = connect_to_port(static_cast<uint16_t>(request_.port));
    if (socket < 0) report(pipe, kNoListener, std::strerror(errno));
    // Nothing of the box, the keeper or the agent stays open beside the bytes. Closing the pipe says that it
    // is joined.
    const int kept = dup2(socket, kSessionSocket);
    close_range(kSessionSocket + 1, ~0U, 0);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGPIPE);  // A reader that is gone is seen by write.
    sigprocmask(SIG_SETMASK, &only, nullptr);
    _exit(relay_port(kept));
  }

  void lead() const {
    setsid();
    if (request_.terminal) ioctl(STDIN_FILENO, TIOCSCTTY, 0);
  }

  /// The namespace of a container's processes is entered by children alone. Returns in the child; the process
  /// itself waits for it, and ends as it does.
  static void go_on_as_child(int pipe) {
    const pid_t child = fork();
    if (child < 0) report(pipe, 0, std::string("cannot fork: ") + std::strerror(errno));
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      return;
    }
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, pipe}) close(descriptor);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, WTERMSIG(status));
    kill(getpid(), WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    _exit(128 + WTERMSIG(status));
  }

  [[noreturn]] void execute(int pipe) const {
    std::vector<std::string> words = request_.arguments;
    std::string program;
    if (words.empty()) {
      program = login_shell(request_.identity.uid);
      words = {"-" + program.substr(program.rfind('/') + 1)};  // So a shell knows that it is a login shell.
    } else {
      program = words.front();
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(program.c_str(), arguments.data());
    report(pipe, errno, "cannot start '" + program + "': " + std::strerror(errno));
  }

  /// Until nothing is left of the session.
  void supervise() {
    bool socket_open = true;
    Time kill_at = kNever;
    Time give_up_at = kNever;
    int pause_ms = kKillPauseMs;
    while (true) {
      reap();
      if (none_left_) {
        if (give_up_at == kNever) give_up_at = now() + kMarkedGrace;
        if (!kill_marked() || now() >= give_up_at) return;  // The job's end takes what is left.
      }
      if (child_ended_ || now() >= kill_at) {
        kill_all();
        pause_ms = std::min(pause_ms * 2, kKillPauseMaxMs);
      }
      std::array<pollfd, 2> sources = {
          {{.fd = signals_, .events = POLLIN, .revents = 0},
           {.fd = socket_open ? kSessionSocket : -1, .events = POLLIN, .revents = 0}}};
      poll(sources.data(), sources.size(), wait_ms(kill_at, pause_ms));
      std::array<signalfd_siginfo, 8> info;
      while (read(signals_, info.data(), sizeof info) > 0) {
      }
      if (sources[1].revents == 0) continue;
      const std::optional<SessionOrder> order = take_order(socket_open);
      if (!socket_open && kill_at == kNever) {
        hang_up();
        kill_at = now() + kHangUpGrace;
      }
      if (!order) continue;
      if (order->kind == SessionOrder::Kind::kKill) kill_at = now();
      if (order->kind == SessionOrder::Kind::kSignal) signal_group(*order);
    }
  }

  int wait_ms(Time kill_at, int pause_ms) const {
    if (child_ended_) return pause_ms;
    if (kill_at == kNever) return -1;
    return std::max<int>(pause_ms, static_cast<int>((kill_at - now()).ms()));
  }

  static std::optional<SessionOrder> take_order(bool& socket_open) {
    std::array<char, 256> packet;
    const ssize_t size = recv(kSessionSocket, packet.data(), packet.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return std::nullopt;
    if (size <= 0) {
      socket_open = false;
      return std::nullopt;
    }
    return decode_session_order({packet.data(), static_cast<std::size_t>(size)});
  }

  /// Only to what is the session's own: the group must be led or joined by one of its processes.
  void signal_group(const SessionOrder& order) const {
    const auto group = static_cast<pid_t>(order.group == 0 ? leader() : order.group);
    for (const pid_t pid : descendants_of(getpid())) {
      if (getpgid(pid) != group) continue;
      kill(-group, order.signal);
      return;
    }
  }

  /// The command's process.
  pid_t leader() const {
    if (!is_container_) return child_;
    const std::vector<pid_t> inside = children_of(child_);
    return inside.empty() ? child_ : inside.front();
  }

  /// Kills processes that left the session's in a container, and so are no descendants any more, but have its
  /// mark: a process that threw that away ends with the container. True: there were any.
  bool kill_marked() const {
    if (!is_container_) return false;
    bool any = false;
    for (const pid_t pid : processes_with_environment(mark_)) {
      const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
      if (process < 0) continue;
      struct stat facts{};
      // The user's own alone: a mark in anybody else's environment is somebody's trick.
      const bool is_users = (stat(("/proc/" + std::to_string(pid)).c_str(), &facts) == 0 &&
                             facts.st_uid == request_.identity.uid) ||
                            runs_as(pid, request_.identity.uid);
      const bool is_ours = is_users && has_environment(pid, mark_);
      if (is_ours && syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0) == 0) any = true;
      close(process);
    }
    return any;
  }

  static void hang_up() {
    for (const pid_t pid : descendants_of(getpid())) {
      kill(pid, SIGHUP);
      kill(pid, SIGCONT);  // One that is stopped could not hear it.
    }
  }
  static void kill_all() {
    for (const pid_t pid : descendants_of(getpid())) kill(pid, SIGKILL);
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
      SessionEvent event{.kind = SessionEvent::Kind::kExited};
      if (WIFEXITED(status)) event.exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) event.signal = WTERMSIG(status);
      send_event(event);
    }
  }

  const SessionRequest request_;
  int signals_ = -1;
  pid_t child_ = -1;
  bool child_ended_ = false;
  bool none_left_ = false;
  bool is_container_ = false;
  /// In the environment of all that a session starts in a container.
  const std::string mark_value_ = std::to_string(getpid()) + "-" + std::to_string(start_ticks_of(getpid()));
  const std::string mark_ = std::string(kSessionVariable) + "=" + mark_value_;
};

/// In the box and as the user, then open and read.
int keep_file(const SessionRequest& request) {
  int folder = -1;
  const bool of_root = request.identity.uid == 0;
  Result<RunningBox> box = RunningBox();
  if (request.target != 0) {
    box = RunningBox::of(static_cast<pid_t>(request.target), request.title, request.identity);
    if (!box) return fail(box.error());
    folder = box->working_directory();
    if (const Result<Unit> entered = box->enter(-1); !entered) return fail(entered.error());
    return serve_file(kSessionSocket, folder, request.path, of_root);
  }
  if (const Result<Unit> became = become_identity(request.identity); !became) return fail(became.error());
  folder = open(request.working_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0 && !request.other_directory.empty())
    folder = open(request.other_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    return fail("file_not_found", "the attempt's working directory " + request.working_directory +
                                      " cannot be opened: " + std::strerror(errno));
  }
  return serve_file(kSessionSocket, folder, request.path, of_root);
}

}  // namespace

int run_session_keeper() {
  close_range(kSessionRequestFile + 1, ~0U, 0);
  fcntl(kSessionSocket, F_SETFD, FD_CLOEXEC);
  std::optional<SessionRequest> request = read_request();
  if (!request)
    return fail("internal",
                "gpu-agent and gpu-shim have different versions; restart gpu-agent (running jobs continue)");
  if (request->kind == SessionRequest::Kind::kFile) return keep_file(*request);
  Keeper keeper(std::move(*request));
  return keeper.run();
}

}  // namespace gpusched::shim
