// Nodes that would not start a job, and for how long it is not placed there.
#include <algorithm>

#include "base/limits.h"
#include "engine/decide/decide.h"

namespace gpusched::rules {
namespace {

Duration avoid_for(int32_t refusals) {
  Duration span = limits::kAvoidFirst;
  for (int32_t i = 1; i < refusals && span < limits::kAvoidMax; ++i) span = span * 2;
  return std::min(span, limits::kAvoidMax);
}

/// One more is kept from now on; of too many the one that the job may use soonest is forgotten.
AvoidedNode& entry_of(std::vector<AvoidedNode>& avoided, const std::string& node) {
  const auto known =
      std::find_if(avoided.begin(), avoided.end(), [&](const AvoidedNode& one) { return one.node == node; });
  if (known != avoided.end()) return *known;
  if (avoided.size() >= limits::kAvoidedNodesMax) {
    avoided.erase(
        std::min_element(avoided.begin(), avoided.end(),
                         [](const AvoidedNode& a, const AvoidedNode& b) { return a.until < b.until; }));
  }
  return avoided.emplace_back(AvoidedNode{.node = node});
}

void set_avoided(std::vector<Part>& parts, const std::vector<AvoidedNode>& avoided) {
  for (Part& part : parts) {
    if (part.place.empty()) part.place.emplace_back();
    part.place.front().avoided = avoided;
  }
}

}  // namespace

void keep_avoided(const State& state, const Job& job, std::vector<Part>& parts) {
  const PlaceRequest* wishes = state.class_of(job).parts.front().wishes();
  if (wishes != nullptr && !wishes->avoided.empty()) set_avoided(parts, wishes->avoided);
}

void avoid_nodes(const State& state, const Job& job, const std::vector<NodeId>& refusing, Time at,
                 Events& events) {
  if (state.config.feature_level < 12) return;
  std::vector<Part> parts = state.class_of(job).parts;
  const PlaceRequest* wishes = parts.empty() ? nullptr : parts.front().wishes();
  if (refusing.empty() && (wishes == nullptr || wishes->avoided.empty())) return;
  std::vector<AvoidedNode> avoided = wishes == nullptr ? std::vector<AvoidedNode>{} : wishes->avoided;
  for (AvoidedNode& one : avoided) {
    if (one.until <= at) one.until = {};
  }
  for (const NodeId id : refusing) {
    const Node* node = state.find_node(id);
    CHECK(node != nullptr);
    AvoidedNode& entry = entry_of(avoided, node->name);
    if (entry.until > at) continue;  // Several members of a gang were on it.
    ++entry.refusals;
    entry.until = at + avoid_for(entry.refusals);
  }
  if (wishes != nullptr && wishes->avoided == avoided) return;
  set_avoided(parts, avoided);
  events.push_back(
      JobUpdated{.change = UpdateJob{.job = job.id, .given = kJobParts, .parts = std::move(parts)}});
}

}  // namespace gpusched::rules
