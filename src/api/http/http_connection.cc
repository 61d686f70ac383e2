#include "api/http/http_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <charconv>
#include <chrono>
#include <utility>

#include "api/http/http_core.h"
#include "base/check.h"

namespace gpusched::api::http_internal {
namespace {

constexpr std::size_t kReadBytesFirst = 2 * 1024;  // While a connection is idle: ten thousand cost 20 MB.
constexpr std::size_t kReadBytesMax = 64 * 1024;   // While a body arrives.
constexpr std::size_t kPipelinedBytesMax = 64 * 1024;
constexpr std::size_t kLingerBytesMax = 1u << 20;  // Read and dropped after a refusal, so that it is seen.
constexpr Duration kLinger = seconds(1);
constexpr std::size_t kChunkHeadBytesMax = 16 * 1024;
constexpr std::size_t kOutBytesKept = 64 * 1024;
constexpr Duration kPingEvery = seconds(30);  // Between pings of a WebSocket.

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Connection::Connection(std::shared_ptr<Core> core, StreamSocket socket, const HttpListener& listener,
                       std::string peer)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      listener_(listener),
      peer_(std::move(peer)),
      parser_(core_->options.header_bytes_max, core_->options.body_bytes_max, &listener.streams_body) {}

void Connection::begin_naming() { set_phase(Phase::kNaming, core_->options.handshake_timeout); }

void Connection::begin_as(std::shared_ptr<const access::Caller> caller) {
  if (phase_ != Phase::kNaming) return;  // It was closed meanwhile.
  peer_caller_ = std::move(caller);
  begin();
}

void Connection::begin() {
  if (listener_.tls != nullptr) {
    tls_ = listener_.tls->identity()->accept(socket_.native_handle());
    core_->handshake_began();
    set_phase(Phase::kHandshake, core_->options.handshake_timeout);
    return handshake();
  }
  // The first request has a header's time from now on; the idle time is for later ones.
  set_phase(Phase::kIdle, core_->options.header_timeout);
  read();
}

void Connection::set_phase(Phase phase, Duration limit) {
  phase_ = phase;
  active_at_ns_ = now_ns();
  deadline_ns_ = limit.ns == 0 ? INT64_MAX : active_at_ns_ + limit.ns;
}

void Connection::read() {
  if (reading_ || read_closed_ || phase_ == Phase::kClosed) return;
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
  } else if (in_begin_ > 0) {
    std::copy(in_.begin() + static_cast<std::ptrdiff_t>(in_begin_),
              in_.begin() + static_cast<std::ptrdiff_t>(in_end_), in_.begin());
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (phase_ == Phase::kHandling || phase_ == Phase::kWriting) {
    if (in_end_ >= kPipelinedBytesMax) return;  // The next ones wait in the kernel.
  }
  std::size_t size = kReadBytesFirst;
  if (phase_ == Phase::kBody || phase_ == Phase::kLinger || phase_ == Phase::kSocket || body_streamed_)
    size = kReadBytesMax;
  if (in_.size() < in_end_ + size) in_.resize(in_end_ + size);
  if (in_end_ == 0 && phase_ == Phase::kIdle && in_.size() > kReadBytesFirst) {
    in_.resize(kReadBytesFirst);
    in_.shrink_to_fit();
  }
  reading_ = true;
  if (tls_ != nullptr) return read_tls();
  socket_.async_read_some(asio::buffer(in_.data() + in_end_, in_.size() - in_end_),
                          [self = shared_from_this()](const error_code& error, std::size_t count) {
                            const LoopStep step(self->core_->watch, "what a client sent");
                            self->on_read(error, count);
                          });
}

void Connection::on_read(const error_code& error, std::size_t size) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) {
    read_closed_ = true;
    // A client may close its sending side and still wait for the answer, but not for a long one.
    const bool answering = phase_ == Phase::kHandling || phase_ == Phase::kWriting;
    const bool complete = body_streamed_ ? body_done_ : !streaming_;
    if (error == asio::error::eof && answering && gone_ == nullptr && complete) {
      keep_alive_ = false;
      return;
    }
    close();
    return;
  }
  if (phase_ == Phase::kLinger) {
    lingered_ += size;
    if (lingered_ >= kLingerBytesMax) {
      close();
      return;
    }
    read();
    return;
  }
  in_end_ += size;
  if (phase_ == Phase::kSocket) return read_frames();
  if (body_streamed_ && !body_done_) {
    pump_body();
    read();
    return;
  }
  process();
}

void Connection::process() {
  if (processing_) return;  // The loop below is running further up the stack.
  processing_ = true;
  while (phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    if (!parse_some()) break;
  }
  processing_ = false;
  if (read_closed_ && phase_ != Phase::kHandling && phase_ != Phase::kWriting) {
    close();
    return;
  }
  read();
}

/// Feeds the parser; false when it needs more bytes.
bool Connection::parse_some() {
  if (phase_ == Phase::kIdle) {
    // Empty lines between requests are tolerated (RFC 9112, 2.2).
    while (in_begin_ < in_end_ && (in_[in_begin_] == '\r' || in_[in_begin_] == '\n')) ++in_begin_;
    if (in_begin_ == in_end_) return false;
    parser_.reset();
    header_seen_ = false;
    set_phase(Phase::kHeader, core_->options.header_timeout);
  }
  if (in_begin_ == in_end_) return false;
  std::size_t used = 0;
  const auto status = parser_.put({in_.data() + in_begin_, in_end_ - in_begin_}, used);
  in_begin_ += used;
  switch (status) {
    case HttpParser::Status::kHeaderTooLarge:
      refuse({ErrorKind::kHeadersTooLarge, "the header is larger than " +
                                               std::to_string(core_->options.header_bytes_max) +
                                               " bytes; send fewer or shorter fields"});
      return false;
    case HttpParser::Status::kBodyTooLarge:
      refuse({ErrorKind::kTooLarge, "the body is larger than " +
                                        std::to_string(core_->options.body_bytes_max) +
                                        " bytes; put large data into a file that the job reads"});
      return false;
    case HttpParser::Status::kBad:
      refuse({ErrorKind::kInvalidArgument, "this is not an HTTP/1.1 request: " + parser_.error()});
      return false;
    case HttpParser::Status::kDone:
      dispatch(true);
      return phase_ == Phase::kIdle;
    case HttpParser::Status::kNeedMore:
      if (parser_.header_done() && parser_.streams_body()) {
        go_on();
        dispatch(false);
        return false;
      }
      if (!header_seen_ && parser_.header_done() && !begin_body()) return false;
      return used > 0 && in_begin_ < in_end_;
  }
  UNREACHABLE();
}

/// The header is complete and the body is not; false when it is refused.
bool Connection::begin_body() {
  header_seen_ = true;
  // A chunked body does not say how long it gets: it is charged with the most that it may be.
  const uint64_t wanted = parser_.content_length().value_or(core_->options.body_bytes_max);
  parser_.request().peer = peer_;
  parser_.request().peer_caller = peer_caller_;
  payer_ = listener_.payer == nullptr ? peer_ : listener_.payer(parser_.request());
  if (!core_->grant(payer_, wanted)) {
    refuse({ErrorKind::kUnavailable,
            "too many large requests arrive at the same time; send the request again in a second", "",
            seconds(1)});
    return false;
  }
  budget_ = wanted;
  set_phase(Phase::kBody, core_->options.body_timeout);
  go_on();
  return true;
}

/// Tells a client that waits for it to send the body.
void Connection::go_on() {
  if (!parser_.expects_continue() || !out_.empty()) return;
  error_code error;
  static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
  send_some(kGoOn.data(), kGoOn.size(), error);
  // A full buffer here means a client that waits for nothing: it sends the body without being told.
  if (tls_ != nullptr && error == asio::error::would_block) out_.append(kGoOn);  // It must be the next bytes.
}

/// `complete`: the body is there too.
void Connection::dispatch(bool complete) {
  body_streamed_ = parser_.streams_body();
  body_done_ = complete;
  body_broken_ = false;
  HttpRequest request = std::move(parser_.request());
  if (body_streamed_) {
    body_piece_ = std::exchange(request.body, {});
    parser_.request().body.clear();
  }
  keep_alive_ = parser_.keep_alive() && !read_closed_;
  old_version_ = parser_.version_1_0();
  head_only_ = request.method == HttpMethod::kHead;
  request.peer = peer_;
  request.peer_caller = peer_caller_;
  ++request_;
  core_->requests.fetch_add(1, std::memory_order_relaxed);
  set_phase(Phase::kHandling, {});
  listener_.handler(std::move(request), HttpReply(shared_from_this(), request_));
}

void Connection::body_read(uint64_t request, BodyNext next) {
  if (!current(request) || !body_streamed_) {
    next({}, HttpBody::State::kBroken);
    return;
  }
  body_next_ = std::move(next);
  pump_body();
}

/// Hands over what has arrived to whoever waits for it. While nobody does, it stays where it is.
void Connection::pump_body() {
  if (body_next_ == nullptr) return;
  std::string piece = std::exchange(body_piece_, {});
  while (piece.empty() && !body_done_ && !body_broken_ && in_begin_ < in_end_) {
    std::size_t used = 0;
    const auto status = parser_.put({in_.data() + in_begin_, in_end_ - in_begin_}, used);
    in_begin_ += used;
    piece = std::exchange(parser_.request().body, {});
    if (status == HttpParser::Status::kDone) {
      body_done_ = true;
    } else if (status != HttpParser::Status::kNeedMore) {
      body_broken_ = true;
    } else if (used == 0) {
      body_broken_ = in_end_ - in_begin_ >= kChunkHeadBytesMax;
      break;
    }
  }
  const bool over = body_done_ || body_broken_;
  if (piece.empty() && !over) {
    read();
    return;
  }
  const auto next = std::exchange(body_next_, nullptr);
  HttpBody::State state = HttpBody::State::kMore;
  if (body_broken_) state = HttpBody::State::kBroken;
  if (body_done_) state = HttpBody::State::kEnd;
  next(std::move(piece), state);
}

/// Answers what is no request, or none that we take, and ends the connection.
void Connection::refuse(const ApiError& error) {
  keep_alive_ = false;
  head_only_ = false;
  ++request_;
  set_phase(Phase::kHandling, {});
  HttpResponse response{.status = row_of(error.kind).http_status, .body = error_json(error)};
  if (error.retry_after.ns > 0) response.headers.emplace_back("Retry-After", "1");
  respond(request_, std::move(response));
}

void Connection::append_head(const HttpResponse& response, std::optional<std::size_t> length) {
  const auto number = [this](uint64_t value) {
    char buffer[24];
    out_.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  };
  if (core_->stopping()) keep_alive_ = false;
  out_.append("HTTP/1.1 ");
  number(static_cast<uint64_t>(response.status));
  out_.push_back(' ');
  out_.append(reason_phrase(response.status));
  out_.append("\r\nDate: ").append(core_->date());
  if (response.status != 204) {
    out_.append("\r\nContent-Type: ").append(response.content_type);
    if (length) {
      out_.append("\r\nContent-Length: ");
      number(*length);
    } else if (!old_version_) {
      out_.append("\r\nTransfer-Encoding: chunked");
    }
  }
  for (const auto& [name, value] : response.headers) {
    out_.append("\r\n").append(name).append(": ").append(value);
  }
  if (!keep_alive_) {
    out_.append("\r\nConnection: close");
  } else if (old_version_) {
    out_.append("\r\nConnection: keep-alive");
  }
  out_.append("\r\n\r\n");
}

void Connection::respond(uint64_t request, HttpResponse response) {
  // The answer of a request that was ended from outside may be on its way.
  if (!current(request) || streaming_ || phase_ != Phase::kHandling) return;
  gone_ = nullptr;
  if (body_streamed_ && !body_done_) keep_alive_ = false;  // Nobody will read the rest of it.
  append_head(response, response.body.size());
  if (!head_only_ && response.status != 204) out_.append(response.body);
  set_phase(Phase::kWriting, core_->options.write_timeout);
  write_out();
}

void Connection::stream_begin(uint64_t request, HttpResponse head) {
  if (!current(request) || streaming_ || phase_ != Phase::kHandling) return;
  streaming_ = true;
  stream_ended_ = false;
  if (old_version_) keep_alive_ = false;  // The end of the connection is the end of the body.
  pieces_ = !old_version_;
  append_head(head, std::nullopt);
  write_out();
}

void Connection::append_piece(std::string_view data) {
  if (data.empty() || head_only_) return;
  if (pieces_) {
    char buffer[24];
    out_.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, data.size(), 16).ptr).append("\r\n");
  }
  out_.append(data);
  if (pieces_) out_.append("\r\n");
}

void Connection::stream_write(uint64_t request, std::string_view data, std::function<void(bool)> written) {
  if (!current(request) || !streaming_ || stream_ended_) {
    if (written != nullptr) written(false);
    return;
  }
  append_piece(data);
  written_ = std::move(written);
  set_phase(Phase::kHandling, core_->options.write_timeout);
  if (!write_waiting_) write_out();
}

void Connection::stream_end(uint64_t request, bool well) {
  if (!current(request) || !streaming_ || stream_ended_) return;
  if (!well) {
    close();
    return;
  }
  stream_ended_ = true;
  if (pieces_ && !head_only_) out_.append("0\r\n\r\n");
  set_phase(Phase::kWriting, core_->options.write_timeout);
  if (!write_waiting_) write_out();
}

void Connection::keep(uint64_t request, std::shared_ptr<void> token) {
  if (current(request)) kept_.swap(token);
}

void Connection::end_open(uint64_t request, HttpEnding ending) {
  if (!current(request) || stream_ended_) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  if (phase_ == Phase::kSocket) return end_socket(ending);
  if (phase_ != Phase::kHandling) return;  // The answer is complete.
  if (streaming_ && ending.last_piece.empty()) return close();
  // Told after the end, so that nothing which they do to the request has an effect any more.
  const auto tell = take_workers();
  if (streaming_) {
    append_piece(ending.last_piece);
    stream_end(request, true);
  } else {
    respond(request, std::move(ending.answer));
  }
  tell();
}

void Connection::hold(uint64_t request, std::shared_ptr<CallTicket> ticket) {
  if (!current(request)) return ticket->end();
  ticket_ = std::move(ticket);
}

void Connection::end_ticket() {
  if (ticket_ != nullptr) ticket_->end();
  ticket_ = nullptr;
}

void Connection::set_gone(uint64_t request, std::function<void()> gone) {
  if (!current(request)) {
    gone();
    return;
  }
  gone_ = std::move(gone);
}

void Connection::write_out() {
  while (out_begin_ < out_.size()) {
    error_code error;
    const std::size_t sent = send_some(out_.data() + out_begin_, out_.size() - out_begin_, error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      write_waiting_ = true;
      socket_.async_wait(StreamSocket::wait_write, [self = shared_from_this()](const error_code& failed) {
        const LoopStep step(self->core_->watch, "the rest of an answer");
        self->write_waiting_ = false;
        if (self->phase_ == Phase::kClosed) return;
        if (failed) {
          self->close();
          return;
        }
        self->write_out();
      });
      return;
    }
    if (error) {
      close();
      return;
    }
    out_begin_ += sent;
    if (deadline_ns_ != INT64_MAX && phase_ != Phase::kSocket)
      deadline_ns_ = now_ns() + core_->options.write_timeout.ns;
  }
  written_out();
}

void Connection::written_out() {
  out_begin_ = 0;
  out_.clear();
  if (out_.capacity() > kOutBytesKept) out_ = std::string();
  if (phase_ == Phase::kSocket) return socket_written();
  if (streaming_ && !stream_ended_) {
    deadline_ns_ = INT64_MAX;  // The next piece may take its time.
    if (const auto written = std::exchange(written_, nullptr); written != nullptr) written(true);
    return;
  }
  end_request();
}

void Connection::end_request() {
  release_budget();
  end_ticket();
  streaming_ = stream_ended_ = false;
  gone_ = nullptr;
  kept_.reset();
  if (body_streamed_ && !body_done_) keep_alive_ = false;
  body_streamed_ = false;
  body_piece_.clear();
  body_next_ = nullptr;
  ++request_;  // Late words about it are ignored.
  if (!keep_alive_ || core_->stopping()) {
    begin_linger();
    return;
  }
  set_phase(Phase::kIdle, core_->options.idle_timeout);
  process();
}

/// Closing with unread bytes would reset the connection, and the client might never see the answer.
void Connection::begin_linger() {
  if (tls_ != nullptr) tls_->end_sending();
  if (read_closed_) {
    close();
    return;
  }
  error_code error;
  socket_.shutdown(StreamSocket::shutdown_send, error);
  set_phase(Phase::kLinger, kLinger);
  in_begin_ = in_end_ = 0;
  read();
}

void Connection::release_budget() {
  if (budget_ != 0) core_->release(payer_, budget_);
  budget_ = 0;
}

std::function<void()> Connection::take_workers() {
  return [gone = std::exchange(gone_, nullptr), written = std::exchange(written_, nullptr),
          next = std::exchange(body_next_, nullptr)] {
    if (gone != nullptr) gone();
    if (written != nullptr) written(false);
    if (next != nullptr) next({}, HttpBody::State::kBroken);
  };
}

void Connection::on_deadline() {
  switch (phase_) {
    case Phase::kHeader:
    case Phase::kBody:
      refuse({ErrorKind::kRequestTimeout, phase_ == Phase::kHeader
                                              ? "the header did not arrive in time; send it faster"
                                              : "the body did not arrive in time; send it faster"});
      return;
    case Phase::kSocket:
      if (websocket_->closing) return close();  // The client does not read our goodbye.
      // Keeps what stands between us from forgetting a silent connection.
      send_frame(websocket::Opcode::kPing, {});
      deadline_ns_ = now_ns() + kPingEvery.ns;
      return;
    case Phase::kNaming:
    case Phase::kHandshake:
    case Phase::kIdle:
    case Phase::kHandling:
    case Phase::kWriting:
    case Phase::kLinger:
      close();
      return;
    case Phase::kClosed:
      return;
  }
}

void Connection::begin_shutdown() {
  keep_alive_ = false;
  if (phase_ == Phase::kSocket)
    return socket_close(request_, websocket::kGoingAway, "the scheduler is shutting down");
  if (idle() || phase_ == Phase::kLinger || gone_ != nullptr || streaming_) close();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  end_handshake(Phase::kClosed, {});
  const auto self = shared_from_this();  // The list may hold the last reference.
  error_code error;
  tls_ = nullptr;  // Before the descriptor may be another socket's.
  socket_.close(error);
  release_budget();
  end_ticket();
  core_->remove(*this);
  kept_.reset();
  socket_gone();
  take_workers()();
}

}  // namespace gpusched::api::http_internal
