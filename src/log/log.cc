#include "log/log.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/async.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "log/line.h"

namespace gpusched {
namespace {

constexpr size_t kQueueLines = 8'192;
constexpr size_t kBufferBytes = 64 * 1024;
constexpr int kAboveEveryLevel = static_cast<int>(LogLevel::kError) + 1;
constexpr int kFullPipeWaitMs = 1'000;
constexpr auto kFlushWait = std::chrono::milliseconds(250);
constexpr int kFlushAttemptsMax = 20;

Time wall_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count()};
}

/// Writes lines to a file descriptor, many at a time under load and at once when idle: it writes when the
/// queue behind it is empty or its buffer is full. The writer thread calls everything but `wait_for_flush`.
class LineSink final : public spdlog::sinks::sink {
 public:
  LineSink(int fd, spdlog::details::thread_pool& pool)
      : fd_(fd), pool_(pool), dropped_(pool.overrun_counter()) {
    buffer_.reserve(kBufferBytes);
  }

  void log(const spdlog::details::log_msg& message) override {
    buffer_.append(message.payload.data(), message.payload.size());
    if (buffer_.size() < kBufferBytes && pool_.queue_size() > 0) return;
    report_dropped();
    write_out();
  }

  void flush() override {
    report_dropped();
    write_out();
    {
      const std::lock_guard lock(mutex_);
      ++flushes_;
    }
    flushed_.notify_all();
  }

  int descriptor() const { return fd_; }

  uint64_t flushes() {
    const std::lock_guard lock(mutex_);
    return flushes_;
  }
  /// Whether there were more than `before` flushes before the wait ended.
  bool wait_for_flush(uint64_t before) {
    std::unique_lock lock(mutex_);
    return flushed_.wait_for(lock, kFlushWait, [&] { return flushes_ > before; });
  }

  // Lines come formatted.
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  void report_dropped() {
    const size_t dropped = pool_.overrun_counter();
    if (dropped == dropped_) return;
    buffer_ += format_log_line(wall_now(), LogLevel::kWarning, "log", "log_lines_dropped", {},
                               {{"count", dropped - dropped_}});
    dropped_ = dropped;
  }

  void write_out() {
    std::string_view rest = buffer_;
    while (!rest.empty()) {
      const ssize_t written = ::write(fd_, rest.data(), rest.size());
      if (written > 0) {
        rest.remove_prefix(static_cast<size_t>(written));
        continue;
      }
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) {
        pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
        if (::poll(&writable, 1, kFullPipeWaitMs) > 0) continue;
      }
      break;  // The disk is full or the reader is gone: a log never stops the work.
    }
    buffer_.clear();
  }

  const int fd_;
  spdlog::details::thread_pool& pool_;
  size_t dropped_;
  std::string buffer_;
  std::mutex mutex_;
  std::condition_variable flushed_;
  uint64_t flushes_ = 0;
};

struct LogTarget {
  std::shared_ptr<LineSink> sink;
  std::shared_ptr<spdlog::async_logger> logger;
};

/// Never destroyed, like the writer thread: a thread that logs while the process exits finds live objects.
struct LogState {
  std::mutex mutex;  // Guards set-up, flush and shut-down; a line takes no lock of ours.
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::vector<LogTarget> targets;  // The last is the one in use, if any is.
  std::atomic<spdlog::async_logger*> current{nullptr};
};

LogState& state() {
  static LogState* const instance = new LogState;
  return *instance;
}

void flush_locked(LogState& log) {
  if (log.current.load() == nullptr) return;
  const LogTarget& target = log.targets.back();
  const uint64_t before = target.sink->flushes();
  // Under a flood of lines the request itself may be overrun, so it is repeated; first in, first out, it is
  // answered behind every line before it.
  for (int attempt = 0; attempt < kFlushAttemptsMax; ++attempt) {
    log.pool->post_flush(spdlog::details::async_logger_ptr(target.logger),
                         spdlog::async_overflow_policy::block);
    if (target.sink->wait_for_flush(before)) return;
  }
}

void shut_down_locked(LogState& log) {
  log_internal::g_level_min.store(kAboveEveryLevel, std::memory_order_relaxed);
  flush_locked(log);
  log.current.store(nullptr);
}

Result<int> open_target(const std::string& path) {
  if (path.empty()) return STDERR_FILENO;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (fd >= 0) return fd;
  return Error{.code = ErrorCode::kIo,
               .message = "cannot open the log file " + path + ": " + std::strerror(errno) +
                          "; give log.path a file in a folder that can be written to",
               .field = "log.path"};
}

}  // namespace

namespace log_internal {

std::atomic<int> g_level_min{kAboveEveryLevel};

void write_line(LogLevel level, std::string_view component, std::string_view event, const LogSubject& subject,
                std::initializer_list<LogField> details) {
  spdlog::async_logger* const logger = state().current.load(std::memory_order_acquire);
  if (logger == nullptr) return;
  const std::string line = format_log_line(wall_now(), level, component, event, subject, details);
  logger->log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
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
  if (log.pool == nullptr) {
    log.pool = std::make_shared<spdlog::details::thread_pool>(kQueueLines, 1);
    std::atexit(log_shut_down);
  }
  shut_down_locked(log);

  auto sink = std::make_shared<LineSink>(*fd, *log.pool);
  auto logger = std::make_shared<spdlog::async_logger>("log", sink, log.pool,
                                                       spdlog::async_overflow_policy::overrun_oldest);
  log.targets.push_back({.sink = std::move(sink), .logger = logger});
  log.current.store(logger.get(), std::memory_order_release);
  log_set_level(options.level);
  return Unit{};
}

Result<Unit> log_reopen(const LogOptions& options) {
  LogState& log = state();
  {
    const std::lock_guard lock(log.mutex);
    const int current = log.current.load() == nullptr ? -1 : log.targets.back().sink->descriptor();
    const bool file_to_file = current >= 0 && current != STDERR_FILENO && !options.path.empty();
    if (file_to_file) {
      const Result<int> fresh = open_target(options.path);
      if (!fresh) return fresh.error();
      flush_locked(log);  // What was said before belongs into the old file.
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
