// NodeCore: answers who reads attempts' output.
#include <utility>

#include "node/core/node_core.h"

namespace gpusched {

void NodeCore::on_read_log(const v1::ReadLog& order) {
  const Row* const attempt = attempts_.find(from_wire(order.key()));
  const bool known = attempt != nullptr;
  const bool over = known && attempt->over();
  ports_.files.read(order, over    ? AttemptLife::kEnded
                           : known ? AttemptLife::kRunning
                                   : AttemptLife::kUnknown);
}

void NodeCore::on_output(v1::LogChunk chunk) {
  if (!link_up_) return;
  v1::AgentMessage message;
  *message.mutable_log_chunk() = std::move(chunk);
  ports_.link.send(message);
}

}  // namespace gpusched
