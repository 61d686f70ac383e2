#include "shim/worker/task_desk.h"

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
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "shim/clocks.h"

namespace gpusched::shim {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kTasksWaitingMax = 16;
constexpr int kDiskPauseMs = 200;

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

/// Whole, or false.
bool write_outcome(int folder, const AttemptKey& key, const Outcome& outcome) {
  const int file = openat(folder, kOutcomeFile, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (file < 0) return false;
  const std::string text = format_outcome(key, outcome);
  const bool whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  return whole;
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

TaskDesk::~TaskDesk() {
  for (int* descriptor : {&listener_, &agent_, &frames_, &workers_frames_}) close_if_open(*descriptor);
  if (task_) {
    close_if_open(task_->folder);
    close_if_open(task_->output);
  }
}

std::string TaskDesk::open(int folder, const std::vector<char*>& environment) {
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
  return {};
}

int TaskDesk::hand_over() {
  const int handed_over = dup2(workers_frames_, kFrameDescriptor);
  close_if_open(workers_frames_);
  return handed_over;
}

void TaskDesk::begin(int64_t pid, Time now) {
  pid_ = pid;
  if (idle_max_.ns > 0) idle_end_ = now + idle_max_;
}

void TaskDesk::wait(int signals, Duration span) {
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

bool TaskDesk::has_longer(Time now) {
  if (!task_) return false;
  const std::optional<Duration> limit = written_limit(task_->folder);
  if (!limit) return false;
  max_runtime_ = *limit;
  deadline_ = limit->ns == 0 ? kNever : task_->started + *limit;
  return now < deadline_;
}

// The agent.

void TaskDesk::take_agent() {
  agent_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (agent_ < 0) return;
  WorkerGreeting greeting{.pid = pid_, .shim_pid = getpid(), .task = {}, .started_unix_ns = 0};
  if (task_) {
    greeting.task = task_->key;
    greeting.started_unix_ns = task_->started_unix_ns;
  }
  say(encode(greeting));
}

void TaskDesk::take_packets() {
  std::string buffer(kTaskFrameBytesMax + 256, '\0');
  while (agent_ >= 0) {
    const ssize_t size = recv(agent_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      close_if_open(agent_);
      told_.clear();  // Outcomes are on disk, and the next agent looks there.
      return;
    }
    std::optional<WorkerTask> task = decode_task({buffer.data(), static_cast<std::size_t>(size)});
    if (!task || waiting_.size() >= kTasksWaitingMax) continue;
    if (task_) {
      waiting_.push_back(std::move(*task));
    } else {
      start(std::move(*task));
    }
  }
}

void TaskDesk::say(const std::string& packet) {
  if (agent_ < 0) return;
  told_.push_back(packet);
  write_told();
}

void TaskDesk::write_told() {
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

bool TaskDesk::make_folder(Task& task) {
  const std::string name = key_text(task.key);
  if (mkdirat(attempts_folder_, name.c_str(), 0750) != 0) {
    if (errno == EEXIST) {
      say(encode(Event{.kind = EventKind::kExists, .key = task.key}));
      return false;
    }
  } else {
    task.folder = openat(attempts_folder_, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (task.folder >= 0) {
      task.output =
          openat(task.folder, kStdoutFile, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
      if (task.output >= 0) return true;
    }
  }
  Outcome outcome{.cause = Cause::kNodeFault,
                  .detail = "cannot create the attempt's folder " + name + ": " + words_of(errno),
                  .started_unix_ns = task.started_unix_ns,
                  .ended_unix_ns = wall_now().ns};
  close_if_open(task.folder);
  say(encode(Event{.kind = EventKind::kEnded, .key = task.key, .outcome = outcome}));
  return false;
}

void TaskDesk::start(WorkerTask&& order) {
  Task task{.key = order.key, .started_unix_ns = wall_now().ns, .started = boot_now()};
  if (!make_folder(task)) return;
  task_ = task;
  idle_end_ = kNever;
  max_runtime_ = order.max_runtime;
  deadline_ = max_runtime_.ns > 0 ? task.started + max_runtime_ : kNever;
  say(encode(Event{.kind = EventKind::kStarted,
                   .key = task.key,
                   .pid = pid_,
                   .shim_pid = getpid(),
                   .started_unix_ns = task.started_unix_ns}));
  const auto size = static_cast<uint32_t>(order.frame.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i) to_worker_ += static_cast<char>(size >> (8 * i) & 0xFF);
  to_worker_ += order.frame;
  write_frames();
}

void TaskDesk::write_frames() {
  while (!to_worker_.empty()) {
    const ssize_t size = send(frames_, to_worker_.data(), to_worker_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      if (errno != EAGAIN) to_worker_.clear();  // It does not read any more: its end says the rest.
      return;
    }
    to_worker_.erase(0, static_cast<std::size_t>(size));
  }
}

// Answers.

void TaskDesk::read_answers() {
  std::array<char, kReadBytes> buffer;
  const ssize_t size = recv(frames_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    closed_ = true;  // Its end comes with it; else it is no good any more.
    broken_ = "the worker closed the socket of its frames";
    return;
  }
  take_bytes({buffer.data(), static_cast<std::size_t>(size)});
}

void TaskDesk::take_bytes(std::string_view bytes) {
  while (!bytes.empty() && broken_.empty()) {
    if (!task_) {
      broken_ = "the worker answered without a task";
      return;
    }
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
    take_result(piece);
  }
}

void TaskDesk::take_result(std::string_view bytes) {
  if (!answer_.in_result) {
    const std::size_t end = bytes.find('\n');
    answer_.line += bytes.substr(0, end);
    const bool whole = end != std::string_view::npos || answer_.left == 0;
    if (answer_.line.size() > kAnswerLineBytesMax || !whole) {
      if (answer_.line.size() > kAnswerLineBytesMax) broken_ = "the worker's answer has no first line";
      return;
    }
    const std::optional<AnswerLine> line = parse_answer_line(answer_.line);
    if (!line || line->key != task_->key) {
      broken_ = "the worker's answer begins neither with its task nor with an exit code: it is to say '" +
                key_text(task_->key) + " 0'";
      return;
    }
    answer_.in_result = true;
    answer_.exit_code = line->exit_code;
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  }
  while (!bytes.empty()) {
    const ssize_t size = write(task_->output, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {  // A full disk delays a result and never loses it.
      poll(nullptr, 0, kDiskPauseMs);
      continue;
    }
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
  if (answer_.left > 0) return;
  finish_task({.cause = Cause::kExited, .exit_code = answer_.exit_code});
  if (!waiting_.empty() && takes_more_) {
    WorkerTask next = std::move(waiting_.front());
    waiting_.pop_front();
    start(std::move(next));
  }
}

void TaskDesk::finish_task(Outcome outcome) {
  CHECK(task_);
  outcome.started_unix_ns = task_->started_unix_ns;
  outcome.ended_unix_ns = wall_now().ns;
  while (!write_outcome(task_->folder, task_->key, outcome)) {
    struct stat facts{};
    // Somebody removed its folder: only the agent is told.
    if (fstat(task_->folder, &facts) != 0 || facts.st_nlink == 0) break;
    poll(nullptr, 0, kDiskPauseMs);
  }
  const AttemptKey key = task_->key;
  close_if_open(task_->folder);
  close_if_open(task_->output);
  task_.reset();
  answer_ = {};
  deadline_ = kNever;
  if (idle_max_.ns > 0) idle_end_ = boot_now() + idle_max_;
  say(encode(Event{.kind = EventKind::kEnded, .key = key, .outcome = outcome}));
}

void TaskDesk::end(Outcome how) {
  if (task_) {
    how.usage = {};
    if (!broken_.empty() && !closed_) {
      how = {.cause = Cause::kExited, .exit_code = 1, .detail = broken_};
    } else if (how.cause == Cause::kExited) {
      how.detail = "its worker ended with exit code " + std::to_string(how.exit_code) + " before it answered";
      how.exit_code = std::max(how.exit_code, 1);
    } else if (how.cause == Cause::kSignaled) {
      how.detail = "its worker was " + how.detail + " before it answered";
    }
    finish_task(std::move(how));
  }
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
