#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "api/http/http_server.h"
#include "base/net/websocket.h"

namespace gpusched::api {
namespace {

using websocket::encode_frame;
using websocket::Opcode;
using websocket::Parser;

constexpr std::string_view kKey = "dGhlIHNhbXBsZSBub25jZQ==";
constexpr uint32_t kMask = 0x0A0B0C0D;

/// A client that speaks frames. Reads give up after 20 s.
class WebSocketClient {
 public:
  explicit WebSocketClient(uint16_t port, std::string_view behind_the_header = {})
      : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    send(
        "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
        std::string(kKey) + "\r\n\r\n" + std::string(behind_the_header));
    while (in_.find("\r\n\r\n") == std::string::npos && receive()) {
    }
    const std::size_t end = in_.find("\r\n\r\n");
    head_ = in_.substr(0, end);
    in_.erase(0, end + 4);
  }
  ~WebSocketClient() { close(socket_); }
  WebSocketClient(const WebSocketClient&) = delete;
  WebSocketClient& operator=(const WebSocketClient&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void send_frame(Opcode opcode, std::string_view data) { send(encode_frame(opcode, data, kMask)); }
  const std::string& head() const { return head_; }

  struct Frame {
    Opcode opcode;
    std::string data;
  };
  /// The next frame; nothing when the connection ended.
  std::optional<Frame> next() {
    while (true) {
      while (!in_.empty()) {
        std::size_t used = 0;
        const auto status = parser_.put(in_, used);
        in_.erase(0, used);
        EXPECT_NE(status, Parser::Status::kBad);
        if (status == Parser::Status::kMessage) return Frame{parser_.opcode(), parser_.data()};
      }
      if (!receive()) return std::nullopt;
    }
  }
  uint16_t next_close() {
    const std::optional<Frame> frame = next();
    if (!frame || frame->opcode != Opcode::kClose || frame->data.size() < 2) return 0;
    return static_cast<uint16_t>(static_cast<uint8_t>(frame->data[0]) << 8 |
                                 static_cast<uint8_t>(frame->data[1]));
  }

 private:
  bool receive() {
    char buffer[65'536];
    const ssize_t size = recv(socket_, buffer, sizeof buffer, 0);
    if (size <= 0) return false;
    in_.append(buffer, static_cast<std::size_t>(size));
    return true;
  }
  const int socket_;
  std::string head_, in_;
  Parser parser_{false, 16u << 20};
};

/// Upgrades every request; messages come back with a mark of their kind.
class Echo {
 public:
  explicit Echo(std::size_t message_bytes_max = 1000) {
    auto started = HttpServer::start(
        {}, {{.handler = [this, message_bytes_max](HttpRequest&& request, HttpReply reply) {
          EXPECT_TRUE(request.wants_websocket);
          EXPECT_EQ(request.websocket_version, "13");
          auto socket = std::make_shared<WebSocket>();
          *socket = reply.upgrade(request.websocket_key, message_bytes_max,
                                  {.on_message =
                                       [this, socket](bool is_text, std::string data) {
                                         if (std::string_view(data) == "close")
                                           return socket->close(4000, "as you say");
                                         socket->send(is_text, (is_text ? "t:" : "b:") + data);
                                       },
                                   .on_gone =
                                       [this, socket] {
                                         gone_ += 1;
                                         *socket = WebSocket();
                                       }});
        }}});
    EXPECT_TRUE(started.ok());
    server_ = std::move(*started);
  }
  uint16_t port() const { return server_->ports()[0]; }
  HttpServer& server() { return *server_; }
  int gone() const { return gone_; }

 private:
  std::atomic<int> gone_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST(HttpWebSocket, ShakesHandsAndEchoesMessagesOfBothKinds) {
  Echo echo;
  WebSocketClient client(echo.port());
  EXPECT_TRUE(client.head().starts_with("HTTP/1.1 101 ")) << client.head();
  EXPECT_NE(client.head().find("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), std::string::npos);
  client.send_frame(Opcode::kText, "hello");
  EXPECT_EQ(client.next()->data, "t:hello");
  client.send_frame(Opcode::kBinary, std::string("\0\xff", 2));
  EXPECT_EQ(client.next()->data, std::string("b:\0\xff", 4));
}

TEST(HttpWebSocket, WordsThatComeRightBehindTheHandshakeAreHeard) {
  Echo echo;
  WebSocketClient client(echo.port(), encode_frame(Opcode::kText, "early", kMask));
  EXPECT_EQ(client.next()->data, "t:early");
}

TEST(HttpWebSocket, AnswersPingsAndGoodbyes) {
  Echo echo;
  WebSocketClient client(echo.port());
  client.send_frame(Opcode::kPing, "are you there");
  const auto pong = client.next();
  EXPECT_EQ(pong->opcode, Opcode::kPong);
  EXPECT_EQ(pong->data, "are you there");
  client.send_frame(Opcode::kClose, websocket::close_payload(websocket::kNormal, ""));
  EXPECT_EQ(client.next_close(), websocket::kNormal);
  EXPECT_FALSE(client.next().has_value());
  echo.server().shutdown();
  EXPECT_EQ(echo.gone(), 1);
}

TEST(HttpWebSocket, ClosesWithTheHandlersWords) {
  Echo echo;
  WebSocketClient client(echo.port());
  client.send_frame(Opcode::kText, "close");
  EXPECT_EQ(client.next_close(), 4000);
  EXPECT_FALSE(client.next().has_value());
}

TEST(HttpWebSocket, WhatBreaksTheRulesEndsTheConnectionWithACode) {
  Echo echo(100);
  {
    WebSocketClient client(echo.port());
    client.send(encode_frame(Opcode::kText, "not masked"));
    EXPECT_EQ(client.next_close(), websocket::kProtocolError);
  }
  {
    WebSocketClient client(echo.port());
    client.send_frame(Opcode::kBinary, std::string(101, 'x'));
    EXPECT_EQ(client.next_close(), websocket::kMessageTooBig);
  }
  {
    WebSocketClient client(echo.port());
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(client.next_close(), websocket::kProtocolError);
  }
  WebSocketClient still_served(echo.port());
  still_served.send_frame(Opcode::kText, "x");
  EXPECT_EQ(still_served.next()->data, "t:x");
}

TEST(HttpWebSocket, ThePieceThatASlowReaderDoesNotTakeIsNotSaidToBeTaken) {
  std::mutex mutex;
  int taken = 0;
  std::promise<WebSocket> opened;
  auto server = HttpServer::start(
      {}, {{.handler = [&](HttpRequest&& request, HttpReply reply) {
        opened.set_value(reply.upgrade(request.websocket_key, 1000,
                                       {.on_message = [](bool, const std::string&) {}, .on_gone = [] {}}));
      }}});
  ASSERT_TRUE(server.ok());
  WebSocketClient client((*server)->ports()[0]);
  WebSocket socket = opened.get_future().get();
  constexpr int kPieces = 16;
  const std::string piece(4u << 20, 'x');
  for (int i = 0; i < kPieces; ++i) {
    socket.send(false, piece, [&](bool alive) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(alive);
      taken += 1;
    });
  }
  for (int i = 0; i < kPieces; ++i) {
    {
      // The kernel holds a few megabytes, never all of it.
      const std::lock_guard lock(mutex);
      if (i == 0) {
        EXPECT_LT(taken, kPieces);
      }
    }
    const auto frame = client.next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->data.size(), piece.size());
  }
  (*server)->shutdown();
  EXPECT_EQ(taken, kPieces);
}

TEST(HttpWebSocket, AShutdownSaysGoodbye) {
  Echo echo;
  WebSocketClient client(echo.port());
  client.send_frame(Opcode::kText, "x");
  EXPECT_EQ(client.next()->data, "t:x");
  std::thread down([&] { echo.server().shutdown(); });
  EXPECT_EQ(client.next_close(), websocket::kGoingAway);
  down.join();
  EXPECT_EQ(echo.gone(), 1);
}

}  // namespace
}  // namespace gpusched::api
