// Judges nodes by the ends of their attempts.
#include <algorithm>
#include <set>

#include "base/limits.h"
#include "engine/decide/black_hole.h"
#include "engine/decide/decide.h"

namespace gpusched::rules {
namespace {

/// Whether failures of this kind may be the node's doing.
bool accuses_node(EndCause cause) {
  return cause == EndCause::kStartFailed || cause == EndCause::kNodeFault || cause == EndCause::kShimLost;
}

bool evidence_suffices(const Node& node, const NodeFailure& last) {
  uint32_t count = 1;
  std::set<TenantId> tenants = {last.tenant};
  for (const NodeFailure& failure : node.failures) {
    if (failure.at + limits::kNodeFailureWindow <= last.at) continue;
    ++count;
    tenants.insert(failure.tenant);
  }
  return count >= limits::kNodeFailuresMin && tenants.size() >= limits::kNodeFailureTenantsMin;
}

bool may_drain_another(const State& state) {
  const auto drained = std::count_if(state.nodes.begin(), state.nodes.end(), [](const Node& node) {
    return node.availability == Availability::kDraining && node.availability_by == "scheduler";
  });
  const int64_t count = state.node_count();
  return drained < std::max<int64_t>(1, count * state.config.auto_drain_percent / 100);
}

/// It drains by itself, or an operator is called: others drain already, as many as may without one.
void accuse(const State& state, const Node& node, std::string why, Time at, Events& events) {
  if (may_drain_another(state)) {
    events.push_back(NodeAvailabilityChanged{.node = node.id,
                                             .to = Availability::kDraining,
                                             .by = "scheduler",
                                             .reason = std::move(why),
                                             .at = at});
  } else if (state.config.feature_level >= 5 && node.suspect_detail.empty()) {
    events.push_back(NodeSuspected{.node = node.id, .detail = std::move(why), .at = at});
  }
}

/// Whether the attempt's end makes its node one on which jobs die that live elsewhere, or no longer.
void judge_end(const State& state, const Node& node, const NodeEnd& end, Time at, Events& events) {
  if (node.availability == Availability::kDraining) return;
  if (!end.quick && node.suspect_detail.empty()) return;
  const std::optional<std::string> why = black_hole(state, node, end);
  if (why) return accuse(state, node, *why, at, events);
  if (!end.quick) events.push_back(NodeSuspected{.node = node.id, .detail = {}, .at = at});
}

}  // namespace

void judge_node(const State& state, const Attempt& attempt, uint32_t member, TenantId tenant,
                const Outcome& outcome, Time at, Events& events) {
  const NodeId node_id = attempt.members[member].node;
  const Node* node = state.find_node(node_id);
  CHECK(node != nullptr);
  if (outcome.cause == EndCause::kNodeFault && node->availability == Availability::kInService) {
    events.push_back(NodeAvailabilityChanged{
        .node = node_id, .to = Availability::kValidating, .by = "agent", .reason = outcome.detail, .at = at});
  }
  if (state.config.auto_drain_percent == 0) return;
  if (const auto end = node_end_of(state, attempt, member, outcome, at))
    judge_end(state, *node, *end, at, events);
  if (outcome.cause == EndCause::kExited && outcome.exit_code == 0) {
    // It can run jobs after all. A failure without a tenant wipes the slate.
    if (!node->failures.empty()) events.push_back(NodeFailureNoted{.node = node_id, .at = at});
    return;
  }
  if (!accuses_node(outcome.cause)) return;
  events.push_back(NodeFailureNoted{.node = node_id, .tenant = tenant, .at = at});
  if (node->availability == Availability::kDraining) return;
  if (!evidence_suffices(*node, {.tenant = tenant, .at = at})) return;
  accuse(state, *node,
         "jobs of several tenants could not run here; the last one: " +
             (outcome.detail.empty() ? std::string(to_string(outcome.cause)) : outcome.detail),
         at, events);
}

}  // namespace gpusched::rules
