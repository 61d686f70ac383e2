#include "peers/incoming_link.h"

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

#include "peers/outgoing_link.h"

namespace gpusched::peers {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kAdmissionLimit = std::chrono::seconds(5);
constexpr auto kSilenceLimit = std::chrono::seconds(10);

}  // namespace

IncomingLink::IncomingLink(asio::ip::tcp::socket socket, LinkTls& tls, Events events)
    : stream_(std::move(socket), tls.server), limit_(stream_.get_executor()), events_(std::move(events)) {
  error_code failed;
  const asio::ip::tcp::endpoint from = stream_.next_layer().remote_endpoint(failed);
  if (!failed) from_ = from.address().to_string() + ":" + std::to_string(from.port());
}

void IncomingLink::start() {
  set_link_options(stream_.next_layer());
  limit_.expires_after(kAdmissionLimit);
  limit_.async_wait([self = shared_from_this()](error_code stopped) {
    if (!stopped && self->peer_ == 0) self->end("it did not say who it is within 5 s");
  });
  stream_.async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](error_code failed) {
    if (self->over_) return;
    if (failed) return self->end(link_failure(self->stream_.native_handle(), failed));
    const std::optional<sign::ReplicaClaim> claim = claim_of_peer(self->stream_.native_handle());
    const std::string why = self->events_.check(claim);
    if (!why.empty()) return self->refuse(why);
    self->claim_ = *claim;
    self->read();
  });
}

void IncomingLink::read() {
  stream_.async_read_some(asio::buffer(piece_),
                          [self = shared_from_this()](error_code failed, std::size_t size) {
                            if (self->over_) return;
                            if (failed) return self->end(link_failure(self->stream_.native_handle(), failed));
                            self->pending_.append(self->piece_, size);
                            self->take();
                          });
}

void IncomingLink::take() {
  std::string_view rest = pending_;
  while (!over_) {
    const auto taken = take_link_frame(rest, peer_ == 0 ? kFirstBytesMax : kContentBytesMax);
    if (!taken.ok()) return refuse(taken.error().message);
    if (!taken->has_value()) break;
    if (peer_ == 0) {
      if (!admit(**taken)) return;
    } else if (!events_.frame(peer_, **taken)) {
      return end("it sent what it may not send");
    }
  }
  if (over_) return;
  pending_.erase(0, pending_.size() - rest.size());
  if (peer_ != 0) {
    limit_.expires_after(kSilenceLimit);
    limit_.async_wait([self = shared_from_this()](error_code stopped) {
      if (!stopped && !self->over_) self->end("it sent nothing for 10 s");
    });
  }
  read();
}

bool IncomingLink::admit(const LinkFrame& frame) {
  const Result<Unit> greeted =
      frame.kind == FrameKind::kHello
          ? check_hello(frame.content)
          : Result<Unit>(Error{.code = ErrorCode::kInvalidArgument, .message = "it sent no greeting"});
  if (!greeted.ok()) {
    refuse(greeted.error().message);
    return false;
  }
  peer_ = claim_.replica;
  last_word_ = link_frame(FrameKind::kWelcome);
  asio::async_write(stream_, asio::buffer(last_word_),
                    [self = shared_from_this()](error_code failed, std::size_t) {
                      if (failed && !self->over_)
                        self->end(link_failure(self->stream_.native_handle(), failed));
                    });
  events_.admitted(shared_from_this());
  return true;
}

/// Ends the link; the other end is told why, if it still listens.
void IncomingLink::refuse(const std::string& why) {
  if (peer_ != 0) return end(why);
  over_ = true;
  limit_.expires_after(std::chrono::seconds(1));
  limit_.async_wait([self = shared_from_this()](error_code) { self->close(); });
  last_word_ = link_frame(FrameKind::kRefusal, std::string_view(why).substr(0, kFirstBytesMax));
  asio::async_write(stream_, asio::buffer(last_word_), [self = shared_from_this()](error_code, std::size_t) {
    error_code ignored;
    self->stream_.next_layer().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  });
  events_.ended(shared_from_this(), why);
}

void IncomingLink::end(const std::string& why) {
  if (std::exchange(over_, true)) return;
  const auto self = shared_from_this();
  close();
  events_.ended(self, why);
}

void IncomingLink::close() {
  over_ = true;
  limit_.cancel();
  error_code ignored;
  stream_.next_layer().close(ignored);
}

}  // namespace gpusched::peers
