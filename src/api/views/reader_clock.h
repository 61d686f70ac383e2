#pragma once

#include "base/limits.h"
#include "host/core/system_clock.h"
#include "model/state.h"

namespace gpusched::api {

/// Time at which a state is looked at: what lasts is counted to here, and not to the newest command, behind
/// which nothing may be written for hours. It is the wall clock, never before the state's newest time; that
/// time alone where the wall clock is further away than is believed by default
/// (`scheduler.clock_jump_max_hours`).
inline Time reader_now(const State& state) {
  const Time wall = wall_now();
  const Duration ahead = wall - state.last.at;
  return ahead.ns > 0 && ahead <= limits::kClockJumpMax ? wall : state.last.at;
}

}  // namespace gpusched::api
