#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/errors.h"
#include "api/http/http_parser.h"
#include "api/http/http_server.h"
#include "base/net/websocket.h"
#include "sign/tls_channel.h"

/// One connection of the HTTP server. Included by the server's own files only.
namespace gpusched::api::http_internal {

using boost::system::error_code;
using Tcp = boost::asio::ip::tcp;
/// A socket of TCP, or a Unix one.
using StreamSocket = boost::asio::generic::stream_protocol::socket;

/// The monotonic clock.
int64_t now_ns();

enum class Phase {
  kNaming,     // The process at the other end of the Unix socket is not known yet.
  kHandshake,  // TLS is not agreed on yet.
  kIdle,       // Waits for a request's first byte.
  kHeader,     // Receives a header.
  kBody,       // Receives a body.
  kHandling,   // The handler has it.
  kWriting,    // The answer goes out.
  kSocket,     // It is a WebSocket now.
  kLinger,     // Answered for the last time; reads and drops.
  kClosed,
};

using BodyNext = std::function<void(std::string, HttpBody::State)>;

/// One connection. Everything runs on the server's thread.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Core> core, StreamSocket socket, const HttpListener& listener, std::string peer);

  void begin();
  /// The same of a Unix socket, once it is known who its client is.
  void begin_naming();
  void begin_as(std::shared_ptr<const access::Caller> caller);
  void respond(uint64_t request, HttpResponse response);
  void stream_begin(uint64_t request, HttpResponse head);
  void stream_write(uint64_t request, std::string_view data, std::function<void(bool)> written);
  void stream_end(uint64_t request, bool well);
  void body_read(uint64_t request, BodyNext next);
  void set_gone(uint64_t request, std::function<void()> gone);
  void upgrade(uint64_t request, const std::string& key, std::size_t message_bytes_max,
               WebSocket::Handlers handlers);
  void socket_send(uint64_t request, bool is_text, std::string_view data, std::function<void(bool)> written);
  void socket_close(uint64_t request, uint16_t code, std::string_view reason);
  /// Keeps what says that the request is open.
  void keep(uint64_t request, std::shared_ptr<void> token);
  /// Ends the request as if the client had gone, but that it is told why.
  void end_open(uint64_t request, HttpEnding ending);
  bool current(uint64_t request) const { return request == request_ && phase_ != Phase::kClosed; }
  void on_deadline();
  void begin_shutdown();
  void close();

  bool handshaking() const { return phase_ == Phase::kHandshake; }
  bool idle() const {
    return handshaking() || phase_ == Phase::kNaming || phase_ == Phase::kIdle || phase_ == Phase::kHeader;
  }
  bool receiving() const { return phase_ == Phase::kBody; }
  /// True while it only gets a refusal, or the end: nobody works for it.
  bool is_dismissed() const {
    return ticket_ == nullptr && (phase_ == Phase::kWriting || phase_ == Phase::kLinger);
  }
  void hold(uint64_t request, std::shared_ptr<CallTicket> ticket);
  int64_t deadline_ns() const { return deadline_ns_; }
  int64_t active_at_ns() const { return active_at_ns_; }
  Core& core() { return *core_; }
  std::size_t index = 0;  // Its place in the core's list.
  std::string party;      // The party that its connections are counted for; empty: nobody.
  std::size_t index_in_party = 0;

 private:
  void set_phase(Phase phase, Duration limit);
  void handshake();
  void end_handshake(Phase next, Duration limit);
  void wait_tls(sign::TlsStep step, void (Connection::*then)());
  void read();
  void read_tls();
  std::size_t send_some(const char* data, std::size_t size, error_code& error);
  void on_read(const error_code& error, std::size_t size);
  void process();
  bool parse_some();
  bool begin_body();
  void go_on();
  void dispatch(bool complete);
  void pump_body();
  void refuse(const ApiError& error);
  void append_head(const HttpResponse& response, std::optional<std::size_t> length);
  void write_out();
  void written_out();
  void end_request();
  void begin_linger();
  void socket_written();
  void socket_gone();
  void read_frames();
  void on_frame();
  void send_frame(websocket::Opcode opcode, std::string_view data);
  void release_budget();
  void append_piece(std::string_view data);
  /// Takes the function that tells those who work for the request that its client is gone.
  std::function<void()> take_workers();
  void end_socket(const HttpEnding& ending);
  void end_ticket();

  std::shared_ptr<Core> core_;  // First: the socket needs its io_context until the end.
  StreamSocket socket_;
  std::unique_ptr<sign::TlsChannel> tls_;  // None: plain.
  const HttpListener& listener_;
  const std::string peer_;
  std::shared_ptr<const access::Caller> peer_caller_;
  HttpParser parser_;
  std::vector<char> in_;
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::string out_;
  std::size_t out_begin_ = 0;
  std::function<void(bool)> written_;
  struct Socket {
    Socket(std::size_t message_bytes_max, WebSocket::Handlers what)
        : parser(true, message_bytes_max), handlers(std::move(what)) {}
    websocket::Parser parser;
    WebSocket::Handlers handlers;
    std::vector<std::function<void(bool)>> written;  // Callbacks of messages that the kernel has not taken.
    bool closing = false;                            // Our goodbye is said; then the connection ends.
  };
  std::unique_ptr<Socket> websocket_;  // In Phase::kSocket.
  std::function<void()> gone_;
  BodyNext body_next_;      // Waits for the next piece of a streamed body.
  std::string body_piece_;  // Bytes that arrived with the header.
  std::shared_ptr<void> kept_;
  uint64_t request_ = 0;
  uint64_t budget_ = 0;                 // Bytes of bodies that it was granted.
  std::string payer_;                   // The party that is charged for these.
  std::shared_ptr<CallTicket> ticket_;  // Ticket of the request that is being answered.
  int64_t deadline_ns_ = 0, active_at_ns_ = 0;
  std::size_t lingered_ = 0;
  Phase phase_ = Phase::kIdle;
  bool reading_ = false, read_closed_ = false, write_waiting_ = false, processing_ = false;
  bool header_seen_ = false, keep_alive_ = true, head_only_ = false, old_version_ = false, pieces_ = false;
  bool streaming_ = false, stream_ended_ = false;
  bool body_streamed_ = false, body_done_ = false, body_broken_ = false;
};

}  // namespace gpusched::api::http_internal
