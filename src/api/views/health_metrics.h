#pragma once

#include "api/contract/health.h"
#include "host/host.h"
#include "model/state.h"

namespace gpusched::api {

/// Adds what an operator should look at: nodes, devices and jobs that are not as they should be.
void add_health(const State& state, MetricsView& metrics);
/// Adds what the scheduler keeps, and how: snapshots, room, the clock.
void add_keeping(const HostHealth& health, MetricsView& metrics);

}  // namespace gpusched::api
