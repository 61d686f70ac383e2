#pragma once

#include <string>

#include "model/state.h"

/// Answers what a node could ever run, whatever it runs now. Pure.
namespace gpusched {

/// The node, empty and with all its devices well, could run one member of the part.
bool node_could_run(const State& state, const Node& node, const Part& part);
/// Some registered node could.
bool feasible(const State& state, const Part& part);
/// For a part that no node could ever run: the node that comes nearest, and what it lacks, as half a
/// sentence: "node gpu-03 comes nearest: it has 4 of the 8 GPUs". Empty without nodes. O(nodes).
std::string nearest_node(const State& state, const Part& part);

}  // namespace gpusched
