#pragma once

#include "api/contract/jobs.h"
#include "model/state.h"

namespace gpusched::api {

/// A job's timeline from its submission on. Requests about an array are also told of its elements.
HistoryView history_of(const State& state, const Job& job);

}  // namespace gpusched::api
