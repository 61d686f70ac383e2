#pragma once

#include <vector>

#include "api/contract/health.h"
#include "engine/planner/wait_reason.h"
#include "host/host.h"
#include "model/state.h"

namespace gpusched::api {

/// Adds what an operator should look at: nodes, devices and jobs that are not as they should be.
void add_health(const State& state, MetricsView& metrics);
/// Adds how many nodes, GPUs and jobs there are in each state, what tenants use of their limits, and what the
/// pools use of their shares, if there are pools. Tenants that neither hold nor may hold anything are left
/// out, and those beyond the first thousand.
void add_sums(const State& state, MetricsView& metrics);
/// Adds how many jobs wait in line and for how long, by the reason that their requests wait. `reasons`: by
/// class number; may be shorter than the classes.
void add_waiting(const State& state, const std::vector<WaitReason>& reasons, MetricsView& metrics);
/// Adds what the scheduler keeps, and how: snapshots, room, the clock.
void add_keeping(const HostHealth& health, MetricsView& metrics);

}  // namespace gpusched::api
