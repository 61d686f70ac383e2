#include "host/nodes/session_router.h"

#include <utility>

#include "base/session_limits.h"

namespace gpusched {
namespace {

v1::SessionOutput refusal(const std::string& code, const std::string& sentence) {
  v1::SessionOutput output;
  output.set_ended(true);
  output.set_code(code);
  output.set_error(sentence);
  return output;
}

/// Credit, and what older agents may send beyond it.
constexpr int64_t kUnreadMax = 4 * limits::kSessionCreditBytes;

constexpr const char* kNodeGone =
    "the connection to the job's node was lost, and the session ended with it; the job continues";

}  // namespace

void SessionRouter::open(NodeId node, v1::OpenSession order, std::shared_ptr<SessionClient> client,
                         std::string owner) {
  if (sessions_.size() >= limits::kSessionsMax) {
    return client->on_output(
        refusal("session_limit",
                "the scheduler has reached its maximum number of sessions; end one, or try again later"));
  }
  const uint64_t number = next_session_++;
  order.set_session(number);
  const JobId job{order.key().job()};
  v1::SchedulerMessage message;
  *message.mutable_open_session() = std::move(order);
  if (!send_(node, message)) {
    return client->on_output(refusal(
        "unavailable", "the node that runs the job is not connected; try again when it is connected"));
  }
  const std::shared_ptr<SessionClient> told = client;
  sessions_[number] =
      Session{.node = node, .job = job, .owner = std::move(owner), .client = std::move(client)};
  told->on_number(number);
}

void SessionRouter::attach(JobId job, uint64_t number, std::shared_ptr<SessionClient> client,
                           const std::string& owner) {
  const auto found = sessions_.find(number);
  // Somebody else's is not there: what was typed into it, and what it shows, is not the job's.
  if (found == sessions_.end() || found->second.job != job || found->second.owner != owner) {
    return client->on_output(
        refusal("session_not_found", "the job has no session with this number; it may have ended"));
  }
  Session& session = found->second;
  if (session.client != nullptr) {
    return client->on_output(
        refusal("conflict", "the session is in use; it can be resumed once it is detached"));
  }
  session.client = client;
  session.detached_at = {};
  client->on_number(number);
  int64_t held = 0;
  for (const v1::SessionOutput& output : session.held) held += static_cast<int64_t>(output.data().size());
  if (session.unread > held && !session.ended) {
    // Output that the client before did not read is gone with it.
    v1::SessionInput input;
    input.set_credit(std::exchange(session.unread, held) - held);
    send_input(session, number, std::move(input));
  }
  for (v1::SessionOutput& output : std::exchange(session.held, {})) give(session, std::move(output));
  if (session.ended) sessions_.erase(found);
}

void SessionRouter::give(Session& session, v1::SessionOutput output) {
  session.client->on_output(std::move(output));
}

/// The agent sends more than it was given credit for: what it does not bound is not kept.
void SessionRouter::overrun(uint64_t number, const Session& session) {
  v1::SessionInput input;
  input.set_close(true);
  send_input(session, number, std::move(input));
  const std::shared_ptr<SessionClient> client = session.client;
  sessions_.erase(number);
  if (client != nullptr) {
    client->on_output(refusal(
        "session_failed",
        "the node's agent sent more output than requested; the session was ended, and the job continues"));
  }
}

/// A command that writes byte by byte shall not cost a message each.
void SessionRouter::hold(Session& session, v1::SessionOutput output) {
  session.ended = output.ended();
  const bool joins = !session.held.empty() && !output.data().empty() && !session.held.back().data().empty() &&
                     session.held.back().of_stderr() == output.of_stderr();
  if (joins) {
    session.held.back().mutable_data()->append(output.data());
  } else {
    session.held.push_back(std::move(output));
  }
}

void SessionRouter::input(uint64_t number, const SessionClient* client, v1::SessionInput input) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end() || found->second.client.get() != client) return;
  found->second.unread -= input.credit();
  send_input(found->second, number, std::move(input));
}

void SessionRouter::send_input(const Session& session, uint64_t number, v1::SessionInput input) {
  v1::SchedulerMessage message;
  input.set_session(number);
  *message.mutable_session_input() = std::move(input);
  send_(session.node, message);
}

void SessionRouter::detach(uint64_t number, const SessionClient* client) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end() || found->second.client.get() != client) return;
  found->second.client = nullptr;
  found->second.detached_at = monotonic_();
}

void SessionRouter::close(uint64_t number, const SessionClient* client) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end() || found->second.client.get() != client) return;
  v1::SessionInput input;
  input.set_close(true);
  send_input(found->second, number, std::move(input));
  sessions_.erase(found);
}

void SessionRouter::read_file(NodeId node, v1::ReadFile order,
                              std::function<void(Result<v1::FileChunk>)> done) {
  if (order.request() == 0) order.set_request(next_read_++);
  const uint64_t number = order.request();
  const bool closing = order.close();
  v1::SchedulerMessage message;
  *message.mutable_read_file() = std::move(order);
  if (!send_(node, message) && !closing) {
    return done(
        Error{.code = ErrorCode::kUnavailable,
              .message = "the node that has the file is not connected; try again when it is connected"});
  }
  if (!closing) reads_[number] = PendingRead{.node = node, .done = std::move(done)};
}

void SessionRouter::on_output(NodeId node, v1::SessionOutput output) {
  const auto found = sessions_.find(output.session());
  // Numbers are guessable: only the session's own node speaks for it.
  if (found == sessions_.end() || found->second.node != node) return;
  Session& session = found->second;
  session.unread += static_cast<int64_t>(output.data().size());
  if (session.unread > kUnreadMax) return overrun(found->first, session);
  if (session.client == nullptr) return hold(session, std::move(output));
  const bool ended = output.ended();
  give(session, std::move(output));
  if (ended) sessions_.erase(found);
}

void SessionRouter::on_chunk(NodeId node, v1::FileChunk chunk) {
  const auto found = reads_.find(chunk.request());
  if (found == reads_.end() || found->second.node != node) return;
  const auto done = std::move(found->second.done);
  reads_.erase(found);
  done(std::move(chunk));
}

void SessionRouter::node_gone(NodeId node) {
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    const std::shared_ptr<SessionClient> client = it->second.client;
    it = sessions_.erase(it);
    if (client != nullptr) client->on_output(refusal("session_lost", kNodeGone));
  }
  for (auto it = reads_.begin(); it != reads_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    const auto done = std::move(it->second.done);
    it = reads_.erase(it);
    done(Error{.code = ErrorCode::kUnavailable,
               .message = "the connection to the node's agent was lost; try again"});
  }
}

void SessionRouter::tick() {
  const Time now = monotonic_();
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const Session& session = it->second;
    const bool over = session.client == nullptr && now - session.detached_at >= limits::kSessionDetachedMax;
    if (!over) {
      ++it;
      continue;
    }
    v1::SessionInput input;
    input.set_close(true);
    send_input(session, it->first, std::move(input));
    it = sessions_.erase(it);
  }
}

}  // namespace gpusched
