#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "client/http_client.h"

namespace gpusched {

/// The client's end of a WebSocket (RFC 6455) over TCP, for a loop that also waits for other things: nothing
/// but `connect` blocks. Not thread-safe.
class WebSocketClient {
 public:
  struct Message {
    bool is_text = false;
    std::string data;
  };
  /// Result of the handshake: a socket, or the answer of a server that refused.
  struct Connected;

  /// Connects to the first of the addresses where somebody answers, and shakes hands. Errors as HttpClient's:
  /// kInvalidArgument, kUnavailable, kTimeout.
  static Result<Connected> connect(const HttpClientOptions& options, const std::string& target,
                                   Duration timeout = seconds(30));
  WebSocketClient(WebSocketClient&&) noexcept;
  WebSocketClient& operator=(WebSocketClient&&) noexcept;
  ~WebSocketClient();

  /// To wait on: for reading, and for writing while `unsent` is not zero.
  int descriptor() const;
  /// Queues a message. Pings are answered and closing handshakes done without being asked for.
  void send(bool is_text, std::string_view data);
  /// Says goodbye; `over` becomes true when the server said it too.
  void close(uint16_t code);
  std::size_t unsent() const;
  /// Sends and receives what can be without waiting. `read` false: takes nothing in, so that the server's
  /// bytes wait with the kernel.
  void pump(bool read);
  /// The next message that came.
  std::optional<Message> take();
  /// Returns whether the connection has ended.
  bool over() const;
  /// Once over: the server's words at a good end; else why the connection broke.
  const std::string& reason() const;
  /// RFC 6455, 7.4.1; 0: the connection broke without one.
  uint16_t close_code() const;

 private:
  struct Impl;
  explicit WebSocketClient(std::unique_ptr<Impl> impl);
  static Result<Connected> connect_to(const std::string& url, const HttpClientOptions& options,
                                      const std::string& target, Duration timeout);
  std::unique_ptr<Impl> impl_;
};

struct WebSocketClient::Connected {
  std::optional<WebSocketClient> socket;
  HttpAnswer answer;  ///< Without a socket: the server's refusal.
};

}  // namespace gpusched
