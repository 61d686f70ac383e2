#include "audit/audit_log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "log/log.h"

namespace gpusched::audit {
namespace {

constexpr mode_t kMode = 0600;
constexpr std::size_t kLookedBack =
    16;  // Lines that a refusal is compared with before it has one of its own.
constexpr std::size_t kWriteBytes = 256 * 1024;

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Trouble of the disk, which may pass, and not of the path.
bool may_pass(int error) {
  return error == ENOSPC || error == EDQUOT || error == EROFS || error == EIO || error == EMFILE ||
         error == ENFILE || error == ENOMEM;
}

}  // namespace

Result<std::unique_ptr<AuditLog>> AuditLog::open(AuditOptions options) {
  std::unique_ptr<AuditLog> log(new AuditLog(std::move(options)));
  const Result<Unit> opened = log->open_file();
  if (!opened && !may_pass(log->open_errno_)) return opened.error();
  if (!opened) log->lose(0, opened.error().message);
  // The thread takes no signals: they are for those who wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  log->thread_ = std::thread([log = log.get()] { log->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return log;
}

AuditLog::~AuditLog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  came_.notify_all();
  if (thread_.joinable()) thread_.join();
  say_losses();
  close_file();
}

void AuditLog::add(Line line) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    added_ += 1;
    // Submissions of a stream follow each other; refusals of somebody who tries and tries come among others.
    const std::size_t back = line.outcome == Outcome::kDone ? 1 : kLookedBack;
    const std::size_t first = waiting_.size() - std::min(waiting_.size(), back);
    for (std::size_t i = waiting_.size(); i > first; --i) {
      if (merge(waiting_[i - 1], line)) return;
    }
    if (waiting_.size() >= options_.lines_max) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    waiting_.push_back(std::move(line));
    wake = waiting_.size() == 1;
  }
  if (wake) came_.notify_all();
}

void AuditLog::reopen() {
  std::unique_lock lock(mutex_);
  const uint64_t asked = ++reopens_asked_;
  came_.notify_all();
  done_.wait(lock, [this, asked] { return reopens_done_ >= asked || stop_; });
}

void AuditLog::flush() {
  std::unique_lock lock(mutex_);
  hurry_ = true;
  came_.notify_all();
  done_.wait(lock, [this, all = added_] { return settled_ >= all || stop_; });
}

void AuditLog::run() {
  pthread_setname_np(pthread_self(), "audit");
  std::vector<Line> lines;
  std::unique_lock lock(mutex_);
  while (true) {
    const auto urgent = [this] { return reopens_asked_ > reopens_done_ || hurry_ || stop_; };
    const auto wanted = [&] { return !waiting_.empty() || urgent(); };
    // Without lines too: losses are said although nothing follows them.
    came_.wait_for(lock, std::chrono::nanoseconds(options_.said_every.ns), wanted);
    if (!waiting_.empty()) {
      came_.wait_for(lock, std::chrono::nanoseconds(options_.linger.ns),
                     [&] { return urgent() || waiting_.size() >= options_.lines_max / 4; });
    }
    const bool stop = stop_;
    const uint64_t reopens = reopens_asked_;
    hurry_ = false;
    const uint64_t taken = added_;
    lines.swap(waiting_);
    lock.unlock();
    write(lines);  // Before the file is changed: what was done before belongs into the old one.
    lines.clear();
    if (reopens > reopens_done_) {  // Only this thread changes the latter.
      close_file();
      if (const Result<Unit> opened = open_file(); !opened) lose(0, opened.error().message);
    }
    if (monotonic_ns() - said_at_ns_ >= options_.said_every.ns) say_losses();
    lock.lock();
    settled_ = taken;
    reopens_done_ = reopens;
    done_.notify_all();
    if (stop && waiting_.empty()) return;
  }
}

Result<Unit> AuditLog::open_file() {
  const std::string& path = options_.path;
  const auto problem = [&] {
    open_errno_ = errno;
    return Error{.code = ErrorCode::kIo,
                 .message = "cannot open the audit's file " + path + ": " + std::strerror(open_errno_) +
                            "; set audit.file to a file in a writable folder",
                 .field = "audit.file"};
  };
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (fd_ < 0) return problem();
  struct stat now{};
  if (::fstat(fd_, &now) != 0) return problem();
  is_regular_ = S_ISREG(now.st_mode);
  size_ = is_regular_ ? now.st_size : 0;
  char end = '\n';
  torn_ = size_ > 0 && ::pread(fd_, &end, 1, size_ - 1) == 1 && end != '\n';
  return Unit{};
}

void AuditLog::close_file() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void AuditLog::rotate() {
  if (options_.bytes_max == 0 || size_ < options_.bytes_max) return;
  const std::string old = options_.path + ".1";
  struct stat ours{};
  struct stat named{};
  const bool is_named = ::fstat(fd_, &ours) == 0 && ::stat(options_.path.c_str(), &named) == 0 &&
                        ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
  if (!is_named) {  // Somebody else renamed it, and has not said so yet.
    size_ = 0;
    return;
  }
  if (::rename(options_.path.c_str(), old.c_str()) != 0) return;  // It grows on.
  close_file();
  if (const Result<Unit> opened = open_file(); !opened) lose(0, opened.error().message);
  log_event(LogLevel::kInfo, "audit", "audit_rotated", {}, {{"file", options_.path}, {"old", old}});
}

void AuditLog::write(const std::vector<Line>& lines) {
  if (lines.empty()) return;
  if (fd_ < 0) {
    if (const Result<Unit> opened = open_file(); !opened) return lose(lines.size(), opened.error().message);
  }
  struct statvfs disk{};
  const bool full = is_regular_ && ::fstatvfs(fd_, &disk) == 0 &&
                    uint64_t{disk.f_bavail} * disk.f_frsize < options_.leaves_bytes;
  if (full) return lose(lines.size(), "the disk of the audit's file " + options_.path + " is almost full");
  std::string text;
  uint64_t held = 0;
  for (const Line& line : lines) {
    if (text.size() >= kWriteBytes) append(std::exchange(text, {}), std::exchange(held, 0));
    append_line(text, line);
    held += 1;
  }
  append(text, held);
  rotate();
}

void AuditLog::append(std::string_view text, uint64_t lines) {
  std::string begun;
  if (torn_) {
    begun = "\n" + std::string(text);
    text = begun;
  }
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd_, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const auto left = static_cast<uint64_t>(std::ranges::count(text, '\n'));
      const uint64_t lost = std::min(left, lines);
      written_.fetch_add(lines - lost, std::memory_order_relaxed);
      return lose(lost, "cannot write the audit's file " + options_.path + ": " + std::strerror(errno));
    }
    size_ += wrote;
    torn_ = text[static_cast<std::size_t>(wrote) - 1] != '\n';
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  written_.fetch_add(lines, std::memory_order_relaxed);
}

void AuditLog::lose(uint64_t lines, const std::string& why) {
  lost_.fetch_add(lines, std::memory_order_relaxed);
  why_ = why;
  if (said_at_ns_ == 0 || lines == 0) say_losses();
}

void AuditLog::say_losses() {
  const uint64_t lost = lines_lost();
  if (lost == said_ && why_.empty()) return;
  log_event(LogLevel::kError, "audit", "audit_lines_lost", {},
            {{"lines", lost - said_},
             {"lines_ever", lost},
             {"why", why_.empty() ? std::string_view("more lines came than the disk takes") : why_},
             {"message",
              "the scheduler goes on; what these calls changed is in the journal: see "
              "`gpu-scheduler journal audit`"}});
  said_ = lost;
  said_at_ns_ = monotonic_ns();
  why_.clear();
}

}  // namespace gpusched::audit
