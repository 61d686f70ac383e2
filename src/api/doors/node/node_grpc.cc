#include "api/doors/node/node_grpc.h"

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <set>

#include "api/contract/token.h"
#include "api/grpc/grpc_call.h"
#include "base/limits.h"
#include "base/queue_limits.h"
#include "gpusched/v1/node.grpc.pb.h"
#include "log/log.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kNonceBytes = 32;
constexpr uint32_t kHandshake = 2;

/// By gRPC's word for a client's address.
bool is_on_this_machine(const std::string& peer) {
  return peer.starts_with("ipv4:127.") || peer.starts_with("ipv6:[::1]") ||
         peer.starts_with("ipv6:%5B::1%5D");
}

class Stream;

/// The way to one agent as the host sees it. It outlives the stream.
class Session final : public NodeSession, public std::enable_shared_from_this<Session> {
 public:
  Session(GrpcThread& thread, Stream* stream) : thread_(thread), stream_(stream) {}

  void send(const v1::SchedulerMessage& message) override { send(message, nullptr); }
  void send(const v1::SchedulerMessage& own, const SharedPart& shared) override;
  void close() override;
  /// The host has dealt with a message of the agent's.
  void handled(std::size_t bytes);
  /// The stream is over: what is sent now goes nowhere.
  void detach() {
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
  }

 private:
  friend class Stream;
  void pump();
  /// Counts a message that goes to the host. False: nothing more is to be read until it has dealt with some.
  bool hand_over(std::size_t bytes);
  bool too_much_unhandled() const {
    return unhandled_ >= limits::kAgentMessagesMax || unhandled_bytes_ >= limits::kAgentMessageBytesMax;
  }
  void read_on();
  void drop_orders() {
    queue_.clear();
    queue_bytes_ = 0;
  }

  GrpcThread& thread_;
  std::mutex mutex_;
  Stream* stream_;
  /// What waits is packed: small, and of known size.
  struct Order {
    std::string own;
    SharedPart shared;
  };
  std::deque<Order> queue_;
  std::size_t queue_bytes_ = 0;  ///< Without what is shared.
  std::size_t unhandled_ = 0;    ///< The agent's messages with the host.
  std::size_t unhandled_bytes_ = 0;
  bool reading_paused_ = false;
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

/// Bytes both ways: what many agents are sent is packed once and never copied.
using StreamBase = GrpcBidi<grpc::ByteBuffer, grpc::ByteBuffer>;

/// A slice of bytes that live as long as it does.
grpc::Slice slice_of(SharedPart bytes) {
  const std::string& text = *bytes;
  return {const_cast<char*>(text.data()), text.size(),
          [](void* held) { delete static_cast<SharedPart*>(held); }, new SharedPart(std::move(bytes))};
}

class Stream final : public StreamBase, public GrpcWaiter {
 public:
  Stream(Host& host, std::unique_ptr<Call> call, Streams& streams, const NodeServiceOptions& options)
      : StreamBase(std::move(call)),
        host_(host),
        streams_(streams),
        options_(options),
        peer_(context().peer()),
        note_(thread().note_of(grpc_method(v1::NodeProtocol::service_full_name(), "Connect"))),
        session_(std::make_shared<Session>(thread(), this)) {
    note_.line.peer = address_of(peer_);
    streams_.add(session_);
    thread().expect(*this);
    read_on();
  }
  /// Whoever connects and does not prove who it is holds nothing for ever.
  void too_late() override {
    if (id_) return;
    refuse(ErrorKind::kRequestTimeout, "the agent did not identify itself in time; it may connect again");
    session_->close();
  }

  void OnReadDone(bool ok) override {
    incoming_bytes_ = received_.Length();
    ok = ok && grpc::SerializationTraits<v1::AgentMessage>::Deserialize(&received_, &incoming_).ok();
    if (!ok) {
      session_->close();  // The agent is gone, has said all it had to say, or speaks another language.
      return;
    }
    if (!id_ && !greet()) {
      session_->close();
      return;
    }
    const bool more = !id_ || hand_over();  // What is said before it may speak is not the host's.
    incoming_.Clear();
    if (more) read_on();
  }
  void read_on() { StartRead(&received_); }
  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(session_->mutex_);
      session_->writing_ = false;
      if (!ok) {
        session_->drop_orders();
        session_->closing_ = true;
      }
    }
    session_->pump();
  }
  void OnCancel() override {
    {
      const std::lock_guard lock(session_->mutex_);
      session_->drop_orders();
    }
    session_->close();
  }
  void OnDone() override {
    thread().came(*this);
    session_->detach();
    streams_.remove(session_);
    if (id_) host_.node_closed(*id_);
    delete this;
  }

  grpc::ByteBuffer outgoing;  ///< What is being written.

 private:
  /// The first messages, until it is known who speaks. False ends the stream.
  bool greet() {
    if (nonce_.empty()) return challenge();
    if (incoming_.has_prove() && !old_ && !proven_) return check_proof();
    if (!incoming_.has_register_()) {
      return refuse(ErrorKind::kInvalidArgument,
                    "the messages after Hello must be Prove and then Register; check that the agent has a "
                    "compatible version");
    }
    if (old_) {
      proven_ =
          options_.everybody_trusted ||
          same_secret(incoming_.register_().proof(), keyed_proof(options_.token, "gpusched-agent", nonce_));
    }
    if (!proven_ && !options_.everybody_trusted) return refuse_token();
    thread().came(*this);
    note_.line.caller = std::make_shared<const access::Caller>(
        access::Caller{.kind = access::CallerKind::kNode, .name = name_, .node = name_});
    note_.tell(nullptr);
    id_ = host_.node_opened(session_);
    return true;
  }
  /// False: nothing more is to be read until the host has dealt with some of it.
  bool hand_over() {
    const std::size_t bytes = incoming_bytes_;
    const bool more = session_->hand_over(bytes);
    host_.node_received(*id_, std::move(incoming_), [session = session_, bytes] { session->handled(bytes); });
    return more;
  }
  bool challenge() {
    const v1::Hello& hello = incoming_.hello();
    if (!incoming_.has_hello() || hello.nonce().size() != kNonceBytes) {
      return refuse(ErrorKind::kInvalidArgument, "the first message must be Hello with a nonce of 32 bytes");
    }
    name_ = hello.node_name();
    note_.line.resource = name_;
    old_ = hello.handshake() < kHandshake;
    if (old_ && !options_.old_handshake && !options_.everybody_trusted) {
      return refuse(
          ErrorKind::kUnauthenticated,
          "this agent is older than the scheduler and uses an older handshake; upgrade gpu-agent on its node "
          "(running jobs continue), or set agent.accept_old_handshake until all agents are upgraded");
    }
    agent_nonce_ = hello.nonce();
    nonce_ = random_bytes(kNonceBytes);
    v1::SchedulerMessage message;
    v1::Challenge& answer = *message.mutable_challenge();
    answer.set_nonce(nonce_);
    answer.set_version(options_.version);
    answer.set_unix_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count());
    if (old_) {
      answer.set_proof(keyed_proof(options_.token, "gpusched-scheduler", agent_nonce_));
    } else {
      answer.set_handshake(kHandshake);
      if (is_on_this_machine(peer_)) answer.set_token_file(options_.token_file);
    }
    session_->send(message);
    return true;
  }
  bool check_proof() {
    const std::string both = agent_nonce_ + nonce_;
    proven_ = same_secret(incoming_.prove().proof(), keyed_proof(options_.token, "gpusched-agent-2", both));
    if (!proven_ && !options_.everybody_trusted) return refuse_token();
    v1::SchedulerMessage message;
    message.mutable_proven()->set_proof(proven_ ? keyed_proof(options_.token, "gpusched-scheduler-2", both)
                                                : std::string());
    session_->send(message);
    return true;
  }
  bool refuse_token() {
    return refuse(ErrorKind::kUnauthenticated,
                  "the agent's token is missing or is not that of this scheduler; give it the content of the "
                  "scheduler's DATA_DIR/token with --token-file (on the scheduler's machine, an agent that "
                  "runs as root or as the scheduler's user finds it by itself)");
  }
  bool refuse(ErrorKind kind, const std::string& sentence) {
    log_event(LogLevel::kWarning, "scheduler", "agent_refused", {},
              {{"node", name_}, {"peer", peer_}, {"code", row_of(kind).code}});
    const ApiError error{kind, sentence};
    note_.tell(&error);
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
  CallNote note_;
  std::shared_ptr<Session> session_;
  grpc::ByteBuffer received_;
  v1::AgentMessage incoming_;  ///< The same, read.
  std::size_t incoming_bytes_ = 0;
  std::string name_, agent_nonce_, nonce_;
  bool old_ = false;             ///< The agent greets in the way of older ones.
  bool proven_ = false;          ///< It knows the token.
  std::optional<SessionId> id_;  ///< Once it may speak.
};

void Session::send(const v1::SchedulerMessage& own, const SharedPart& shared) {
  Order order{.own = own.SerializeAsString(), .shared = shared};
  {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr || closing_) return;
    const std::size_t bytes = order.own.size();
    if (queue_.size() >= limits::kOrdersMax || queue_bytes_ + bytes > limits::kOrderBytesMax) {
      drop_orders();  // It reads too slowly; when it is back it is told all again.
      closing_ = true;
    } else {
      queue_.push_back(std::move(order));
      queue_bytes_ += bytes;
    }
    if (std::exchange(pump_queued_, true)) return;
  }
  thread_.run([self = shared_from_this()] { self->pump(); });
}

bool Session::hand_over(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  unhandled_ += 1;
  unhandled_bytes_ += bytes;
  reading_paused_ = too_much_unhandled();
  return !reading_paused_;
}

void Session::handled(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    unhandled_ -= 1;
    unhandled_bytes_ -= bytes;
    if (!reading_paused_ || too_much_unhandled() || stream_ == nullptr) return;
    reading_paused_ = false;
  }
  thread_.run([self = shared_from_this()] { self->read_on(); });
}

void Session::read_on() {
  Stream* stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!finished_) stream = stream_;
  }
  if (stream != nullptr) stream->read_on();
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
      Order order = std::move(queue_.front());
      queue_.pop_front();
      queue_bytes_ -= order.own.size();
      const std::array<grpc::Slice, 2> slices = {
          slice_of(std::make_shared<const std::string>(std::move(order.own))),
          order.shared == nullptr ? grpc::Slice() : slice_of(std::move(order.shared))};
      stream_->outgoing = grpc::ByteBuffer(slices.data(), slices.size());
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

class NodeService::Impl final : public GrpcService {
 public:
  Impl(Host& host, GrpcThread& thread, NodeServiceOptions options)
      : GrpcService(v1::NodeProtocol::service_full_name()), host_(host), options_(std::move(options)) {
    serve_bidi<grpc::ByteBuffer, grpc::ByteBuffer>(thread, *this, "Connect", &Impl::Accept);
  }

  void Accept(std::unique_ptr<StreamBase::Call> call) {
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
