#include "node/workers/worker_spawner.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/net/endpoint.h"
#include "log/log.h"
#include "node/tasks/worker_plan.h"
#include "shim/endpoint/endpoint_worker.h"
#include "shim/processes.h"
#include "shim/worker/task_wire.h"

namespace gpusched {
namespace {

constexpr uint64_t kShimsTag = 0;  ///< epoll data; of a worker it is its job's number.
constexpr int kGreetingPatienceMs = 2'000;
constexpr Duration kIdleGrace = seconds(2);
/// Time that an earlier agent's worker has, until its tasks are taken from it.
constexpr Duration kSilenceMax = seconds(10);
constexpr int kTriesMax = 3;
constexpr Duration kFullPause = milliseconds(5);
constexpr std::size_t kEventBytesMax = 16 * 1024;
constexpr std::size_t kOutcomeBytesMax = 1 << 20;
constexpr const char* kCoresFile = "cpuset.cpus";
constexpr std::size_t kCoresBytesMax = 4'096;

/// No two workers of a data folder have the same.
AttemptKey next_worker_key() {
  static uint64_t last = 0;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  last = std::max(last + 1, ns);
  return {JobId{shim::kWorkerJobFirst + last}, 1, 0};
}

/// The group is not bound to an attempt's cores. One of version 1 takes nobody in without any: it gets all
/// that the group above it has.
void leave_cores(shim::CgroupFolder& folder) {
  if (folder.unified) {
    std::erase_if(folder.settings,
                  [](const shim::CgroupSetting& setting) { return setting.file == kCoresFile; });
    return;
  }
  const std::string above = folder.path.substr(0, folder.path.rfind('/')) + '/' + kCoresFile;
  for (shim::CgroupSetting& setting : folder.settings) {
    if (setting.file != kCoresFile) continue;
    std::string cores = shim::read_small_file(above.c_str(), kCoresBytesMax);
    cores = cores.substr(0, cores.find('\n'));
    if (!cores.empty()) setting.value = std::move(cores);
  }
}

std::optional<shim::WorkerGreeting> read_greeting(int connection) {
  pollfd source{.fd = connection, .events = POLLIN, .revents = 0};
  if (poll(&source, 1, kGreetingPatienceMs) <= 0) return std::nullopt;
  std::array<char, kEventBytesMax> buffer;
  const ssize_t size = recv(connection, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size <= 0) return std::nullopt;
  return shim::decode_greeting({buffer.data(), static_cast<std::size_t>(size)});
}

/// The URL that a worker of an earlier agent sends its tasks to; empty: it is none of an endpoint.
std::string endpoint_of(int64_t pid) {
  const std::vector<std::string> words = shim::command_line(static_cast<pid_t>(pid));
  if (words.size() != 3 || words[1] != shim::kEndpointFlag) return {};
  const std::optional<Endpoint> endpoint = parse_endpoint(words[2]);
  return endpoint ? endpoint->url : std::string();
}

v1::Outcome outcome_of(v1::Outcome::Cause cause, const std::string& detail) {
  v1::Outcome outcome;
  outcome.set_cause(cause);
  outcome.set_detail(detail);
  return outcome;
}

}  // namespace

WorkerSpawner::WorkerSpawner(WorkerSpawnerOptions options, const Clock& clock, ShimListener& listener)
    : options_(std::move(options)),
      clock_(clock),
      listener_(listener),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

WorkerSpawner::~WorkerSpawner() {
  for (auto& [key, worker] : workers_) {
    if (worker.connection >= 0) close(worker.connection);
  }
  if (epoll_ >= 0) close(epoll_);
}

void WorkerSpawner::begin(ShimSpawner& shims) {
  shims_ = &shims;
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kShimsTag}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, shims.descriptor(), &interest);
}

std::string WorkerSpawner::folder_of(const AttemptKey& key) const {
  return options_.data_folder + '/' + shim::kAttemptsFolder + '/' + shim::key_text(key);
}

WorkerSpawner::Worker* WorkerSpawner::worker_of(const AttemptKey& task) {
  const auto found = tasks_.find(task);
  if (found == tasks_.end()) return nullptr;
  const auto worker = workers_.find(found->second);
  CHECK(worker != workers_.end());
  return &worker->second;
}

// Starts.

void WorkerSpawner::start(SpawnRequest request) { dispatch(std::move(request)); }

void WorkerSpawner::dispatch(SpawnRequest request) {
  if (request.worker != nullptr && is_endpoint_full(*request.worker))
    return held_.push_back(std::move(request));
  if (request.worker != nullptr) {
    while (Worker* const worker = worker_with_room(*request.worker)) {
      if (join(*worker, request)) return;
      end_worker(*worker);
    }
  }
  if (!clear_way(request)) {
    held_.push_back(std::move(request));
  } else if (request.worker != nullptr) {
    start_worker(std::move(request));
  } else {
    shims_->start(std::move(request));
  }
}

/// Whether its endpoint has as many tasks of all workers as one of them may have.
bool WorkerSpawner::is_endpoint_full(const WorkerPlan& plan) const {
  if (plan.endpoint.empty()) return false;
  std::size_t tasks = 0;
  for (const auto& [key, worker] : workers_)
    tasks += worker.endpoint == plan.endpoint ? worker.tasks.size() : 0;
  return tasks >= plan.tasks_max;
}

/// One that runs, or else one that is being started.
WorkerSpawner::Worker* WorkerSpawner::worker_with_room(const WorkerPlan& plan) {
  Worker* starting = nullptr;
  for (auto& [key, worker] : workers_) {
    if (worker.ending || worker.tasks.size() >= worker.room || worker.match != plan.match) continue;
    if (worker.connection >= 0) return &worker;
    if (!worker.begun) starting = &worker;
  }
  return starting;
}

/// Takes the request. False: the worker is not there any more, and the request is left as it was.
bool WorkerSpawner::join(Worker& worker, SpawnRequest& request) {
  const AttemptKey key = request.key;
  Task& task = worker.tasks[key];
  task.request = std::move(request);
  tasks_[key] = worker.key;
  if (worker.connection < 0 || give_task(worker, key)) return true;
  keep_spare(task);
  request = std::move(task.request);
  worker.tasks.erase(key);
  tasks_.erase(key);
  return false;
}

/// Ends the workers without a task on its devices. False: some are not gone yet.
bool WorkerSpawner::clear_way(const SpawnRequest& request) {
  bool clear = true;
  for (auto& [key, worker] : workers_) {
    if (!worker.tasks.empty()) continue;
    const bool on_them = std::any_of(request.devices.begin(), request.devices.end(),
                                     [&idle = worker](const HeldDevice& device) {
                                       return idle.match.empty() || idle.devices.contains(device.index);
                                     });
    if (!on_them) continue;
    end_worker(worker);
    clear = false;
  }
  return clear;
}

void WorkerSpawner::dispatch_held() {
  for (SpawnRequest& request : std::exchange(held_, {})) dispatch(std::move(request));
}

void WorkerSpawner::start_worker(SpawnRequest request) {
  const AttemptKey key = next_worker_key();
  const std::string name = shim::key_text(key);
  const std::string tasks_name = shim::key_text(request.key);
  SpawnRequest own = request;
  own.key = key;
  own.worker = nullptr;
  own.max_runtime = {};
  own.arguments = request.worker->arguments;
  own.environment.clear();
  for (const std::string& entry : request.worker->environment)
    own.environment.push_back(with_key(entry, tasks_name, name));
  // It has no cores for itself: the next task's attempt may be given others.
  own.box.cpus.clear();
  for (shim::CgroupFolder& folder : own.box.cgroups) {
    leave_cores(folder);
    if (folder.path.ends_with('/' + tasks_name))
      folder.path.replace(folder.path.size() - tasks_name.size(), tasks_name.size(), name);
  }
  Worker worker{.key = key, .match = request.worker->match, .devices = {}, .room = request.worker->tasks_max};
  worker.endpoint = request.worker->endpoint;
  for (const HeldDevice& device : request.devices) worker.devices.insert(device.index);
  log_event(LogLevel::kInfo, "agent", "worker_starting", {.id = request.key.job}, {{"worker", name}});
  join(workers_.emplace(key, std::move(worker)).first->second, request);
  shims_->start(std::move(own));
}

/// Gives a task to a worker that is connected. False: it is not there any more.
bool WorkerSpawner::give_task(Worker& worker, const AttemptKey& key) {
  Task& task = worker.tasks.at(key);
  if (options_.spares != nullptr && task.spare_folder.empty()) task.spare_folder = options_.spares->take();
  const std::string packet = shim::encode(shim::WorkerTask{.key = key,
                                                           .max_runtime = task.request.max_runtime,
                                                           .frame = task.request.worker->frame,
                                                           .spare_folder = task.spare_folder,
                                                           .payload_bytes = task.request.payload_bytes});
  task.given = send(worker.connection, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
  if (task.given || (errno != EAGAIN && errno != ENOBUFS && errno != EINTR)) return task.given;
  gives_again_ = clock_.monotonic() + kFullPause;
  return true;
}

void WorkerSpawner::give_again() {
  gives_again_ = kNever;
  for (auto& [key, worker] : workers_) {
    if (worker.connection < 0 || worker.ending) continue;
    bool good = true;
    for (const auto& [task, known] : worker.tasks) good = good && (known.given || give_task(worker, task));
    if (!good) end_worker(worker);
  }
}

/// Gives back the spare folder of a task that did not begin.
void WorkerSpawner::keep_spare(Task& task) {
  if (!task.spare_folder.empty()) options_.spares->give_back(std::exchange(task.spare_folder, {}));
}

void WorkerSpawner::end_worker(Worker& worker) {
  if (std::exchange(worker.ending, true)) return;
  shims_->stop(worker.key, StopOrder(kIdleGrace));
}

// Orders about tasks.

void WorkerSpawner::stop(const AttemptKey& key, const StopOrder& order) {
  const auto waits = std::find_if(held_.begin(), held_.end(),
                                  [&key](const SpawnRequest& request) { return request.key == key; });
  if (waits != held_.end()) {
    held_.erase(waits);
    return never_began(key);
  }
  Worker* const worker = worker_of(key);
  if (worker == nullptr) return shims_->stop(key, order);
  Task& task = worker->tasks.at(key);
  task.stopping = true;
  if (worker->tasks.size() == 1 && !(worker->cancels && task.given)) {
    worker->ending = true;
    return shims_->stop(worker->key, order);
  }
  if (!task.given) {
    keep_spare(task);
    worker->tasks.erase(key);
    tasks_.erase(key);
    has_room_again_ = true;
    return never_began(key);
  }
  const std::string packet = shim::encode(shim::TaskStop{.key = key, .grace = order.grace});
  // An order that cannot be told is repeated, or the task is ended by force when it has not ended in time.
  static_cast<void>(send(worker->connection, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0);
}

void WorkerSpawner::never_began(const AttemptKey& key) {
  later_.emplace_back([this, key] {
    listener_.on_shim_ended(key, outcome_of(v1::Outcome::STOPPED, "stopped before it began"));
  });
}

void WorkerSpawner::force_end(const AttemptKey& key) {
  Worker* const worker = worker_of(key);
  shims_->force_end(worker == nullptr ? key : worker->key);
}

void WorkerSpawner::set_max_runtime(const AttemptKey& key, Duration limit) {
  for (SpawnRequest& request : held_) {
    if (request.key == key) request.max_runtime = limit;
  }
  Worker* const worker = worker_of(key);
  if (worker == nullptr) return shims_->set_max_runtime(key, limit);
  Task& task = worker->tasks.at(key);
  if (!task.given) task.request.max_runtime = limit;
  if (!shims_->write_limit(key, limit)) task.limit_wanted = limit;
}

std::vector<Preparation> WorkerSpawner::preparing() {
  std::vector<Preparation> found = shims_->preparing();
  for (const SpawnRequest& request : held_) {
    const bool full = request.worker != nullptr && is_endpoint_full(*request.worker);
    found.push_back({.key = request.key,
                     .message = full ? "its endpoint has as many requests as it may on this node"
                                     : "a worker without a task leaves its GPU"});
  }
  return found;
}

std::vector<SavedWork> WorkerSpawner::saved() {
  std::vector<SavedWork> found = shims_->saved();
  std::erase_if(found, [](const SavedWork& saved) { return shim::is_worker_key(saved.key); });
  return found;
}

bool WorkerSpawner::owns(const AttemptKey& key, int64_t pid) {
  const Worker* const worker = worker_of(key);
  return shims_->owns(worker == nullptr ? key : worker->key, pid);
}

bool WorkerSpawner::keeps(int64_t pid) {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second.tasks.empty() && !entry.second.ending && shims_->owns(entry.first, pid);
  });
}

std::size_t WorkerSpawner::tasks_beside(const AttemptKey& key) {
  const Worker* const worker = worker_of(key);
  return worker == nullptr ? 1 : worker->tasks.size();
}

ShimProcess WorkerSpawner::shim_of(const AttemptKey& key) {
  const Worker* const worker = worker_of(key);
  return shims_->shim_of(worker == nullptr ? key : worker->key);
}

// A new agent.

void WorkerSpawner::adopt(const std::vector<AttemptKey>& keys) {
  std::set<AttemptKey> running;
  std::vector<AttemptKey> others;
  std::error_code ignored;
  const std::string attempts = options_.data_folder + '/' + shim::kAttemptsFolder;
  for (const auto& entry : std::filesystem::directory_iterator(attempts, ignored)) {
    const std::optional<AttemptKey> key = shim::parse_key(entry.path().filename().string());
    if (!key || !shim::is_worker_key(*key)) continue;
    adopt_worker(*key, running);
    others.push_back(*key);
  }
  shims_->adopt(others);
  for (const AttemptKey& key : keys) {
    if (!running.contains(key)) to_adopt_.push_back(key);
  }
  silence_ends_ = clock_.monotonic() + kSilenceMax;
  adopt_rest();
}

/// Adopts the rest: an attempt that is neither a worker's task nor has a shim would be taken for lost.
void WorkerSpawner::adopt_rest() {
  const bool silent =
      std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) { return entry.second.silent; });
  if (silent) return;
  silence_ends_ = kNever;
  if (!to_adopt_.empty()) shims_->adopt(std::exchange(to_adopt_, {}));
}

void WorkerSpawner::end_silent() {
  silence_ends_ = kNever;
  std::vector<AttemptKey> silent;
  for (const auto& [key, worker] : workers_) {
    if (worker.silent) silent.push_back(key);
  }
  for (const AttemptKey& key : silent) shims_->force_end(key);
}

/// Its shim tells which task it has. One that does not is looked for as any attempt's shim is.
void WorkerSpawner::adopt_worker(const AttemptKey& key, std::set<AttemptKey>& running) {
  Worker& worker = workers_.emplace(key, Worker{.key = key}).first->second;
  worker.begun = true;
  worker.silent = true;
  const std::optional<int> connection = connect_to(key);
  if (!connection) return;
  worker.connection = *connection;
  const std::optional<shim::WorkerGreeting> greeting = read_greeting(*connection);
  watch(worker);
  worker.silent = !greeting;
  if (!greeting) return;
  worker.endpoint = endpoint_of(greeting->pid);
  for (const shim::WorkerGreeting::Task& task : greeting->tasks) {
    worker.tasks[task.key] = {.given = true, .started = true};
    tasks_[task.key] = key;
    running.insert(task.key);
    later_.emplace_back([this, task, pid = greeting->pid] {
      if (tasks_.contains(task.key)) listener_.on_shim_found(task.key, pid, task.started_unix_ns);
    });
  }
}

// Reports of shims.

void WorkerSpawner::on_shim_started(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) {
  if (!shim::is_worker_key(key)) return listener_.on_shim_started(key, pid, started_unix_ns);
  const auto found = workers_.find(key);
  if (found == workers_.end()) {  // An earlier agent's whose folder is gone.
    shims_->stop(key, StopOrder(kIdleGrace));
    return;
  }
  Worker& worker = found->second;
  worker.begun = true;
  if (worker.match.empty()) {  // An earlier agent's.
    if (worker.tasks.empty()) end_worker(worker);
    return;
  }
  if (const std::optional<int> connection = connect_to(key)) {
    worker.connection = *connection;
    watch(worker);
  }
  // The end of a worker says that it cannot be reached or does not take its tasks.
  bool good = worker.connection >= 0 && !worker.tasks.empty();
  for (const auto& [task, known] : worker.tasks) good = good && give_task(worker, task);
  if (!good) end_worker(worker);
}

void WorkerSpawner::on_shim_found(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) {
  if (!shim::is_worker_key(key)) return listener_.on_shim_found(key, pid, started_unix_ns);
  on_shim_started(key, pid, started_unix_ns);
}

void WorkerSpawner::on_shim_saved(const AttemptKey& key, int64_t unix_ns) {
  if (!shim::is_worker_key(key)) listener_.on_shim_saved(key, unix_ns);
}

void WorkerSpawner::on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) {
  if (!shim::is_worker_key(key)) return listener_.on_shim_ended(key, outcome);
  worker_over(key, outcome);
}

void WorkerSpawner::on_shim_lost(const AttemptKey& key, const std::string& detail) {
  if (!shim::is_worker_key(key)) return listener_.on_shim_lost(key, detail);
  worker_over(key, outcome_of(v1::Outcome::SHIM_LOST, detail));
}

/// All of the worker is gone. Its task has an outcome, or was never begun, or is lost with its shim.
void WorkerSpawner::worker_over(const AttemptKey& key, const v1::Outcome& outcome) {
  const auto found = workers_.find(key);
  if (found == workers_.end()) return;
  if (found->second.connection >= 0) take_packets(found->second);
  Worker worker = std::move(found->second);
  workers_.erase(found);
  if (worker.connection >= 0) close(worker.connection);
  log_event(LogLevel::kInfo, "agent", "worker_ended", {},
            {{"worker", shim::key_text(key)}, {"why", outcome.detail()}});
  if (options_.remove) options_.remove(key);
  for (auto& [task, known] : worker.tasks) {
    tasks_.erase(task);
    task_over(task, std::move(known), worker.begun, outcome);
  }
  adopt_rest();
  dispatch_held();
}

void WorkerSpawner::task_over(const AttemptKey& key, Task&& task, bool was_begun,
                              const v1::Outcome& outcome) {
  if (const std::optional<v1::Outcome> recorded = recorded_outcome(key)) {
    listener_.on_shim_ended(key, *recorded);
  } else if (task.started || access(folder_of(key).c_str(), F_OK) == 0) {
    listener_.on_shim_lost(key, "the shim of its worker ended without reporting an outcome");
  } else if (keep_spare(task); was_begun && !task.stopping && ++tries_[key] < kTriesMax) {
    held_.push_back(std::move(task.request));
  } else {
    tries_.erase(key);
    listener_.on_shim_ended(key, outcome);
  }
}

std::optional<v1::Outcome> WorkerSpawner::recorded_outcome(const AttemptKey& task) const {
  const std::string path = folder_of(task) + '/' + shim::kOutcomeFile;
  const std::optional<shim::Outcome> outcome =
      shim::parse_outcome(task, shim::read_small_file(path.c_str(), kOutcomeBytesMax));
  if (!outcome) return std::nullopt;
  return to_wire(*outcome);
}

// Connections to workers' shims.

std::optional<int> WorkerSpawner::connect_to(const AttemptKey& worker) const {
  const int folder = ::open(folder_of(worker).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  // By way of the folder's descriptor: paths of sockets are short.
  const std::string path = "/proc/self/fd/" + std::to_string(folder) + '/' + shim::kWorkerSocket;
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  std::memcpy(place.sun_path, path.c_str(), path.size() + 1);
  const bool connected = folder >= 0 && connection >= 0 &&
                         ::connect(connection, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0;
  if (folder >= 0) close(folder);
  if (connected) return connection;
  if (connection >= 0) close(connection);
  return std::nullopt;
}

void WorkerSpawner::watch(Worker& worker) {
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = worker.key.job.value}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, worker.connection, &interest);
}

void WorkerSpawner::take_packets(Worker& worker) {
  std::array<char, kEventBytesMax> buffer;
  while (worker.connection >= 0) {
    const ssize_t size = recv(worker.connection, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {  // Its end is told by its shim's.
      close(std::exchange(worker.connection, -1));
      return;
    }
    const std::string_view packet(buffer.data(), static_cast<std::size_t>(size));
    if (shim::decode_greeting(packet)) continue;
    if (const std::optional<shim::WorkerRoom> room = shim::decode_room(packet)) {
      worker.room = room->tasks;
      worker.cancels = room->cancels;
      continue;
    }
    if (const std::optional<shim::Event> event = shim::decode_event(packet)) take_event(worker, *event);
  }
}

void WorkerSpawner::take_event(Worker& worker, const shim::Event& event) {
  const auto found = worker.tasks.find(event.key);
  if (found == worker.tasks.end()) return;
  Task& task = found->second;
  switch (event.kind) {
    case shim::EventKind::kStarted:
      task.started = true;
      task.request = {};
      task.spare_folder.clear();
      tries_.erase(event.key);
      if (task.limit_wanted) shims_->write_limit(event.key, *std::exchange(task.limit_wanted, std::nullopt));
      return listener_.on_shim_started(event.key, event.pid, event.started_unix_ns);
    case shim::EventKind::kEnded:
      return task_ended(worker, event.key, to_wire(event.outcome));
    case shim::EventKind::kExists: {
      keep_spare(task);
      const std::optional<v1::Outcome> recorded = recorded_outcome(event.key);
      return task_ended(
          worker, event.key,
          recorded.value_or(outcome_of(v1::Outcome::SHIM_LOST, "it was begun before, and has no outcome")));
    }
    case shim::EventKind::kLost:
    case shim::EventKind::kSaved:
    case shim::EventKind::kPrepared:
      return;
  }
}

void WorkerSpawner::task_ended(Worker& worker, const AttemptKey& key, const v1::Outcome& outcome) {
  worker.tasks.erase(key);
  tasks_.erase(key);
  tries_.erase(key);
  has_room_again_ = true;
  if (worker.match.empty() && worker.tasks.empty()) end_worker(worker);
  listener_.on_shim_ended(key, outcome);
}

void WorkerSpawner::pump() {
  for (const std::function<void()>& word : std::exchange(later_, {})) word();
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = ready[static_cast<std::size_t>(i)].data.u64;
    if (tag == kShimsTag) continue;
    const auto found = workers_.find({JobId{tag}, 1, 0});
    if (found != workers_.end()) take_packets(found->second);
  }
  shims_->pump();
  if (clock_.monotonic() >= silence_ends_) end_silent();
  if (clock_.monotonic() >= gives_again_) give_again();
  if (std::exchange(has_room_again_, false)) dispatch_held();
}

Time WorkerSpawner::next_deadline() const {
  if (!later_.empty() || has_room_again_) return clock_.monotonic();
  return std::min({shims_->next_deadline(), silence_ends_, gives_again_});
}

}  // namespace gpusched
