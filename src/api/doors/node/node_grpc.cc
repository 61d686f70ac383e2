#include "api/doors/node/node_grpc.h"

#include <grpc/grpc_security_constants.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <set>

#include "api/backend/nodes/node_enrollment.h"
#include "api/doors/node/order_seal.h"
#include "api/grpc/agent_socket.h"
#include "api/grpc/call_metadata.h"
#include "api/grpc/grpc_call.h"
#include "api/limits/admission.h"
#include "api/limits/node_addresses.h"
#include "base/limits.h"
#include "base/queue_limits.h"
#include "gpusched/v1/node.grpc.pb.h"
#include "log/log.h"
#include "sign/keys/token_proof.h"

namespace gpusched::api {
namespace {

constexpr auto kRenewalPause = std::chrono::seconds(10);  ///< Between two renewals of one stream.

/// The certificate that the client of a call showed, whose key it has; empty: none.
std::string certificate_of(const grpc::ServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> facts = context.auth_context();
  if (facts == nullptr) return {};
  const std::vector<grpc::string_ref> shown = facts->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return shown.empty() ? std::string() : std::string(shown.front().data(), shown.front().size());
}

bool is_secure(const grpc::ServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> facts = context.auth_context();
  return facts != nullptr && !facts->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME).empty() &&
         facts->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME).front() ==
             GRPC_SSL_TRANSPORT_SECURITY_TYPE;
}

/// A scheduler that has always been the only one tells no term, so that nodes do not tell it from older ones.
uint64_t term_of(const Host& host) {
  const uint64_t term = host.recovery().term;
  return term > 1 ? term : 0;
}

/// By gRPC's word for a client's address.
bool is_on_this_machine(const std::string& peer) {
  return peer.starts_with("ipv4:127.") || peer.starts_with("ipv6:[::1]") ||
         peer.starts_with("ipv6:%5B::1%5D");
}

class Stream;

/// The way to one agent as the host sees it. It outlives the stream.
class Session final : public NodeSession, public std::enable_shared_from_this<Session> {
 public:
  /// `term`: see term_field.
  Session(GrpcThread& thread, Stream* stream, std::string term)
      : thread_(thread), term_(std::move(term)), stream_(stream) {}

  void send(const v1::SchedulerMessage& message) override { send(message, nullptr); }
  void send(const v1::SchedulerMessage& own, const SharedPart& shared) override {
    const bool order = is_order(own);
    enqueue({.own = own.SerializeAsString() + (order ? term_ : ""), .shared = shared, .is_order = order});
  }
  void send_start(const v1::SchedulerMessage& start, const Blob& held, std::string_view payload) override {
    enqueue({.own = start.SerializeAsString() + term_ + payload_head(payload.size()),
             .held = held,
             .payload = payload,
             .is_order = true});
  }
  void close() override;
  /// Tells the agent why, and ends the stream. Any thread.
  void refuse(const ApiError& why);
  /// On the thread.
  void on_enrolled(const NodeEnrollment::Issued& issued);
  static void answer_renewal(Session& session, const NodeEnrollment::Issued& issued);
  /// From now on. On the thread.
  void sign_orders(OrderSeal seal) { seal_ = std::move(seal); }
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
  const std::string term_;
  std::mutex mutex_;
  Stream* stream_;
  /// Waiting messages are packed: small, and of known size.
  struct Order {
    std::string own;
    SharedPart shared = nullptr;
    Blob held = {};                 ///< Holds the payload.
    std::string_view payload = {};  ///< Behind `own`, in the place of `shared`.
    bool is_order = false;

    std::string_view rest() const { return shared == nullptr ? payload : std::string_view(*shared); }
  };
  void enqueue(Order order);
  grpc::ByteBuffer pack(Order order);
  std::deque<Order> queue_;
  std::size_t queue_bytes_ = 0;  ///< Without what is shared or held by a job.
  std::size_t unhandled_ = 0;    ///< The agent's messages with the host.
  std::size_t unhandled_bytes_ = 0;
  bool reading_paused_ = false;
  bool closing_ = false;
  bool pump_queued_ = false;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<OrderSeal> seal_;  ///< The thread's only. None: nothing is signed.
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

/// Metadata of an agent's connection: the numeric addresses of its machine's interfaces, with commas between
/// them.
constexpr const char* kAddressesMetadata = "gpusched-addresses";

/// Bytes both ways: what many agents are sent is packed once and never copied.
using StreamBase = GrpcBidi<grpc::ByteBuffer, grpc::ByteBuffer>;

/// A slice of bytes that live as long as their holder, which it keeps.
template <typename Holder>
grpc::Slice slice_of(std::string_view bytes, Holder holder) {
  return {const_cast<char*>(bytes.data()), bytes.size(),
          [](void* held) { delete static_cast<Holder*>(held); }, new Holder(std::move(holder))};
}
grpc::Slice slice_of(SharedPart bytes) {
  const std::string_view text = *bytes;
  return slice_of(text, std::move(bytes));
}

class Stream final : public StreamBase, public GrpcWaiter {
 public:
  Stream(Host& host, std::unique_ptr<Call> call, Streams& streams, const NodeServiceOptions& options)
      : StreamBase(std::move(call)),
        host_(host),
        streams_(streams),
        options_(options),
        by_socket_(is_of_agent_socket(context().peer())),
        peer_(by_socket_ ? "unix" : context().peer()),
        note_(thread().note_of(grpc_method(v1::NodeProtocol::service_full_name(), "Connect"))),
        session_(std::make_shared<Session>(thread(), this, term_field(term_of(host)))) {
    note_.line.peer = address_of(peer_);
    streams_.add(session_);
    thread().expect(*this);
    read_on();
  }
  /// Ends a stream whose agent does not prove who it is: it holds nothing for ever.
  void too_late() override {
    if (id_) return;
    refuse(ErrorKind::kRequestTimeout, "the agent did not identify itself in time; it may connect again");
    session_->close();
  }

  void OnReadDone(bool ok) override {
    incoming_bytes_ = received_.Length();
    const bool came = ok;
    ok = ok && grpc::SerializationTraits<v1::AgentMessage>::Deserialize(&received_, &incoming_).ok();
    if (!ok) {
      if (came) {
        log_event(LogLevel::kWarning, "scheduler", "agent_message_unreadable", {},
                  {{"node", name_}, {"peer", peer_}, {"bytes", static_cast<int64_t>(incoming_bytes_)}});
      }
      session_->close();  // The agent is gone, has said all it had to say, or speaks another language.
      return;
    }
    if (!id_ && !greet()) {
      session_->close();
      return;
    }
    const bool more = !id_ || hand_over();  // Messages before it may speak are not the host's.
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

  /// The enrollment's answer to a machine that is to become a node.
  void on_enrolled(const NodeEnrollment::Issued& issued) {
    if (!issued) {
      refuse(issued.error().kind, issued.error().message);
    } else {
      log_event(LogLevel::kInfo, "scheduler", "node_joined", {}, {{"node", name_}, {"peer", peer_}});
      note_.tell(nullptr);
      v1::SchedulerMessage message;
      message.mutable_enrolled()->set_certificates(*issued);
      message.mutable_enrolled()->set_order_key(options_.enrollment->order_key()->public_key());
      session_->send(message);
    }
    session_->close();
  }

  grpc::ByteBuffer outgoing;  ///< The message that is being written.

 private:
  /// The first messages, until it is known who speaks. False ends the stream.
  bool greet() {
    if (nonce_.empty()) return challenge();
    // A machine that asks to become a node is none yet: it connects again with what it gets.
    if (enrolling_)
      return refuse(ErrorKind::kInvalidArgument,
                    "nothing follows Enroll; connect again with the certificate");
    if (incoming_.has_enroll() && !old_ && !proven_) return enroll();
    if (incoming_.has_prove() && !old_ && !proven_) return check_proof();
    if (!incoming_.has_register_()) {
      return refuse(ErrorKind::kInvalidArgument,
                    "the messages after Hello must be Prove and then Register; check that the agent has a "
                    "compatible version");
    }
    if (old_) {
      proven_ = options_.everybody_trusted ||
                sign::proves(incoming_.register_().proof(), options_.token, sign::kOldAgentLabel, nonce_);
    }
    if (!proven_ && !options_.everybody_trusted) return refuse_token();
    if (!let_in(incoming_.register_().node_name())) return false;
    note_addresses();
    thread().came(*this);
    note_.line.caller = std::make_shared<const access::Caller>(
        access::Caller{.kind = access::CallerKind::kNode, .name = name_, .node = name_});
    note_.tell(nullptr);
    if (claim_ && takes_signed_orders_ && options_.enrollment->order_key() != nullptr) {
      session_->sign_orders({options_.enrollment->order_key(), claim_->node, agent_nonce_});
      tell_order_keys();
    }
    id_ = host_.node_opened(session_);
    return true;
  }
  /// Before any job runs there: callers without a credential may not be let in from where jobs are.
  void note_addresses() {
    if (options_.addresses == nullptr) return;
    const std::string& node = incoming_.register_().node_name();
    options_.addresses->add(node, by_socket_ ? std::string_view("unix") : address_of(peer_));
    std::string_view rest = metadata_of(context(), kAddressesMetadata);
    for (std::size_t left = NodeAddresses::kPerNode - 1; left > 0 && !rest.empty(); --left) {
      const std::string_view address = rest.substr(0, rest.find(','));
      const std::optional<IpAddress> numeric = parse_ip_address(address);
      if (numeric && !numeric->is_loopback()) options_.addresses->add(node, address);
      rest.remove_prefix(std::min(rest.size(), address.size() + 1));
    }
  }
  /// Signed by a key that the node knows: so it learns the next one in time.
  void tell_order_keys() {
    if (options_.enrollment->told_order_keys().empty()) return;
    v1::SchedulerMessage message;
    message.mutable_renewed()->set_order_key(options_.enrollment->told_order_keys());
    session_->send(message);
  }
  /// Whether it may speak as the node, from now on. A certificate that it shows has proved who it is; the
  /// name of Hello is the only one that was looked at.
  bool let_in(const std::string& node) {
    if (options_.enrollment == nullptr) return true;
    Answer<std::shared_ptr<void>> place = options_.enrollment->let_in(
        node, claim_, [session = std::weak_ptr(session_), node](const ApiError& why) {
          if (const auto open = session.lock()) open->refuse(why);
          log_event(LogLevel::kWarning, "scheduler", "agent_cut_off", {},
                    {{"node", node}, {"code", row_of(why.kind).code}});
        });
    if (!place) return refuse(place.error().kind, place.error().message);
    place_ = std::move(*place);
    spoken_for_ = node;
    return true;
  }
  /// A machine that is to become a node. It proves nothing but its token, and leaves with the answer.
  bool enroll() {
    if (options_.enrollment == nullptr || !is_secure(context())) {
      return refuse(
          ErrorKind::kUnprocessable,
          "node tokens are taken over TLS only; set api.enable_tls where the scheduler runs, and join "
          "with --ca");
    }
    if (options_.admission != nullptr) {
      if (const auto limited = options_.admission->take(note_.line.peer))
        return refuse(limited->kind, limited->message);
    }
    enrolling_ = true;
    options_.enrollment->join(
        name_, incoming_.enroll().token(), incoming_.enroll().request(),
        [session = session_](NodeEnrollment::Issued issued) {
          session->thread_.run([session, issued = std::move(issued)] { session->on_enrolled(issued); });
        });
    return true;
  }
  /// Renews the certificate of a node that was let in by one; others get none here.
  void renew() {
    const auto now = std::chrono::steady_clock::now();
    const bool soon = renewed_ && now - *renewed_ < kRenewalPause;
    if (!claim_ || soon) {
      return Session::answer_renewal(
          *session_, ApiError{ErrorKind::kUnprocessable,
                              soon ? "the certificate was renewed a moment ago"
                                   : "only a node that shows a certificate gets the next one"});
    }
    renewed_ = now;
    options_.enrollment->renew(
        *claim_, incoming_.renew().request(),
        [session = session_](NodeEnrollment::Issued issued) { Session::answer_renewal(*session, issued); });
  }
  /// False: nothing more is to be read until the host has dealt with some of it.
  bool hand_over() {
    if (incoming_.has_renew()) {
      if (options_.enrollment != nullptr) renew();
      return true;
    }
    // A node that was let in does not go on as another one.
    if (incoming_.has_register_() && options_.enrollment != nullptr &&
        incoming_.register_().node_name() != spoken_for_) {
      refuse(ErrorKind::kPermissionDenied, "one connection speaks for one node; connect again");
      session_->close();
      return false;
    }
    const std::size_t bytes = incoming_bytes_;
    const bool more = session_->hand_over(bytes);
    host_.node_received(*id_, std::move(incoming_), [session = session_, bytes] { session->handled(bytes); });
    return more;
  }
  bool challenge() {
    const v1::Hello& hello = incoming_.hello();
    if (!incoming_.has_hello() || hello.nonce().size() != sign::kNonceBytes) {
      return refuse(ErrorKind::kInvalidArgument, "the first message must be Hello with a nonce of 32 bytes");
    }
    name_ = hello.node_name();
    note_.line.resource = name_;
    old_ = hello.handshake() < sign::kHandshake;
    if (old_ && !options_.old_handshake && !options_.everybody_trusted) {
      return refuse(
          ErrorKind::kUnauthenticated,
          "this agent is older than the scheduler and uses an older handshake; upgrade gpu-agent on its node "
          "(running jobs continue), or set agent.accept_old_handshake until all agents are upgraded");
    }
    agent_nonce_ = hello.nonce();
    takes_signed_orders_ = hello.takes_signed_orders();
    nonce_ = sign::make_nonce();
    v1::SchedulerMessage message;
    v1::Challenge& answer = *message.mutable_challenge();
    answer.set_nonce(nonce_);
    answer.set_version(options_.version);
    answer.set_unix_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count());
    if (old_) {
      answer.set_proof(sign::prove(options_.token, sign::kOldSchedulerLabel, agent_nonce_));
    } else {
      answer.set_handshake(sign::kHandshake);
      if (is_on_this_machine(peer_)) answer.set_token_file(options_.token_file);
    }
    session_->send(message);
    return true;
  }
  bool is_trusted(bool knows_token) const { return knows_token || by_socket_ || options_.everybody_trusted; }
  /// By the certificate that it shows, by the shared token, or by whose process it is.
  bool check_proof() {
    const std::string both = agent_nonce_ + nonce_;
    const bool knows_token = sign::proves(incoming_.prove().proof(), options_.token, sign::kAgentLabel, both);
    if (options_.enrollment != nullptr) {
      Answer<std::optional<sign::NodeClaim>> claim = options_.enrollment->claim_of(certificate_of(context()));
      if (!claim) return refuse(claim.error().kind, claim.error().message);
      claim_ = std::move(*claim);
      // A stranger is not told which nodes have certificates.
      const bool known = claim_.has_value() || is_trusted(knows_token);
      if (known) {
        if (const auto why = options_.enrollment->refusal(name_, claim_))
          return refuse(why->kind, why->message);
      }
    }
    proven_ = is_trusted(knows_token) || claim_.has_value();
    if (!proven_) return refuse_token();
    v1::SchedulerMessage message;
    message.mutable_proven()->set_proof(knows_token ? sign::prove(options_.token, sign::kSchedulerLabel, both)
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
  const bool by_socket_;  ///< From a process of root's or of this one's user, by the kernel's word.
  const std::string peer_;
  CallNote note_;
  std::shared_ptr<Session> session_;
  grpc::ByteBuffer received_;
  v1::AgentMessage incoming_;  ///< The same, read.
  std::size_t incoming_bytes_ = 0;
  std::string name_, agent_nonce_, nonce_;
  bool old_ = false;                      ///< The agent greets in the way of older ones.
  bool proven_ = false;                   ///< It knows the token, or shows a certificate that counts.
  bool enrolling_ = false;                ///< It showed a node token.
  bool takes_signed_orders_ = false;      ///< So said the agent.
  std::optional<sign::NodeClaim> claim_;  ///< Claim of its certificate; none: it shows none.
  std::string spoken_for_;                ///< The node that it was let in as.
  std::shared_ptr<void> place_;           ///< Kept while it may speak.
  std::optional<std::chrono::steady_clock::time_point> renewed_;
  std::optional<SessionId> id_;  ///< Once it may speak.
};

void Session::on_enrolled(const NodeEnrollment::Issued& issued) {
  Stream* stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!finished_) stream = stream_;
  }
  if (stream != nullptr) stream->on_enrolled(issued);
}

void Session::refuse(const ApiError& why) {
  v1::SchedulerMessage message;
  message.mutable_refused()->set_code(std::string(row_of(why.kind).code));
  message.mutable_refused()->set_message(why.message);
  send(message);
  close();
}

void Session::answer_renewal(Session& session, const NodeEnrollment::Issued& issued) {
  v1::SchedulerMessage message;
  if (issued) {
    message.mutable_renewed()->set_certificates(*issued);
  } else {
    message.mutable_not_renewed()->set_code(std::string(row_of(issued.error().kind).code));
    message.mutable_not_renewed()->set_message(issued.error().message);
  }
  session.send(message);
}

void Session::enqueue(Order order) {
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

grpc::ByteBuffer Session::pack(Order order) {
  std::array<grpc::Slice, 3> slices;
  if (order.is_order && seal_) {
    slices[0] = grpc::Slice(seal_->head(order.own, order.rest()));
  }
  slices[1] = slice_of(std::make_shared<const std::string>(std::move(order.own)));
  if (order.shared != nullptr) slices[2] = slice_of(std::move(order.shared));
  if (!order.payload.empty()) slices[2] = slice_of(order.payload, std::move(order.held));
  return {slices.data(), slices.size()};
}

/// Writes the next message, or ends the stream when all is written. One write is under way at a time.
void Session::pump() {
  Stream* stream = nullptr;
  Order order;
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
      order = std::move(queue_.front());
      queue_.pop_front();
      queue_bytes_ -= order.own.size();
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
    stream->outgoing =
        pack(std::move(order));  // Outside of the lock: the host does not wait for a signature.
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
