#include "engine/decide/feasibility.h"

#include <algorithm>
#include <string>

#include "base/digest.h"
#include "base/limits.h"
#include "engine/decide/feasible.h"

namespace gpusched::rules {
namespace {

/// One domain of the level, counted part by part, could hold all members.
bool domain_could_hold(const State& state, const std::vector<Part>& parts, DomainLevel level) {
  std::map<std::string, std::vector<int64_t>>
      held;  // By domain: members of each part; nodes for any of them.
  int64_t members = 0;
  for (const Part& part : parts) members += part.member_count;
  for (const Node& node : state.nodes) {
    const std::string domain = domain_of(state.config.policy, node, level);
    if (level != DomainLevel::kAny && domain.empty()) continue;
    std::vector<int64_t>& counts = held.try_emplace(domain, parts.size() + 1, 0).first->second;
    bool any = false;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const int64_t here = members_when_empty(state.device_classes, node, parts[i]);
      counts[i] += here;
      any = any || here > 0;
    }
    counts.back() += any ? 1 : 0;
  }
  return std::any_of(held.begin(), held.end(), [&](const auto& entry) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (entry.second[i] < parts[i].member_count) return false;
    }
    return !parts.front().one_member_per_node || entry.second.back() >= members;
  });
}

/// Some node alone could run it; of a gang, all nodes or those of one domain that it may be in.
bool feasible(const State& state, const std::vector<Part>& parts) {
  const Part& part = parts.front();
  if (!is_gang(parts)) {
    return std::any_of(state.nodes.begin(), state.nodes.end(),
                       [&](const Node& node) { return node_could_run(state, node, part); });
  }
  if (!part.domain_required || part.domain == DomainLevel::kAny)
    return domain_could_hold(state, parts, DomainLevel::kAny);
  for (DomainLevel level = part.domain; level != DomainLevel::kAny;
       level = static_cast<DomainLevel>(static_cast<uint8_t>(level) - 1)) {
    if (domain_could_hold(state, parts, level)) return true;
  }
  return false;
}

/// The job insists on a domain of a level that no node's labels name.
bool lacks_domain(const State& state, const std::vector<Part>& parts) {
  const Part& part = parts.front();
  if (!is_gang(parts) || !part.domain_required || part.domain == DomainLevel::kAny) return false;
  return std::none_of(state.nodes.begin(), state.nodes.end(), [&](const Node& node) {
    return !domain_of(state.config.policy, node, part.domain).empty();
  });
}

}  // namespace

std::optional<Rejection> Feasibility::check(const std::vector<Part>& parts) {
  const std::optional<bool> could_run = could_ever_run(parts);
  if (!could_run.has_value()) return Rejection{.code = RejectionCode::kFeasibilityLimit};
  if (*could_run) return std::nullopt;
  if (lacks_domain(state_, parts)) return Rejection{.code = RejectionCode::kNoDomain};
  return Rejection{.code = RejectionCode::kInfeasible, .nearest = nearest_node(state_, parts.front())};
}

// Nothing: too much was asked of one submission.
std::optional<bool> Feasibility::could_ever_run(const std::vector<Part>& parts) {
  Digest digest;
  for (const Part& part : parts) mix_fields(digest, part);
  const auto known = answers_.find(digest.value());
  if (known != answers_.end()) return known->second;
  const int64_t looks = state_.node_count() * static_cast<int64_t>(parts.size());
  const bool bounded = state_.config.feature_level >= 6 && !answers_.empty();
  if (bounded && looks_ + looks > limits::kFeasibleLooksMax) return std::nullopt;
  looks_ += looks;
  return answers_[digest.value()] = feasible(state_, parts);
}

}  // namespace gpusched::rules
