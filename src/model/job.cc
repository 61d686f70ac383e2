#include "model/job.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "base/limits.h"

namespace gpusched {
namespace {

constexpr std::size_t kEntryBytes = 8;
constexpr std::size_t kBytesMax = limits::kPastNodesMax * kEntryBytes;

}  // namespace

NodeId Job::node_of_attempt(uint32_t attempt) const {
  if (attempt == 0 || attempt > attempt_count) return NodeId{};
  const std::size_t back = attempt_count - attempt;
  if (back == 0) return node;
  const std::string_view nodes = past_nodes.view();
  if (back * kEntryBytes > nodes.size()) return NodeId{};
  ByteReader entry(nodes.substr(nodes.size() - back * kEntryBytes, kEntryBytes));
  return NodeId{entry.fixed64()};
}

void Job::remember_node() {
  std::string nodes(past_nodes.view());
  ByteWriter(nodes).fixed64(node.value);
  if (nodes.size() > kBytesMax) nodes.erase(0, nodes.size() - kBytesMax);
  past_nodes = Blob(nodes);
}

}  // namespace gpusched
