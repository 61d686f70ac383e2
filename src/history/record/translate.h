#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "history/record/events.h"
#include "model/state.h"

namespace gpusched::history {

/// The user whose use the job is: the name of its owner's credential. Where that is shared or missing (the
/// shared token, no credential), the name that the client gave, which nobody checks; empty: neither is known.
std::string user_of(const State& state, const Job& job);
/// Kind and name of the caller who submitted the job; empty: not known.
std::string owner_of(const State& state, const Job& job);

/// Appends what the history keeps of `events`, which led to `state` at `at`; a state behind later events of
/// the same record gives the same. `describe` may be empty.
void translate(const State& state, const Events& events, Time at, const DescribeJob& describe,
               std::vector<Event>& out);

/// Jobs that are not over and tenants as they are in `state`, of those that `events` led there, or all
/// tenants.
Present present_of(const State& state, const Events& events, bool all_tenants, const DescribeJob& describe);
/// All jobs that are not over, and all tenants.
Present all_present(const State& state, const DescribeJob& describe);

/// Rows that a history can take out of a state alone.
Adopted adopt(const State& state, uint64_t after, const DescribeJob& describe);

}  // namespace gpusched::history
