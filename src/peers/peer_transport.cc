#include "peers/peer_transport.h"

#include <pthread.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "log/log.h"
#include "peers/incoming_link.h"
#include "peers/link_frame.h"
#include "peers/link_tls.h"
#include "peers/outgoing_link.h"

namespace gpusched::peers {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kUnknownMax = 64;  // Connections that did not say yet who they are.
constexpr auto kTick = std::chrono::seconds(1);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Arrivals from a peer. The map that holds them never changes.
struct Heard {
  std::atomic<int64_t> at_ns = 0;  ///< 0: nothing came yet.
  std::atomic<uint64_t> frames = 0;
  PeerFacts facts;  ///< Under the transport's mutex.
};

class Transport final : public PeerTransport {
 public:
  Transport(Options options, Handler& handler, std::unique_ptr<LinkTls> tls)
      : options_(std::move(options)),
        handler_(handler),
        tls_(std::move(tls)),
        acceptor_(io_),
        tick_(io_),
        accept_pause_(io_) {}
  ~Transport() override { stop(); }

  Result<Unit> listen();
  void run();
  void send(consensus::PeerFrame frame) override;
  void tell(PeerFacts facts) override;
  std::vector<PeerStatus> statuses() const override;
  uint16_t port() const override { return port_; }
  void stop() override;

 private:
  void accept();
  void tick();
  std::string refusal(const std::optional<sign::ReplicaClaim>& claim) const;
  void admitted(const std::shared_ptr<IncomingLink>& link);
  bool take(uint64_t peer, const LinkFrame& frame);
  bool take_message(uint64_t peer, const LinkFrame& frame);
  void ended(const std::shared_ptr<IncomingLink>& link, const std::string& why);

  const Options options_;
  Handler& handler_;
  const std::unique_ptr<LinkTls> tls_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer tick_, accept_pause_;
  uint16_t port_ = 0;
  std::map<uint64_t, std::shared_ptr<OutgoingLink>> outgoing_;
  std::map<uint64_t, Heard> heard_;
  // On the thread only.
  std::vector<std::shared_ptr<IncomingLink>> unknown_;  ///< The oldest first.
  std::map<uint64_t, std::shared_ptr<IncomingLink>> incoming_;
  bool refusal_logged_ = false;  ///< Within this tick: strangers cannot fill the log.

  mutable std::mutex mutex_;
  std::mutex stopping_;
  std::thread thread_;
};

Result<Unit> Transport::listen() {
  error_code failed;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(options_.address, std::to_string(options_.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, failed);
  const std::string place = options_.address + ":" + std::to_string(options_.port);
  if (failed)
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "replica.address: " + options_.address +
                            " is no address of this machine: " + failed.message(),
                 .field = "replica.address"};
  const tcp::endpoint at = *found.begin();
  acceptor_.open(at.protocol(), failed);
  if (!failed) acceptor_.set_option(tcp::acceptor::reuse_address(true), failed);
  if (!failed) acceptor_.bind(at, failed);
  if (!failed) acceptor_.listen(asio::socket_base::max_listen_connections, failed);
  if (failed) {
    const bool taken = failed == asio::error::address_in_use;
    return Error{.code = taken ? ErrorCode::kLocked : ErrorCode::kIo,
                 .message = "cannot listen for the other replicas on " + place + ": " + failed.message() +
                            (taken ? "; stop whoever has that port, or give this replica another one in "
                                     "replica.peers, on all of them"
                                   : ""),
                 .field = "replica.peers"};
  }
  port_ = acceptor_.local_endpoint().port();
  return Unit{};
}

void Transport::run() {
  const sign::ReplicaClaim own{.cluster = options_.cluster, .replica = options_.id};
  for (const Peer& peer : options_.peers) {
    if (peer.id == options_.id) continue;
    heard_[peer.id];
    outgoing_[peer.id] = std::make_shared<OutgoingLink>(
        io_, *tls_,
        OutgoingLink::Options{.peer = peer,
                              .own = own,
                              .queue_bytes_max = options_.queue_bytes_max,
                              .reconnect_first = options_.reconnect_first,
                              .reconnect_max = options_.reconnect_max,
                              .unreachable = [this, id = peer.id] { handler_.unreachable(id); }});
  }
  accept();
  tick();
  for (const auto& [id, link] : outgoing_) link->start();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "peers");
    const auto work = asio::make_work_guard(io_);
    io_.run();
  });
}

void Transport::accept() {
  acceptor_.async_accept([this](error_code failed, tcp::socket socket) {
    if (failed == asio::error::operation_aborted) return;
    if (failed) {  // No descriptors are left: more may be soon.
      accept_pause_.expires_after(kAcceptPause);
      accept_pause_.async_wait([this](error_code stopped) {
        if (!stopped) accept();
      });
      return;
    }
    if (unknown_.size() >= kUnknownMax) {  // The oldest is the least likely to be a peer.
      unknown_.front()->close();
      unknown_.erase(unknown_.begin());
    }
    unknown_.push_back(std::make_shared<IncomingLink>(
        std::move(socket), *tls_,
        IncomingLink::Events{
            .check = [this](const auto& claim) { return refusal(claim); },
            .admitted = [this](const auto& from) { admitted(from); },
            .frame = [this](uint64_t peer, const LinkFrame& frame) { return take(peer, frame); },
            .ended = [this](const auto& from, const std::string& why) { ended(from, why); }}));
    const std::shared_ptr<IncomingLink> link = unknown_.back();
    link->start();
    accept();
  });
}

void Transport::tick() {
  refusal_logged_ = false;
  for (const auto& [id, link] : outgoing_) link->tick();
  tick_.expires_after(kTick);
  tick_.async_wait([this](error_code stopped) {
    if (!stopped) tick();
  });
}

std::string Transport::refusal(const std::optional<sign::ReplicaClaim>& claim) const {
  if (!claim) return "its certificate is not that of a replica";
  if (claim->cluster != options_.cluster) return "it belongs to another cluster: correct its replica.peers";
  if (claim->replica == options_.id)
    return "it has the id of this replica, " + std::to_string(options_.id) + ": stop one of them";
  if (!heard_.contains(claim->replica))
    return "replica " + std::to_string(claim->replica) + " is not among this replica's replica.peers";
  return {};
}

void Transport::admitted(const std::shared_ptr<IncomingLink>& link) {
  std::erase(unknown_, link);
  std::shared_ptr<IncomingLink>& slot = incoming_[link->peer()];
  if (slot != nullptr) slot->close();
  slot = link;
}

bool Transport::take(uint64_t peer, const LinkFrame& frame) {
  Heard& heard = heard_.at(peer);
  heard.at_ns = now_ns();
  if (frame.kind == FrameKind::kAlive) return true;
  if (frame.kind == FrameKind::kMessage) return take_message(peer, frame);
  if (frame.kind != FrameKind::kFacts) return false;
  Result<PeerFacts> facts = decode_facts(frame.content);
  if (!facts.ok()) return false;
  {
    const std::lock_guard lock(mutex_);
    heard.facts = *facts;
  }
  handler_.told(peer, std::move(*facts));
  return true;
}

bool Transport::take_message(uint64_t peer, const LinkFrame& frame) {
  Result<consensus::PeerFrame> read = consensus::decode_frame(frame.content);
  if (!read.ok() || read->cluster != options_.cluster || read->message.from != peer ||
      read->message.to != options_.id)
    return false;
  ++heard_.at(peer).frames;
  handler_.received(peer, std::move(*read));
  return true;
}

void Transport::ended(const std::shared_ptr<IncomingLink>& link, const std::string& why) {
  const bool was_unknown = std::erase(unknown_, link) > 0;
  if (!was_unknown) {
    const auto found = incoming_.find(link->peer());
    if (found == incoming_.end() || found->second != link) return;
    incoming_.erase(found);
    log_event(LogLevel::kInfo, "peers", "peer_left", {}, {{"peer", link->peer()}, {"why", why}});
    return;
  }
  if (std::exchange(refusal_logged_, true)) return;
  log_event(LogLevel::kWarning, "peers", "peer_refused", {}, {{"address", link->from()}, {"why", why}});
}

void Transport::send(consensus::PeerFrame frame) {
  const auto found = outgoing_.find(frame.message.to);
  if (found == outgoing_.end()) return;
  const std::string bytes = consensus::encode_frame(frame);
  if (bytes.size() > kContentBytesMax) {
    log_event(LogLevel::kError, "peers", "message_too_large", {},
              {{"peer", frame.message.to}, {"bytes", bytes.size()}});
    return;
  }
  found->second->send(link_frame(FrameKind::kMessage, bytes));
}

void Transport::tell(PeerFacts facts) {
  const std::string bytes = link_frame(FrameKind::kFacts, encode_facts(facts));
  for (const auto& [id, link] : outgoing_) link->greet_with(bytes);
}

std::vector<PeerStatus> Transport::statuses() const {
  std::vector<PeerStatus> all;
  const int64_t now = now_ns();
  for (const auto& [id, link] : outgoing_) {
    const Heard& heard = heard_.at(id);
    const int64_t at = heard.at_ns;
    PeerStatus status{
        .id = id, .heard = at != 0 && now - at < kSilentAfter.ns, .frames_received = heard.frames};
    link->describe(status);
    const std::lock_guard lock(mutex_);
    status.facts = heard.facts;
    all.push_back(std::move(status));
  }
  return all;
}

void Transport::stop() {
  const std::lock_guard lock(stopping_);
  for (const auto& [id, link] : outgoing_) link->close();
  io_.stop();
  if (thread_.joinable()) thread_.join();
  unknown_.clear();
  for (const auto& [id, link] : incoming_) link->close();
  incoming_.clear();
  error_code ignored;
  acceptor_.close(ignored);
}

}  // namespace

Result<std::unique_ptr<PeerTransport>> PeerTransport::start(Options options, Handler& handler) {
  Result<std::unique_ptr<LinkTls>> tls =
      load_link_tls({.certificate = options.certificate_file, .authority = options.authority_file},
                    {.cluster = options.cluster, .replica = options.id});
  if (!tls.ok()) return tls.error();
  auto transport = std::make_unique<Transport>(std::move(options), handler, std::move(*tls));
  const Result<Unit> listening = transport->listen();
  if (!listening.ok()) return listening.error();
  transport->run();
  return std::unique_ptr<PeerTransport>(std::move(transport));
}

}  // namespace gpusched::peers
