#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "engine/engine.h"
#include "gpusched/v1/node.pb.h"
#include "model/state.h"

namespace gpusched {

/// Gives the configuration that is to hold the cluster's name: the state's, or, where it has none, the one
/// that was drawn. `wall`: now; a journal that begins knows that everything before is not its own.
void name_cluster(const State& state, Time wall, std::string drawn, EngineConfig& config);

/// Reads a registration and decides whether it may be taken. Pure.
namespace hub {

/// Fault of its words, or of whose node it is; empty: none.
std::string problem_of(const v1::Register& message);
/// A node's name is a host name: it becomes one in addresses, variables and paths. One that the state knows
/// from before stays.
std::string problem_of_name(const State& state, const v1::Register& message);
std::string problem_of_cluster(const State& state, const v1::Register& message);
RegisterNode command_of(const State& state, const v1::Register& message);
/// The slot that each offered device has, or will have once the offer is applied.
std::vector<uint32_t> slots_of_offer(const State& state, const v1::Register& offer);
/// Placed before this journal began: whoever placed it may want it still.
bool is_foreign(const State& state, const v1::AttemptOnNode& known);

}  // namespace hub
}  // namespace gpusched
