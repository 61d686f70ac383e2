#include "api/doors/node_grpc.h"

#include <chrono>
#include <deque>
#include <optional>
#include <set>

#include "api/grpc_call.h"
#include "api/token.h"
#include "gpusched/v1/node.grpc.pb.h"
#include "log/log.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kNonceBytesMin = 16;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kQueuedMax =
    100'000;  ///< Orders that a slow agent leaves waiting; then its stream ends.

class Stream;

/// The way to one agent as the host sees it. It outlives the stream.
class Session final : public NodeSession, public std::enable_shared_from_this<Session> {
 public:
  Session(GrpcThread& thread, Stream* stream) : thread_(thread), stream_(stream) {}

  void send(const v1::SchedulerMessage& message) override;
  void close() override;
  /// The stream is over: what is sent now goes nowhere.
  void detach() {
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
  }

 private:
  friend class Stream;
  void pump();

  GrpcThread& thread_;
  std::mutex mutex_;
  Stream* stream_;
  std::deque<v1::SchedulerMessage> queue_;
  bool closing_ = false;
  bool pump_queued_ = false;
  bool writing_ = false;
  bool finished_ = false;
};

/// Where streams tell that they begin and end.
class Streams {
 public:
  void add(const std::shared_ptr<Session>& session) {
    const std::lock_guard lock(mutex_);
    open_.insert(session);
  }
  void remove(const std::shared_ptr<Session>& session) {
    const std::lock_guard lock(mutex_);
    open_.erase(session);
  }
  std::set<std::shared_ptr<Session>> all() {
    const std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  std::mutex mutex_;
  std::set<std::shared_ptr<Session>> open_;
};

using StreamBase = GrpcBidi<v1::AgentMessage, v1::SchedulerMessage>;

class Stream final : public StreamBase {
 public:
  Stream(Host& host, std::unique_ptr<Call> call, Streams& streams, const NodeServiceOptions& options)
      : StreamBase(std::move(call)),
        host_(host),
        streams_(streams),
        options_(options),
        peer_(context().peer()),
        session_(std::make_shared<Session>(thread(), this)) {
    streams_.add(session_);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      session_->close();  // The agent is gone, or has said all it had to say.
      return;
    }
    if (id_) {
      host_.node_received(*id_, std::move(incoming_));
    } else if (!greet()) {
      session_->close();
      return;
    }
    incoming_.Clear();
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(session_->mutex_);
      session_->writing_ = false;
      if (!ok) {
        session_->queue_.clear();
        session_->closing_ = true;
      }
    }
    session_->pump();
  }
  void OnCancel() override {
    {
      const std::lock_guard lock(session_->mutex_);
      session_->queue_.clear();
    }
    session_->close();
  }
  void OnDone() override {
    session_->detach();
    streams_.remove(session_);
    if (id_) host_.node_closed(*id_);
    delete this;
  }

  v1::SchedulerMessage outgoing;  ///< What is being written.

 private:
  /// The first two messages, until it is known who speaks. False ends the stream.
  bool greet() {
    if (nonce_.empty()) return challenge();
    if (!incoming_.has_register_()) {
      return refuse(ErrorKind::kInvalidArgument,
                    "the message after Hello must be Register; is the agent's version right?");
    }
    const std::string& proof = incoming_.register_().proof();
    const bool proven =
        !proof.empty() && same_secret(proof, keyed_proof(options_.token, "gpusched-agent", nonce_));
    if (!proven && (options_.token_required || !proof.empty())) {
      return refuse(
          ErrorKind::kUnauthenticated,
          "the agent's token is missing or not this scheduler's; give it the content of the scheduler's "
          "DATA_DIR/token");
    }
    id_ = host_.node_opened(session_);
    host_.node_received(*id_, std::move(incoming_));
    return true;
  }
  bool challenge() {
    if (!incoming_.has_hello() || incoming_.hello().nonce().size() < kNonceBytesMin) {
      return refuse(ErrorKind::kInvalidArgument, "the first message must be Hello with a nonce");
    }
    name_ = incoming_.hello().node_name();
    nonce_ = random_bytes(kNonceBytes);
    v1::SchedulerMessage message;
    message.mutable_challenge()->set_nonce(nonce_);
    message.mutable_challenge()->set_proof(
        keyed_proof(options_.token, "gpusched-scheduler", incoming_.hello().nonce()));
    message.mutable_challenge()->set_version(options_.version);
    message.mutable_challenge()->set_unix_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                 std::chrono::system_clock::now().time_since_epoch())
                                                 .count());
    session_->send(message);
    return true;
  }
  bool refuse(ErrorKind kind, const std::string& sentence) {
    log_event(LogLevel::kWarning, "scheduler", "agent_refused", {},
              {{"node", name_}, {"peer", peer_}, {"code", row_of(kind).code}});
    v1::SchedulerMessage message;
    message.mutable_refused()->set_code(std::string(row_of(kind).code));
    message.mutable_refused()->set_message(sentence);
    session_->send(message);
    return false;
  }

  Host& host_;
  Streams& streams_;
  const NodeServiceOptions& options_;
  const std::string peer_;
  std::shared_ptr<Session> session_;
  v1::AgentMessage incoming_;
  std::string name_, nonce_;
  std::optional<SessionId> id_;  ///< Once it may speak.
};

void Session::send(const v1::SchedulerMessage& message) {
  {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr || closing_) return;
    if (queue_.size() >= kQueuedMax) {
      queue_.clear();
      closing_ = true;
    } else {
      queue_.push_back(message);
    }
    if (std::exchange(pump_queued_, true)) return;
  }
  thread_.run([self = shared_from_this()] { self->pump(); });
}

void Session::close() {
  {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) return;
    closing_ = true;
    if (std::exchange(pump_queued_, true)) return;
  }
  thread_.run([self = shared_from_this()] { self->pump(); });
}

/// Writes the next message, or ends the stream when all is written. One write is under way at a time.
void Session::pump() {
  Stream* stream = nullptr;
  bool finish = false;
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    pump_queued_ = false;
    if (stream_ == nullptr || writing_ || finished_) return;
    if (queue_.empty()) {
      if (!closing_) return;
      finished_ = finish = true;
    } else {
      writing_ = true;
      stream_->outgoing = std::move(queue_.front());
      queue_.pop_front();
      more = !queue_.empty();
    }
    stream = stream_;
  }
  // gRPC lets the stream live until both the write and the end that are asked for here are done.
  if (finish) {
    stream->Finish(grpc::Status::OK);
  } else {
    grpc::WriteOptions write_options;
    if (more) write_options.set_buffer_hint();
    stream->StartWrite(&stream->outgoing, write_options);
  }
}

}  // namespace

class NodeService::Impl final : public v1::NodeProtocol::AsyncService {
 public:
  Impl(Host& host, GrpcThread& thread, NodeServiceOptions options)
      : host_(host), options_(std::move(options)) {
    serve_bidi(thread, *this, &v1::NodeProtocol::AsyncService::RequestConnect, &Impl::Connect);
  }

  void Connect(std::unique_ptr<StreamBase::Call> call) {
    // It deletes itself.
    new Stream(host_, std::move(call), streams_, options_);
  }
  void close_all() {
    for (const auto& session : streams_.all()) session->close();
  }

 private:
  Host& host_;
  const NodeServiceOptions options_;
  Streams streams_;
};

NodeService::NodeService(Host& host, GrpcThread& thread, NodeServiceOptions options)
    : impl_(std::make_unique<Impl>(host, thread, std::move(options))) {}
NodeService::~NodeService() = default;
grpc::Service* NodeService::service() { return impl_.get(); }
void NodeService::close_all() { impl_->close_all(); }

}  // namespace gpusched::api
