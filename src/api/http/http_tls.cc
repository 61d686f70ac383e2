// Connection: what is different when it speaks TLS.
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "api/http/http_connection.h"
#include "api/http/http_core.h"
#include "base/check.h"

namespace gpusched::api::http_internal {

using sign::TlsStep;

/// Calls `then` when the socket is ready for the step that could not be done.
void Connection::wait_tls(TlsStep step, void (Connection::*then)()) {
  const auto what = step == TlsStep::kWantWrite ? StreamSocket::wait_write : StreamSocket::wait_read;
  socket_.async_wait(what, [self = shared_from_this(), then](const error_code& failed) {
    const LoopStep handling(self->core_->watch, "TLS");
    if (self->phase_ == Phase::kClosed) return;
    if (failed) return self->close();
    ((*self).*then)();
  });
}

void Connection::handshake() {
  const TlsStep step = tls_->handshake();
  switch (step) {
    case TlsStep::kDone:
      // The first request has a header's time from now on; the idle time is for later ones.
      end_handshake(Phase::kIdle, core_->options.header_timeout);
      return read();
    case TlsStep::kWantRead:
    case TlsStep::kWantWrite:
      return wait_tls(step, &Connection::handshake);
    case TlsStep::kPlainHttp:
      tls_ = nullptr;
      end_handshake(Phase::kHeader, core_->options.header_timeout);
      return refuse(
          {ErrorKind::kInvalidArgument,
           "this port speaks TLS: begin the URL with https://; gpu-cli takes it with --api-url, and "
           "the certificate of a private authority with --ca-file"});
    case TlsStep::kEnd:
    case TlsStep::kBroken:
      return close();
  }
  UNREACHABLE();
}

void Connection::end_handshake(Phase next, Duration limit) {
  if (phase_ == Phase::kHandshake) core_->handshake_ended();
  set_phase(next, limit);
}

/// As the socket's own asynchronous read: what comes is told of later, and not from here.
void Connection::read_tls() {
  std::size_t count = 0;
  const TlsStep step = tls_->read(in_.data() + in_end_, in_.size() - in_end_, count);
  if (step == TlsStep::kWantRead || step == TlsStep::kWantWrite) return wait_tls(step, &Connection::read_tls);
  error_code error;
  if (step == TlsStep::kEnd) error = asio::error::eof;
  if (step == TlsStep::kBroken || step == TlsStep::kPlainHttp) error = asio::error::connection_reset;
  asio::post(socket_.get_executor(), [self = shared_from_this(), error, count] {
    const LoopStep handling(self->core_->watch, "what a client sent");
    self->on_read(error, count);
  });
}

/// Gives bytes to the kernel without waiting: would_block when it has no room.
std::size_t Connection::send_some(const char* data, std::size_t size, error_code& error) {
  if (tls_ == nullptr) return socket_.write_some(asio::buffer(data, size), error);
  std::size_t count = 0;
  switch (tls_->write(data, size, count)) {
    case TlsStep::kDone:
      return count;
    case TlsStep::kWantWrite:
      error = asio::error::would_block;
      return 0;
    case TlsStep::kWantRead:  // Only for a second handshake, and there is none.
    case TlsStep::kEnd:
    case TlsStep::kPlainHttp:
    case TlsStep::kBroken:
      error = asio::error::connection_reset;
      return 0;
  }
  UNREACHABLE();
}

}  // namespace gpusched::api::http_internal
