#include "host/nodes/output.h"

#include <utility>

#include "base/queue_limits.h"

namespace gpusched::hub {

void Output::read(NodeId node, v1::ReadLog request, Done done) {
  Connection* connection = connections_.of(node);
  if (connection == nullptr) {
    done(Error{.code = ErrorCode::kUnavailable,
               .message = "the node that has the output is not connected; try again when it is connected"});
    return;
  }
  if (connection->log_reads >= limits::kLogReadsPerNodeMax) {
    done(Error{.code = ErrorCode::kUnavailable,
               .message = "the node has not yet answered many earlier requests for output; try again soon"});
    return;
  }
  connection->log_reads += 1;
  const uint64_t number = next_request_++;
  pending_[number] = Pending{.node = node, .done = std::move(done)};
  request.set_request(number);
  v1::SchedulerMessage message;
  *message.mutable_read_log() = std::move(request);
  connection->send(message);
}

void Output::on_chunk(NodeId node, const v1::LogChunk& chunk) {
  const auto it = pending_.find(chunk.request());
  if (it == pending_.end() || it->second.node != node) return;
  const Done done = std::move(it->second.done);
  if (Connection* asked = connections_.of(it->second.node); asked != nullptr && asked->log_reads > 0)
    asked->log_reads -= 1;
  pending_.erase(it);
  done(chunk);
}

void Output::node_gone(NodeId node) {
  for (auto read = pending_.begin(); read != pending_.end();) {
    if (read->second.node != node) {
      ++read;
      continue;
    }
    read->second.done(Error{.code = ErrorCode::kUnavailable,
                            .message = "the connection to the node's agent was lost; try again"});
    read = pending_.erase(read);
  }
}

}  // namespace gpusched::hub
