#include "shim/container/container_runner.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "shim/container/container_image.h"
#include "shim/container/container_init.h"
#include "shim/container/container_plan.h"
#include "shim/container/container_tool.h"
#include "shim/container/pinned_mount.h"
#include "shim/processes.h"
#include "shim/protocol.h"

extern char** environ;

namespace gpusched::shim {
namespace {

constexpr int kExitNotCreated = 125;  // Podman's and docker's own failures.
constexpr int kRemoveTriesMax = 20;
constexpr int kSignalTriesMax = 5;
constexpr Duration kGatePause = milliseconds(10);
constexpr Duration kRemovePause = milliseconds(250);
constexpr Duration kRemovePatience = seconds(60);
constexpr Duration kSignalPatience = seconds(20);
constexpr std::size_t kEntryBytesMax =
    32 * 1024;  ///< Size of an environment file's line; runtimes read no longer ones.
constexpr off_t kErrorsLookedAt = 4096;

int64_t wall_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool write_whole(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(file, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

bool write_file(const std::string& path, std::string_view text) {
  const std::string draft = path + ".new";
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const bool whole = write_whole(file, text);
  close(file);
  return whole && rename(draft.c_str(), path.c_str()) == 0;
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// Environment files have a line for each entry: what does not fit one goes another way, or not at all.
bool fits_a_line(std::string_view entry) {
  return entry.size() <= kEntryBytesMax && entry.find_first_of("\r\n") == std::string_view::npos &&
         entry.front() != '#' && entry.front() != ' ' && entry.front() != '\t';
}

/// Removes the container until it is certainly gone; false when the runtime does not do it.
bool remove_container(const RuntimeClient& client, const std::string& name, SignalWatch& signals) {
  if (client.runtime == ContainerRuntime::kApptainer) return true;  // Nothing but processes.
  for (int tries = 0; tries < kRemoveTriesMax; ++tries) {
    const ToolResult result = run_tool(remove_words(client, name), client.environment, signals,
                                       {.patience = kRemovePatience, .ignore_stop = true});
    if (result.exit_code == 0) return true;
    if (result.errors.find("o such container") != std::string::npos) return true;
    signals.pause(kRemovePause);
  }
  return false;
}

/// A file that the job named, opened with its user's rights. Never waits, whatever stands there. -1 with
/// errno.
int open_for_user(const std::string& path, int flags, const std::string& user) {
  const std::vector<gid_t> numbers = numbers_in(user);
  if (numbers.size() < 2 && !user.empty()) {
    errno = EINVAL;
    return -1;
  }
  const bool as_other = !user.empty() && geteuid() == 0;
  if (as_other) {
    const bool other = setgroups(numbers.size() - 2, numbers.data() + 2) == 0 && setegid(numbers[1]) == 0 &&
                       seteuid(numbers[0]) == 0;
    if (!other) _exit(kExitNotCreated);  // Half of another user is nobody to go on with.
  }
  const int file = open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
  const int error = errno;
  if (as_other && (seteuid(0) != 0 || setegid(0) != 0 || setgroups(0, nullptr) != 0)) _exit(kExitNotCreated);
  if (file >= 0) fcntl(file, F_SETFL, flags & ~O_CREAT);
  errno = error;
  return file;
}

/// Where the files and folders that the container mounts are held for it until it has them.
std::string pins_folder(const ContainerPlan& plan) { return plan.folder + "/mounts"; }

class ContainerRunner {
 public:
  explicit ContainerRunner(ContainerPlan plan) : plan_(std::move(plan)) {}

  int run() {
    outcome_.started_unix_ns = wall_ns();
    take_port();
    if (prepare() && launch()) supervise();
    conclude();
    return 0;
  }

 private:
  bool prepare() {
    if (!plan_.refusal.empty())
      return refuse({.code = ErrorCode::kPermissionDenied, .message = plan_.refusal});
    if (!open_files()) return false;
    if (!plan_.note.empty()) write_whole(STDERR_FILENO, plan_.note + "\n");
    ImageFinder finder(plan_, signals_, [this](const std::string& line) { say(line); });
    Result<ResolvedImage> image = finder.find();
    if (!image) return refuse(image.error());
    image_ = std::move(*image);
    // An image that was built on this node, or may not be pulled, has a digest that no other node could find.
    const bool everywhere = plan_.pull != PullMode::kNever && !plan_.image.starts_with("localhost/") &&
                            image_.digest.starts_with("sha256:");
    if (everywhere) write_file(plan_.folder + '/' + kImageFile, image_.digest + '\n');
    if (!write_environment() || !pass_gate()) return false;
    let_port_go();  // The job binds it now.
    say("starting a container of " + plan_.image);
    return true;
  }

  /// Takes the port: descriptors from the shim are for nobody that is started here.
  void take_port() {
    struct stat facts{};
    if (fstat(kPortDescriptor, &facts) != 0 || !S_ISSOCK(facts.st_mode)) return;
    port_holder_ = kPortDescriptor;
    fcntl(port_holder_, F_SETFD, FD_CLOEXEC);
  }
  void let_port_go() {
    if (port_holder_ >= 0) close(std::exchange(port_holder_, -1));
  }

  /// One of a gang goes on when all its members are prepared.
  bool pass_gate() {
    if (!exists(plan_.folder + '/' + kGateFile)) return true;
    say("waiting for the other members of its gang");
    sigqueue(getppid(), ready_signal(), sigval{.sival_int = kReadyToGo});
    while (!exists(plan_.folder + '/' + kGoFile)) {
      if (signals_.stop_wanted()) return fail("stopped before its gang started");
      signals_.pause(kGatePause);
    }
    return true;
  }

  /// A runtime of root's would follow links that were put in the sources' places since they were allowed,
  /// such as during a pull. Others can mount nothing that their user could not read anyway.
  bool pin_mounts(std::vector<std::string>& mounts) {
    if (geteuid() != 0 || mounts.empty() || plan_.client.runtime == ContainerRuntime::kApptainer) return true;
    // Podman is a process of ours; docker's daemon is the machine's.
    const bool seen = plan_.client.runtime == ContainerRuntime::kPodman || shares_the_machines_mounts();
    mkdir(pins_folder(plan_).c_str(), 0700);
    for (std::size_t i = 0; i < mounts.size(); ++i) {
      Result<std::string> pinned = pin_mount(mounts[i], pins_folder(plan_) + '/' + std::to_string(i), seen);
      if (!pinned) return refuse(pinned.error());
      mounts[i] = std::move(*pinned);
    }
    return true;
  }

  bool open_files() {
    constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
    const struct {
      const std::string& path;
      int flags;
      int place;
      const char* purpose;
    } files[] = {{plan_.stdin_path, O_RDONLY, STDIN_FILENO, "input"},
                 {plan_.stdout_path, kAppend, STDOUT_FILENO, "output"},
                 {plan_.stderr_path, kAppend, STDERR_FILENO, "errors"}};
    for (const auto& wanted : files) {
      if (wanted.path.empty()) continue;
      const int file = open_for_user(wanted.path, wanted.flags, plan_.user);
      if (file < 0)
        return fail("cannot open '" + wanted.path + "' for " + wanted.purpose + ": " +
                    strerrordesc_np(errno));
      dup2(file, wanted.place);
      close(file);
    }
    return true;
  }

  /// A wrong name is the job's own mistake and ends it as a command that is not there would; a registry that
  /// does not answer is the world's.
  bool refuse(const Error& error) {
    decided_ = true;
    outcome_.detail = error.message;
    if (error.code == ErrorCode::kNotFound || error.code == ErrorCode::kPermissionDenied) {
      outcome_.cause = Cause::kExited;
      outcome_.exit_code = kExitNotCreated;
      write_whole(STDERR_FILENO, error.message + "\n");
    } else {
      outcome_.cause = Cause::kStartFailed;
    }
    return false;
  }

  bool fail(std::string detail) {
    decided_ = true;
    outcome_.cause = Cause::kStartFailed;
    outcome_.detail = std::move(detail);
    return false;
  }

  bool write_environment() {
    std::string lines;
    std::string rest;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (**entry != kJobEntryMark) continue;
      const std::string_view text(*entry + 1);
      if (fits_a_line(text)) {
        lines += text;
        lines += '\n';
      } else if (uses_own_init(plan_.client.runtime)) {
        rest += text;
        rest += '\0';
      } else {
        // The same on every try.
        return refuse({.code = ErrorCode::kPermissionDenied,
                       .message = "the environment variable '" + std::string(text.substr(0, text.find('='))) +
                                  "' contains a line break or is too long, which " +
                                  std::string(to_string(plan_.client.runtime)) +
                                  " cannot pass on; leave it out"});
      }
    }
    environment_ = memfd_create("environment", MFD_CLOEXEC);
    if (environment_ < 0 || !write_whole(environment_, rest) || lseek(environment_, 0, SEEK_SET) != 0 ||
        !write_file(environment_file(), lines)) {
      return fail("cannot write the environment of the container; check whether the node's disk is full");
    }
    return true;
  }

  bool launch() {
    std::array<char, 4096> self{};
    const ssize_t size = readlink("/proc/self/exe", self.data(), self.size() - 1);
    std::array<int, 2> pipe_ends{-1, -1};
    if (size <= 0 || pipe2(pipe_ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
      return fail("cannot prepare the container's first process");
    ContainerPlan pinned = plan_;
    if (!pin_mounts(pinned.mounts)) return false;
    status_ = pipe_ends[0];
    fcntl(pipe_ends[1], F_SETFL, 0);  // The writer waits; the reader does not.
    const std::vector<std::string> words = run_words(
        pinned, image_.id, std::string(self.data(), static_cast<std::size_t>(size)), environment_file());
    unlink((plan_.folder + "/container-id").c_str());
    unlink(pid_file(plan_).c_str());
    errors_before_ = errors_size();
    ToolFiles files{.input = STDIN_FILENO, .output = STDOUT_FILENO, .error_output = STDERR_FILENO};
    if (uses_own_init(plan_.client.runtime)) files.more = {pipe_ends[1], environment_};
    if (plan_.client.runtime == ContainerRuntime::kApptainer) {
      files.cgroups = plan_.enter;
      files.user = numbers_in(plan_.user);
      if (files.user.size() >= 2 && chown(environment_file().c_str(), files.user[0], files.user[1]) != 0)
        return fail("cannot make the container's environment accessible to its user");
    }
    client_ = start_tool(words, plan_.client.environment, files);
    const int error = errno;
    close(pipe_ends[1]);
    if (client_ < 0) return fail("cannot start " + plan_.client.program + ": " + strerrordesc_np(error));
    if (!uses_own_init(plan_.client.runtime)) report_ready();
    return true;
  }

  void supervise() {
    while (true) {
      std::array<pollfd, 2> sources = {pollfd{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0},
                                       pollfd{.fd = status_, .events = POLLIN, .revents = 0}};
      poll(sources.data(), sources.size(), -1);
      take_status();
      if (signals_.stop_wanted() && passed_on_ != signals_.stop_signal()) {
        passed_on_ = signals_.stop_signal();
        pass_stop_on(passed_on_);
      }
      int status = 0;
      if (waitpid(client_, &status, WNOHANG) != client_) continue;
      take_status();
      client_status_ = status;
      return;
    }
  }

  void take_status() {
    std::array<char, 512> buffer{};
    while (status_ >= 0) {
      const ssize_t size = read(status_, buffer.data(), buffer.size());
      if (size < 0 && errno == EINTR) continue;
      if (size == 0) {  // Nobody is left to write: only the client's end remains to be waited for.
        close(status_);
        status_ = -1;
      }
      if (size <= 0) break;
      status_text_.append(buffer.data(), static_cast<std::size_t>(size));
    }
    init_ = parse_init_status(status_text_);
    if (init_.started) report_ready();
  }

  void report_ready() {
    if (std::exchange(ready_, true)) return;
    if (uses_own_init(plan_.client.runtime)) release_pins(pins_folder(plan_));  // The container has them.
    outcome_.started_unix_ns = wall_ns();
    unlink((plan_.folder + "/" + kProgressFile).c_str());
    sigqueue(getppid(), ready_signal(), sigval{.sival_int = 0});
    if (uses_own_init(plan_.client.runtime)) unlink(environment_file().c_str());
  }

  void pass_stop_on(int signal) {
    if (plan_.client.runtime == ContainerRuntime::kApptainer) {
      kill(-client_, signal);
      return;
    }
    if (uses_own_init(plan_.client.runtime) && !init_.started) {
      kill(-client_, SIGKILL);  // There is nothing yet that could take a signal.
      return;
    }
    for (int tries = 0; tries < kSignalTriesMax; ++tries) {
      const ToolResult result =
          run_tool(signal_words(plan_.client, plan_.name, signal), plan_.client.environment, signals_,
                   {.patience = kSignalPatience, .ignore_stop = true});
      if (result.exit_code == 0 ||
          waitid(P_PID, static_cast<id_t>(client_), nullptr, WEXITED | WNOHANG | WNOWAIT) != 0) {
        return;
      }
      signals_.pause(kRemovePause);
    }
  }

  void conclude() {
    if (client_ > 0) {
      // A client that ended by itself has removed its container.
      const bool removed = WIFEXITED(client_status_) && (init_.ended || init_.start_error != 0);
      lacked_memory_ = init_.oom_kills > 0 || (!decided_ && daemon_saw_memory_kill());
      if (!removed && exists(plan_.folder + "/container-id"))
        static_cast<void>(remove_container(plan_.client, plan_.name, signals_));
      if (!decided_) judge();
    }
    unlink(environment_file().c_str());
    release_pins(pins_folder(plan_));
    outcome_.ended_unix_ns = wall_ns();
    const std::optional<AttemptKey> key = parse_key(plan_.key);
    if (key) write_file(plan_.folder + '/' + kVerdictFile, format_outcome(*key, outcome_));
  }

  void judge() {
    if (init_.ended) {
      judge_by_status(init_.wait_status);
      return blame_memory();
    }
    if (init_.start_error != 0) {
      const bool absent = init_.start_error == ENOENT || init_.start_error == ENOTDIR;
      outcome_.cause = Cause::kExited;
      outcome_.exit_code = absent ? 127 : 126;
      const std::string& word = plan_.command.empty() ? plan_.image : plan_.command.front();
      const char* name = strerrorname_np(init_.start_error);
      const bool in_path = word.find('/') == std::string::npos;
      outcome_.detail = absent && in_path
                            ? word + " is not installed in the image"
                            : "cannot start '" + word + "': " + strerrordesc_np(init_.start_error) + " (" +
                                  (name == nullptr ? "?" : name) + ")";
      return;
    }
    if (WIFSIGNALED(client_status_)) {
      outcome_.cause = Cause::kSignaled;
      outcome_.signal = WTERMSIG(client_status_);
      return;
    }
    const int code = WEXITSTATUS(client_status_);
    const bool never_ran = uses_own_init(plan_.client.runtime) ? !init_.started : is_own_failure(code);
    if (never_ran) return judge_failed_start(code);
    // Without a word of the first process an exit code is all there is; runtimes make it of a signal.
    if (code > kExitSignalBase && code < kExitSignalBase + NSIG) {
      judge_by_status(code - kExitSignalBase);
    } else {
      outcome_.cause = Cause::kExited;
      outcome_.exit_code = code;
    }
    blame_memory();
  }

  /// Docker alone; podman's first process counts them.
  bool daemon_saw_memory_kill() {
    if (plan_.client.runtime != ContainerRuntime::kDocker || !exists(plan_.folder + "/container-id"))
      return false;
    const ToolResult result = run_tool(end_words(plan_), plan_.client.environment, signals_,
                                       {.patience = kSignalPatience, .ignore_stop = true});
    return result.exit_code == 0 && result.output.starts_with("true");
  }

  void blame_memory() {
    if (!lacked_memory_ || (outcome_.signal == 0 && outcome_.exit_code == 0)) return;
    outcome_.cause = Cause::kOutOfMemory;
    outcome_.detail =
        "its container needed more memory than it asked for and was killed; ask for more with --mem "
        "(memory_mb)";
  }

  void judge_by_status(int status) {
    if (WIFEXITED(status)) {
      outcome_.cause = Cause::kExited;
      outcome_.exit_code = WEXITSTATUS(status);
      return;
    }
    outcome_.cause = Cause::kSignaled;
    outcome_.signal = WTERMSIG(status);
    const char* name = sigabbrev_np(outcome_.signal);
    outcome_.detail = name == nullptr ? "killed by a signal" : std::string("killed by SIG") + name;
  }

  bool is_own_failure(int code) const {
    if (plan_.client.runtime == ContainerRuntime::kApptainer) return code == 255;
    return code == kExitNotCreated && !exists(plan_.folder + "/container-id");
  }

  void judge_failed_start(int code) {
    const std::string reason = last_line(new_errors(), kReasonBytesMax);
    outcome_.cause = Cause::kStartFailed;
    outcome_.detail = std::string(to_string(plan_.client.runtime)) +
                      " could not start the container (exit code " + std::to_string(code) + ")" +
                      (reason.empty() ? ": see the job's error output" : ": " + reason);
  }

  /// The job's error output is the client's too; where it is a file its end says why a container did not
  /// start.
  static off_t errors_size() {
    struct stat facts{};
    return fstat(STDERR_FILENO, &facts) == 0 && S_ISREG(facts.st_mode) ? facts.st_size : -1;
  }

  std::string new_errors() const {
    const off_t size = errors_size();
    if (size <= 0 || errors_before_ < 0 || size <= errors_before_) return "";
    const int file = open("/proc/self/fd/2", O_RDONLY | O_CLOEXEC);
    if (file < 0) return "";
    std::array<char, kErrorsLookedAt> buffer{};
    const ssize_t got =
        pread(file, buffer.data(), buffer.size(), std::max(errors_before_, size - kErrorsLookedAt));
    close(file);
    return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : "";
  }

  void say(const std::string& line) const { write_file(plan_.folder + '/' + kProgressFile, line + '\n'); }
  std::string environment_file() const { return plan_.folder + "/environment"; }

  const ContainerPlan plan_;
  SignalWatch signals_;
  ResolvedImage image_;
  Outcome outcome_;
  bool decided_ = false;  ///< `outcome_` stands without a container having run.
  InitStatus init_;
  std::string status_text_;
  int status_ = -1;
  int environment_ = -1;
  pid_t client_ = -1;
  int client_status_ = 0;
  int port_holder_ = -1;  ///< Keeps its gang's port until it goes.
  bool ready_ = false;
  int passed_on_ = 0;  ///< The last signal that the container got.
  off_t errors_before_ = -1;
  bool lacked_memory_ = false;
};

}  // namespace

int run_container(const std::vector<std::string>& words) {
  std::optional<ContainerPlan> plan = parse_plan(words);
  if (!plan) {
    std::fprintf(stderr,
                 "gpu-shim: the plan of the container is not valid; gpu-agent and gpu-shim must have the "
                 "same version\n");
    return 2;
  }
  ContainerRunner runner(std::move(*plan));
  return runner.run();
}

int end_container(const std::vector<std::string>& words) {
  std::optional<ContainerPlan> plan = parse_plan(words);
  if (!plan) return 2;
  // Without the attempt's mark: whoever ends a lost attempt kills all that carries it, and waits for us.
  std::erase_if(plan->client.environment,
                [](const std::string& entry) { return entry.starts_with(kMarkerVariable); });
  SignalWatch signals;
  const bool removed = remove_container(plan->client, plan->name, signals);
  release_pins(pins_folder(*plan));
  return removed ? 0 : 1;
}

bool note_container(int folder, const std::vector<char*>& arguments) {
  std::string words;
  for (std::size_t i = 2; i < arguments.size() && arguments[i] != nullptr; ++i) {
    words += arguments[i];
    words += '\0';
  }
  const std::pair<const char*, std::string_view> files[] = {{kContainerFile, words},
                                                            {kProgressFile, "preparing a container\n"}};
  for (const auto& [name, text] : files) {
    const int file = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return false;
    const bool whole = write_whole(file, text);
    close(file);
    if (!whole) return false;
  }
  return true;
}

void remove_container(const std::vector<char*>& arguments) {
  std::vector<char*> words = arguments;
  std::string flag(kContainerEndFlag);
  words[1] = flag.data();
  char* const nothing[] = {nullptr};
  while (true) {
    const pid_t pid = fork();
    if (pid == 0) {
      execve(words[0], words.data(), nothing);
      _exit(kExitNotCreated);
    }
    int status = 0;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const timespec pause{.tv_sec = 5, .tv_nsec = 0};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace gpusched::shim
