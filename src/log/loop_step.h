#pragma once

#include <optional>
#include <string>

#include "base/time.h"

/// Holds event loops to their promise that nothing on them waits: not for the disk, a lock or a process. For
/// tests and for the search of a fault (`scheduler.debug_blocked_ms`); else it is off and costs a comparison.
namespace gpusched {

/// How the time of the calling thread passes. Thread-safe.
class ThreadClock {
 public:
  virtual ~ThreadClock() = default;
  /// Monotonic.
  virtual Duration now() const = 0;
  /// How long the thread was ready to run, and others had the processors, in all its life. None: the kernel
  /// does not say.
  virtual std::optional<Duration> waited_for_processor() const = 0;
};

/// The kernel's: CLOCK_MONOTONIC, and the second number of /proc/thread-self/schedstat.
const ThreadClock& kernel_thread_clock();

/// One event loop and how long a step of it may take. Thread-safe: it does not change.
class LoopWatch {
 public:
  /// `loop` is its name, for people. `limit` zero or less: it is not watched; neither is it where the clock
  /// does not tell waiting for a processor from other waiting, which is logged. The clock must outlive it.
  LoopWatch(std::string loop, Duration limit, const ThreadClock& clock = kernel_thread_clock());
  bool is_on() const { return limit_.ns > 0; }

 private:
  friend class LoopStep;
  std::string loop_;
  Duration limit_;
  const ThreadClock& clock_;
};

/// A step of a watched loop, from its construction to its end, both on the loop's thread. One that takes
/// longer than the loop's limit ends the process with a message on standard error and in the log: which loop,
/// what ran, how long. The time counts in which the thread had a processor or waited for anything else, such
/// as the disk; not that in which it was ready and others had the processors, so that a busy machine is no
/// fault of ours. Steps may be inside others.
class LoopStep {
 public:
  /// `what` runs; for people. It must outlive the step.
  LoopStep(const LoopWatch& watch, const char* what) : watch_(watch.is_on() ? &watch : nullptr), what_(what) {
    if (watch_ != nullptr) [[unlikely]]
      begin();
  }
  ~LoopStep() {
    if (watch_ != nullptr) [[unlikely]]
      end();
  }
  LoopStep(const LoopStep&) = delete;
  LoopStep& operator=(const LoopStep&) = delete;

 private:
  void begin();
  void end() const;

  const LoopWatch* const watch_;  ///< Null: it is off.
  const char* const what_;
  Duration began_{};
  std::optional<Duration> waited_before_{};
};

}  // namespace gpusched
