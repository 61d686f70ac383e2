#pragma once

#include <cstdint>
#include <optional>

#include "host/readers/observer.h"

namespace gpusched {

/// Logs what happens to jobs and nodes, one line per event: task_submitted, task_scheduled, task_finished,
/// agent_registered and so on. Writes at most `kLinesPerSecond` lines about jobs per second; one line,
/// task_events_suppressed, counts those left out. Not thread-safe: belongs to the observer's thread.
class EventLog {
 public:
  static constexpr uint32_t kLinesPerSecond = 1'000;

  /// For Observer::add_listener.
  void on_changes(const Observer::View& view, const Changes& changes);

 private:
  class Writer;

  bool may_write(Time now);

  int64_t second_ = 0;
  uint32_t written_ = 0;
  uint64_t suppressed_ = 0;
  bool paused_ = false;                             ///< As the last line about it said.
  std::optional<PoolShares> pools_ = std::nullopt;  ///< The same; nothing: there was none yet.
};

}  // namespace gpusched
