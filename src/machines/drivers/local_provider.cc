#include "machines/drivers/local_provider.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/errors.h"
#include "ops/machine.h"

extern char** environ;

namespace gpusched::machines {
namespace {

namespace fs = std::filesystem;

/// Variable of the machine's processes by which they are known as its own.
constexpr const char* kMark = "GPU_MACHINE_FOLDER=";
/// Descriptor on which they hold the lock.
constexpr int kLockFile = 3;

ProviderAnswer unavailable(std::string message) {
  return {.fault = Fault::kUnavailable, .message = std::move(message)};
}

/// Holds a machine's lock while it lives; a process that inherited the file holds it on.
class Lock {
 public:
  explicit Lock(const std::string& folder)
      : file_(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    taken_ = file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (file_ >= 0) ::close(file_);
  }
  bool opened() const { return file_ >= 0; }
  bool taken() const { return taken_; }  ///< No process has it.
  int file() const { return file_; }

 private:
  int file_;
  bool taken_ = false;
};

/// The machine's first process, which leads its session; 0: it has not said its number yet.
pid_t leader_of(const std::string& folder) {
  const std::optional<std::string> text = ops::read_text(folder + "/pid", 64);
  const long pid = text ? std::strtol(text->c_str(), nullptr, 10) : 0;
  if (pid <= 1) return 0;
  const std::optional<std::string> own = ops::read_text("/proc/" + std::to_string(pid) + "/environ", 1 << 20);
  // The number may be another process's by now.
  const std::string mark = kMark + folder + '\0';
  return own && (*own).find(mark) != std::string::npos ? static_cast<pid_t>(pid) : 0;
}

std::vector<std::string> agent_words(const LocalProviderOptions& options, const provision::Pool& pool,
                                     const std::string& name, const std::string& folder) {
  std::vector<std::string> words = options.agent();
  words.insert(words.end(),
               {"--node", name, "--data-dir", folder + "/agent", "--log", folder + "/agent.log"});
  if (pool.shape.gpus > 0)
    words.insert(words.end(), {"--sim-gpus", std::to_string(pool.shape.gpus) + "x" + pool.shape.gpu_model});
  const int64_t cpus = pool.shape.cpu_milli / 1'000;
  if (cpus > 0) words.insert(words.end(), {"--cpus", std::to_string(cpus)});
  if (pool.shape.memory_mb > 0)
    words.insert(words.end(), {"--memory-mb", std::to_string(pool.shape.memory_mb)});
  words.insert(words.end(), {"--label", std::string(provision::kPoolLabel) + "=" + pool.name});
  for (const Label& label : pool.shape.labels)
    words.insert(words.end(), {"--label", label.name + "=" + label.value});
  return words;
}

/// Time as files have it.
Time file_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return Time{int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}

std::optional<Time> changed_at(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return std::nullopt;
  return Time{int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec};
}

bool create_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file >= 0) ::close(file);
  return file >= 0;
}

}  // namespace

ProviderAnswer LocalProvider::start(const provision::Pool& pool, const std::string& name, int lock) {
  const std::string folder = place(name);
  // The shell says its number itself: whoever killed us, it is known. It becomes the agent.
  std::vector<std::string> words = {
      "/bin/sh", "-c", "echo $$ >pid.new && mv pid.new pid && sleep \"$1\" && shift && exec \"$@\"",
      "machine",
      std::to_string(options_.delay.ms() / 1'000) + "." +
          std::to_string(1'000 + options_.delay.ms() % 1'000).substr(1)};
  for (std::string& word : agent_words(options_, pool, name, folder)) words.push_back(std::move(word));
  std::vector<std::string> entries = {kMark + folder};
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::string entry = *each; !entry.starts_with("GPU_SCHEDULER_")) entries.push_back(std::move(entry));
  }
  const auto pointers = [](std::vector<std::string>& from) {
    std::vector<char*> found;
    for (std::string& each : from) found.push_back(each.data());
    found.push_back(nullptr);
    return found;
  };
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string output = folder + "/output";
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  // The file that is inherited must not be the one that it is copied to: that would close when it executes.
  const int copy = ::fcntl(lock, F_DUPFD_CLOEXEC, kLockFile + 1);
  posix_spawn_file_actions_adddup2(&files, copy, kLockFile);
  posix_spawn_file_actions_addclosefrom_np(&files, kLockFile + 1);
  posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  pid_t started = -1;
  const int failed = copy < 0 ? errno
                              : posix_spawn(&started, words.front().c_str(), &files, &attributes,
                                            pointers(words).data(), pointers(entries).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (copy >= 0) ::close(copy);
  if (failed != 0) return unavailable(std::string("cannot start /bin/sh: ") + std::strerror(failed));
  const std::lock_guard guard(mutex_);
  children_.insert(started);
  return {.state = ProviderState::kStarting};
}

void LocalProvider::reap() {
  const std::lock_guard guard(mutex_);
  std::erase_if(children_, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) != 0; });
}

ProviderAnswer LocalProvider::create(const provision::Pool& pool, const std::string& name) {
  if (const auto fail = ops::read_text(options_.folder + "/fail", 64)) {
    if (fail->starts_with("quota"))
      return {.fault = Fault::kQuota, .message = "the file `fail` says that the quota is used up"};
    if (fail->starts_with("invalid"))
      return {.fault = Fault::kInvalid, .message = "the file `fail` says that the request is invalid"};
    return unavailable("the file `fail` says that the provider is unavailable");
  }
  const std::string folder = place(name);
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return unavailable("cannot make the folder " + folder + ": " + failed.message());
  const Lock lock(folder);
  if (!lock.opened()) return unavailable(io_error("cannot open " + folder + "/lock").message);
  if (!lock.taken()) return describe(pool, name);  // It is there already.
  if (fs::exists(folder + "/pid", failed))
    return {.state = ProviderState::kFailed, .message = "its process ended; see " + folder + "/agent.log"};
  return start(pool, name, lock.file());
}

ProviderAnswer LocalProvider::describe(const provision::Pool&, const std::string& name) {
  reap();
  const std::string folder = place(name);
  std::error_code failed;
  if (!fs::exists(folder, failed)) return {.state = ProviderState::kAbsent};
  if (fs::exists(folder + "/ending", failed)) return {.state = ProviderState::kEnding};
  const Lock lock(folder);
  if (!lock.opened()) return unavailable(io_error("cannot open " + folder + "/lock").message);
  if (!lock.taken()) return {.state = ProviderState::kRunning};
  if (!fs::exists(folder + "/pid", failed)) return {.state = ProviderState::kAbsent};  // It never started.
  return {.state = ProviderState::kFailed, .message = "its process ended; see " + folder + "/agent.log"};
}

ProviderAnswer LocalProvider::destroy(const provision::Pool&, const std::string& name) {
  reap();
  const std::string folder = place(name);
  std::error_code failed;
  if (!fs::exists(folder, failed)) return {.state = ProviderState::kAbsent};
  const Lock lock(folder);
  if (!lock.opened()) return unavailable(io_error("cannot open " + folder + "/lock").message);
  if (lock.taken()) {
    fs::remove_all(folder, failed);
    return failed ? unavailable("cannot remove " + folder + ": " + failed.message())
                  : ProviderAnswer{.state = ProviderState::kAbsent};
  }
  const bool first = create_file(folder + "/ending");
  const pid_t leader = leader_of(folder);
  if (leader == 0) {
    const std::optional<Time> since = changed_at(folder + "/ending");
    const bool long_ago = since && file_now() - *since > options_.patience;
    // The session's leader ended, and something that it started has not.
    return long_ago ? unavailable("a process holds " + folder + "/lock that cannot be told; end it by hand")
                    : ProviderAnswer{.state = ProviderState::kEnding};
  }
  const std::optional<Time> since = changed_at(folder + "/ending");
  const bool late = since && file_now() - *since > options_.patience;
  if (late) {
    ::kill(-leader, SIGKILL);
  } else if (first) {
    ::kill(-leader, SIGTERM);
  }
  return {.state = ProviderState::kEnding};
}

ProviderAnswer LocalProvider::list(const provision::Pool& pool) {
  ProviderAnswer answer;
  std::error_code failed;
  if (!fs::exists(options_.folder, failed)) return answer;
  for (fs::directory_iterator each(options_.folder, failed), end; !failed && each != end;
       each.increment(failed)) {
    const std::string name = each->path().filename().string();
    const std::string prefix = pool.name + "-";
    // The pool `a` has no part in the machines of the pool `a-b`.
    const bool is_of_pool =
        name.starts_with(prefix) && name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (each->is_directory() && is_of_pool) answer.machines.push_back(name);
  }
  if (failed) return unavailable("cannot read " + options_.folder + ": " + failed.message());
  return answer;
}

}  // namespace gpusched::machines
