#pragma once

#include "api/contract/health.h"
#include "host/host.h"
#include "model/state.h"

namespace gpusched::api {

/// Adds what an operator should look at: nodes, devices and jobs that are not as they should be.
void add_health(const State& state, MetricsView& metrics);
/// Adds how many nodes, GPUs and jobs there are in each state, and what tenants use of their limits. Tenants
/// that neither hold nor may hold anything are left out, and those beyond the first thousand.
void add_sums(const State& state, MetricsView& metrics);
/// Adds what the scheduler keeps, and how: snapshots, room, the clock.
void add_keeping(const HostHealth& health, MetricsView& metrics);

}  // namespace gpusched::api
