#include "log/log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "log/line.h"

namespace gpusched {
namespace {

constexpr size_t kQueueLines = 8'192;
constexpr size_t kBufferBytes = 64 * 1024;
constexpr int kAboveEveryLevel = static_cast<int>(LogLevel::kError) + 1;
constexpr int kNoFile = -1;
constexpr int kFullPipeWaitMs = 1'000;
constexpr auto kFlushWait = std::chrono::seconds(5);
/// After each write: under load lines come in crowds, and each wake-up costs more than its line. For people
/// who follow a log it is still at once.
constexpr auto kRest = std::chrono::milliseconds(20);
/// Number of lines that ends the rest.
constexpr size_t kCrowdLines = kQueueLines / 8;

Time wall_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count()};
}

/// Gives up when the disk is full or the reader is gone: a log never stops the work.
void write_all(int fd, std::string_view rest) {
  while (!rest.empty()) {
    const ssize_t written = ::write(fd, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd writable{.fd = fd, .events = POLLOUT, .revents = 0};
      if (::poll(&writable, 1, kFullPipeWaitMs) > 0) continue;
    }
    return;
  }
}

/// The lines that wait and the thread that writes them: at once when idle, and under load many at a time,
/// with a rest after each write. It holds memory for the lines that wait and for no others.
class LineWriter {
 public:
  /// The thread takes no signals: they are for those who wait for them.
  LineWriter() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { run(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  /// Never waits: when the queue is full, the oldest line goes.
  void add(int fd, std::string line) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.size() == kQueueLines) {
        waiting_.pop_front();
        ++dropped_;
      }
      waiting_.push_back({.fd = fd, .text = std::move(line)});
      ++added_;
      const bool first = waiting_.size() == 1 && !resting_;
      if (!first && waiting_.size() != kCrowdLines) return;  // The writer was woken already, or wakes soon.
    }
    lines_came_.notify_one();
  }

  /// Returns when all that was added before is written or dropped, or after a while.
  void flush() {
    std::unique_lock lock(mutex_);
    ++flushes_;
    lines_came_.notify_one();
    lines_left_.wait_for(lock, kFlushWait, [this, all = added_] { return gone_ >= all; });
    --flushes_;
  }

 private:
  struct Line {
    int fd;
    std::string text;
  };

  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      lines_came_.wait(lock, [this] { return !waiting_.empty(); });
      std::deque<Line> lines = std::exchange(waiting_, {});
      const uint64_t dropped = std::exchange(dropped_, 0);
      const uint64_t taken = added_;
      lock.unlock();
      write(std::move(lines), dropped);
      lock.lock();
      gone_ = taken;
      lines_left_.notify_all();
      resting_ = true;
      lines_came_.wait_for(lock, kRest, [this] { return flushes_ > 0 || waiting_.size() >= kCrowdLines; });
      resting_ = false;
    }
  }

  static void write(std::deque<Line> lines, uint64_t dropped) {
    int fd = lines.front().fd;
    std::string buffer;
    if (dropped > 0) {
      buffer = format_log_line(wall_now(), LogLevel::kWarning, "log", "log_lines_dropped", {},
                               {{"count", dropped}});
    }
    for (const Line& line : lines) {
      if (line.fd != fd || buffer.size() >= kBufferBytes) {
        write_all(fd, std::exchange(buffer, {}));
        fd = line.fd;
      }
      buffer += line.text;
    }
    write_all(fd, buffer);
  }

  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable lines_came_;
  std::condition_variable lines_left_;
  std::deque<Line> waiting_;
  uint64_t added_ = 0;    ///< Lines, ever.
  uint64_t gone_ = 0;     ///< The first so many are written or dropped.
  uint64_t dropped_ = 0;  ///< Since this was said last.
  int flushes_ = 0;       ///< Callers that wait in `flush`.
  bool resting_ = false;
};

/// Never destroyed, like the writer thread: a thread that logs while the process exits finds live objects.
struct LogState {
  std::mutex mutex;  // Guards set-up, flush and shut-down; a line does not take it.
  LineWriter* writer = nullptr;
  std::atomic<int> fd{kNoFile};  // Never closed: a line on its way may still name it.
};

LogState& state() {
  static LogState* const instance = new LogState;
  return *instance;
}

void flush_locked(LogState& log) {
  if (log.fd.load() != kNoFile) log.writer->flush();
}

void shut_down_locked(LogState& log) {
  log_internal::g_level_min.store(kAboveEveryLevel, std::memory_order_relaxed);
  flush_locked(log);
  log.fd.store(kNoFile);
}

Result<int> open_target(const std::string& path) {
  if (path.empty()) return STDERR_FILENO;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (fd >= 0) return fd;
  return Error{.code = ErrorCode::kIo,
               .message = "cannot open the log file " + path + ": " + std::strerror(errno) +
                          "; set log.path to a file in a writable folder",
               .field = "log.path"};
}

}  // namespace

namespace log_internal {

std::atomic<int> g_level_min{kAboveEveryLevel};

void write_line(LogLevel level, std::string_view component, std::string_view event, const LogSubject& subject,
                std::initializer_list<LogField> details) {
  LogState& log = state();
  const int fd = log.fd.load(std::memory_order_acquire);
  if (fd == kNoFile) return;
  log.writer->add(fd, format_log_line(wall_now(), level, component, event, subject, details));
}

}  // namespace log_internal

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  UNREACHABLE();
}

Result<LogLevel> parse_log_level(std::string_view name) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (name == to_string(level)) return level;
  }
  return Error{
      .code = ErrorCode::kInvalidArgument,
      .message = "unknown log level \"" + std::string(name) + "\": use debug, info, warning or error",
      .field = "log.level"};
}

Result<Unit> log_set_up(const LogOptions& options) {
  const Result<int> fd = open_target(options.path);
  if (!fd) return fd.error();
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  if (log.writer == nullptr) {
    log.writer = new LineWriter;
    std::atexit(log_shut_down);
  }
  shut_down_locked(log);
  log.fd.store(*fd, std::memory_order_release);
  log_set_level(options.level);
  return Unit{};
}

Result<Unit> log_reopen(const LogOptions& options) {
  LogState& log = state();
  {
    const std::lock_guard lock(log.mutex);
    const int current = log.fd.load();
    const bool file_to_file = current != kNoFile && current != STDERR_FILENO && !options.path.empty();
    if (file_to_file) {
      const Result<int> fresh = open_target(options.path);
      if (!fresh) return fresh.error();
      flush_locked(log);  // Earlier lines belong into the old file.
      const int failed = ::dup3(*fresh, current, O_CLOEXEC) < 0 ? errno : 0;
      ::close(*fresh);
      if (failed != 0) {
        return Error{.code = ErrorCode::kIo,
                     .message = std::string("cannot change the log file: ") + std::strerror(failed)};
      }
      log_set_level(options.level);
      return Unit{};
    }
    if (current == STDERR_FILENO && options.path.empty()) {
      log_set_level(options.level);
      return Unit{};
    }
  }
  return log_set_up(options);
}

void log_shut_down() {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  shut_down_locked(log);
}

void log_flush() {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  flush_locked(log);
}

void log_set_level(LogLevel level) {
  log_internal::g_level_min.store(static_cast<int>(level), std::memory_order_relaxed);
}

}  // namespace gpusched
