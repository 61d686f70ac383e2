#include "shim/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "shim/attempt/attempt_shim.h"
#include "shim/processes.h"
#include "shim/protocol.h"

namespace gpusched::shim {
namespace {

/// As the agent makes it: users go through it to their own attempts, and list nothing.
constexpr mode_t kAttemptsMode = 0751;
constexpr int kPurgePauseMs = 5;

class Server {
 public:
  explicit Server(const ServerOptions& options) : options_(options) {}

  int run() {
    if (!prepare()) return 1;
    while (true) {
      pollfd sources[2] = {{.fd = kControlDescriptor, .events = POLLIN, .revents = 0},
                           {.fd = signals_, .events = POLLIN, .revents = 0}};
      const int ready = poll(sources, 2, lost_.empty() ? -1 : kPurgePauseMs);
      if (ready < 0 && errno != EINTR) return 1;
      if (sources[1].revents != 0) drain_signals();
      reap();
      purge();
      if (sources[0].revents != 0 && !take_request()) return finish();
    }
  }

 private:
  /// The agent is gone, and its orders are carried out. We stay as long as our shims, to kill what a dying
  /// one leaves.
  int finish() {
    close(kControlDescriptor);
    write_marker(kDrainFlag, options_.instance);
    while (!shims_.empty() || !lost_.empty()) {
      pollfd source{.fd = signals_, .events = POLLIN, .revents = 0};
      poll(&source, 1, lost_.empty() ? -1 : kPurgePauseMs);
      drain_signals();
      reap();
      purge();
    }
    return 0;
  }

  /// The process's name for itself, in the place of its arguments.
  void write_marker(const std::string& first, const std::string& second) const {
    const std::string words = std::string("gpu-shim") + '\0' + first + '\0' + second;
    if (words.size() >= options_.marker_size) return;
    std::memset(options_.marker, 0, options_.marker_size);
    std::memcpy(options_.marker, words.data(), words.size());
  }

  bool prepare() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    block_shim_signals();
    close_range(kEventDescriptor + 1, ~0U, 0);
    for (const int descriptor : {kControlDescriptor, kEventDescriptor})
      fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    const std::string attempts = options_.data_folder + "/" + kAttemptsFolder;
    const std::string contact = options_.data_folder + "/contact";
    context_.attempts_folder = open(attempts.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Something else has the name: each attempt tries again, and says why it has no folder.
    if (context_.attempts_folder < 0) context_.attempts_folder = open(attempts.c_str(), O_PATH | O_CLOEXEC);
    context_.contact = open(contact.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0640);
    context_.null_input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    context_.events = kEventDescriptor;
    context_.data_folder = options_.data_folder.c_str();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    signals_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    const bool ready = context_.contact >= 0 && context_.null_input >= 0 && signals_ >= 0;
    if (!ready)
      std::fprintf(stderr, "gpu-shim: cannot open %s: %s\n", options_.data_folder.c_str(),
                   std::strerror(errno));
    return ready;
  }

  void drain_signals() {
    signalfd_siginfo info[8];
    while (read(signals_, info, sizeof info) > 0) {
    }
  }

  /// False when the agent is gone.
  bool take_request() {
    iovec part{.iov_base = buffer_, .iov_len = sizeof buffer_};
    alignas(cmsghdr) char extra[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = extra;
    header.msg_controllen = sizeof extra;
    const ssize_t size = recvmsg(kControlDescriptor, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0) return errno == EINTR || errno == EAGAIN;
    if (size == 0) return false;
    const std::string_view packet(buffer_, static_cast<std::size_t>(size));
    if (is_start_in_memory(packet)) {
      start_in_memory(header);
      return true;
    }
    switch (static_cast<RequestKind>(packet.front())) {
      case RequestKind::kStart:
        start(packet);
        return true;
      case RequestKind::kStop:
        stop(packet);
        return true;
      case RequestKind::kStartInMemory:
        break;
    }
    refuse(packet);
    return true;
  }

  /// One of the two programs was exchanged, and the other runs on.
  void refuse(std::string_view packet) {
    const std::optional<AttemptKey> key = foreign_start_key(packet);
    if (!key) return;
    send(Event{.kind = EventKind::kEnded,
               .key = *key,
               .outcome = {.cause = Cause::kNodeFault,
                           .detail = "gpu-shim and gpu-agent have different versions; restart gpu-agent "
                                     "(running jobs continue)"}});
  }

  void start_in_memory(const msghdr& header) {
    const cmsghdr* extra = CMSG_FIRSTHDR(&header);
    if (extra == nullptr || extra->cmsg_type != SCM_RIGHTS) return;
    int file = -1;
    std::memcpy(&file, CMSG_DATA(extra), sizeof file);
    struct stat facts{};
    if (fstat(file, &facts) == 0 && facts.st_size > 0 &&
        static_cast<std::size_t>(facts.st_size) <= kRequestBytesMax) {
      const auto size = static_cast<std::size_t>(facts.st_size);
      void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
      if (memory != MAP_FAILED) {
        start({static_cast<const char*>(memory), size});
        munmap(memory, size);
      }
    }
    close(file);
  }

  void start(std::string_view packet) {
    const std::optional<AttemptKey> key = decode_start_key(packet);
    if (!key) return refuse(packet);
    renew_attempts_folder();
    const pid_t pid = fork();
    if (pid == 0) {
      become_shim(*key);
      run_attempt_shim(context_, packet);
    }
    if (pid > 0) {
      shims_.emplace(pid, *key);
      pids_.emplace(*key, pid);  // A second start of one key ends by itself, at the attempt's folder.
      return;
    }
    const std::string why = std::string("cannot fork a shim: ") + std::strerror(errno);
    send(Event{
        .kind = EventKind::kEnded, .key = *key, .outcome = {.cause = Cause::kNodeFault, .detail = why}});
  }

  /// Somebody removed it, with all that was in it: attempts need another one.
  void renew_attempts_folder() {
    struct stat before{};
    const bool is_folder = fstat(context_.attempts_folder, &before) == 0 && S_ISDIR(before.st_mode);
    if (is_folder && before.st_nlink > 0) return;
    const std::string path = options_.data_folder + "/" + kAttemptsFolder;
    const mode_t mode = is_folder ? before.st_mode & 07777 : kAttemptsMode;
    if (mkdir(path.c_str(), mode) == 0) chmod(path.c_str(), mode);
    const int fresh = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fresh < 0) return;  // The attempt says why it has no folder.
    close(context_.attempts_folder);
    context_.attempts_folder = fresh;
  }

  /// In the new process: its name first, because an agent that looks for shims waits for it. It stays in the
  /// server's session: where the kernel shares the processor by session, a session for each job would crowd
  /// out the agent.
  void become_shim(const AttemptKey& key) {
    write_marker(shim_title(key_text(key), options_.instance), "");
    close(kControlDescriptor);  // Else the agent would not see the server's end as long as a shim lives.
    close(signals_);
  }

  void stop(std::string_view packet) {
    const std::optional<StopRequest> request = decode_stop(packet);
    if (!request) return;
    const auto found = pids_.find(request->key);
    if (found == pids_.end()) return;  // It has ended; its event says so.
    sigqueue(found->second, stop_signal(), stop_value(*request));
  }

  void reap() {
    while (true) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid <= 0) return;
      const auto found = shims_.find(pid);
      if (found == shims_.end()) continue;  // An orphan of a shim that died.
      const AttemptKey key = found->second;
      shims_.erase(found);
      const auto running = pids_.find(key);
      if (running != pids_.end() && running->second == pid) pids_.erase(running);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) lost_.push_back({key, describe(status)});
    }
  }

  static std::string describe(int status) {
    if (WIFSIGNALED(status)) return "its shim was killed by signal " + std::to_string(WTERMSIG(status));
    return "its shim failed with status " + std::to_string(WEXITSTATUS(status));
  }

  /// Kills what a dead shim leaves, which becomes our child at once; our only other children are shims.
  void purge() {
    if (lost_.empty()) return;
    bool left = false;
    for (const pid_t child : children_of(getpid())) {
      if (shims_.contains(child)) continue;
      bool ours = kill(child, SIGKILL) == 0 || errno != EPERM;
      for (const pid_t pid : descendants_of(child)) ours = kill(pid, SIGKILL) == 0 || errno != EPERM || ours;
      left = left || ours;  // Another user's, as a set-user-id program is, is not ours to end.
    }
    reap();
    if (left) return;
    for (const auto& [key, detail] : std::exchange(lost_, {})) {
      send(Event{
          .kind = EventKind::kLost, .key = key, .outcome = {.cause = Cause::kShimLost, .detail = detail}});
    }
  }

  void send(const Event& event) {
    const std::string packet = encode(event);
    while (::send(kEventDescriptor, packet.data(), packet.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }

  struct Lost {
    AttemptKey key;
    std::string detail;
  };

  const ServerOptions& options_;
  ShimContext context_;
  int signals_ = -1;
  std::map<pid_t, AttemptKey> shims_;
  std::map<AttemptKey, pid_t> pids_;
  std::vector<Lost> lost_;  ///< Shims that died without a word, whose orphans are being killed.
  char buffer_[kPacketBytesMax];
};

}  // namespace

std::string shim_title(const std::string& key_text, const std::string& instance) {
  return key_text + '@' + instance;
}

int run_server(const ServerOptions& options) {
  Server server(options);
  return server.run();
}

}  // namespace gpusched::shim
