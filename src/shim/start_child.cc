#include "shim/start_child.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "shim/protocol.h"

namespace gpusched::shim {
namespace {

constexpr std::size_t kChildStackBytes = 64 * 1024;
alignas(16) char child_stack[kChildStackBytes];

[[noreturn]] void give_up(ChildPlan& plan, StartStep step, int error) {
  plan.failed = step;
  plan.error = error;
  const StartFailure failure{.step = step, .error = error};
  if (plan.report_to >= 0) static_cast<void>(!write(plan.report_to, &failure, sizeof failure));
  _exit(127);
}

/// A single thread that moves itself needs none of the kernel's locks that stop other forks: `tasks`, not
/// `cgroup.procs`.
void enter_cgroups(ChildPlan& plan) {
  for (const int file : plan.cgroup_files) {
    if (write(file, "0", 1) != 1) give_up(plan, StartStep::kCgroup, errno);
  }
}

void set_limits(ChildPlan& plan) {
  const Box& box = *plan.box;
  for (const ResourceLimit& limit : box.limits) {
    const rlimit value{.rlim_cur = limit.soft, .rlim_max = limit.hard};
    if (setrlimit(static_cast<__rlimit_resource>(limit.resource), &value) != 0) {
      give_up(plan, StartStep::kLimit, errno);
    }
  }
  if (box.oom_score) {
    std::array<char, 16> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), *box.oom_score).ptr;
    const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    // Lower than the agent's own it may not be; then it stays as that is.
    if (file >= 0) static_cast<void>(!write(file, text.data(), static_cast<std::size_t>(end - text.data())));
    if (file >= 0) close(file);
  }
  if (!box.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const uint32_t cpu : box.cpus) {
      if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    }
    // Cores that went away since: it runs on all that are left.
    static_cast<void>(sched_setaffinity(0, sizeof set, &set));
  }
  if (box.umask) umask(*box.umask);
}

void make_private(ChildPlan& plan) {
  const Box& box = *plan.box;
  const auto attempt = [&plan](int result) {
    if (result != 0) give_up(plan, StartStep::kPrivateFolders, errno);
  };
  if (box.private_ipc) attempt(unshare(CLONE_NEWIPC));
  if (!box.private_shm && !box.private_tmp) return;
  attempt(unshare(CLONE_NEWNS));
  // Later mounts of the machine are still seen here; mounts made here are not seen there.
  attempt(mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr));
  if (box.private_shm) {
    std::array<char, 48> options{};
    const int size = std::snprintf(options.data(), options.size(), "mode=1777");
    if (box.shm_bytes_max > 0) {
      std::snprintf(options.data() + size, options.size() - static_cast<std::size_t>(size), ",size=%lld",
                    static_cast<long long>(box.shm_bytes_max));
    }
    attempt(mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options.data()));
  }
  if (!box.private_tmp) return;
  attempt(mount(kTmpFolder, "/tmp", nullptr, MS_BIND, nullptr));
  attempt(mount("/tmp", "/var/tmp", nullptr, MS_BIND, nullptr));
}

/// Never waits, whatever stands there: a stopped attempt must be able to end.
int open_as_user(const std::string& path, int flags) {
  const int file = open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
  if (file >= 0) fcntl(file, F_SETFL, flags & ~O_CREAT);
  return file;
}

void open_files(ChildPlan& plan) {
  struct Source {
    const std::string& path;
    int flags;
    int& file;
    StartStep step;
  };
  const Box& box = *plan.box;
  constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
  const Source sources[] = {{box.stdin_path, O_RDONLY, plan.input, StartStep::kInput},
                            {box.stdout_path, kAppend, plan.output, StartStep::kOutput},
                            {box.stderr_path, kAppend, plan.error_output, StartStep::kErrorOutput}};
  for (const Source& source : sources) {
    if (source.path.empty()) continue;
    source.file = open_as_user(source.path, source.flags);
    if (source.file < 0) give_up(plan, source.step, errno);
  }
  dup2(plan.input, STDIN_FILENO);
  dup2(plan.output, STDOUT_FILENO);
  dup2(plan.error_output, STDERR_FILENO);
}

/// Without allocation: the memory is the parent's.
void say_not_entered(const ChildPlan& plan, int error) {
  const char* name = strerrorname_np(error);
  const auto piece = [](const char* text) {
    return iovec{.iov_base = const_cast<char*>(text), .iov_len = std::strlen(text)};
  };
  const std::array<iovec, 5> line = {
      piece("gpu-scheduler: cannot enter the folder '"), piece(plan.working_directory),
      piece("' on this node ("), piece(name == nullptr ? "unknown error" : name),
      piece("); the job runs in a folder of its own instead; --chdir selects another\n")};
  static_cast<void>(!writev(STDERR_FILENO, line.data(), static_cast<int>(line.size())));
}

int run_child(void* argument) {
  ChildPlan& plan = *static_cast<ChildPlan*>(argument);
  setpgid(0, 0);
  enter_cgroups(plan);
  set_limits(plan);
  // By its descriptor, since the user may have no way there by name; and first, since only the working
  // directory goes along into a new mount namespace.
  if (fchdir(plan.folder) != 0) give_up(plan, StartStep::kDirectory, errno);
  if (plan.box->login_uid) set_login_uid(*plan.box->login_uid);
  make_private(plan);
  if (plan.box->own_folders && chdir(kWorkFolder) != 0) give_up(plan, StartStep::kDirectory, errno);
  if (plan.box->user) {
    if (const int error = become(*plan.box->user); error != 0) give_up(plan, StartStep::kUser, error);
  }
  take_own_keys();
  if (plan.box->no_new_privileges) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);          // Behind the change of user, which takes it back.
  if (getppid() != plan.parent) _exit(127);  // The shim died before the line above could help.
  int not_entered = 0;
  if (plan.working_directory != nullptr && chdir(plan.working_directory) != 0) {
    if (!plan.working_directory_optional) give_up(plan, StartStep::kDirectory, errno);
    not_entered = errno;
  }
  open_files(plan);
  if (not_entered != 0) say_not_entered(plan, not_entered);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  int error = ENOENT;
  for (char* const* path = plan.paths; *path != nullptr; ++path) {
    execve(*path, plan.arguments, plan.environment);
    // As a shell does: what exists but may not run is a better answer than what does not exist.
    if (errno != ENOENT && errno != ENOTDIR && error == ENOENT) error = errno;
  }
  give_up(plan, StartStep::kCommand, error);
}

#if defined(__x86_64__)
/// A child that begins in a version 2 group. To move there later would stop all forks of the machine until no
/// processor is in the middle of one, which takes milliseconds. The C library has no way to call clone3 with
/// a stack of its own.
pid_t clone_into_cgroup(ChildPlan& plan) {
  clone_args arguments{};
  arguments.flags = (plan.patient ? 0 : CLONE_VM | CLONE_VFORK) | CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.stack = reinterpret_cast<uint64_t>(child_stack);
  arguments.stack_size = sizeof child_stack;
  arguments.cgroup = static_cast<uint64_t>(plan.unified_cgroup);
  register int (*run)(void*) __asm__("r12") = run_child;
  register void* argument __asm__("r13") = &plan;
  long result = SYS_clone3;
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "mov %[argument], %%rdi\n\t"
      "call *%[run]\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(&arguments), "S"(sizeof arguments), [run] "r"(run), [argument] "r"(argument)
      : "rcx", "r11", "memory", "cc");
  if (result >= 0) return static_cast<pid_t>(result);
  errno = static_cast<int>(-result);
  return -1;
}
#else
pid_t clone_into_cgroup(ChildPlan&) {
  errno = ENOSYS;
  return -1;
}
#endif

}  // namespace

void take_own_keys() { syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr); }

void set_login_uid(uint32_t login_uid) {
  std::array<char, 16> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), login_uid).ptr;
  const int file = open("/proc/self/loginuid", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  static_cast<void>(!write(file, text.data(), static_cast<std::size_t>(end - text.data())));
  close(file);
}

int become(const Credentials& user) {
  // To the system these mean: stay who you are.
  if (user.uid == UINT32_MAX || user.gid == UINT32_MAX) return EINVAL;
  // The system's own calls: the C library's would talk to threads, and memory is shared with the parent here.
  if (syscall(SYS_setgroups, user.groups.size(), user.groups.data()) != 0) return errno;
  if (syscall(SYS_setresgid, user.gid, user.gid, user.gid) != 0) return errno;
  if (syscall(SYS_setresuid, user.uid, user.uid, user.uid) != 0) return errno;
  return 0;
}

namespace {

pid_t start_any_child(ChildPlan& plan) {
  if (plan.unified_cgroup >= 0) {
    const pid_t child = clone_into_cgroup(plan);
    if (child > 0 || (errno != ENOSYS && errno != EINVAL && errno != E2BIG)) return child;
    const int file = openat(plan.unified_cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (file < 0) return -1;
    plan.cgroup_files.push_back(file);
  }
  return clone(run_child, child_stack + sizeof child_stack,
               (plan.patient ? 0 : CLONE_VM | CLONE_VFORK) | SIGCHLD, &plan);
}

}  // namespace

pid_t start_child(ChildPlan& plan) {
  if (!plan.patient) return start_any_child(plan);
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  plan.report_to = ends[1];
  const pid_t child = start_any_child(plan);
  const int error = errno;
  close(ends[1]);
  plan.report_to = -1;
  plan.report = ends[0];
  if (child < 0) {
    close(ends[0]);
    plan.report = -1;
    errno = error;
  }
  return child;
}

std::vector<std::string> command_candidates(const char* command, char* const* environment) {
  if (std::strchr(command, '/') != nullptr || *command == '\0') return {command};
  std::string folders = "/usr/local/bin:/usr/bin:/bin";
  for (char* const* entry = environment; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "PATH=", 5) == 0) {
      folders = *entry + 5;
      break;
    }
  }
  std::vector<std::string> candidates;
  std::size_t from = 0;
  while (from <= folders.size()) {
    const std::size_t end = std::min(folders.find(':', from), folders.size());
    const std::string folder = folders.substr(from, end - from);
    candidates.push_back((folder.empty() ? "." : folder) + "/" + command);
    from = end + 1;
  }
  return candidates;
}

std::string error_words(int error) {
  const char* words = strerrordesc_np(error);
  const char* name = strerrorname_np(error);
  return std::string(words == nullptr ? "unknown error" : words) + " (" + (name == nullptr ? "?" : name) +
         ")";
}

}  // namespace gpusched::shim
