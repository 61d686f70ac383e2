#include "shim/container/container_tool.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace gpusched::shim {
namespace {

constexpr int kExitNotStarted = 127;
constexpr int kHighDescriptor = 200;
constexpr std::size_t kErrorsKept = 16 * 1024;
constexpr std::size_t kOutputMax = 1024 * 1024;
constexpr Duration kEndPatience = seconds(5);
constexpr unsigned short kTerminalColumns = 200;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

Time monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return Time{int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}

int milliseconds_until(Time due) {
  return static_cast<int>(std::clamp<int64_t>((due - monotonic_now()).ms() + 1, 0, 60'000));
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> found;
  for (const std::string& word : words) found.push_back(const_cast<char*>(word.c_str()));
  found.push_back(nullptr);
  return found;
}

/// In the new process. Ours first to high numbers, so that none stands where another is to go.
void place_descriptors(const ToolFiles& files) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  std::vector<int> sources = {files.input, files.output, files.error_output};
  sources.insert(sources.end(), files.more.begin(), files.more.end());
  for (int& source : sources) source = fcntl(source < 0 ? nothing : source, F_DUPFD_CLOEXEC, kHighDescriptor);
  for (std::size_t i = 0; i < sources.size(); ++i) dup2(sources[i], static_cast<int>(i));
}

bool enter_groups(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const int file = open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, "0", 1) != 1) return false;
    close(file);
  }
  return true;
}

bool become_user(const std::vector<gid_t>& numbers) {
  if (numbers.size() < 2 || geteuid() != 0) return true;
  return setgroups(numbers.size() - 2, numbers.data() + 2) == 0 && setgid(numbers[1]) == 0 &&
         setuid(numbers[0]) == 0;
}

/// Both ends of a pipe or a pseudo terminal; the second is the program's.
std::array<int, 2> open_channel(bool terminal) {
  std::array<int, 2> ends{-1, -1};
  if (!terminal) {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return {-1, -1};
    return ends;
  }
  ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 64> name{};
  const bool ready = ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0 &&
                     ptsname_r(ends[0], name.data(), name.size()) == 0;
  if (ready) ends[1] = open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ends[1] < 0) {
    if (ends[0] >= 0) close(ends[0]);
    return open_channel(false);  // Without progress, then.
  }
  const winsize size{.ws_row = 50, .ws_col = kTerminalColumns, .ws_xpixel = 0, .ws_ypixel = 0};
  ioctl(ends[1], TIOCSWINSZ, &size);
  return ends;
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? kExitSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

/// One run of one program: its two channels, its end, its deadline.
class ToolRun {
 public:
  ToolRun(SignalWatch& signals, const ToolOptions& options) : signals_(signals), options_(options) {}

  ToolResult run(const std::vector<std::string>& words, const std::vector<std::string>& environment) {
    std::array<int, 2> output = open_channel(false);
    std::array<int, 2> errors = open_channel(options_.terminal);
    pid_ = start_tool(words, environment, {.output = output[1], .error_output = errors[1]});
    if (pid_ < 0) result_.errors = "cannot start " + words.front() + ": " + strerrordesc_np(errno);
    close(output[1]);
    close(errors[1]);
    output_ = output[0];
    errors_ = errors[0];
    if (pid_ < 0) {
      result_.exit_code = kExitNotStarted;
    } else {
      deadline_ = monotonic_now() + options_.patience;
      while (!ended_) step();
      read_all();
    }
    close(output_);
    close(errors_);
    return std::move(result_);
  }

 private:
  void step() {
    std::array<pollfd, 3> sources = {
        pollfd{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0},
        pollfd{.fd = output_open_ ? output_ : -1, .events = POLLIN, .revents = 0},
        pollfd{.fd = errors_open_ ? errors_ : -1, .events = POLLIN, .revents = 0}};
    poll(sources.data(), sources.size(), milliseconds_until(deadline_));
    if (sources[1].revents != 0) read_output();
    if (sources[2].revents != 0) read_errors();
    if (signals_.stop_wanted() && !options_.ignore_stop && !result_.stopped) {
      result_.stopped = true;
      kill(-pid_, SIGTERM);
      deadline_ = std::min(deadline_, monotonic_now() + kEndPatience);
    }
    if (monotonic_now() >= deadline_) kill(-pid_, SIGKILL);
    siginfo_t ended{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid != pid_)
      return;
    kill(-pid_, SIGKILL);  // The rest of its group, whose number is its own until it is reaped.
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    result_.exit_code = exit_code_of(status);
  }

  /// Reads the rest of the channels; their other ends may be open in a helper that goes on.
  void read_all() {
    for (const int end : {output_, errors_}) fcntl(end, F_SETFL, O_NONBLOCK);
    while (output_open_ && read_output()) {
    }
    while (errors_open_ && read_errors()) {
    }
  }

  bool read_output() {
    std::array<char, 4096> buffer{};
    const ssize_t size = read(output_, buffer.data(), buffer.size());
    output_open_ = size > 0;
    if (size <= 0) return false;
    if (result_.output.size() < kOutputMax)
      result_.output.append(buffer.data(), static_cast<std::size_t>(size));
    return true;
  }

  bool read_errors() {
    std::array<char, 4096> buffer{};
    const ssize_t size = read(errors_, buffer.data(), buffer.size());
    errors_open_ = size > 0;  // A terminal whose other end is closed gives EIO.
    if (size <= 0) return false;
    const std::string_view piece(buffer.data(), static_cast<std::size_t>(size));
    result_.errors += piece;
    if (result_.errors.size() > 2 * kErrorsKept) result_.errors.erase(0, result_.errors.size() - kErrorsKept);
    if (options_.on_errors) options_.on_errors(piece);
    return true;
  }

  SignalWatch& signals_;
  const ToolOptions& options_;
  ToolResult result_;
  pid_t pid_ = -1;
  int output_ = -1;
  int errors_ = -1;
  bool output_open_ = true;
  bool errors_open_ = true;
  bool ended_ = false;
  Time deadline_;
};

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t set = watched_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

SignalWatch::~SignalWatch() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool SignalWatch::stop_wanted() {
  signalfd_siginfo info{};
  while (read(descriptor_, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;
    stop_wanted_ = true;
    const bool named = info.ssi_code == SI_QUEUE && info.ssi_int > 0 && info.ssi_int < SIGSYS;
    stop_signal_ = named ? info.ssi_int : SIGTERM;
  }
  return stop_wanted_;
}

void SignalWatch::pause(Duration span) {
  pollfd source{.fd = descriptor_, .events = POLLIN, .revents = 0};
  poll(&source, 1, static_cast<int>(std::clamp<int64_t>(span.ms(), 0, 60'000)));
}

pid_t start_tool(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                 const ToolFiles& files) {
  const std::vector<char*> arguments = pointers(words);
  const std::vector<char*> entries = pointers(environment);
  std::array<int, 2> failure{-1, -1};  // Closed by a successful execve.
  if (pipe2(failure.data(), O_CLOEXEC) != 0) return -1;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitNotStarted);
    const int report = fcntl(failure[1], F_DUPFD_CLOEXEC, kHighDescriptor);
    place_descriptors(files);
    if (!enter_groups(files.cgroups) || !become_user(files.user)) {
      const int error = errno;
      static_cast<void>(!write(report, &error, sizeof error));
      _exit(kExitNotStarted);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(arguments[0], arguments.data(), entries.data());
    const int error = errno;
    static_cast<void>(!write(report, &error, sizeof error));
    _exit(kExitNotStarted);
  }
  const int fork_error = errno;
  close(failure[1]);
  int error = pid < 0 ? fork_error : 0;
  if (pid > 0 && read(failure[0], &error, sizeof error) == sizeof error) waitpid(pid, nullptr, 0);
  close(failure[0]);
  errno = error;
  return error == 0 ? pid : -1;
}

ToolResult run_tool(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                    SignalWatch& signals, const ToolOptions& options) {
  return ToolRun(signals, options).run(words, environment);
}

std::string last_line(std::string_view text, std::size_t size_max) {
  std::string line;
  while (!text.empty()) {
    const std::size_t end = text.find_last_of("\r\n");
    const std::string_view piece = end == std::string_view::npos ? text : text.substr(end + 1);
    for (const char c : piece) {
      if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) line += c;
    }
    if (line.find_first_not_of(' ') != std::string::npos) break;
    line.clear();
    if (end == std::string_view::npos) break;
    text = text.substr(0, end);
  }
  return line.substr(0, size_max);
}

}  // namespace gpusched::shim
