#include "peers/relayed_connection.h"

#include <netinet/tcp.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

namespace gpusched::peers {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kConnectLimit = std::chrono::seconds(1);
constexpr auto kRetryAfter = std::chrono::milliseconds(50);
constexpr auto kAnswerLimit = std::chrono::seconds(2);
constexpr std::size_t kRequestBytesMax = 65'536;
constexpr std::size_t kPassBytes = 65'536;
constexpr int kIdle_s = 30, kProbe_s = 10, kProbes = 3;  // A machine that is gone is noticed in a minute.

void set_relay_options(asio::ip::tcp::socket& socket) {
  error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const int native = socket.native_handle();
  ::setsockopt(native, IPPROTO_TCP, TCP_KEEPIDLE, &kIdle_s, sizeof kIdle_s);
  ::setsockopt(native, IPPROTO_TCP, TCP_KEEPINTVL, &kProbe_s, sizeof kProbe_s);
  ::setsockopt(native, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

}  // namespace

RelayedConnection::RelayedConnection(Socket client, Settings settings)
    : client_(std::move(client)),
      server_(client_.get_executor()),
      limit_(client_.get_executor()),
      retry_(client_.get_executor()),
      settings_(std::move(settings)),
      up_{client_, server_, {}},
      down_{server_, client_, {}} {
  error_code failed;
  const asio::ip::tcp::endpoint from = client_.remote_endpoint(failed);
  if (!failed) address_ = from.address().to_string();
}

void RelayedConnection::start() {
  set_relay_options(client_);
  limit_.expires_after(std::chrono::nanoseconds(settings_.patience.ns));
  limit_.async_wait([self = shared_from_this()](error_code stopped) {
    if (stopped) return;
    self->out_of_patience_ = true;
    if (self->stage_ == Stage::kWaiting) self->give_up();
  });
  try_leader();
}

void RelayedConnection::look_again() {
  if (stage_ == Stage::kWaiting) try_leader();
}

void RelayedConnection::leave_leader() {
  if (stage_ == Stage::kPassing) return end();
  // Nothing was sent yet: the next leader may have it.
  if (stage_ == Stage::kConnecting) {
    error_code ignored;
    server_.close(ignored);
  }
}

void RelayedConnection::try_leader() {
  const Endpoints endpoints = settings_.leader();
  if (endpoints.empty()) return wait_for_leader();
  stage_ = Stage::kConnecting;
  retry_.expires_after(kConnectLimit);
  retry_.async_wait([self = shared_from_this()](error_code stopped) {
    error_code ignored;
    if (!stopped && self->stage_ == Stage::kConnecting) self->server_.close(ignored);
  });
  asio::async_connect(server_, endpoints,
                      [self = shared_from_this()](error_code failed, const asio::ip::tcp::endpoint&) {
                        if (self->stage_ != Stage::kConnecting) return;
                        self->retry_.cancel();
                        if (failed || !self->server_.is_open()) return self->wait_for_leader();
                        self->pass();
                      });
}

void RelayedConnection::wait_for_leader() {
  if (out_of_patience_) return give_up();
  stage_ = Stage::kWaiting;
  error_code ignored;
  server_.close(ignored);
  retry_.expires_after(kRetryAfter);
  retry_.async_wait([self = shared_from_this()](error_code stopped) {
    if (!stopped && self->stage_ == Stage::kWaiting) self->try_leader();
  });
}

void RelayedConnection::pass() {
  stage_ = Stage::kPassing;
  served_ = true;
  limit_.cancel();
  set_relay_options(server_);
  error_code ignored;
  client_.non_blocking(true, ignored);
  server_.non_blocking(true, ignored);
  read(up_);
  read(down_);
}

void RelayedConnection::read(Direction& direction) {
  direction.from.async_wait(Socket::wait_read, [self = shared_from_this(), &direction](error_code failed) {
    if (self->stage_ != Stage::kPassing) return;
    std::array<char, kPassBytes> piece;
    std::size_t size = 0;
    if (!failed) size = direction.from.read_some(asio::buffer(piece), failed);
    if (failed == asio::error::would_block || failed == asio::error::try_again) return self->read(direction);
    if (failed == asio::error::eof) {
      error_code ignored;
      direction.to.shutdown(Socket::shutdown_send, ignored);
      if (++self->finished_ == 2) self->end();
      return;
    }
    if (failed) return self->reset();
    direction.bytes.assign(piece.data(), size);
    self->write(direction);
  });
}

void RelayedConnection::write(Direction& direction) {
  asio::async_write(direction.to, asio::buffer(direction.bytes),
                    [self = shared_from_this(), &direction](error_code broken, std::size_t) {
                      if (self->stage_ != Stage::kPassing) return;
                      if (broken) return self->reset();
                      direction.bytes = {};
                      self->read(direction);
                    });
}

/// No leader came in time.
void RelayedConnection::give_up() {
  if (settings_.answer.empty()) return end();
  stage_ = Stage::kAnswering;
  limit_.expires_after(kAnswerLimit);
  limit_.async_wait([self = shared_from_this()](error_code stopped) {
    if (!stopped && self->stage_ == Stage::kAnswering) self->end();
  });
  read_request();
}

/// An answer before the request's head would be lost at some clients.
void RelayedConnection::read_request() {
  client_.async_read_some(asio::buffer(piece_),
                          [self = shared_from_this()](error_code failed, std::size_t size) {
                            if (self->stage_ != Stage::kAnswering) return;
                            if (failed) return self->end();
                            self->request_.append(self->piece_.data(), size);
                            const bool whole = self->request_.find("\r\n\r\n") != std::string::npos;
                            if (whole) return self->write_answer();
                            if (self->request_.size() > kRequestBytesMax) return self->end();
                            self->read_request();
                          });
}

void RelayedConnection::write_answer() {
  asio::async_write(client_, asio::buffer(settings_.answer),
                    [self = shared_from_this()](error_code failed, std::size_t) {
                      if (self->stage_ != Stage::kAnswering) return;
                      error_code ignored;
                      self->client_.shutdown(Socket::shutdown_send, ignored);
                      if (failed) return self->end();
                      self->drain();
                    });
}

/// Closing with unread bytes would take the answer back from the client's kernel.
void RelayedConnection::drain() {
  client_.async_read_some(asio::buffer(piece_), [self = shared_from_this()](error_code failed, std::size_t) {
    if (self->stage_ != Stage::kAnswering) return;
    if (failed) return self->end();
    self->drain();
  });
}

/// One end broke off: the other one must not take it for an orderly end.
void RelayedConnection::reset() {
  error_code ignored;
  client_.set_option(asio::socket_base::linger(true, 0), ignored);
  server_.set_option(asio::socket_base::linger(true, 0), ignored);
  end();
}

void RelayedConnection::end() {
  if (stage_ == Stage::kOver) return;
  stage_ = Stage::kOver;
  settings_.over(shared_from_this(), served_);  // Counted before its client sees the end.
  close();
}

void RelayedConnection::close() {
  stage_ = Stage::kOver;
  limit_.cancel();
  retry_.cancel();
  error_code ignored;
  client_.close(ignored);
  server_.close(ignored);
}

}  // namespace gpusched::peers
