#pragma once

#include <cstdint>

#include "host/readers/observer.h"

namespace gpusched {

/// Writes what happened to jobs and nodes to the log, one line an event, in the words that log readers of
/// such systems know: task_submitted, task_scheduled, task_finished, agent_registered and so on. Beyond
/// `kLinesPerSecond` of jobs' lines in a second the rest is counted in one line. Observer's thread.
class EventLog {
 public:
  static constexpr uint32_t kLinesPerSecond = 1'000;

  /// For Observer::add_listener.
  void on_changes(const Observer::View& view, const Changes& changes);

 private:
  bool may_write(Time now);

  int64_t second_ = 0;
  uint32_t written_ = 0;
  uint64_t suppressed_ = 0;
};

}  // namespace gpusched
