#include "api/backend/nameless_jobs.h"

#include <algorithm>

namespace gpusched::api {
namespace {

/// Features by which an agent of root tells how it treats jobs that name no user.
constexpr std::string_view kNone = "default-user:none", kRoot = "default-user:root";

bool has(const Node& node, std::string_view feature) {
  return std::find(node.features.begin(), node.features.end(), feature) != node.features.end();
}

}  // namespace

void NamelessJobs::fill(const State& state) {
  bool known = false;
  bool any = false;
  bool anonymous = false;
  for (const Node& node : state.nodes) {
    if (node.state == NodeState::kDead) continue;
    known = true;
    any = any || !has(node, kNone);
    anonymous = anonymous || !(has(node, kNone) || has(node, kRoot));
    if (any && anonymous) break;
  }
  any_.store(any || !known, std::memory_order_release);
  anonymous_.store(anonymous || !known, std::memory_order_release);
}

void NamelessJobs::observe(const State& state, const Changes& changes) {
  const bool may_differ = std::any_of(changes.events.begin(), changes.events.end(), [](const Event& event) {
    return std::holds_alternative<NodeRegistered>(event) || std::holds_alternative<NodeStateChanged>(event);
  });
  if (may_differ) fill(state);
}

}  // namespace gpusched::api
