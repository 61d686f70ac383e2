#include "shim/worker/worker_task_queue.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "shim/attempt_files.h"
#include "shim/clocks.h"

namespace gpusched::shim {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kLengthBytes = 4;
/// A task's frame, and what stands beside it.
constexpr std::size_t kTaskPacketBytesMax = kTaskFrameBytesMax + 256;
constexpr int kDiskPauseMs = 200;
constexpr int kWriteTriesMax = 25;
constexpr mode_t kFolderMode = 0750;

void close_if_open(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

std::string words_of(int error) {
  const char* words = strerrordesc_np(error);
  return words == nullptr ? "unknown error" : words;
}

/// The text behind "NAME=" in an environment block; null: it is not there.
const char* value_of(const std::vector<char*>& environment, const char* name) {
  const std::size_t size = std::strlen(name);
  for (const char* entry : environment) {
    if (entry != nullptr && std::strncmp(entry, name, size) == 0 && entry[size] == '=')
      return entry + size + 1;
  }
  return nullptr;
}

/// Then what is to be written waits for room: that delays it and never loses it.
bool is_full(int error) { return error == ENOSPC || error == EDQUOT; }

/// Whole, or false, and `errno` says why.
bool write_outcome(int folder, const AttemptKey& key, const Outcome& outcome) {
  const int file = open_emptied(folder, kOutcomeFile);
  if (file < 0) return false;
  const std::string text = format_outcome(key, outcome);
  const ssize_t size = write(file, text.data(), text.size());
  const int why = size < 0 ? errno : ENOSPC;
  close(file);
  errno = why;
  return size == static_cast<ssize_t>(text.size());
}

/// A spare folder may come from an attempt that lived in another box.
bool set_mode(int folder) {
  struct stat facts{};
  if (fstat(folder, &facts) != 0) return false;
  return (facts.st_mode & 07777) == kFolderMode || fchmod(folder, kFolderMode) == 0;
}

}  // namespace

std::optional<Duration> written_limit(int folder) {
  const int file = openat(folder, kRuntimeFile, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return std::nullopt;
  std::array<char, 32> text{};
  const ssize_t size = read(file, text.data(), text.size() - 1);
  close(file);
  if (size <= 0) return std::nullopt;
  const Duration limit = milliseconds(std::strtoll(text.data(), nullptr, 10));
  return limit.ns < 0 ? std::nullopt : std::optional(limit);
}

WorkerTaskQueue::~WorkerTaskQueue() {
  for (int* descriptor : {&listener_, &agent_, &frames_, &workers_frames_}) close_if_open(*descriptor);
  for (auto& [key, task] : tasks_) {
    close_if_open(task.folder);
    close_if_open(task.output);
  }
  drop_frames();
}

std::string WorkerTaskQueue::open(int folder, const std::vector<char*>& environment) {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return "cannot create the worker's socket: " + words_of(errno);
  frames_ = pair[0];
  workers_frames_ = pair[1];
  fcntl(frames_, F_SETFL, O_NONBLOCK);
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  // By way of the folder's descriptor: paths of sockets are short.
  socket_path_ = "/proc/self/fd/" + std::to_string(folder) + '/' + kWorkerSocket;
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  std::memcpy(place.sun_path, socket_path_.c_str(), socket_path_.size() + 1);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0 ||
      chmod(socket_path_.c_str(), 0600) != 0 || listen(listener_, 2) != 0) {
    return "cannot create the socket for the worker's tasks: " + words_of(errno);
  }
  const char* const idle = value_of(environment, kIdleVariable);
  if (idle != nullptr) idle_max_ = milliseconds(std::max<int64_t>(std::strtoll(idle, nullptr, 10), 0));
  const char* const tasks = value_of(environment, kTasksVariable);
  if (tasks != nullptr) {
    tasks_max_ = static_cast<uint32_t>(
        std::clamp<int64_t>(std::strtoll(tasks, nullptr, 10), 1, int64_t{kTasksAtOnceMax}));
  }
  room_ = tasks_max_;
  const char* const health = value_of(environment, kHealthVariable);
  if (health != nullptr) health_ = milliseconds(std::max<int64_t>(std::strtoll(health, nullptr, 10), 1));
  return {};
}

int WorkerTaskQueue::hand_over() {
  const int handed_over = dup2(workers_frames_, kFrameDescriptor);
  close_if_open(workers_frames_);
  return handed_over;
}

void WorkerTaskQueue::begin(int64_t pid, Time now) {
  pid_ = pid;
  if (idle_max_.ns > 0) idle_end_ = now + idle_max_;
}

void WorkerTaskQueue::wait(int signals, Duration span) {
  std::array<pollfd, 4> sources{};
  sources[0] = {.fd = signals, .events = POLLIN, .revents = 0};
  // One agent after the other: what the last one said counts first.
  sources[1] = {.fd = agent_ < 0 && takes_more_ ? listener_ : -1, .events = POLLIN, .revents = 0};
  sources[2] = {.fd = agent_, .events = 0, .revents = 0};
  if (!takes_more_ && told_.empty()) sources[2].fd = -1;
  if (takes_more_) sources[2].events |= POLLIN;
  if (!told_.empty()) sources[2].events |= POLLOUT;
  sources[3] = {.fd = broken_.empty() && !closed_ ? frames_ : -1, .events = POLLIN, .revents = 0};
  if (!to_worker_.empty()) sources[3].events |= POLLOUT;
  const int64_t limit_ms = std::clamp<int64_t>((span.ns + 999'999) / 1'000'000, 0, INT_MAX);
  if (poll(sources.data(), sources.size(), static_cast<int>(limit_ms)) <= 0) return;
  // Answers before tasks: the next task comes to a worker that is free.
  if ((sources[3].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_answers();
  if ((sources[3].revents & POLLOUT) != 0) write_frames();
  if (sources[1].revents != 0) take_agent();
  if ((sources[2].revents & POLLOUT) != 0) write_told();
  if (takes_more_ && (sources[2].revents & (POLLIN | POLLHUP | POLLERR)) != 0) take_packets();
}

// Limits of tasks.

Time WorkerTaskQueue::next_look() const {
  Time next = std::min({idle_end_, check_due_, check_lost_});
  for (const auto& [key, task] : tasks_)
    next = std::min({next, task.ending == Cause::kUnspecified ? task.deadline : kNever, task.gives_up});
  return next;
}

bool WorkerTaskQueue::must_end(Time now) {
  check_health(now);
  if (!broken_.empty() || now >= idle_end_) return true;
  for (auto& [key, task] : tasks_) {
    if (task.ending != Cause::kUnspecified || now < task.deadline || has_longer(task, now)) continue;
    begin_end(task, Cause::kTimeout,
              "stopped at its time limit of " + std::to_string(task.max_runtime.ms()) + " ms", grace_, now);
  }
  write_frames();
  const bool others = std::any_of(tasks_.begin(), tasks_.end(), [](const auto& entry) {
    return entry.second.ending == Cause::kUnspecified;
  });
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& entry) {
    const Task& task = entry.second;
    return task.ending != Cause::kUnspecified && (now >= task.gives_up || (!cancels_ && !others));
  });
}

void WorkerTaskQueue::check_health(Time now) {
  if (now >= check_lost_) read_answers();  // It may have been us who did not listen.
  if (now >= check_lost_ && broken_.empty()) {
    broken_ = "the worker hangs: it did not answer within " + std::to_string(health_.ms()) + " ms how it is";
  } else if (now >= check_due_) {
    add_frame("{\"check\":" + std::to_string(++check_) + "}\n");
    check_due_ = kNever;
    check_lost_ = now + health_;
  }
}

/// A worker that cannot end one task alone gets no further one. It ends as soon as no other task of it runs,
/// or when the grace is over.
void WorkerTaskQueue::begin_end(Task& task, Cause cause, std::string detail, Duration grace, Time now) {
  task.ending = cause;
  task.detail = std::move(detail);
  task.gives_up = now + grace;
  if (cancels_) {
    add_frame("{\"cancel\":\"" + key_text(task.key) + "\"}\n");
  } else if (!std::exchange(draining_, true)) {
    say_room();
  }
}

bool WorkerTaskQueue::has_longer(Task& task, Time now) {
  const std::optional<Duration> limit = written_limit(task.folder);
  if (!limit) return false;
  task.max_runtime = *limit;
  task.deadline = limit->ns == 0 ? kNever : task.started + *limit;
  return now < task.deadline;
}

// The agent.

void WorkerTaskQueue::take_agent() {
  agent_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (agent_ < 0) return;
  had_agent_ = true;
  WorkerGreeting greeting{.pid = pid_, .shim_pid = getpid(), .tasks = {}};
  for (const auto& [key, task] : tasks_)
    greeting.tasks.push_back({.key = key, .started_unix_ns = task.started_unix_ns});
  say(encode(greeting));
  if (room_ < tasks_max_ || draining_ || cancels_) say_room();
}

void WorkerTaskQueue::take_packets() {
  if (packet_ == nullptr) packet_ = std::make_unique_for_overwrite<char[]>(kTaskPacketBytesMax);
  bool gone = false;
  while (!gone) {
    const ssize_t size = recv(agent_, packet_.get(), kTaskPacketBytesMax, MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    gone = size <= 0;
    if (!gone) take_packet({packet_.get(), static_cast<std::size_t>(size)});
  }
  start_waiting();
  if (gone) close_agent();
}

/// Outcomes are on disk, and the next agent looks there. It has no tasks for this worker: it does not know
/// what these would have to match. A task that still waits is not in the greeting to that agent, which takes
/// it for lost and has it tried again: it must not begin here later.
void WorkerTaskQueue::close_agent() {
  close_if_open(agent_);
  told_.clear();
  waiting_.clear();
  if (tasks_.empty()) idle_end_ = boot_now();
}

void WorkerTaskQueue::take_packet(std::string_view packet) {
  if (std::optional<WorkerTask> task = decode_task(packet)) {
    if (waiting_.size() < kTasksAtOnceMax) waiting_.push_back(std::move(*task));
  } else if (const std::optional<TaskStop> stop = decode_stop_task(packet)) {
    take_stop(*stop);
  }
}

void WorkerTaskQueue::take_stop(const TaskStop& stop) {
  const auto waits = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&stop](const WorkerTask& task) { return task.key == stop.key; });
  if (waits != waiting_.end()) {
    waiting_.erase(waits);
    return say(encode(Event{.kind = EventKind::kEnded,
                            .key = stop.key,
                            .outcome = {.cause = Cause::kStopped, .detail = "stopped before it began"}}));
  }
  const auto found = tasks_.find(stop.key);
  if (found == tasks_.end()) return;
  Task& task = found->second;
  const Time now = boot_now();
  if (task.ending == Cause::kUnspecified) {
    begin_end(task, Cause::kStopped, "stopped by order", stop.grace, now);
  } else {
    task.gives_up = std::min(task.gives_up, now + stop.grace);
  }
}

void WorkerTaskQueue::say(const std::string& packet) {
  if (agent_ < 0) return;
  told_.push_back(packet);
  write_told();
}

void WorkerTaskQueue::say_room() {
  say(encode(WorkerRoom{.tasks = draining_ ? 0 : room_, .cancels = cancels_}));
}

void WorkerTaskQueue::write_told() {
  while (agent_ >= 0 && !told_.empty()) {
    const std::string& packet = told_.front();
    if (send(agent_, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == ENOBUFS) return;
    }
    told_.pop_front();
  }
}

// A task.

/// 0, or why there is none; EEXIST: the task has its folder already.
int WorkerTaskQueue::make_or_take(const std::string& name, const std::string& spare) {
  if (!spare.empty()) {
    const std::string from = std::string("../") + kSpareFolder + '/' + spare;
    const int taken =
        renameat2(attempts_folder_, from.c_str(), attempts_folder_, name.c_str(), RENAME_NOREPLACE);
    if (taken == 0 || errno == EEXIST) return taken == 0 ? 0 : EEXIST;
  }
  return mkdirat(attempts_folder_, name.c_str(), kFolderMode) == 0 ? 0 : errno;
}

bool WorkerTaskQueue::make_folder(Task& task, const WorkerTask& order) {
  const std::string name = key_text(task.key);
  const int made = make_or_take(name, order.spare_folder);
  if (made == EEXIST) {
    say(encode(Event{.kind = EventKind::kExists, .key = task.key}));
    return false;
  }
  errno = made;
  if (made == 0) {
    task.folder = openat(attempts_folder_, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (task.folder >= 0 && (order.spare_folder.empty() || set_mode(task.folder))) {
      task.output = open_emptied(task.folder, kStdoutFile);
      if (task.output >= 0) return true;
    }
  }
  const int why = errno;
  close_if_open(task.folder);
  fail_start(task, "cannot create the attempt's folder " + name + ": " + words_of(why));
  return false;
}

/// Only the agent learns of it, as of every start that comes to nothing.
void WorkerTaskQueue::fail_start(const Task& task, std::string detail) {
  const Outcome outcome{.cause = Cause::kNodeFault,
                        .detail = std::move(detail),
                        .started_unix_ns = task.started_unix_ns,
                        .ended_unix_ns = wall_now().ns};
  say(encode(Event{.kind = EventKind::kEnded, .key = task.key, .outcome = outcome}));
}

void WorkerTaskQueue::start_waiting() {
  while (takes_more_ && !draining_ && !waiting_.empty() && tasks_.size() < room_) {
    WorkerTask next = std::move(waiting_.front());
    waiting_.pop_front();
    start(std::move(next));
  }
  write_frames();
}

void WorkerTaskQueue::start(WorkerTask&& order) {
  Task task{.key = order.key,
            .started_unix_ns = wall_now().ns,
            .started = boot_now(),
            .max_runtime = order.max_runtime};
  if (!make_folder(task, order)) return;
  const int payload =
      order.payload_bytes == 0 ? -1 : take_payload(attempts_folder_, order.key, order.payload_bytes);
  if (order.payload_bytes > 0 && payload < 0) {
    const int why = errno;
    close_if_open(task.folder);
    close_if_open(task.output);
    return fail_start(task, "cannot open the task's payload: " + words_of(why));
  }
  if (task.max_runtime.ns > 0) task.deadline = task.started + task.max_runtime;
  const int64_t started_unix_ns = task.started_unix_ns;
  tasks_.emplace(order.key, std::move(task));
  idle_end_ = kNever;
  say(encode(Event{.kind = EventKind::kStarted,
                   .key = order.key,
                   .pid = pid_,
                   .shim_pid = getpid(),
                   .started_unix_ns = started_unix_ns}));
  add_frame(order.frame, payload, order.payload_bytes);
}

void WorkerTaskQueue::add_frame(std::string_view frame, int payload, uint32_t payload_bytes) {
  const auto size = static_cast<uint32_t>(frame.size() + payload_bytes);
  Outgoing next{.text = {}, .file = payload, .left = payload_bytes};
  for (std::size_t i = 0; i < kLengthBytes; ++i) next.text += static_cast<char>(size >> (8 * i) & 0xFF);
  next.text += frame;
  to_worker_.push_back(std::move(next));
}

/// False: the socket has no room, or the worker does not read any more, whose end says the rest.
bool WorkerTaskQueue::write_frame(Outgoing& frame) {
  std::array<char, kReadBytes> piece;
  while (!frame.text.empty() || frame.left > 0) {
    if (frame.text.empty()) {
      const ssize_t size = read(frame.file, piece.data(), std::min<std::size_t>(piece.size(), frame.left));
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) {
        broken_ = "a task's payload cannot be read: " + words_of(size < 0 ? errno : EIO);
        return false;
      }
      frame.text.assign(piece.data(), static_cast<std::size_t>(size));
      frame.left -= static_cast<uint32_t>(size);
    }
    const ssize_t size = send(frames_, frame.text.data(), frame.text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      if (errno != EAGAIN) drop_frames();
      return false;
    }
    frame.text.erase(0, static_cast<std::size_t>(size));
  }
  return true;
}

void WorkerTaskQueue::write_frames() {
  while (!to_worker_.empty() && write_frame(to_worker_.front())) {
    close_if_open(to_worker_.front().file);
    to_worker_.pop_front();
  }
}

void WorkerTaskQueue::drop_frames() {
  for (Outgoing& frame : to_worker_) close_if_open(frame.file);
  to_worker_.clear();
}

// Answers.

void WorkerTaskQueue::read_answers() {
  std::array<char, kReadBytes> buffer;
  const ssize_t size = recv(frames_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    closed_ = true;  // Its end comes with it; else it is no good any more.
    broken_ = "the worker closed the socket of its frames";
    return;
  }
  if (check_lost_ != kNever) check_lost_ = boot_now() + health_;  // Any output shows that it does not hang.
  take_bytes({buffer.data(), static_cast<std::size_t>(size)});
  start_waiting();
}

void WorkerTaskQueue::take_bytes(std::string_view bytes) {
  while (!bytes.empty() && broken_.empty()) {
    if (answer_.length.size() < kLengthBytes) {
      answer_.length += bytes.front();
      bytes.remove_prefix(1);
      if (answer_.length.size() < kLengthBytes) continue;
      for (std::size_t i = 0; i < kLengthBytes; ++i)
        answer_.left |= uint32_t{static_cast<unsigned char>(answer_.length[i])} << (8 * i);
      if (answer_.left > kAnswerBytesMax || answer_.left == 0)
        broken_ = "the worker's answer has " + std::to_string(answer_.left) + " bytes; 1 to " +
                  std::to_string(kAnswerBytesMax) + " are possible";
      continue;
    }
    const std::string_view piece = bytes.substr(0, answer_.left);
    bytes.remove_prefix(piece.size());
    answer_.left -= static_cast<uint32_t>(piece.size());
    take_piece(piece);
  }
}

void WorkerTaskQueue::take_piece(std::string_view piece) {
  if (!answer_.in_result) {
    const std::size_t end = piece.find('\n');
    answer_.line += piece.substr(0, end);
    const bool whole = end != std::string_view::npos || answer_.left == 0;
    if (answer_.line.size() > kAnswerLineBytesMax || !whole) {
      if (answer_.line.size() > kAnswerLineBytesMax) broken_ = "the worker's answer has no first line";
      return;
    }
    piece.remove_prefix(end == std::string_view::npos ? piece.size() : end + 1);
    if (piece.empty() && answer_.left == 0 && take_word()) {
      answer_ = {};
      return;
    }
    if (!take_line()) return;
  }
  const int output = tasks_.at(answer_.key).output;
  while (!piece.empty() && answer_.unwritten.empty()) {
    const ssize_t size = write(output, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      if (is_full(errno)) {
        poll(nullptr, 0, kDiskPauseMs);
      } else {
        answer_.unwritten = words_of(errno);
      }
      continue;
    }
    piece.remove_prefix(static_cast<std::size_t>(size));
  }
  if (answer_.left == 0) finish_answer();
}

/// Takes a line about a task that the worker has. False: it broke off.
bool WorkerTaskQueue::take_line() {
  const std::optional<AnswerLine> line = parse_answer_line(answer_.line);
  if (tasks_.empty()) {
    broken_ = "the worker answered without a task";
  } else if (!line || !tasks_.contains(line->key)) {
    broken_ =
        "the worker's answer begins neither with a task that it has nor with an exit code: it is to say '" +
        key_text(tasks_.begin()->first) + " 0'";
  }
  if (!broken_.empty()) return false;
  answer_.in_result = true;
  answer_.key = line->key;
  answer_.exit_code = line->exit_code;
  answer_.words = line->words;
  return true;
}

/// Takes a line that answers no task. False: it does, or should.
bool WorkerTaskQueue::take_word() {
  if (const std::optional<ReadyLine> ready = parse_ready_line(answer_.line)) {
    take_ready(*ready);
    return true;
  }
  const std::optional<uint64_t> healthy = parse_healthy_line(answer_.line);
  if (healthy && *healthy == check_ && check_lost_ != kNever) {
    check_lost_ = kNever;
    if (checked_) check_due_ = boot_now() + health_;
  }
  return healthy.has_value();
}

void WorkerTaskQueue::take_ready(const ReadyLine& ready) {
  const uint32_t room = std::min(ready.tasks, tasks_max_);
  const bool is_news = ready.cancels != cancels_ || room != room_;
  cancels_ = ready.cancels;
  room_ = room;
  if (ready.checked != checked_) check_due_ = ready.checked ? boot_now() + health_ : kNever;
  checked_ = ready.checked;
  if (!checked_) check_lost_ = kNever;
  if (is_news && !draining_) say_room();
}

void WorkerTaskQueue::finish_answer() {
  const AttemptKey key = answer_.key;
  const Task& task = tasks_.at(key);
  Outcome outcome{.cause = Cause::kExited, .exit_code = answer_.exit_code, .detail = answer_.words};
  if (!answer_.unwritten.empty())
    outcome = {.cause = Cause::kNodeFault, .detail = "cannot write the task's result: " + answer_.unwritten};
  if (task.ending != Cause::kUnspecified) outcome = {.cause = task.ending, .detail = task.detail};
  answer_ = {};
  finish_task(key, std::move(outcome));
}

void WorkerTaskQueue::finish_task(const AttemptKey& key, Outcome outcome) {
  const auto found = tasks_.find(key);
  CHECK(found != tasks_.end());
  Task& task = found->second;
  outcome.started_unix_ns = task.started_unix_ns;
  outcome.ended_unix_ns = wall_now().ns;
  for (int tries = 1; !write_outcome(task.folder, key, outcome); ++tries) {
    // A disk that is not full and takes nothing, or somebody removed its folder: only the agent is told.
    if (!is_full(errno) && tries >= kWriteTriesMax) break;
    struct stat facts{};
    if (fstat(task.folder, &facts) != 0 || facts.st_nlink == 0) break;
    poll(nullptr, 0, kDiskPauseMs);
  }
  close_if_open(task.folder);
  close_if_open(task.output);
  tasks_.erase(found);
  const bool any_ends = std::any_of(tasks_.begin(), tasks_.end(), [](const auto& entry) {
    return entry.second.ending != Cause::kUnspecified;
  });
  if (!any_ends && takes_more_ && std::exchange(draining_, false)) say_room();
  if (tasks_.empty()) {
    if (idle_max_.ns > 0) idle_end_ = boot_now() + idle_max_;
    if (had_agent_ && agent_ < 0) idle_end_ = boot_now();
  }
  say(encode(Event{.kind = EventKind::kEnded, .key = key, .outcome = outcome}));
}

/// Outcome of a task that the worker had when it ended.
Outcome WorkerTaskQueue::outcome_without_answer(const Task& task, const Outcome& how) const {
  if (task.ending != Cause::kUnspecified) return {.cause = task.ending, .detail = task.detail};
  for (const auto& [key, other] : tasks_) {  // Not its own doing: it is tried again.
    if (other.ending == Cause::kUnspecified) continue;
    return {.cause = Cause::kStopped,
            .detail = "its worker was ended because of another of its tasks, " + key_text(key) + ": " +
                      other.detail};
  }
  Outcome outcome = how;
  outcome.usage = {};
  if (!broken_.empty() && !closed_) {
    outcome = {.cause = Cause::kExited, .exit_code = 1, .detail = broken_};
  } else if (how.cause == Cause::kExited) {
    outcome.detail =
        "its worker ended with exit code " + std::to_string(how.exit_code) + " before it answered";
    outcome.exit_code = std::max(how.exit_code, 1);
  } else if (how.cause == Cause::kSignaled) {
    outcome.detail = "its worker was " + how.detail + " before it answered";
  }
  return outcome;
}

void WorkerTaskQueue::end(const Outcome& how) {
  takes_more_ = false;
  std::map<AttemptKey, Outcome> outcomes;
  for (const auto& [key, task] : tasks_) outcomes[key] = outcome_without_answer(task, how);
  for (auto& [key, outcome] : outcomes) finish_task(key, std::move(outcome));
  if (agent_ >= 0) fcntl(agent_, F_SETFL, 0);
  while (agent_ >= 0 && !told_.empty()) {  // An agent that stands still is waited for, as by every shim.
    const std::string packet = std::move(told_.front());
    told_.pop_front();
    static_cast<void>(send(agent_, packet.data(), packet.size(), MSG_NOSIGNAL) < 0);
  }
  // Tasks that wait have no folder yet: the agent gives them to another worker.
  unlink(socket_path_.c_str());
}

}  // namespace gpusched::shim
