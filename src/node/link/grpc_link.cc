#include "node/link/grpc_link.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/net/ip_network.h"
#include "gpusched/v1/node.pb.h"
#include "log/log.h"
#include "node/link/clean_message.h"
#include "node/link/order_gate.h"
#include "node/link/scheduler_channel.h"
#include "node/link/trust.h"
#include "ops/machine_addresses.h"
#include "sign/keys/token_proof.h"
#include "sign/node_certificate.h"

namespace gpusched {
namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
constexpr int kConnectTimeoutMs = 5'000;
constexpr int kMessageBytesMax = 16 << 20;

SchedulerChannel make_channel(const std::string& scheduler, const LinkTls& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY,
                   0);  // A node's scheduler is never behind the user's web proxy.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                   1);  // Each connection begins afresh: the back-off is ours.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  return open_scheduler_channel(scheduler, tls, arguments);
}

/// A node with a certificate obeys the key beside it, and nobody while that cannot be read.
OrderGate make_gate(const GrpcLinkOptions& options, const std::string& nonce) {
  if (options.tls.identity.empty()) return {};
  const Result<sign::NodeFile> file = sign::read_node_file(options.tls.identity);
  return {file ? file->order_keys : std::string(), options.node_name, nonce};
}

}  // namespace

/// The messages that gRPC's threads received. Belongs to one connection at a time; others' words are dropped.
class GrpcLink::Inbox {
 public:
  Inbox() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { CHECK(event_ >= 0); }
  ~Inbox() { close(event_); }

  int event() const { return event_; }
  void belong_to(const Stream* stream) {
    const std::lock_guard lock(mutex_);
    owner_ = stream;
    inputs_.clear();
  }
  void put(const Stream* stream, Input input) {
    {
      const std::lock_guard lock(mutex_);
      if (owner_ != stream) return;
      inputs_.push_back(std::move(input));
      if (inputs_.size() > 1) return;  // The reader was woken already.
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = write(event_, &one, sizeof one);
  }
  std::vector<Input> take() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(event_, &count, sizeof count);
    const std::lock_guard lock(mutex_);
    return std::exchange(inputs_, {});
  }

 private:
  const int event_;
  std::mutex mutex_;
  const Stream* owner_ = nullptr;
  std::vector<Input> inputs_;
};

constexpr const char* kAddressesMetadata = "gpusched-addresses";

/// Addresses of this node's interfaces, without loopback's, with commas between them: jobs may call from
/// each.
std::string addresses_of_node() {
  constexpr int kAddressesMax = 31;
  std::string all;
  int count = 0;
  for (const std::string& text : ops::machine_addresses()) {
    const std::optional<IpAddress> address = parse_ip_address(text);
    if (!address || address->is_loopback()) continue;
    if (++count > kAddressesMax) break;
    all += (all.empty() ? "" : ",") + text;
  }
  return all;
}

/// Tells when gRPC is done with a connection. Outlives it, so that its last thread may still touch it.
class GrpcLink::Done {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  bool is_set() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

/// The stream itself reads the messages that come: so it knows one that cannot be read from the stream's
/// end: the generated code would call both the end, and gRPC would wait for ever to be cancelled.
using WireStub = grpc::TemplatedGenericStub<v1::AgentMessage, grpc::ByteBuffer>;
constexpr const char* kConnectMethod = "/gpusched.v1.NodeProtocol/Connect";

/// One connection. Destroyed by the owner's thread when gRPC is done with it: the channel inside waits for
/// gRPC's threads, so that none of these may destroy it.
class GrpcLink::Stream final : public grpc::ClientBidiReactor<v1::AgentMessage, grpc::ByteBuffer> {
 public:
  Stream(std::string scheduler, const GrpcLinkOptions& options, std::shared_ptr<Inbox> inbox)
      : scheduler_(std::move(scheduler)),
        token_(options.token),
        find_token_(options.find_token),
        inbox_(std::move(inbox)),
        nonce_(sign::make_nonce()),
        gate_(make_gate(options, nonce_)),
        way_(make_channel(scheduler_, options.tls)),
        stub_(way_.channel) {}
  ~Stream() override {
    if (way_.relay != nullptr) way_.relay->stop();
  }

  void start(const GrpcLinkOptions& options) {
    stub_.PrepareBidiStreamingCall(&context_, kConnectMethod, {}, this);
    AddHold();  // Writes begin outside of reactions.
    StartRead(&received_);
    v1::AgentMessage hello;
    hello.mutable_hello()->set_node_name(options.node_name);
    hello.mutable_hello()->set_nonce(nonce_);
    hello.mutable_hello()->set_version(options.version);
    hello.mutable_hello()->set_handshake(sign::kHandshake);
    hello.mutable_hello()->set_takes_signed_orders(gate_.demands_signatures());
    context_.AddMetadata(kAddressesMetadata, addresses_of_node());
    send(std::move(hello));
    StartCall();
  }

  void send(v1::AgentMessage message) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if (message.has_register_()) message.mutable_register_()->set_proof(proof_);
    if (clean_texts(message)) {
      log_event(LogLevel::kWarning, "agent", "text_replaced", {},
                {{"message", v1::AgentMessage::descriptor()->FindFieldByNumber(message.body_case())->name()},
                 {"why", "a text of it was not UTF-8"}});
    }
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) write_first();
  }

  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    const bool is_readable =
        ok && grpc::SerializationTraits<v1::SchedulerMessage>::Deserialize(&received_, &incoming_).ok();
    if (ok && !is_readable) give_up(kUnreadable);
    if (!is_readable) {
      {
        const std::lock_guard lock(mutex_);
        closed_ = true;  // Under the lock: no write begins once the hold is gone.
      }
      RemoveHold();
      return;
    }
    if (incoming_.has_challenge()) {
      on_challenge(incoming_.challenge());
    } else if (incoming_.has_proven()) {
      on_proven(incoming_.proven());
    } else if (incoming_.has_refused() || up_) {
      Input input{.kind = Input::Kind::kMessage, .message = std::exchange(incoming_, {})};
      if (const Result<Unit> passed = gate_.pass(input.message); !passed) {
        input.kind = Input::Kind::kNotObeyed;
        input.why = passed.error().message;
      }
      inbox_->put(this, std::move(input));
    }
    StartRead(&received_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    outgoing_.pop_front();
    if (!ok) outgoing_.clear();  // The stream is ending: its status says why.
    if (!outgoing_.empty() && !closed_) write_first();
  }

  void OnDone(const grpc::Status& status) override {
    std::string why = why_;
    if (why.empty()) why = way_.why(status);
    inbox_->put(this, {.kind = Input::Kind::kDown, .why = std::move(why)});
    const std::shared_ptr<Done> done = done_;  // The stream may go as soon as it is set.
    done->set();
  }
  const std::shared_ptr<Done>& done() const { return done_; }

 private:
  /// We prove first, who ask: a stranger learns nothing by answering, or by asking the scheduler.
  void on_challenge(const v1::Challenge& challenge) {
    if (up_ || challenged_) return;
    challenged_ = true;
    if (challenge.handshake() < sign::kHandshake) return on_old_challenge(challenge);
    if (token_.empty() && find_token_) token_ = find_token_(scheduler_, challenge.token_file());
    both_ = nonce_ + challenge.nonce();
    v1::AgentMessage message;
    message.mutable_prove()->set_proof(sign::prove(token_, sign::kAgentLabel, both_));
    send(std::move(message));
  }
  void on_proven(const v1::Proven& proven) {
    if (up_ || both_.empty()) return;
    if (!token_.empty() && !sign::proves(proven.proof(), token_, sign::kSchedulerLabel, both_))
      return give_up(kNotOurs);
    come_up();
  }
  void on_old_challenge(const v1::Challenge& challenge) {
    if (!token_.empty() && !sign::proves(challenge.proof(), token_, sign::kOldSchedulerLabel, nonce_)) {
      return give_up(
          challenge.proof().empty()
              ? "the scheduler has no token, but this agent requires one: start the scheduler with the token"
              : kNotOurs);
    }
    {
      const std::lock_guard lock(mutex_);
      proof_ = sign::prove(token_, sign::kOldAgentLabel, challenge.nonce());
    }
    come_up();
  }
  void come_up() {
    up_ = true;
    inbox_->put(this, {.kind = Input::Kind::kUp});
  }
  void give_up(const char* why) {
    why_ = why;
    cancel();
  }
  static constexpr const char* kUnreadable =
      "the scheduler sent a message that cannot be read; connecting again (if this repeats, check that "
      "scheduler and "
      "agent have compatible versions)";
  static constexpr const char* kNotOurs =
      "the scheduler does not know this agent's token: compare --token-file with its DATA_DIR/token";

  void write_first() {
    grpc::WriteOptions options;
    if (outgoing_.size() > 1) options.set_buffer_hint();  // More follows at once: one packet for all.
    StartWrite(&outgoing_.front(), options);
  }

  const std::string scheduler_;
  std::string token_;  ///< Reads' thread only, as is all up to `why_`.
  const std::function<std::string(const std::string& scheduler, const std::string& path)> find_token_;
  std::string both_;  ///< Both nonces, once they are known.
  bool challenged_ = false;
  const std::shared_ptr<Inbox> inbox_;
  const std::string nonce_;
  OrderGate gate_;  ///< Reads' thread only.
  const SchedulerChannel way_;
  WireStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer received_;
  v1::SchedulerMessage incoming_;  ///< The same, read.
  bool up_ = false;                ///< Reads' thread only, as is `why_`.
  std::string why_;
  const std::shared_ptr<Done> done_ = std::make_shared<Done>();

  std::mutex mutex_;  ///< Guards what follows.
  std::deque<v1::AgentMessage> outgoing_;
  std::string proof_;
  bool closed_ = false;
};

GrpcLink::GrpcLink(GrpcLinkOptions options)
    : options_(std::move(options)), inbox_(std::make_shared<Inbox>()) {}

GrpcLink::~GrpcLink() {
  disconnect();
  for (const std::unique_ptr<Stream>& stream : ending_) stream->done()->wait();
}

void GrpcLink::connect(const std::string& scheduler) {
  disconnect();
  std::erase_if(ending_, [](const std::unique_ptr<Stream>& stream) { return stream->done()->is_set(); });
  stream_ = std::make_unique<Stream>(scheduler, options_, inbox_);
  inbox_->belong_to(stream_.get());
  stream_->start(options_);
}

void GrpcLink::disconnect() {
  inbox_->belong_to(nullptr);
  if (stream_ == nullptr) return;
  stream_->cancel();
  ending_.push_back(std::move(stream_));
}

void GrpcLink::send(const v1::AgentMessage& message) {
  if (stream_ != nullptr) stream_->send(message);
}

std::vector<GrpcLink::Input> GrpcLink::take() { return inbox_->take(); }
int GrpcLink::event() const { return inbox_->event(); }

}  // namespace gpusched
