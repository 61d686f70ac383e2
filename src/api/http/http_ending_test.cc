// Requests that are ended from outside.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "api/http/http_server.h"
#include "base/net/websocket.h"

namespace gpusched::api {
namespace {

/// One request to a server whose handler does nothing but what the test does later.
class HttpEndingTest : public ::testing::Test {
 protected:
  HttpEndingTest() {
    auto started = HttpServer::start(
        {}, {{.handler = [this](HttpRequest&& request, HttpReply reply) { begin_(request, reply); }}});
    EXPECT_TRUE(started.ok());
    server_ = std::move(*started);
  }
  ~HttpEndingTest() override {
    if (socket_ >= 0) close(socket_);
    server_.reset();  // Before what its last calls use.
  }

  /// Sends a request, whose handler runs `begin`, and waits until that has run.
  void ask(std::function<void(HttpReply&)> begin, const std::string& headers = "") {
    std::promise<void> begun;
    begin_ = [&](const HttpRequest& request, HttpReply& reply) {
      key_ = request.websocket_key;
      open_ = reply.open_request();
      open_->keep(std::shared_ptr<void>(nullptr, [this](void*) { dropped_.set_value(); }));
      begin(reply);
      begun.set_value();
    };
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->ports()[0]);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
    EXPECT_EQ(send(socket_, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    begun.get_future().get();
  }
  /// Reads until that has come, or the connection ends.
  std::string receive_until(const std::string& what) {
    std::string all;
    char buffer[65'536];
    while (what.empty() || all.find(what) == std::string::npos) {
      const ssize_t size = recv(socket_, buffer, sizeof buffer, 0);
      if (size <= 0) break;
      all.append(buffer, static_cast<std::size_t>(size));
    }
    return all;
  }
  static std::string upgrade_headers() {
    return "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  }

  std::unique_ptr<HttpServer> server_;
  std::function<void(const HttpRequest&, HttpReply&)> begin_;
  std::optional<OpenRequest> open_;
  std::promise<void> gone_, dropped_;
  std::string key_;
  int socket_ = -1;
};

TEST_F(HttpEndingTest, ARequestWithoutAnAnswerGetsThisOne) {
  auto kept = std::make_shared<std::optional<HttpReply>>();
  ask([&](HttpReply& reply) {
    reply.on_gone([this] { gone_.set_value(); });
    kept->emplace(std::move(reply));
  });
  open_->end({.answer = {.status = 401, .body = "no more"}});
  gone_.get_future().get();
  dropped_.get_future().get();
  (*kept)->send({.status = 200, .body = "too late"});
  open_->end({.answer = {.status = 402}});
  shutdown(socket_, SHUT_WR);
  const std::string answer = receive_until("");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 401 ")) << answer;
  EXPECT_TRUE(answer.ends_with("no more")) << answer;
}

TEST_F(HttpEndingTest, AStreamGetsALastPieceAndEndsWell) {
  HttpStream stream;
  std::promise<bool> written;
  ask([&](HttpReply& reply) {
    reply.on_gone([this] { gone_.set_value(); });
    stream = reply.stream({});
    stream.write("first", nullptr);
  });
  open_->end({.last_piece = "last"});
  gone_.get_future().get();
  dropped_.get_future().get();
  stream.write("too late", [&](bool alive) { written.set_value(alive); });
  EXPECT_FALSE(written.get_future().get());
  const std::string answer = receive_until("0\r\n\r\n");
  EXPECT_TRUE(answer.ends_with("5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n")) << answer;
}

TEST_F(HttpEndingTest, AStreamWithoutALastPieceBreaksOff) {
  ask([&](HttpReply& reply) {
    reply.on_gone([this] { gone_.set_value(); });
    reply.stream({}).write("first", nullptr);
  });
  open_->end({});
  gone_.get_future().get();
  dropped_.get_future().get();
  const std::string answer = receive_until("");
  EXPECT_TRUE(answer.ends_with("5\r\nfirst\r\n")) << answer;
}

TEST_F(HttpEndingTest, AWebSocketIsToldWhyAndClosed) {
  WebSocket socket;
  ask(
      [&](HttpReply& reply) {
        socket = reply.upgrade(
            key_, 1'000,
            {.on_message = [](bool, const std::string&) {}, .on_gone = [this] { gone_.set_value(); }});
      },
      upgrade_headers());
  open_->end({.last_message = "why", .reason = "because"});
  gone_.get_future().get();
  const std::string answer = receive_until("");
  EXPECT_TRUE(answer.ends_with(
      websocket::encode_frame(websocket::Opcode::kText, "why") +
      websocket::encode_frame(websocket::Opcode::kClose,
                              websocket::close_payload(websocket::kPolicyViolation, "because"))))
      << answer;
}

TEST_F(HttpEndingTest, ThoseWhoWorkForAWebSocketAreToldThoughItsClientReadsNothing) {
  WebSocket socket;
  ask(
      [&](HttpReply& reply) {
        socket = reply.upgrade(
            key_, 1'000,
            {.on_message = [](bool, const std::string&) {}, .on_gone = [this] { gone_.set_value(); }});
        socket.send(false, std::string(32u << 20, 'x'));
      },
      upgrade_headers());
  open_->end({.reason = "because"});
  gone_.get_future().get();
}

TEST_F(HttpEndingTest, WhatIsKeptGoesWithTheAnswer) {
  ask([&](HttpReply& reply) { reply.send({.status = 200}); });
  dropped_.get_future().get();
  open_->end({.answer = {.status = 401}});
  EXPECT_TRUE(receive_until("\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace gpusched::api
