#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "published/placement_replay.h"

/// Placement of tasks that come, wait, run and end.
namespace gpusched::replay {

/// Several equal members that start together or not at all, each on any one node.
struct QueuedTask {
  Duration arrival;
  Duration run;
  policy::TaskShape member;
  uint32_t members = 1;

  int64_t total_milli() const { return member.total_milli() * members; }
};

struct QueueOutcome {
  std::vector<Duration> waits;    ///< By task.
  double busy_milli_s = 0;        ///< Thousandths of devices times seconds, until the last start.
  double pressed_milli_s = 0;     ///< The same while somebody waits.
  double pressed_s = 0;           ///< Time during which somebody waited.
  double until_last_start_s = 0;  ///< Time until the last start.
};

/// Replays tasks in the order of their arrival, each of which fits on the empty nodes (CHECK). Whoever has
/// waited longest is tried first, and who does not fit is passed: a start depends on nothing but whether
/// there is room, so two placers differ by where they place alone. Deterministic.
QueueOutcome replay_queue(std::span<const QueuedTask> tasks, RulePlacer& placer);

}  // namespace gpusched::replay
