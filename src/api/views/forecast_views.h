#pragma once

#include <string>
#include <string_view>

#include "api/contract/forecasts.h"
#include "api/contract/moves.h"
#include "api/views/viewer.h"
#include "engine/planner/planner.h"
#include "forecast/changes.h"
#include "forecast/forecast.h"
#include "host/forecast/forecast_service.h"

/// Views of a forecast, a reason and a changed request for doors. Pure functions.
namespace gpusched::api {

/// Nothing when `estimate` is null.
std::optional<StartEstimateView> view_of(const forecast::Forecast& made, const forecast::Estimate* estimate,
                                         const Viewer& viewer);
ChangeView view_of(const State& state, const forecast::Change& change, bool sees_all);
QualityView view_of(const ForecastService::Quality& quality);
/// The numbers behind the reason.
Evidence evidence_of(const WaitReason& reason);
/// "gpus", "gpu_memory_mb", "cpu_milli", "memory_mb", "jobs"; empty for none.
std::string_view field_name(Resource resource);
/// The error for a caller that asked for a forecast when there is none.
ApiError no_forecast(const Error& error);

}  // namespace gpusched::api
