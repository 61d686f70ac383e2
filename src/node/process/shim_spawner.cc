#include "node/process/shim_spawner.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/errors.h"
#include "log/log.h"
#include "shim/cgroup.h"
#include "shim/container/container_runner.h"
#include "shim/processes.h"
#include "shim/server.h"

extern char** environ;

namespace gpusched {
namespace {

constexpr uint64_t kEventsTag = 1;  ///< epoll data of the event socket; tags of pidfds are larger.
constexpr uint64_t kControlTag = 2;
constexpr uint64_t kPidfdTag = 3;
constexpr Duration kLookPause = milliseconds(5);
constexpr Duration kUnreadablePause = milliseconds(100);
constexpr Duration kPurgePauseFirst = milliseconds(2);
constexpr Duration kPurgePauseMax = milliseconds(500);
constexpr Duration kPreparingPause = milliseconds(100);
constexpr std::size_t kProgressBytesMax = 4096;
constexpr Duration kServerPatience = seconds(2);
constexpr Duration kNoDescriptorPause = seconds(1);
/// Time after which the rest of an attempt that may not be ended is left to itself.
constexpr Duration kPurgePatience = seconds(10);
constexpr std::size_t kEventBytesMax = 16 * 1024;
constexpr int kSocketBufferBytes = 1 << 20;
constexpr int kHighDescriptor = 100;
constexpr int kServerEndTries = 1'000;
constexpr int kEventsAtOnceMax = 512;
constexpr const char* kPadding = "----------------------------------------------------------------";

/// As it can be told from every other process of this boot; nothing of one that is gone.
ShimProcess process_of(pid_t pid) {
  const uint64_t ticks = shim::start_ticks_of(pid);
  return ticks == 0 ? ShimProcess{} : ShimProcess{.pid = pid, .start_ticks = ticks};
}

/// Why the machine's processes cannot be read.
std::string why_unreadable() {
  const int folder = ::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return "/proc: " + errno_words();
  close(folder);
  return "/proc does not show the command line of this process";
}

/// Ends the agent: to take a shim for gone would kill it. Jobs go on without an agent.
[[noreturn]] void cannot_watch(const AttemptKey& key, const std::string& why) {
  log_event(LogLevel::kError, "agent", "cannot_watch", {.id = key.job}, {{"why", why}});
  log_flush();
  std::fprintf(stderr, "gpu-agent: cannot watch a running job: %s; allow it more open files\n", why.c_str());
  std::_Exit(71);
}

void close_if_open(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

}  // namespace

ShimSpawner::ShimSpawner(ShimSpawnerOptions options, const Clock& clock, ShimListener& listener)
    : options_(std::move(options)), clock_(clock), listener_(listener) {}

Result<std::unique_ptr<ShimSpawner>> ShimSpawner::open(ShimSpawnerOptions options, const Clock& clock,
                                                       ShimListener& listener) {
  std::unique_ptr<ShimSpawner> spawner(new ShimSpawner(std::move(options), clock, listener));
  if (const Result<Unit> prepared = spawner->prepare(); !prepared) return prepared.error();
  return spawner;
}

Result<Unit> ShimSpawner::prepare() {
  CHECK(options_.data_folder.starts_with('/'));
  if (access(options_.shim_program.c_str(), X_OK) != 0) {
    return io_error("cannot run " + options_.shim_program + " (it is installed next to gpu-agent)");
  }
  if (const Result<Unit> made = make_attempts_folder(options_.data_folder); !made) return made;
  contact_ = ::open((options_.data_folder + "/contact").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
  if (contact_ < 0) return io_error("cannot open " + options_.data_folder + "/contact");
  // Each adopted attempt takes a descriptor. Its command gets the limit that we were given.
  getrlimit(RLIMIT_NOFILE, &files_given_);
  rlimit files = files_given_;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  std::array<int, 2> pair{};
  if (epoll_ < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return io_error("cannot create sockets");
  }
  events_ = pair[0];
  events_source_ = pair[1];
  setsockopt(events_source_, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kEventsTag}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, events_, &interest);
  return Unit{};
}

/// The server sees the end of its control socket and ends; shims go on.
ShimSpawner::~ShimSpawner() {
  end_server();
  for (auto& [key, track] : tracks_) close_if_open(track.pidfd);
  for (int* descriptor : {&events_, &events_source_, &contact_, &epoll_}) close_if_open(*descriptor);
}

// The server.

Result<Unit> ShimSpawner::start_server() {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return io_error("cannot create sockets");
  setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);

  // High numbers first: neither may stand where the other is to go.
  int control = fcntl(pair[1], F_DUPFD_CLOEXEC, kHighDescriptor);
  int events = fcntl(events_source_, F_DUPFD_CLOEXEC, kHighDescriptor);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, control, shim::kControlDescriptor);
  posix_spawn_file_actions_adddup2(&actions, events, shim::kEventDescriptor);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  std::array<const char*, 6> arguments = {
      "gpu-shim", shim::kServerFlag, options_.instance.c_str(), options_.data_folder.c_str(), kPadding,
      nullptr};
  const int error = posix_spawn(&server_pid_, options_.shim_program.c_str(), &actions, &attributes,
                                const_cast<char**>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(pair[1]);
  close_if_open(control);
  close_if_open(events);
  if (error != 0) {
    close(pair[0]);
    server_pid_ = -1;
    return Error{.code = ErrorCode::kIo,
                 .message = "cannot start " + options_.shim_program + ": " + std::strerror(error)};
  }
  if (files_given_.rlim_max != 0) prlimit(server_pid_, RLIMIT_NOFILE, &files_given_, nullptr);
  control_ = pair[0];
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kControlTag}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, control_, &interest);
  return Unit{};
}

/// Without running shims it ends at once; with them it stays for their sake.
void ShimSpawner::end_server() {
  close_if_open(control_);
  const int tries_max = tracks_.empty() ? kServerEndTries : 1;
  for (int tries = 0; server_pid_ > 0 && tries < tries_max; ++tries) {
    if (waitpid(server_pid_, nullptr, WNOHANG) != 0) break;
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
  server_pid_ = -1;
}

void ShimSpawner::on_server_gone() {
  log_event(LogLevel::kWarning, "agent", "shim_server_gone", {}, {{"pid", server_pid_}});
  take_events();  // Reports of its shims so far count before a search.
  end_server();
  requests_.clear();  // Their attempts are among those that are looked for.
  for (auto& [key, track] : tracks_) track.by_server = false;
  begin_search(clock_.monotonic());
}

// Orders.

void ShimSpawner::start(SpawnRequest request) {
  tracks_.try_emplace(request.key).first->second.container = request.container;
  if (!request.hosts.empty()) request.environment.push_back(hosts_entry(request));
  queue_request(shim::encode(
      shim::StartRequest{.key = request.key,
                         .grace = request.grace,
                         .max_runtime = request.max_runtime,
                         .lost_contact = request.lost_contact,
                         .working_directory = std::move(request.working_directory),
                         .working_directory_optional = request.working_directory_optional,
                         .spare_folder = options_.spares == nullptr ? "" : options_.spares->take(),
                         .log_bytes_max = options_.log_bytes_max,
                         .arguments = std::move(request.arguments),
                         .environment = std::move(request.environment),
                         .box = std::move(request.box),
                         .container = request.container,
                         .gated = request.gated,
                         .hosts = std::move(request.hosts),
                         .port = request.port,
                         .script = std::move(request.script),
                         .script_argument = request.script_argument}));
}

/// The variable by which the job finds its gang's hosts.
std::string ShimSpawner::hosts_entry(const SpawnRequest& request) const {
  const std::string name = std::string(shim::kHostsVariable) + '=';
  if (!request.container) return name + file_of(request.key, shim::kHostsFile);
  return shim::kJobEntryMark + name + shim::kContainerTmpFolder + '/' + shim::kHostsFile;
}

void ShimSpawner::go(const AttemptKey& key) {
  const auto found = tracks_.find(key);
  if (found == tracks_.end() || found->second.started || !found->second.prepared) return;
  const int file =
      ::open(file_of(key, shim::kGoFile).c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (file >= 0) {
    close(file);
    return;
  }
  // Its gang has begun: it ends as what it is, one that did not.
  log_event(LogLevel::kError, "agent", "gang_member_not_begun", {.id = key.job}, {{"why", errno_words()}});
  stop(key, StopOrder(Duration{}));
}

void ShimSpawner::stop(const AttemptKey& key, const StopOrder& order) {
  const auto found = tracks_.find(key);
  if (found == tracks_.end()) return;
  Track& track = found->second;
  const shim::StopRequest request{
      .key = key, .grace = order.grace, .signal = order.signal, .until_saved = order.until_saved};
  if (track.by_server) return queue_request(shim::encode(request));
  if (track.pidfd < 0) {
    track.stop_wanted = order;
    return;
  }
  siginfo_t info{};
  info.si_signo = shim::stop_signal();
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value = shim::stop_value(request);
  syscall(SYS_pidfd_send_signal, track.pidfd, shim::stop_signal(), &info, 0);
}

void ShimSpawner::set_max_runtime(const AttemptKey& key, Duration limit) {
  const auto found = tracks_.find(key);
  if (found == tracks_.end()) return;
  // The shim looks at it when its limit is over; sooner, the scheduler orders the stop.
  if (write_limit(key, limit)) return;
  if (!found->second.started && errno == ENOENT) {  // Its folder is still to be made.
    found->second.limit_wanted = limit;
    return;
  }
  log_event(LogLevel::kWarning, "agent", "limit_not_changed", {.id = key.job}, {{"why", errno_words()}});
}

bool ShimSpawner::write_limit(const AttemptKey& key, Duration limit) const {
  const std::string folder =
      options_.data_folder + "/" + shim::kAttemptsFolder + "/" + shim::key_text(key) + "/";
  const std::string fresh = folder + shim::kRuntimeFile + ".new";
  std::ofstream(fresh, std::ios::trunc) << limit.ms() << '\n';
  return std::rename(fresh.c_str(), (folder + shim::kRuntimeFile).c_str()) == 0;
}

/// Its folder is there: what was ordered before that comes true.
void ShimSpawner::begun(const AttemptKey& key, Track& track) {
  if (!track.limit_wanted) return;
  set_max_runtime(key, *std::exchange(track.limit_wanted, std::nullopt));
}

void ShimSpawner::force_end(const AttemptKey& key) {
  const auto found = tracks_.find(key);
  if (found == tracks_.end() || purging_.contains(key)) return;
  Track& track = found->second;
  if (track.pidfd >= 0) {
    syscall(SYS_pidfd_send_signal, track.pidfd, SIGKILL, nullptr, 0);
  } else if (track.shim_pid > 0) {
    // Its name is looked at behind the pidfd, so that it is nobody else.
    const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, track.shim_pid, 0));
    const std::vector<std::string> words = processes_.command_line(track.shim_pid);
    const bool is_its_shim = words.size() >= 2 && words[1] == title_of(key) &&
                             shim::is_shim(track.shim_pid, options_.shim_program.c_str());
    if (pidfd >= 0 && is_its_shim) syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
    if (pidfd >= 0) close(pidfd);
  }
  settle_without_shim(key, "its shim did not carry out an order and was ended", clock_.monotonic());
}

void ShimSpawner::replace_server() {
  if (server_pid_ > 0) kill(server_pid_, SIGKILL);  // Its socket says so; then its shims are looked for.
}

void ShimSpawner::adopt(const std::vector<AttemptKey>& keys) {
  for (const AttemptKey& key : keys) {
    tracks_[key].by_server = false;
    if (const auto known = options_.shims.find(key); known != options_.shims.end())
      tracks_[key].shim = known->second;
  }
  begin_search(clock_.monotonic());
}

void ShimSpawner::mark_contact(Duration age) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const int64_t ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - age.ns;
  if (pwrite(contact_, &ns, sizeof ns, 0) != sizeof ns) {
    log_event(LogLevel::kWarning, "agent", "contact_not_written", {}, {{"why", errno_words()}});
  }
}

void ShimSpawner::queue_request(std::string packet) {
  requests_.push_back(std::move(packet));
  if (requests_.size() == 1) send_requests();
}

void ShimSpawner::send_requests() {
  if (searching_) return;  // A new server would be mistaken for the one that is looked for.
  if (requests_.empty()) return;
  if (control_ < 0) {
    if (const Result<Unit> started = start_server(); !started) {
      log_event(LogLevel::kError, "agent", "shim_server_failed", {}, {{"why", started.error().message}});
      begin_search(clock_.monotonic());  // Ends every attempt that has no shim, as lost.
      requests_.clear();
      for (auto& [key, track] : tracks_) track.by_server = false;
      return;
    }
  }
  next_send_ = kNever;
  while (!requests_.empty() && send_request(requests_.front())) requests_.pop_front();
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kControlTag}};
  // There is room on the socket, and none for a descriptor: waiting for the socket would be no waiting.
  if (!requests_.empty() && next_send_ == kNever) interest.events |= EPOLLOUT;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, control_, &interest);
}

/// False when the server has no room now. A server that is gone shows on its socket.
bool ShimSpawner::send_request(const std::string& packet) {
  iovec part{.iov_base = const_cast<char*>(packet.data()), .iov_len = packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> extra{};
  char notice = static_cast<char>(shim::RequestKind::kStartInMemory);
  int memory = -1;
  if (packet.size() > shim::kPacketBytesMax) {
    memory = memfd_create("start", MFD_CLOEXEC);
    if (memory < 0) {
      log_event(LogLevel::kError, "agent", "start_waits", {}, {{"why", errno_words()}});
      next_send_ = clock_.monotonic() + kNoDescriptorPause;
      return false;
    }
    for (std::size_t done = 0; done < packet.size();) {
      const ssize_t wrote = write(memory, packet.data() + done, packet.size() - done);
      if (wrote < 0) break;
      done += static_cast<std::size_t>(wrote);
    }
    part = {.iov_base = &notice, .iov_len = 1};
    header.msg_control = extra.data();
    header.msg_controllen = extra.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &memory, sizeof memory);
  }
  const ssize_t sent = sendmsg(control_, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  const int error = errno;
  close_if_open(memory);
  return sent >= 0 || (error != EAGAIN && error != ENOBUFS && error != EINTR);
}

// Events.

void ShimSpawner::pump() {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[static_cast<std::size_t>(i)].data.u64;
    const uint32_t what = ready[static_cast<std::size_t>(i)].events;
    if (tag == kEventsTag) {
      take_events();
    } else if (tag == kControlTag) {
      if ((what & (EPOLLHUP | EPOLLERR | EPOLLIN)) != 0) {
        if (control_ >= 0) on_server_gone();  // It never writes here: readable means ended.
      } else {
        send_requests();
      }
    } else {
      const auto pid = static_cast<pid_t>(tag - kPidfdTag);
      for (const auto& [key, track] : tracks_) {
        if (track.pidfd < 0 || track.shim_pid != pid) continue;
        on_watched_end(AttemptKey(key));
        break;
      }
    }
  }
  const Time now = clock_.monotonic();
  if (now >= next_look_) search(now);
  if (now >= next_purge_) purge(now);
  if (now >= next_preparing_look_) look_at_preparing(now);
  if (now >= next_send_) send_requests();
}

Time ShimSpawner::next_deadline() const {
  return std::min({next_look_, next_purge_, next_preparing_look_, next_send_});
}

void ShimSpawner::take_events() {
  std::array<char, kEventBytesMax> buffer;
  for (int count = 0; count < kEventsAtOnceMax; ++count) {
    const ssize_t size = recv(events_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size <= 0) return;
    const std::optional<shim::Event> event =
        shim::decode_event({buffer.data(), static_cast<std::size_t>(size)});
    if (event) on_event(*event);
  }
}

void ShimSpawner::on_event(const shim::Event& event) {
  const auto found = tracks_.find(event.key);
  if (found == tracks_.end()) {  // Its end was seen another way.
    const bool died_after_its_end = event.kind == shim::EventKind::kLost;
    if (!died_after_its_end) return;
    kill_groups(event.key);
    if (options_.remove_scratch) options_.remove_scratch(event.key);
    return;
  }
  Track& track = found->second;
  switch (event.kind) {
    case shim::EventKind::kStarted:
      track.shim_pid = static_cast<pid_t>(event.shim_pid);
      track.shim = process_of(track.shim_pid);
      track.started = true;
      begun(event.key, track);
      listener_.on_shim_started(event.key, event.pid, event.started_unix_ns);
      return;
    case shim::EventKind::kPrepared:
      track.shim_pid = static_cast<pid_t>(event.shim_pid);
      track.prepared = true;
      begun(event.key, track);
      listener_.on_shim_prepared(event.key);
      return;
    case shim::EventKind::kEnded:
      finish(found);
      listener_.on_shim_ended(event.key, to_wire(event.outcome));
      return;
    case shim::EventKind::kSaved:
      listener_.on_shim_saved(event.key, event.saved_unix_ns);
      return;
    case shim::EventKind::kLost:
      settle_without_shim(event.key, event.outcome.detail, clock_.monotonic());
      return;
    case shim::EventKind::kExists:
      track.by_server = false;
      begin_search(clock_.monotonic());
      return;
  }
}

void ShimSpawner::finish(Tracks::iterator track) {
  close_if_open(track->second.pidfd);
  purging_.erase(track->first);
  purging_since_.erase(track->first);
  tracks_.erase(track);
}

ShimProcess ShimSpawner::shim_of(const AttemptKey& key) {
  const auto found = tracks_.find(key);
  return found == tracks_.end() ? ShimProcess{} : found->second.shim;
}

// Looking for shims.

std::string ShimSpawner::title_of(const AttemptKey& key) const {
  return shim::shim_title(shim::key_text(key), options_.instance);
}

void ShimSpawner::begin_search(Time now) {
  searching_ = true;
  clean_looks_ = 0;
  search_since_ = now;
  next_look_ = now;
}

void ShimSpawner::search(Time now) {
  std::multimap<AttemptKey, pid_t> shims;
  bool clean = true;
  const std::string ending = "@" + options_.instance;
  std::vector<pid_t> hung;
  const std::map<pid_t, std::string> found = processes_.read_all(shim::all_processes(), "cmdline", &hung);
  // Without descriptors nothing can be read, which is no proof that nobody is there.
  if (const auto self = found.find(getpid()); self == found.end() || self->second.empty()) {
    if (now - search_told_ >= kNoDescriptorPause || !search_told_.valid()) {
      search_told_ = now;
      log_event(LogLevel::kError, "agent", "processes_unreadable", {},
                {{"why", "running attempts cannot be searched for: " + why_unreadable()}});
    }
    clean_looks_ = 0;
    next_look_ = now + kUnreadablePause;
    return;
  }
  for (const auto& [pid, text] : found) {
    if (pid == server_pid_) continue;
    const std::vector<std::string> words = words_of_process(text);
    if (words.size() < 2 || words[0] != "gpu-shim") continue;
    const bool is_server = words[1] == shim::kServerFlag && words.size() > 2 && words[2] == options_.instance;
    if (!is_server && !words[1].ends_with(ending)) continue;
    if (!shim::is_shim(pid, options_.shim_program.c_str())) continue;  // Anybody can have a name.
    if (is_server) {
      clean = false;  // An earlier server, or its newest shim before it has its name.
      if (now - search_since_ >= kServerPatience) kill(pid, SIGKILL);
      continue;
    }
    const std::string_view name(words[1]);
    if (const auto key = shim::parse_key(name.substr(0, name.size() - ending.size())))
      shims.emplace(*key, pid);
  }
  // A shim whose name cannot be read is not gone.
  for (const pid_t pid : hung) {
    const std::string name = shim::read_small_file(("/proc/" + std::to_string(pid) + "/comm").c_str(), 64);
    clean = clean && !name.starts_with("gpu-shim");
  }
  clean_looks_ = clean ? clean_looks_ + 1 : 0;
  next_look_ = now + kLookPause;
  if (clean_looks_ >= 2) conclude_search(shims, now);
}

/// An attempt has one shim, ever: where it is on record no other process is it.
bool ShimSpawner::watch_one_of(const AttemptKey& key, Track& track,
                               const std::multimap<AttemptKey, pid_t>& shims) {
  const auto [from, to] = shims.equal_range(key);
  for (auto found = from; found != to; ++found) {
    const pid_t pid = found->second;
    if (track.shim.pid != 0 && (track.shim.pid != pid || track.shim != process_of(pid))) continue;
    if (watch(key, track, pid)) return true;
  }
  return false;
}

void ShimSpawner::conclude_search(const std::multimap<AttemptKey, pid_t>& shims, Time now) {
  searching_ = false;
  next_look_ = kNever;
  std::vector<AttemptKey> gone;
  for (auto& [key, track] : tracks_) {
    if (track.by_server || track.pidfd >= 0 || purging_.contains(key)) continue;
    if (!watch_one_of(key, track, shims)) gone.push_back(key);
  }
  if (std::exchange(unknown_count_, false)) {
    for (const auto& [key, pid] : shims) {
      if (tracks_.contains(key)) continue;
      Track& track = tracks_[key];
      track.by_server = false;
      if (!watch_one_of(key, track, shims)) tracks_.erase(key);
    }
    log_event(LogLevel::kInfo, "agent", "attempts_adopted", {},
              {{"adopted", tracks_.size() - gone.size()}, {"gone", gone.size()}});
  }
  for (const AttemptKey& key : gone) settle_without_shim(key, "its shim is gone without an outcome", now);
  remove_leftovers();
  send_requests();
}

/// Watches a shim by pidfd, once its name is seen to be its own after the pidfd was made. False: it is gone.
bool ShimSpawner::watch(const AttemptKey& key, Track& track, pid_t pid) {
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));  // Close-on-exec by itself.
  if (pidfd < 0) {
    if (errno == ESRCH || errno == EINVAL) return false;
    cannot_watch(key, errno_words());
  }
  const std::vector<std::string> words = processes_.command_line(pid);
  if (words.empty() && processes_.command_line(getpid()).empty()) cannot_watch(key, why_unreadable());
  if (words.size() < 2 || words[1] != title_of(key) || !shim::is_shim(pid, options_.shim_program.c_str())) {
    close(pidfd);
    return false;
  }
  track.pidfd = pidfd;
  track.shim_pid = pid;
  track.shim = process_of(pid);
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kPidfdTag + static_cast<uint64_t>(pid)}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, pidfd, &interest);
  if (track.stop_wanted) stop(key, *std::exchange(track.stop_wanted, std::nullopt));
  track.container = access(file_of(key, shim::kContainerFile).c_str(), F_OK) == 0;
  if (track.started) return true;
  if (is_preparing(key)) {
    next_preparing_look_ = std::min(next_preparing_look_, clock_.monotonic() + kPreparingPause);
  } else {
    report_found(key, track);
  }
  return true;
}

void ShimSpawner::report_found(const AttemptKey& key, Track& track) {
  track.started = true;
  begun(key, track);
  struct stat folder{};
  const std::string path = options_.data_folder + "/attempts/" + shim::key_text(key);
  int64_t started_unix_ns = 0;  // Its folder was made when it began.
  // A link leads to a file of the job's choice, which may be on a file system that does not answer.
  if (lstat((path + "/" + shim::kStdoutFile).c_str(), &folder) == 0 || stat(path.c_str(), &folder) == 0) {
    started_unix_ns = int64_t{folder.st_ctim.tv_sec} * 1'000'000'000 + folder.st_ctim.tv_nsec;
  }
  const std::vector<pid_t> children = shim::children_of(track.shim_pid);
  listener_.on_shim_found(key, children.empty() ? track.shim_pid : children.front(), started_unix_ns);
}

// Attempts that prepare.

std::string ShimSpawner::file_of(const AttemptKey& key, const char* name) const {
  return options_.data_folder + "/attempts/" + shim::key_text(key) + '/' + name;
}

std::vector<SavedWork> ShimSpawner::saved() {
  std::vector<SavedWork> found;
  const std::string name = std::string(shim::kTmpFolder) + '/' + shim::kCheckpointFile;
  for (const auto& [key, track] : tracks_) {
    struct stat file{};
    if (!track.started || lstat(file_of(key, name.c_str()).c_str(), &file) != 0) continue;
    const int64_t at = int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec;
    found.push_back({.key = key, .unix_ns = at});
  }
  return found;
}

std::string ShimSpawner::image_digest(const AttemptKey& key) {
  const auto found = tracks_.find(key);
  if (found == tracks_.end() || !found->second.container) return {};
  std::string digest = shim::read_small_file(file_of(key, shim::kImageFile).c_str(), kProgressBytesMax);
  return digest.substr(0, digest.find('\n'));
}

bool ShimSpawner::is_preparing(const AttemptKey& key) const {
  return access(file_of(key, shim::kProgressFile).c_str(), F_OK) == 0 ||
         access(file_of(key, shim::kGateFile).c_str(), F_OK) == 0;
}

bool ShimSpawner::is_prepared(const AttemptKey& key) const {
  return shim::read_small_file(file_of(key, shim::kGateFile).c_str(), kProgressBytesMax)
      .starts_with("prepared");
}

/// A shim tells the agent that started it; one that was found tells nobody.
void ShimSpawner::look_at_preparing(Time now) {
  next_preparing_look_ = kNever;
  std::vector<AttemptKey> running;
  std::vector<AttemptKey> prepared;
  for (auto& [key, track] : tracks_) {
    if (track.started || track.pidfd < 0) continue;
    next_preparing_look_ = now + kPreparingPause;
    if (!is_preparing(key)) running.push_back(key);
    if (!track.prepared && is_prepared(key)) prepared.push_back(key);
  }
  for (const AttemptKey& key : running) report_found(key, tracks_.at(key));
  for (const AttemptKey& key : prepared) {
    tracks_.at(key).prepared = true;
    listener_.on_shim_prepared(key);
  }
}

std::vector<Preparation> ShimSpawner::preparing() {
  std::vector<Preparation> found;
  for (const auto& [key, track] : tracks_) {
    if (track.started || !track.container) continue;
    std::string line = shim::read_small_file(file_of(key, shim::kProgressFile).c_str(), kProgressBytesMax);
    line = line.substr(0, line.find('\n'));
    if (!line.empty()) found.push_back({.key = key, .message = std::move(line)});
  }
  return found;
}

/// Whether an attempt without shim has no container either; if it may have one, that is being removed.
bool ShimSpawner::container_gone(const AttemptKey& key) {
  const auto ender = enders_.find(key);
  if (ender == enders_.end()) {
    const std::string plan =
        shim::read_small_file(file_of(key, shim::kContainerFile).c_str(), shim::kRequestBytesMax);
    if (plan.empty()) return true;
    std::vector<std::string> words = {"gpu-shim", std::string(shim::kContainerEndFlag)};
    for (std::size_t from = 0; from < plan.size(); from = plan.find('\0', from) + 1) {
      words.push_back(plan.substr(from, plan.find('\0', from) - from));
      if (plan.find('\0', from) == std::string::npos) break;
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    char* const nothing[] = {nullptr};
    pid_t pid = -1;
    if (posix_spawn(&pid, options_.shim_program.c_str(), nullptr, nullptr, arguments.data(), nothing) == 0)
      enders_.emplace(key, pid);
    return false;
  }
  int status = 0;
  if (waitpid(ender->second, &status, WNOHANG) == 0) return false;
  enders_.erase(ender);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void ShimSpawner::on_watched_end(const AttemptKey& key) {
  take_events();  // Its own word, if it said one to this agent.
  if (tracks_.contains(key))
    settle_without_shim(key, "its shim ended without reporting an outcome", clock_.monotonic());
}

// Attempts whose shim is gone.

std::optional<v1::Outcome> ShimSpawner::recorded_outcome(const AttemptKey& key) const {
  const std::string path =
      options_.data_folder + "/attempts/" + shim::key_text(key) + "/" + shim::kOutcomeFile;
  const std::optional<shim::Outcome> outcome =
      shim::parse_outcome(key, shim::read_small_file(path.c_str(), 1 << 20));
  if (!outcome) return std::nullopt;
  return to_wire(*outcome);
}

void ShimSpawner::settle_without_shim(const AttemptKey& key, const std::string& detail, Time now) {
  const auto found = tracks_.find(key);
  CHECK(found != tracks_.end());
  if (const std::optional<v1::Outcome> outcome = recorded_outcome(key)) {
    finish(found);
    kill_groups(key);
    if (options_.remove_scratch) options_.remove_scratch(key);
    listener_.on_shim_ended(key, *outcome);
    return;
  }
  found->second.by_server = false;
  close_if_open(found->second.pidfd);
  purging_.emplace(key, detail);
  next_purge_ = now;
  purge_pause_ = kPurgePauseFirst;
}

/// Children of earlier agents' servers that are no shims: what shims that died left there.
std::vector<pid_t> ShimSpawner::strays() {
  std::vector<pid_t> found;
  const std::string ending = "@" + options_.instance;
  for (const auto& [pid, text] : processes_.read_all(shim::all_processes(), "cmdline")) {
    const std::vector<std::string> words = words_of_process(text);
    if (words.size() < 3 || words[0] != "gpu-shim" || words[1] != shim::kDrainFlag) continue;
    if (words[2] != options_.instance || !shim::is_shim(pid, options_.shim_program.c_str())) continue;
    for (const pid_t child : shim::children_of(pid)) {
      const std::vector<std::string> name = processes_.command_line(child);
      if (name.size() < 2 || name[0] != "gpu-shim" || !name[1].ends_with(ending)) found.push_back(child);
    }
  }
  return found;
}

/// Kills what is in an attempt's groups, and removes these when nothing was left. True then.
bool ShimSpawner::kill_groups(const AttemptKey& key) const {
  if (options_.cgroups == nullptr) return true;
  const std::vector<std::string> folders = options_.cgroups->folders_of(shim::key_text(key));
  bool clean = true;
  for (const std::string& folder : folders) clean = shim::kill_cgroup(folder) && clean;
  if (clean) {
    for (const std::string& folder : folders) shim::remove_cgroup(folder);
  }
  return clean;
}

// By the mark in its environment; of a program that wrote over that, by its ancestors.
bool ShimSpawner::owns(const AttemptKey& key, int64_t pid) {
  const std::string mark = std::string(shim::kMarkerVariable) + '=' + title_of(key);
  if (processes_.has_environment(static_cast<pid_t>(pid), mark)) return true;
  const auto track = tracks_.find(key);
  return track != tracks_.end() && track->second.shim_pid > 0 &&
         shim::descends_from(static_cast<pid_t>(pid), track->second.shim_pid);
}

/// Groups of attempts that nobody knows any more, or whose shims could not remove them in time.
void ShimSpawner::remove_leftovers() {
  if (options_.cgroups == nullptr) return;
  for (const std::string& name : options_.cgroups->groups()) {
    const std::optional<AttemptKey> key = shim::parse_key(name);
    if (key && !tracks_.contains(*key)) kill_groups(*key);
  }
}

/// Kills what dead shims left, found as orphans and by the mark in its environment, until a look finds
/// nothing.
void ShimSpawner::purge(Time now) {
  std::vector<pid_t> orphans = strays();
  // A process that is another user's now is not ours to end, and nobody waits for that.
  std::erase_if(orphans, [](pid_t pid) { return kill(pid, SIGKILL) != 0 && errno == EPERM; });
  std::vector<AttemptKey> clean;
  for (const auto& [key, detail] : purging_) {
    const std::string mark = std::string(shim::kMarkerVariable) + '=' + title_of(key);
    const std::vector<pid_t> left = processes_.processes_with_environment(mark);
    // A set-uid program is another user's: an agent without root cannot end it, and trying for ever helps
    // nobody.
    const bool given_up = now - purging_since_.try_emplace(key, now).first->second >= kPurgePatience;
    bool ours = false;
    for (const pid_t pid : left) ours = kill(pid, SIGKILL) == 0 || errno != EPERM || ours;
    if (!left.empty() && !ours && given_up) {
      log_event(LogLevel::kError, "agent", "process_left", {.id = key.job},
                {{"pid", static_cast<int64_t>(left.front())},
                 {"why", "it runs as another user, and this agent may not kill it"}});
    }
    const bool done = left.empty() || (!ours && given_up);
    if (kill_groups(key) && done && orphans.empty() && container_gone(key)) clean.push_back(key);
  }
  for (const AttemptKey& key : clean) {
    const std::string detail = purging_.at(key);
    finish(tracks_.find(key));
    if (options_.remove_scratch) options_.remove_scratch(key);
    listener_.on_shim_lost(key, detail);
  }
  next_purge_ = purging_.empty() ? kNever : now + purge_pause_;
  purge_pause_ = std::min(purge_pause_ * 2, kPurgePauseMax);
}

}  // namespace gpusched
