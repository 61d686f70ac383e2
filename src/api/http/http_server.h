#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/http/http_message.h"
#include "api/limits/caller_table.h"
#include "base/result.h"
#include "base/time.h"
#include "ops/socket_file.h"
#include "sign/tls_context.h"

/// An HTTP/1.1 server on one thread of its own. Handlers run on that thread and must not block; they answer
/// at once or later, from any thread.
namespace gpusched::api {

namespace http_internal {
class Core;
class Connection;
}  // namespace http_internal

class UnixCallers;

/// The body of an answer whose length is not known beforehand (chunked). Thread-safe; copies mean the same
/// stream. Everything after the client went away is ignored.
class HttpStream {
 public:
  HttpStream() = default;

  /// Sends bytes. `written` is called on the server's thread when the kernel took them (true), or when the
  /// client is gone (false): the next piece is due then, so that a slow reader holds one piece only.
  void write(std::string data, std::function<void(bool alive)> written);
  /// Ends the body well.
  void finish();
  /// Ends the connection in the middle, so that the client sees that something is missing.
  void abort();

 private:
  friend class HttpReply;
  HttpStream(std::shared_ptr<http_internal::Connection> connection, uint64_t request)
      : connection_(std::move(connection)), request_(request) {}
  std::shared_ptr<http_internal::Connection> connection_;
  uint64_t request_ = 0;
};

/// The body of a request that HttpListener::streams_body chose, as it arrives. Thread-safe; copies mean the
/// same body.
class HttpBody {
 public:
  enum class State {
    kMore,    ///< More may follow.
    kEnd,     ///< This was the last piece.
    kBroken,  ///< The client is gone, or what it sends is no HTTP; nothing follows.
  };
  HttpBody() = default;

  /// Calls `next` once, on the server's thread, with what has arrived since the last piece: some 64 KB at
  /// most, nothing only with kEnd and kBroken. Unread bytes wait in the kernel, and then at the client.
  void read(std::function<void(std::string piece, State state)> next);

 private:
  friend class HttpReply;
  HttpBody(std::shared_ptr<http_internal::Connection> connection, uint64_t request)
      : connection_(std::move(connection)), request_(request) {}
  std::shared_ptr<http_internal::Connection> connection_;
  uint64_t request_ = 0;
};

/// A WebSocket (RFC 6455) on a connection that began with a request. Thread-safe; copies mean the same one.
/// Everything after its end is ignored.
class WebSocket {
 public:
  struct Handlers {
    /// A whole message, text or binary. On the server's thread.
    std::function<void(bool is_text, std::string data)> on_message;
    /// It is over: the client closed it or went away, or the server shuts down. Once, on the server's thread.
    std::function<void()> on_gone;
  };
  WebSocket() = default;

  /// Sends one message. Messages that a slow reader leaves waiting are kept: the sender bounds them by
  /// `written`, which is called on the server's thread when the kernel took the message (true), or when the
  /// client is gone.
  void send(bool is_text, std::string data, std::function<void(bool alive)> written = nullptr);
  /// Says goodbye and ends the connection. `code`: RFC 6455, 7.4.1.
  void close(uint16_t code, std::string reason);

 private:
  friend class HttpReply;
  WebSocket(std::shared_ptr<http_internal::Connection> connection, uint64_t request)
      : connection_(std::move(connection)), request_(request) {}
  std::shared_ptr<http_internal::Connection> connection_;
  uint64_t request_ = 0;
};

/// Last words to a client whose request is ended from outside; its progress decides which of them apply.
struct HttpEnding {
  HttpResponse answer = {};       ///< It was not answered yet.
  std::string last_piece = {};    ///< For a stream; empty: its format has none, and the answer breaks off.
  std::string last_message = {};  ///< For a WebSocket, before its goodbye; empty: none.
  std::string reason = {};        ///< For a WebSocket's goodbye, whose code is kPolicyViolation.
};

/// A request that may stay open for long, as those see it who neither have it nor keep it open. Thread-safe;
/// copies mean the same request. Everything after its end is ignored.
class OpenRequest {
 public:
  /// Keeps `token` until the request is over, in place of what was kept before.
  void keep(std::shared_ptr<void> token) const;
  /// Ends it, later: its client is told why, and whoever works for it that the client is gone.
  void end(HttpEnding ending) const;
  /// Calls `then` on the server's thread, later.
  void call(std::function<void()> then) const;

 private:
  friend class HttpReply;
  OpenRequest(std::weak_ptr<http_internal::Connection> connection, uint64_t request)
      : connection_(std::move(connection)), request_(request) {}
  std::weak_ptr<http_internal::Connection> connection_;
  uint64_t request_ = 0;
};

/// The right, and the duty, to answer one request once. Movable. Dropped without an answer it answers 500.
class HttpReply {
 public:
  HttpReply(std::shared_ptr<http_internal::Connection> connection, uint64_t request);
  HttpReply(HttpReply&& other) noexcept;
  HttpReply& operator=(HttpReply&& other) noexcept;
  ~HttpReply();

  /// Answers. From another thread it wakes the server's thread, unless that has been woken already.
  void send(HttpResponse response);
  /// Answers, but leaves the waking to HttpServer::flush: for many answers at once.
  void send_at_flush(HttpResponse response);
  /// Begins an answer of unknown length; `head.body` is ignored.
  HttpStream stream(HttpResponse head);
  /// The body of a streamed request.
  HttpBody body() const;
  /// Answers 101 to a request that `wants_websocket`, with a good key, and speaks WebSocket from then on.
  /// From the server's thread only. `message_bytes_max`: of one message; a larger one ends the connection.
  WebSocket upgrade(const std::string& websocket_key, std::size_t message_bytes_max,
                    WebSocket::Handlers handlers);
  /// Ends `ticket` when the answer is written to its end, or the connection is gone. Only the handler
  /// itself may call it.
  void hold(std::shared_ptr<CallTicket> ticket);
  /// Calls `gone` on the server's thread, once, when the client goes away, or the server shuts down, before
  /// the answer is complete. Only the handler itself may call it.
  void on_gone(std::function<void()> gone);
  /// Before the answer begins.
  OpenRequest open_request() const;

 private:
  std::shared_ptr<http_internal::Connection> connection_;
  uint64_t request_ = 0;
};

/// Says whom the bytes of a request's body are charged to while it arrives; on the server's thread.
using HttpPayer = std::function<std::string(const HttpRequest& head)>;
/// Called on the server's thread for every request.
using HttpHandler = std::function<void(HttpRequest&&, HttpReply)>;

struct HttpListener {
  std::string address = "127.0.0.1";  ///< A numeric address, or "localhost".
  uint16_t port = 0;                  ///< 0: any free one.
  HttpHandler handler;
  HttpStreams streams_body = nullptr;  ///< None: bodies are complete when the handler gets them.
  HttpPayer payer = nullptr;           ///< None: the client's address is.
  std::string setting = {};            ///< Setting that names its port, for errors.
  std::shared_ptr<const sign::TlsServer> tls = nullptr;  ///< None: plain HTTP.
  /// Listened on instead of an address and a port, which mean nothing then. Its file goes when the server
  /// stops.
  std::shared_ptr<ops::SocketFile> unix_socket = nullptr;
  UnixCallers* unix_callers =
      nullptr;  ///< Finds out who its clients are; null: nobody known. It must outlive the server.
};

struct HttpServerOptions {
  std::size_t connection_max =
      16'384;  ///< Beyond, the longest idle one is closed. Lowered to the file limit.
  /// For one address (IPv6: one /64), and never more than half of all: beyond, its own longest idle one is
  /// closed, or else the new one is. 0: no bound. Without meaning for Unix sockets.
  std::size_t address_connections_max = 0;
  bool bounds_loopback = false;  ///< Loopback is an address like others; else all of this machine are free.
  uint32_t header_bytes_max = 16 * 1024;
  uint64_t body_bytes_max = 4u << 20;
  /// For all bodies being received; no party gets more than all leave free (SharedRoom); beyond, 503.
  uint64_t bodies_bytes_max = 256u << 20;
  std::size_t handshakes_max = 256;  ///< TLS handshakes under way; beyond, the oldest is ended.
  Duration handshake_timeout = seconds(10);
  Duration header_timeout = seconds(10);
  Duration body_timeout = seconds(30);
  Duration idle_timeout = seconds(75);   ///< Between two requests of one connection.
  Duration write_timeout = seconds(30);  ///< Without any progress.
  Duration shutdown_wait = seconds(5);
  Duration step_max = {};  ///< Longest step of the server's thread, as for a LoopWatch; zero: any.
};

/// Names a timer. Zero names none.
struct HttpTimer {
  int64_t due_ns = 0;
  uint64_t number = 0;
};

class HttpServer {
 public:
  struct Counts {
    uint64_t requests = 0;
    uint64_t connections_accepted = 0;
    uint64_t connections_open = 0;
    uint64_t connections_turned_away = 0;  ///< Their addresses had as many as they may.
  };

  /// Listens and serves until `shutdown`. When an address cannot be listened on: kLocked if somebody else
  /// does, kIo otherwise; the message says which address, the error's field the listener's setting.
  /// `before_serving` gets the server when all addresses are bound and before the first request comes; its
  /// error ends the start, and no request ever comes.
  static Result<std::unique_ptr<HttpServer>> start(
      HttpServerOptions options, std::vector<HttpListener> listeners,
      const std::function<Result<Unit>(HttpServer&)>& before_serving = nullptr);
  ~HttpServer();

  /// The bound ports, in the order of the listeners; 0 for a Unix socket.
  const std::vector<uint16_t>& ports() const { return ports_; }

  /// Wakes the server's thread if answers wait. Any thread.
  void flush();

  /// Connections that it serves at a time.
  std::size_t connection_max() const;

  /// Calls `due` on the server's thread after `delay`. Any thread.
  HttpTimer run_after(Duration delay, std::function<void()> due);
  /// Forgets a timer that is not due yet. Any thread; from the server's thread it is certain.
  void cancel(HttpTimer timer);

  /// Stops listening, lets what is in flight finish for at most `shutdown_wait`, and returns when all is
  /// closed. Waiting requests that asked `on_gone` are told, and closed. Not from a handler. Again: does
  /// nothing.
  void shutdown();

  Counts counts() const;

 private:
  explicit HttpServer(std::shared_ptr<http_internal::Core> core);
  std::shared_ptr<http_internal::Core> core_;
  std::vector<uint16_t> ports_;
};

}  // namespace gpusched::api
