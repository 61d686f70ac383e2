#pragma once

#include "api/contract/health.h"
#include "host/nodes/telemetry.h"
#include "model/state.h"

namespace gpusched::api {

/// Adds what nodes last reported of themselves and of their GPUs, and how long ago that was. A node that has
/// not reported since the start, and a value that a node does not report, are left out.
void add_nodes(const State& state, const TelemetryTable& telemetry, MetricsView& metrics);

}  // namespace gpusched::api
