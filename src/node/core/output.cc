#include "node/core/output.h"

#include <utility>

namespace gpusched::agent {

void Output::on_read_log(const v1::ReadLog& order) const {
  const AttemptRow* const attempt = attempts_.find(from_wire(order.key()));
  AttemptLife life = AttemptLife::kUnknown;
  if (attempt != nullptr) life = attempt->over() ? AttemptLife::kEnded : AttemptLife::kRunning;
  ports_.files.read(order, life);
}

void Output::not_obeyed(const v1::ReadLog& order, const std::string& why) const {
  v1::LogChunk chunk;
  chunk.set_request(order.request());
  chunk.set_error(why);
  send(std::move(chunk));
}

void Output::send(v1::LogChunk chunk) const {
  v1::AgentMessage message;
  *message.mutable_log_chunk() = std::move(chunk);
  ports_.link.send(message);
}

}  // namespace gpusched::agent
