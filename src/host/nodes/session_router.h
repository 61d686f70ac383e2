#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "gpusched/v1/node.pb.h"

namespace gpusched {

/// Client at a session's near end. Called on the host's thread; it must not block.
class SessionClient {
 public:
  virtual ~SessionClient() = default;
  /// The session has this number from now on: it can be detached from and come back to.
  virtual void on_number(uint64_t session) = 0;
  /// Output of the command, or its end: `ended` comes once, last.
  virtual void on_output(v1::SessionOutput output) = 0;
};

/// Brings sessions' bytes from clients to agents and back, and files from agents. The bytes on their way are
/// bounded by credit (limits::kSessionCreditBytes in each direction of each session): a client's credit goes
/// to the agent, which sends no more than that. Owned by the node hub and used on its thread.
class SessionRouter {
 public:
  /// Sends an order to a node's agent; false when it is not connected.
  using Send = std::function<bool(NodeId, const v1::SchedulerMessage&)>;
  SessionRouter(Send send, std::function<Time()> monotonic)
      : send_(std::move(send)), monotonic_(std::move(monotonic)) {}

  /// Opens a session in an attempt on the node. All answers, refusals too, come to the client. `owner`: who
  /// alone may take it up again.
  void open(NodeId node, v1::OpenSession order, std::shared_ptr<SessionClient> client,
            std::string owner = {});
  /// Takes up a session of this job and owner that was detached from. Its output of that time comes first.
  void attach(JobId job, uint64_t session, std::shared_ptr<SessionClient> client,
              const std::string& owner = {});
  /// The client's words; ignored when the session is not (any more) this client's.
  void input(uint64_t session, const SessionClient* client, v1::SessionInput input);
  /// The client goes and may come back; until then nothing more is asked of the agent.
  void detach(uint64_t session, const SessionClient* client);
  /// The client goes for good: the session is ended.
  void close(uint64_t session, const SessionClient* client);

  /// One piece of a file. `request` 0 in the order begins a new transfer, whose number the answer has; later
  /// pieces carry it.
  void read_file(NodeId node, v1::ReadFile order, std::function<void(Result<v1::FileChunk>)> done);

  void on_output(NodeId node, v1::SessionOutput output);
  void on_chunk(NodeId node, v1::FileChunk chunk);
  void node_gone(NodeId node);
  /// Ends sessions that were left alone for too long. Call it every second or so.
  void tick();

  std::size_t session_count() const { return sessions_.size(); }

 private:
  struct Session {
    NodeId node;
    JobId job;
    std::string owner;
    std::shared_ptr<SessionClient> client;  ///< Null: detached.
    Time detached_at;
    std::deque<v1::SessionOutput> held;  ///< While detached; as much as credit had been given.
    bool ended = false;                  ///< Its last word is in `held`.
    int64_t unread = 0;                  ///< Bytes that came and for which no credit went back.
  };
  void give(Session& session, v1::SessionOutput output);
  void overrun(uint64_t number, const Session& session);
  static void hold(Session& session, v1::SessionOutput output);
  void send_input(const Session& session, uint64_t number, v1::SessionInput input);

  Send send_;
  std::function<Time()> monotonic_;
  std::map<uint64_t, Session> sessions_;
  uint64_t next_session_ = 1;
  struct PendingRead {
    NodeId node;
    std::function<void(Result<v1::FileChunk>)> done;
  };
  std::map<uint64_t, PendingRead> reads_;
  uint64_t next_read_ = 1;
};

}  // namespace gpusched
