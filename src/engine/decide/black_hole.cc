#include "engine/decide/black_hole.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched::rules {
namespace {

constexpr int64_t kCertain = int64_t{1} << kChanceBits;
/// With fewer ends on other nodes, of all tenants together, nobody knows how jobs live elsewhere.
constexpr int64_t kEndsElsewhereMin = 8;

struct Count {
  int64_t ends = 0;
  int64_t quick = 0;

  void add(const NodeEnd& end) {
    ends += 1;
    quick += end.quick ? 1 : 0;
  }
};

/// How often ends elsewhere are soon failures, in 2^-20, for each tenant in `here`.
std::map<TenantId, int64_t> usual_chances(const State& state, const Node& node,
                                          const std::map<TenantId, Count>& here) {
  std::map<TenantId, Count> own;
  for (const NodeEnd& end : node.ends) own[end.tenant].add(end);
  const auto elsewhere = [&](const Tenant& tenant) {
    const auto found = own.find(tenant.id);
    const Count less = found == own.end() ? Count{} : found->second;
    return Count{.ends = tenant.recent_ends - less.ends, .quick = tenant.recent_quick_ends - less.quick};
  };
  Count all;
  for (const auto& [id, tenant] : state.tenants) {
    const Count count = elsewhere(tenant);
    all.ends += count.ends;
    all.quick += count.quick;
  }
  const int64_t usual = (all.quick + 1) * kCertain / (all.ends + 2);
  std::map<TenantId, int64_t> chances;
  for (const auto& [id, count] : here) {
    const Tenant* tenant = state.find_tenant(id);
    CHECK(tenant != nullptr);
    const Count other = elsewhere(*tenant);
    // One failure is imagined among as many ends as have one usually: what is not known is not rare.
    const int64_t chance = (other.quick + 1) * kCertain * usual / (other.ends * usual + kCertain);
    chances[id] = all.ends < kEndsElsewhereMin ? kCertain : std::min(chance, kCertain);
  }
  return chances;
}

/// The tenants' counts are the sums of what the nodes remember.
void count_end(State& state, const NodeEnd& end, int64_t times) {
  Tenant* tenant = state.find_tenant(end.tenant);
  CHECK(tenant != nullptr);
  tenant->recent_ends += times;
  tenant->recent_quick_ends += end.quick ? times : 0;
}

/// How likely so many soon failures are, of all tenants but one.
int64_t chance_of(const std::vector<NodeEnd>& ends, const std::map<TenantId, int64_t>& usual,
                  TenantId but_of) {
  std::vector<int64_t> chances;
  std::size_t quick = 0;
  for (const NodeEnd& end : ends) {
    if (end.tenant == but_of) continue;
    chances.push_back(usual.at(end.tenant));
    quick += end.quick ? 1 : 0;
  }
  return chance_of_at_least(chances, quick);
}

bool in_window(const NodeEnd& end, Time now) { return end.at + limits::kNodeEndsWindow > now; }

/// The job died soon on another node too, in an earlier attempt.
bool died_elsewhere(const State& state, const Job& job, NodeId here) {
  for (uint32_t attempt = job.attempt_count; attempt-- > 1;) {
    const NodeId past = job.node_of_attempt(attempt);
    if (!past.valid()) return false;
    if (past == here) continue;
    const Node* node = state.find_node(past);
    if (node == nullptr) continue;
    const bool died = std::any_of(node->ends.begin(), node->ends.end(),
                                  [&](const NodeEnd& end) { return end.job == job.id && end.quick; });
    if (died) return true;
  }
  return false;
}

void excuse(State& state, const Job& job, NodeId here) {
  for (uint32_t attempt = job.attempt_count; attempt-- > 1;) {
    const NodeId past = job.node_of_attempt(attempt);
    if (!past.valid()) return;
    Node* node = past == here ? nullptr : state.find_node(past);
    if (node == nullptr) continue;
    for (NodeEnd& end : node->ends) {
      if (end.job == job.id && end.quick) end.excused = true;
    }
  }
}

}  // namespace

int64_t chance_of_at_least(const std::vector<int64_t>& chances, std::size_t hits) {
  constexpr int64_t kOne = int64_t{1} << kTailBits;
  if (hits == 0) return kOne;
  if (hits > chances.size()) return 0;
  // How likely each count of hits is; the last entry is of that many and more.
  std::vector<int64_t> likely(hits + 1, 0);
  likely[0] = kOne;
  for (const int64_t chance : chances) {
    CHECK(chance >= 0 && chance <= kCertain);
    const auto part = [&](int64_t of) { return (of * chance) >> kChanceBits; };  // At most 2^60.
    likely[hits] += part(likely[hits - 1]);
    for (std::size_t count = hits; count-- > 1;) {
      likely[count] += part(likely[count - 1]) - part(likely[count]);
    }
    likely[0] -= part(likely[0]);
  }
  return likely[hits];
}

std::optional<NodeEnd> node_end_of(const State& state, const Attempt& attempt, uint32_t member,
                                   const Outcome& outcome, Time at) {
  if (state.config.feature_level < 5 || attempt.abandoned || attempt.stop != StopReason::kNone)
    return std::nullopt;
  if (!attempt.started_at.valid()) return std::nullopt;
  if (outcome.cause != EndCause::kExited && outcome.cause != EndCause::kSignaled) return std::nullopt;
  const bool first = std::none_of(attempt.members.begin(), attempt.members.end(),
                                  [](const Member& other) { return other.state == MemberState::kEnded; });
  const Job* job = state.jobs.find(attempt.job);
  if (!first || job == nullptr) return std::nullopt;
  const bool failed = outcome.cause == EndCause::kSignaled || outcome.exit_code != 0;
  const bool quick = failed && at - attempt.started_at < limits::kQuickEnd;
  const NodeId here = attempt.members[member].node;
  return NodeEnd{.tenant = job->tenant,
                 .job = job->id,
                 .at = at,
                 .quick = quick,
                 .excused = quick && died_elsewhere(state, *job, here)};
}

void note_end(State& state, NodeId node_id, const NodeEnd& end) {
  Node* node = state.find_node(node_id);
  const Job* job = state.jobs.find(end.job);
  CHECK(node != nullptr && job != nullptr);
  std::vector<NodeEnd>& ends = node->ends;
  std::size_t old = ends.size() >= limits::kNodeEndsKept ? 1 : 0;
  while (old < ends.size() && !in_window(ends[old], end.at)) ++old;
  for (std::size_t i = 0; i < old; ++i) count_end(state, ends[i], -1);
  ends.erase(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(old));
  ends.push_back(end);
  count_end(state, end, 1);
  if (end.excused) excuse(state, *job, node_id);
}

void forget_ends(State& state, Node& node) {
  for (const NodeEnd& end : node.ends) count_end(state, end, -1);
  node.ends.clear();
}

std::optional<std::string> black_hole(const State& state, const Node& node, const NodeEnd& last) {
  std::vector<NodeEnd> ends;
  std::map<TenantId, Count> here;
  std::set<JobId> dead;
  const auto take = [&](const NodeEnd& end) {
    if (end.excused || !in_window(end, last.at)) return;
    if (end.quick && !dead.insert(end.job).second) return;  // A job that is tried here again dies once.
    ends.push_back(end);
    here[end.tenant].add(end);
  };
  for (const NodeEnd& end : node.ends) take(end);
  take(last);
  TenantId worst;
  int64_t most = 0;
  int64_t quick = 0;
  int64_t tenants = 0;
  for (const auto& [id, count] : here) {
    quick += count.quick;
    tenants += count.quick > 0 ? 1 : 0;
    if (count.quick > most) worst = id, most = count.quick;
  }
  if (tenants < int64_t{limits::kNodeFailureTenantsMin} || quick < int64_t{limits::kNodeFailuresMin})
    return std::nullopt;
  const std::map<TenantId, int64_t> usual = usual_chances(state, node, here);
  if (chance_of(ends, usual, TenantId{}) > limits::kBlackHoleChance ||
      chance_of(ends, usual, worst) > limits::kBlackHoleChanceOfOthers) {
    return std::nullopt;
  }
  return std::to_string(quick) + " of the last " + std::to_string(ends.size()) + " jobs here, of " +
         std::to_string(tenants) + " tenants, failed within " +
         std::to_string(limits::kQuickEnd.ns / 1'000'000'000) +
         " s of their start, which those tenants' jobs do not do elsewhere";
}

}  // namespace gpusched::rules
