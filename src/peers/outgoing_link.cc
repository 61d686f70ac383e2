#include "peers/outgoing_link.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

#include "log/log.h"
#include "peers/link_frame.h"

namespace gpusched::peers {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kSetUpLimit = std::chrono::seconds(3);
constexpr int kTicksWriting = 5;  // A peer that takes nothing for so many seconds is cut off.
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;
constexpr int kUserTimeout_ms = 5'000;

std::string place_of(const Peer& peer) { return peer.host + ":" + std::to_string(peer.port); }

}  // namespace

void set_link_options(asio::ip::tcp::socket& socket) {
  error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeout_ms,
               sizeof kUserTimeout_ms);
}

OutgoingLink::OutgoingLink(asio::io_context& io, LinkTls& tls, Options options)
    : io_(io),
      tls_(tls),
      options_(std::move(options)),
      resolver_(io),
      timer_(io),
      jitter_(static_cast<unsigned>(options_.own.replica * 1'000 + options_.peer.id)),
      wait_(options_.reconnect_first) {}

void OutgoingLink::start() { connect(); }

void OutgoingLink::connect() {
  const auto attempt = std::make_shared<Attempt>(io_, tls_);
  attempt_ = attempt;
  timer_.expires_after(kSetUpLimit);
  timer_.async_wait([self = shared_from_this(), attempt](error_code stopped) {
    if (!stopped && self->attempt_ == attempt && !self->welcome_) self->fail("it did not answer within 3 s");
  });
  resolver_.async_resolve(options_.peer.host, std::to_string(options_.peer.port),
                          [self = shared_from_this(), attempt](
                              error_code failed, const asio::ip::tcp::resolver::results_type& at) {
                            if (self->attempt_ != attempt) return;
                            if (failed) return self->fail("its name has no address: " + failed.message());
                            asio::async_connect(
                                attempt->stream.next_layer(), at,
                                [self, attempt](error_code refused, const asio::ip::tcp::endpoint&) {
                                  if (self->attempt_ != attempt) return;
                                  if (refused) return self->fail(refused.message());
                                  self->handshake(attempt);
                                });
                          });
}

void OutgoingLink::handshake(const AttemptPtr& attempt) {
  set_link_options(attempt->stream.next_layer());
  attempt->stream.async_handshake(
      asio::ssl::stream_base::client, [self = shared_from_this(), attempt](error_code failed) {
        if (self->attempt_ != attempt) return;
        if (failed) return self->fail(link_failure(attempt->stream.native_handle(), failed));
        const std::string wrong = self->wrong_claim(claim_of_peer(attempt->stream.native_handle()));
        if (!wrong.empty()) return self->fail(wrong);
        self->say_hello(attempt);
      });
}

std::string OutgoingLink::wrong_claim(const std::optional<sign::ReplicaClaim>& claim) const {
  if (!claim) return "what listens there is no replica";
  if (claim->cluster != options_.own.cluster)
    return "a replica of another cluster listens there: correct replica.peers";
  if (claim->replica == options_.peer.id) return {};
  return (claim->replica == options_.own.replica ? "this replica itself"
                                                 : "replica " + std::to_string(claim->replica)) +
         " listens there: correct replica.peers";
}

void OutgoingLink::say_hello(const AttemptPtr& attempt) {
  writing_ = hello();
  asio::async_write(attempt->stream, asio::buffer(writing_),
                    [self = shared_from_this(), attempt](error_code failed, std::size_t) {
                      if (self->attempt_ != attempt) return;
                      if (failed) return self->fail(link_failure(attempt->stream.native_handle(), failed));
                      self->writing_.clear();
                      if (self->welcome_) self->pump();
                    });
  read_answer(attempt);
}

void OutgoingLink::read_answer(const AttemptPtr& attempt) {
  attempt->stream.async_read_some(asio::buffer(attempt->piece), [self = shared_from_this(), attempt](
                                                                    error_code failed, std::size_t size) {
    if (self->attempt_ != attempt) return;
    if (failed) return self->fail(link_failure(attempt->stream.native_handle(), failed));
    attempt->read.append(attempt->piece, size);
    self->take_answer(attempt);
  });
}

void OutgoingLink::take_answer(const AttemptPtr& attempt) {
  std::string_view rest = attempt->read;
  while (attempt_ == attempt) {
    const auto taken = take_link_frame(rest, kFirstBytesMax);
    if (!taken.ok()) return fail(taken.error().message);
    if (!taken->has_value()) break;
    const LinkFrame& frame = **taken;
    if (frame.kind == FrameKind::kRefusal) return fail("it refused: " + std::string(frame.content));
    if (frame.kind != FrameKind::kWelcome || welcome_) return fail("it sent what no replica answers");
    opened(attempt);
  }
  attempt->read.erase(0, attempt->read.size() - rest.size());
  read_answer(attempt);  // Nothing else is due: what comes is its end.
}

void OutgoingLink::opened(const AttemptPtr&) {
  welcome_ = true;
  timer_.cancel();
  wait_ = options_.reconnect_first;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    open_ = true;
    told_ = false;
    why_.clear();
    if (!greeting_.empty()) {
      queue_.push_back(greeting_);
      queue_bytes_ += greeting_.size();
    }
  }
  log_event(LogLevel::kInfo, "peers", "peer_connected", {},
            {{"peer", options_.peer.id}, {"address", place_of(options_.peer)}});
  if (writing_.empty()) pump();
}

void OutgoingLink::send(std::string bytes) {
  const std::lock_guard lock(mutex_);
  if (!open_) {
    ++dropped_;
    return;
  }
  queue_bytes_ += bytes.size();
  queue_.push_back(std::move(bytes));
  bool dropped = false;
  while (queue_bytes_ > options_.queue_bytes_max && queue_.size() > 1) {
    queue_bytes_ -= queue_.front().size();
    queue_.pop_front();
    ++dropped_;
    dropped = true;
  }
  if (dropped && !std::exchange(told_, true)) {
    asio::post(io_, [self = shared_from_this()] { self->options_.unreachable(); });
  }
  if (!std::exchange(pump_posted_, true)) {
    asio::post(io_, [self = shared_from_this()] { self->pump(); });
  }
}

void OutgoingLink::greet_with(std::string bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (greeting_ == bytes) return;
    greeting_ = bytes;
    if (!open_) return;
  }
  send(std::move(bytes));
}

void OutgoingLink::pump() {
  {
    const std::lock_guard lock(mutex_);
    pump_posted_ = false;
    if (!open_ || !writing_.empty()) return;
    while (!queue_.empty() && (writing_.empty() || writing_.size() + queue_.front().size() <= kWriteBytes)) {
      if (writing_.empty()) {
        writing_ = std::move(queue_.front());
      } else {
        writing_ += queue_.front();
      }
      queue_.pop_front();
      ++sent_;
    }
    if (queue_.empty()) {
      queue_bytes_ = 0;
      told_ = false;
    } else {
      queue_bytes_ -= writing_.size();
    }
  }
  if (writing_.empty()) return;
  wrote_since_tick_ = true;
  ticks_writing_ = 0;
  asio::async_write(attempt_->stream, asio::buffer(writing_),
                    [self = shared_from_this(), attempt = attempt_](error_code failed, std::size_t) {
                      if (self->attempt_ != attempt) return;
                      if (failed) return self->fail(link_failure(attempt->stream.native_handle(), failed));
                      self->writing_.clear();
                      self->pump();
                    });
}

void OutgoingLink::tick() {
  if (!welcome_) return;
  if (!writing_.empty()) {
    if (++ticks_writing_ > kTicksWriting) fail("it takes nothing for 5 s");
    return;
  }
  if (!std::exchange(wrote_since_tick_, false)) send(link_frame(FrameKind::kAlive));
}

void OutgoingLink::fail(const std::string& why) {
  error_code ignored;
  attempt_->stream.next_layer().close(ignored);
  attempt_.reset();
  welcome_ = false;
  writing_.clear();
  bool news = false;
  bool untold = false;
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
    dropped_ += queue_.size();
    queue_.clear();
    queue_bytes_ = 0;
    news = why_ != why;
    why_ = why;
    untold = !std::exchange(told_, true);
    if (closed_) return;
  }
  if (news) {
    log_event(LogLevel::kWarning, "peers", "peer_unreachable", {},
              {{"peer", options_.peer.id}, {"address", place_of(options_.peer)}, {"why", why}});
  }
  if (untold) options_.unreachable();
  wait_and_connect();
}

void OutgoingLink::wait_and_connect() {
  const int64_t wait_us = wait_.ns / 1'000;
  const int64_t drawn_us = std::uniform_int_distribution<int64_t>(wait_us / 2, wait_us)(jitter_);
  wait_ = std::min(wait_ * 2, options_.reconnect_max);
  timer_.expires_after(std::chrono::microseconds(drawn_us));
  timer_.async_wait([self = shared_from_this()](error_code stopped) {
    if (!stopped && self->attempt_ == nullptr) self->connect();
  });
}

void OutgoingLink::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  open_ = false;
  why_ = "this replica is ending";
}

void OutgoingLink::describe(PeerStatus& status) const {
  const std::lock_guard lock(mutex_);
  status.connected = open_;
  status.why = why_;
  status.frames_sent = sent_;
  status.frames_dropped = dropped_;
}

}  // namespace gpusched::peers
