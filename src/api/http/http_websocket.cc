// Connection: what it does once it is a WebSocket.
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/socket_base.hpp>
#include <utility>

#include "api/http/http_connection.h"
#include "api/http/http_core.h"
#include "base/check.h"
#include "base/utf8.h"

namespace gpusched::api::http_internal {

using websocket::Opcode;
using websocket::Parser;

namespace {
constexpr uint16_t kInvalidPayload = 1007;          // RFC 6455, 7.4.1.
constexpr std::size_t kAnswersBytesMax = 1u << 20;  // For pongs to a client that reads nothing.
}  // namespace

void Connection::upgrade(uint64_t request, const std::string& key, std::size_t message_bytes_max,
                         WebSocket::Handlers handlers) {
  if (!current(request) || streaming_) {
    if (handlers.on_gone != nullptr) handlers.on_gone();
    return;
  }
  gone_ = nullptr;
  release_budget();
  websocket_ = std::make_unique<Socket>(message_bytes_max, std::move(handlers));
  out_.append("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
  out_.append("Sec-WebSocket-Accept: ").append(websocket::accept_key(key)).append("\r\n\r\n");
  set_phase(Phase::kSocket, core_->options.idle_timeout);
  // A session may be silent for hours: this is how a client that vanished is noticed.
  error_code ignored;
  socket_.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  if (!write_waiting_) write_out();
  if (in_begin_ == in_end_) return;
  // Not at once: whoever upgrades has no socket to answer by before this returns.
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    const LoopStep step(self->core_->watch, "a WebSocket");
    if (self->phase_ == Phase::kSocket) self->read_frames();
  });
}

void Connection::socket_send(uint64_t request, bool is_text, std::string_view data,
                             std::function<void(bool)> written) {
  if (!current(request) || phase_ != Phase::kSocket || websocket_->closing) {
    if (written != nullptr) written(false);
    return;
  }
  if (written != nullptr) websocket_->written.push_back(std::move(written));
  send_frame(is_text ? Opcode::kText : Opcode::kBinary, data);
}

void Connection::socket_close(uint64_t request, uint16_t code, std::string_view reason) {
  if (!current(request) || phase_ != Phase::kSocket || websocket_->closing) return;
  send_frame(Opcode::kClose, websocket::close_payload(code, reason));
  if (phase_ != Phase::kSocket) return;
  websocket_->closing = true;
  deadline_ns_ = now_ns() + core_->options.write_timeout.ns;
  if (out_.empty()) socket_written();
}

/// Those who work for it are told at once: a client that does not read must not keep anything alive.
void Connection::end_socket(const HttpEnding& ending) {
  if (!ending.last_message.empty()) send_frame(Opcode::kText, ending.last_message);
  socket_close(request_, websocket::kPolicyViolation, ending.reason);
  if (websocket_ == nullptr) return;
  if (const auto gone = std::exchange(websocket_->handlers.on_gone, nullptr); gone != nullptr) gone();
}

void Connection::send_frame(Opcode opcode, std::string_view data) {
  if (websocket_->closing) return;
  out_.append(websocket::encode_frame(opcode, data));
  if (!write_waiting_) write_out();
}

/// Everything that was to be sent is in the kernel.
void Connection::socket_written() {
  const std::shared_ptr<Connection> self = shared_from_this();
  for (const auto& written : std::exchange(websocket_->written, {})) written(true);
  if (phase_ != Phase::kSocket || !websocket_->closing || !out_.empty()) return;
  socket_gone();
  begin_linger();
}

void Connection::socket_gone() {
  if (websocket_ == nullptr) return;
  kept_.reset();
  const std::unique_ptr<Socket> ended = std::move(websocket_);
  for (const auto& written : ended->written) written(false);
  if (ended->handlers.on_gone != nullptr) ended->handlers.on_gone();
}

void Connection::read_frames() {
  const std::shared_ptr<Connection> self = shared_from_this();
  while (phase_ == Phase::kSocket && in_begin_ < in_end_) {
    std::size_t used = 0;
    const auto status = websocket_->parser.put({in_.data() + in_begin_, in_end_ - in_begin_}, used);
    in_begin_ += used;
    if (status == Parser::Status::kNeedMore) break;
    if (status == Parser::Status::kBad) {
      const std::string why(websocket_->parser.error());
      socket_close(request_, websocket_->parser.close_code(), why);
      break;
    }
    on_frame();
  }
  if (phase_ != Phase::kClosed) read();
}

void Connection::on_frame() {
  switch (websocket_->parser.opcode()) {
    case Opcode::kText:
    case Opcode::kBinary: {
      const bool is_text = websocket_->parser.opcode() == Opcode::kText;
      const auto on_message = websocket_->handlers.on_message;  // It may end the socket, and us with it.
      if (websocket_->closing) return;
      if (is_text && !is_utf8(websocket_->parser.data()))
        return socket_close(request_, kInvalidPayload, "text messages must be UTF-8");
      on_message(is_text, std::move(websocket_->parser.data()));
      return;
    }
    case Opcode::kPing:
      if (out_.size() > kAnswersBytesMax) return close();
      return send_frame(Opcode::kPong, websocket_->parser.data());
    case Opcode::kClose:
      return socket_close(request_, websocket::kNormal, {});
    case Opcode::kContinuation:
    case Opcode::kPong:
      return;
  }
}

}  // namespace gpusched::api::http_internal
