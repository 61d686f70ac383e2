#include "log/loop_step.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "log/log.h"

namespace gpusched {
namespace {

/// The calling thread's file, which stays open until the thread ends: reading it takes about a microsecond.
class ScheduleFile {
 public:
  ScheduleFile() : file_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~ScheduleFile() {
    if (file_ >= 0) ::close(file_);
  }
  ScheduleFile(const ScheduleFile&) = delete;
  ScheduleFile& operator=(const ScheduleFile&) = delete;

  std::optional<Duration> waited() const {
    char text[96];
    const ssize_t size = file_ < 0 ? -1 : ::pread(file_, text, sizeof text - 1, 0);
    if (size <= 0) return std::nullopt;
    text[size] = '\0';
    unsigned long long ran = 0, waited = 0;  // Nanoseconds.
    if (std::sscanf(text, "%llu %llu", &ran, &waited) != 2) return std::nullopt;
    return Duration{static_cast<int64_t>(waited)};
  }

 private:
  const int file_;
};

class KernelThreadClock final : public ThreadClock {
 public:
  Duration now() const override {
    timespec at{};
    ::clock_gettime(CLOCK_MONOTONIC, &at);
    return Duration{int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec};
  }
  std::optional<Duration> waited_for_processor() const override {
    thread_local const ScheduleFile file;
    return file.waited();
  }
};

}  // namespace

const ThreadClock& kernel_thread_clock() {
  static const KernelThreadClock clock;
  return clock;
}

LoopWatch::LoopWatch(std::string loop, Duration limit, const ThreadClock& clock)
    : loop_(std::move(loop)), limit_(limit), clock_(clock) {
  if (!is_on() || clock_.waited_for_processor()) return;
  limit_ = Duration{};
  log_event(LogLevel::kWarning, "scheduler", "loop_not_watched", {},
            {{"loop", loop_}, {"error", "the kernel writes no /proc/thread-self/schedstat"}});
}

void LoopStep::begin() {
  waited_before_ = watch_->clock_.waited_for_processor();
  began_ = watch_->clock_.now();
}

void LoopStep::end() const {
  const Duration limit = watch_->limit_;
  const Duration passed = watch_->clock_.now() - began_;
  if (passed <= limit) return;
  const std::optional<Duration> waited = watch_->clock_.waited_for_processor();
  if (!waited || !waited_before_) return;
  const Duration taken = passed - (*waited - *waited_before_);
  if (taken <= limit) return;
  std::fprintf(stderr,
               "gpu-scheduler: the %s loop was held up for %lld ms by: %s; scheduler.debug_blocked_ms allows "
               "%lld ms; exiting\n",
               watch_->loop_.c_str(), static_cast<long long>(taken.ms()), what_,
               static_cast<long long>(limit.ms()));
  log_event(LogLevel::kError, "scheduler", "loop_blocked", {},
            {{"loop", watch_->loop_}, {"by", what_}, {"ms", taken.ms()}, {"ms_max", limit.ms()}});
  log_flush();
  std::abort();
}

}  // namespace gpusched
