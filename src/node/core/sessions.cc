#include "node/core/sessions.h"

namespace gpusched::agent {

void Sessions::on_open(const v1::OpenSession& order) const {
  const AttemptRow* const attempt = attempts_.find(from_wire(order.key()));
  const bool known = attempt != nullptr && !attempt->over();
  if (known && attempt->pid != 0 && ports_.sessions != nullptr) {
    return ports_.sessions->open(order,
                                 {.pid = attempt->pid, .user = attempt->user, .identity = attempt->identity});
  }
  v1::AgentMessage message;
  v1::SessionOutput& output = *message.mutable_session_output();
  output.set_session(order.session());
  output.set_ended(true);
  output.set_code("job_not_running");
  output.set_error(known ? "the attempt's command has not started yet; try again in a moment"
                         : "the attempt has ended; sessions need a running attempt");
  ports_.link.send(message);
}

void Sessions::on_input(const v1::SessionInput& input) const {
  if (ports_.sessions != nullptr) ports_.sessions->input(input);
}

void Sessions::on_read_file(const v1::ReadFile& order) const {
  const AttemptRow* const attempt = attempts_.find(from_wire(order.key()));
  if (attempt != nullptr && ports_.sessions != nullptr) {
    const int64_t pid = attempt->over() ? 0 : attempt->pid;
    return ports_.sessions->read_file(order,
                                      {.pid = pid, .user = attempt->user, .identity = attempt->identity});
  }
  v1::AgentMessage message;
  v1::FileChunk& chunk = *message.mutable_file_chunk();
  chunk.set_request(order.request());
  chunk.set_code("file_not_found");
  chunk.set_error("the node no longer has this attempt's files");
  ports_.link.send(message);
}

void Sessions::not_obeyed(const v1::OpenSession& order, const std::string& why) const {
  v1::AgentMessage message;
  v1::SessionOutput& output = *message.mutable_session_output();
  output.set_session(order.session());
  output.set_ended(true);
  output.set_code("session_failed");
  output.set_error(why);
  ports_.link.send(message);
}

void Sessions::not_obeyed(const v1::ReadFile& order, const std::string& why) const {
  v1::AgentMessage message;
  v1::FileChunk& chunk = *message.mutable_file_chunk();
  chunk.set_request(order.request());
  chunk.set_code("session_failed");
  chunk.set_error(why);
  ports_.link.send(message);
}

void Sessions::end_all() const {
  if (ports_.sessions != nullptr) ports_.sessions->end_all();
}

}  // namespace gpusched::agent
