#include "shim/sessions/running_box.h"

#include <fcntl.h>
#include <linux/nsfs.h>
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
#include <cstring>
#include <utility>

#include "shim/container/container_process.h"
#include "shim/container/container_runner.h"
#include "shim/processes.h"
#include "shim/start_child.h"

namespace gpusched::shim {
namespace {

constexpr std::size_t kEnvironmentBytesMax = 4u << 20;
constexpr std::size_t kStatusBytesMax = 64 * 1024;

Error error_of(ErrorCode code, const std::string& what) {
  return Error{.code = code, .message = what + ": " + std::strerror(errno)};
}

std::string proc_path(pid_t pid, const char* file) { return "/proc/" + std::to_string(pid) + "/" + file; }

std::string read_proc(pid_t pid, const char* file, std::size_t size_max) {
  return read_small_file(proc_path(pid, file).c_str(), size_max);
}

/// Behind "Name:" in /proc/PID/status; empty when there is no such line.
std::string_view status_line(std::string_view status, std::string_view name) {
  std::size_t at = 0;
  while (at < status.size()) {
    const std::size_t end = std::min(status.find('\n', at), status.size());
    const std::string_view line = status.substr(at, end - at);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':')
      return line.substr(name.size() + 1);
    at = end + 1;
  }
  return {};
}

std::vector<uint32_t> numbers_of(std::string_view text, int base = 10) {
  std::vector<uint32_t> numbers;
  while (!text.empty()) {
    const std::size_t from = text.find_first_not_of(" \t\n");
    if (from == std::string_view::npos) break;
    text.remove_prefix(from);
    uint32_t number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (failed != std::errc{}) break;
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return numbers;
}

/// Where the hierarchy of a line of /proc/PID/cgroup is mounted here, by /proc/self/mountinfo. Empty:
/// nowhere.
std::string mount_of(std::string_view mountinfo, std::string_view controllers) {
  std::size_t at = 0;
  while (at < mountinfo.size()) {
    const std::size_t end = std::min(mountinfo.find('\n', at), mountinfo.size());
    const std::string_view line = mountinfo.substr(at, end - at);
    at = end + 1;
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const std::string_view type = line.substr(dash + 3);
    // "36 35 0:32 / /sys/fs/cgroup/memory rw ... - cgroup cgroup rw,memory": root fourth, mount point fifth.
    std::string_view rest = line;
    for (int field = 0; field < 3; ++field) rest.remove_prefix(std::min(rest.find(' ') + 1, rest.size()));
    const std::string_view root = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.find(' ') + 1, rest.size()));
    const std::string_view point = rest.substr(0, rest.find(' '));
    if (root != "/") continue;
    if (controllers.empty()) {
      if (type.starts_with("cgroup2 ")) return std::string(point);
      continue;
    }
    if (!type.starts_with("cgroup ")) continue;
    const std::string options = "," + std::string(type.substr(type.rfind(' ') + 1)) + ",";
    if (options.find("," + std::string(controllers) + ",") != std::string::npos) return std::string(point);
  }
  return {};
}

void copy_limits(pid_t pid) {
  for (int resource = 0; resource < RLIMIT_NLIMITS; ++resource) {
    rlimit limit{};
    if (prlimit(pid, static_cast<__rlimit_resource>(resource), nullptr, &limit) != 0) continue;
    static_cast<void>(setrlimit(static_cast<__rlimit_resource>(resource), &limit));
  }
}

struct Namespace {
  const char* name;
  int flag;
};
constexpr std::array<Namespace, 7> kNamespaces = {{{"user", CLONE_NEWUSER},
                                                   {"mnt", CLONE_NEWNS},
                                                   {"pid", CLONE_NEWPID},
                                                   {"net", CLONE_NEWNET},
                                                   {"ipc", CLONE_NEWIPC},
                                                   {"uts", CLONE_NEWUTS},
                                                   {"cgroup", CLONE_NEWCGROUP}}};

}  // namespace

RunningBox::RunningBox(RunningBox&& other) noexcept { *this = std::move(other); }

RunningBox& RunningBox::operator=(RunningBox&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(command_, other.command_);
  std::swap(directory_, other.directory_);
  std::swap(is_root_, other.is_root_);
  std::swap(identity_, other.identity_);
  std::swap(spaces_, other.spaces_);
  std::swap(umask_, other.umask_);
  std::swap(oom_score_, other.oom_score_);
  std::swap(no_new_privileges_, other.no_new_privileges_);
  std::swap(groups_, other.groups_);
  std::swap(environment_, other.environment_);
  return *this;
}

RunningBox::~RunningBox() {
  for (const Space& space : spaces_) close(space.file);
  for (const int descriptor : {pidfd_, directory_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

Result<RunningBox> RunningBox::of(pid_t pid, const std::string& shim_title, const Credentials& identity) {
  const Error gone{.code = ErrorCode::kNotFound, .message = "the attempt's command has just ended"};
  RunningBox box;
  box.pid_ = pid;
  box.is_root_ = geteuid() == 0;
  box.identity_ = identity;
  box.pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  // The pid names the same process from here on, or none: what is read below is its own.
  if (box.pidfd_ < 0) return gone;
  const pid_t shim = parent_of(pid);
  const std::vector<std::string> title = command_line(shim);
  if (title.size() < 2 || title[1] != shim_title || !is_shim(shim, "/proc/self/exe")) return gone;
  const std::vector<std::string> words = command_line(pid);
  // The runner is ours: a job's own command that calls itself so names no container.
  if (words.size() >= 2 && words[1] == kContainerFlag && is_shim(pid, "/proc/self/exe")) {
    if (const Result<Unit> inside = box.go_inside(words); !inside) return inside.error();
  }
  if (const Result<Unit> read = box.read_status(); !read) return read.error();
  if (const Result<Unit> found = box.find_spaces(); !found) return found.error();
  box.find_groups();
  const Result<Unit> read = box.read_surroundings(box.is_container() ? box.command_ : box.pid_);
  if (!read) return read.error();
  if (syscall(SYS_pidfd_send_signal, box.pidfd_, 0, nullptr, 0) != 0) return gone;
  return box;
}

Result<Unit> RunningBox::go_inside(const std::vector<std::string>& runner) {
  const Result<pid_t> init = container_init(runner);
  if (!init) return init.error();
  if (is_root_ && identity_.uid == 0) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message =
                     "the job runs as root in its container, where a session would have rights that the job "
                     "has not; use podman exec on the node"};
  }
  const int runner_fd = std::exchange(pidfd_, static_cast<int>(syscall(SYS_pidfd_open, *init, 0)));
  pid_ = *init;
  command_ = container_command(pid_);
  // While the runner lives and this is still so, the number is the container's.
  const bool same = pidfd_ >= 0 && command_ != 0 && container_init(runner).ok() &&
                    syscall(SYS_pidfd_send_signal, runner_fd, 0, nullptr, 0) == 0;
  close(runner_fd);
  if (same) return Unit{};
  return Error{.code = ErrorCode::kNotFound, .message = "the job's container has just ended"};
}

Result<Unit> RunningBox::read_surroundings(pid_t of) {
  const auto fails = [] {
    return error_of(ErrorCode::kNotFound, "cannot open the attempt's working directory");
  };
  const int alive = static_cast<int>(syscall(SYS_pidfd_open, of, 0));
  if (alive < 0) return fails();
  // In a container: still a child of its first process, and so as much the job's as that is.
  const bool is_its = !is_container() || parent_of(of) == pid_;
  directory_ = open(proc_path(of, "cwd").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const Error error = fails();
  read_environment(of);
  const bool is_still = is_its && syscall(SYS_pidfd_send_signal, alive, 0, nullptr, 0) == 0;
  close(alive);
  if (directory_ < 0) return error;
  if (!is_still)
    return Error{.code = ErrorCode::kNotFound, .message = "the attempt's command has just ended"};
  return Unit{};
}

Result<Unit> RunningBox::read_status() {
  const std::string status = read_proc(pid_, "status", kStatusBytesMax);
  const std::vector<uint32_t> uids = numbers_of(status_line(status, "Uid"));
  if (uids.size() < 4)
    return Error{.code = ErrorCode::kNotFound, .message = "the attempt's command has just ended"};
  // Real, effective, saved, of the file system.
  const auto other =
      std::find_if(uids.begin(), uids.end(), [this](uint32_t uid) { return uid != identity_.uid; });
  if (other != uids.end()) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "the job's command runs as another user (" + std::to_string(*other) +
                            ") than the job's (" + std::to_string(identity_.uid) +
                            "), but sessions and copies run only as the job's user; have the job itself "
                            "start such a program"};
  }
  const std::vector<uint32_t> mask = numbers_of(status_line(status, "Umask"), 8);
  if (!mask.empty()) umask_ = mask.front() & 0777;
  const std::vector<uint32_t> bits = numbers_of(status_line(status, "NoNewPrivs"));
  oom_score_ = read_proc(pid_, "oom_score_adj", 32);
  no_new_privileges_ = !bits.empty() && bits.front() != 0;
  return Unit{};
}

/// By descriptors, which stay the same though the process goes on to others.
Result<Unit> RunningBox::find_spaces() {
  struct stat own{};
  if (stat("/proc/self/ns/user", &own) != 0)
    return error_of(ErrorCode::kIo, "cannot read this process's namespaces");
  for (const Namespace& one : kNamespaces) {
    const std::string file = std::string("ns/") + one.name;
    struct stat theirs{};
    struct stat here{};
    const int opened = open(proc_path(pid_, file.c_str()).c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0 && errno == ENOENT) continue;  // A kind that this kernel does not have.
    if (opened < 0 || fstat(opened, &theirs) != 0 || stat(("/proc/self/" + file).c_str(), &here) != 0) {
      const Error error = error_of(ErrorCode::kNotFound, "cannot read the attempt's namespaces");
      if (opened >= 0) close(opened);
      return error;
    }
    if (theirs.st_ino == here.st_ino && theirs.st_dev == here.st_dev) {
      close(opened);
      continue;
    }
    spaces_.push_back({.file = opened, .flag = one.flag, .ours = false});
    if (one.flag == CLONE_NEWUSER) continue;
    const int owner = ioctl(opened, NS_GET_USERNS);
    struct stat owner_facts{};
    spaces_.back().ours = owner >= 0 && fstat(owner, &owner_facts) == 0 && owner_facts.st_ino == own.st_ino &&
                          owner_facts.st_dev == own.st_dev;
    if (owner >= 0) close(owner);
  }
  return Unit{};
}

/// The groups that are not our own: where we already are, there is nothing to join, and often no right to.
void RunningBox::find_groups() {
  const std::string theirs = read_proc(pid_, "cgroup", kStatusBytesMax);
  const std::string ours = read_small_file("/proc/self/cgroup", kStatusBytesMax);
  const std::string mounts = read_small_file("/proc/self/mountinfo", 1 << 20);
  std::size_t at = 0;
  while (at < theirs.size()) {
    const std::size_t end = std::min(theirs.find('\n', at), theirs.size());
    const std::string line = theirs.substr(at, end - at);
    at = end + 1;
    if (("\n" + ours).find("\n" + line + "\n") != std::string::npos) continue;
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string point = mount_of(mounts, std::string_view(line).substr(first + 1, second - first - 1));
    if (!point.empty()) groups_.push_back(point + line.substr(second + 1) + "/cgroup.procs");
  }
}

void RunningBox::read_environment(pid_t of) {
  const std::string block = read_proc(of, "environ", kEnvironmentBytesMax);
  std::size_t at = 0;
  while (at < block.size()) {
    const std::size_t end = std::min(block.find('\0', at), block.size());
    // A process may write over this area, as some do to show a title: what is no variable is not taken.
    const std::string entry = block.substr(at, end - at);
    if (entry.find('=') != std::string::npos && entry.front() != '=') environment_.push_back(entry);
    at = end + 1;
  }
}

Result<Unit> RunningBox::enter(int terminal) const {
  if (const Result<Unit> joined = join_groups(); !joined) return joined;
  take_settings();
  if (is_root_) set_login_uid(identity_.uid);
  // Its user's, so that it can be opened by its name.
  if (terminal >= 0 && is_root_) static_cast<void>(!fchown(terminal, identity_.uid, static_cast<gid_t>(-1)));
  // From here on no path is opened until we are the user.
  if (const Result<Unit> joined = join_spaces(); !joined) return joined;
  if (is_container()) give_up_rights();
  if (const Result<Unit> became = become_identity(identity_); !became) return became;
  take_own_keys();
  if (const Result<Unit> joined = join_users_spaces(); !joined) return joined;
  // To see another user's limits takes a right that even root may lack: asked again as that user.
  copy_limits(pid_);
  if (no_new_privileges_ && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return error_of(ErrorCode::kIo, "cannot set no_new_privs");
  return Unit{};
}

/// As the runtime takes them from the container: no program gives them back, whoever it belongs to.
void RunningBox::give_up_rights() const {
  for (unsigned long right = 0; prctl(PR_CAPBSET_READ, right, 0, 0, 0) >= 0; ++right)
    static_cast<void>(prctl(PR_CAPBSET_DROP, right, 0, 0, 0));
}

Result<Unit> RunningBox::join_groups() const {
  for (const std::string& group : groups_) {
    const int file = open(group.c_str(), O_WRONLY | O_CLOEXEC);
    const bool joined = file >= 0 && write(file, "0", 1) == 1;
    const int error = errno;
    if (file >= 0) close(file);
    errno = error;
    if (!joined) return error_of(ErrorCode::kIo, "cannot join the attempt's control group " + group);
  }
  return Unit{};
}

void RunningBox::take_settings() const {
  copy_limits(pid_);
  cpu_set_t cores;
  if (sched_getaffinity(pid_, sizeof cores, &cores) == 0) sched_setaffinity(0, sizeof cores, &cores);
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) {
    static_cast<void>(!write(score, oom_score_.data(), oom_score_.size()));
    close(score);
  }
  umask(umask_);
}

/// Those that were made for the box, in which nobody but root has rights.
Result<Unit> RunningBox::join_spaces() const {
  for (const Space& space : spaces_) {
    if (space.ours && setns(space.file, space.flag) != 0)
      return error_of(ErrorCode::kIo, "cannot enter the attempt's namespaces");
  }
  return Unit{};
}

/// Those that the job made, as its user, who has every right there and none outside. All at once and by the
/// process, because who may enter one depends on the others.
Result<Unit> RunningBox::join_users_spaces() const {
  int flags = 0;
  for (const Space& space : spaces_) {
    if (!space.ours) flags |= space.flag;
  }
  if (flags == 0 || setns(pidfd_, flags) == 0) return Unit{};
  return error_of(ErrorCode::kIo, "cannot enter the namespaces that the job created");
}

Result<Unit> become_identity(const Credentials& identity) {
  const uid_t own = geteuid();
  if (own != 0 && own == identity.uid) return Unit{};
  if (own != 0) {
    return Error{.code = ErrorCode::kIo,
                 .message = "the node's agent does not run as root and cannot become the job's user"};
  }
  errno = become(identity);
  if (errno != 0) return error_of(ErrorCode::kIo, "cannot become the job's user");
  return Unit{};
}

}  // namespace gpusched::shim
