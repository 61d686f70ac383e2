#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/state.h"

/// Nodes on which jobs die soon after their start that live elsewhere. Whole numbers only, so that every
/// replica and every replay finds the same. How it was decided: docs/adr/gpu-health.md.
namespace gpusched::rules {

/// Probabilities are whole numbers of this many bits.
inline constexpr int kChanceBits = 20;
inline constexpr int kTailBits = 40;

/// The probability, in 2^-40, that at least `hits` of independent trials hit, the i-th with probability
/// chances[i] in 2^-20 (a Poisson binomial, summed up trial by trial). Each product is cut, so it is at most
/// trials * hits units too small. 1 for no hits.
int64_t chance_of_at_least(const std::vector<int64_t>& chances, std::size_t hits);

/// The record of the member's end, if it counts: the first end of its attempt, by itself, of a running job,
/// since feature level 5.
std::optional<NodeEnd> node_end_of(const State& state, const Attempt& attempt, uint32_t member,
                                   const Outcome& outcome, Time at);
/// Remembers it, and that jobs which die soon everywhere say nothing of their nodes. For `evolve`.
void note_end(State& state, NodeId node, const NodeEnd& end);

/// For `evolve`.
void forget_ends(State& state, Node& node);

/// Why the node is taken for one, when the attempts' ends that it remembers, and `last` behind them, happened
/// by chance no more often than limits::kBlackHoleChance: each end is taken as soon a failure as its
/// tenant's ends elsewhere are. At least two tenants are needed, and without the one with the most failures
/// the others' must still be rarer than kBlackHoleChanceOfOthers.
std::optional<std::string> black_hole(const State& state, const Node& node, const NodeEnd& last);

}  // namespace gpusched::rules
