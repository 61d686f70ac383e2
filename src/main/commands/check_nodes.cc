#include "main/commands/check_nodes.h"

namespace gpusched {
namespace {

constexpr std::size_t kNodesNamed = 5;

}  // namespace

std::vector<Finding> check_nodes(const std::vector<NodeFacts>& nodes, Time now) {
  std::size_t late = 0, good = 0;
  std::string names;
  for (const NodeFacts& node : nodes) {
    if (node.state == "revoked") continue;
    const Duration whole = node.expires_at - node.since, left = node.expires_at - now;
    if (left.ns >= whole.ns / 4) {
      ++good;
      continue;
    }
    if (++late <= kNodesNamed) names += (names.empty() ? "" : ", ") + node.node;
  }
  if (late > kNodesNamed) names += " and " + std::to_string(late - kNodesNamed) + " more";
  if (late == 0 && good == 0) return {};
  if (late == 0) {
    return {{.check = "node-certificates",
             .detail = std::to_string(good) + (good == 1 ? " node has" : " nodes have") +
                       " a certificate with time left"}};
  }
  return {
      {.check = "node-certificates",
       .verdict = Verdict::kWarn,
       .detail =
           "certificates have expired or will soon, and were not renewed, which a connected agent does by "
           "itself: " +
           names,
       .fix =
           "gpu-cli node identities    # then gpu-agent doctor on the node; join it anew if it expired, or "
           "gpu-cli node revoke what is no node any more"}};
}

}  // namespace gpusched
