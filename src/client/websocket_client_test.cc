#include "client/websocket_client.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "base/net/websocket.h"
#include "client/test_server.h"

namespace gpusched {
namespace {

using websocket::encode_frame;
using websocket::Opcode;

/// Answers a handshake as it should be, and sends `frames` behind it.
TestServer::Handler upgrade(std::string frames) {
  return [frames = std::move(frames)](const TestServer::Request& request) {
    const auto key = request.headers.find("sec-websocket-key");
    EXPECT_NE(key, request.headers.end());
    EXPECT_EQ(request.headers.at("upgrade"), "websocket");
    EXPECT_EQ(request.headers.at("sec-websocket-version"), "13");
    return TestServer::Reply{
        .close_after = true,
        .raw =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: " +
            websocket::accept_key(key->second) + "\r\n\r\n" + frames};
  };
}

/// Everything that comes until the end.
std::vector<WebSocketClient::Message> all_of(WebSocketClient& client) {
  std::vector<WebSocketClient::Message> messages;
  while (!client.over()) {
    while (auto message = client.take()) messages.push_back(std::move(*message));
    if (client.over()) break;
    pollfd source{.fd = client.descriptor(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&source, 1, 20'000), 1);
    client.pump(true);
  }
  return messages;
}

TEST(WebSocketClient, MessagesComeWholeAndInOrder) {
  const std::string large(200'000, 'x');
  const TestServer server(upgrade(encode_frame(Opcode::kText, "one") + encode_frame(Opcode::kPing, "p") +
                                  encode_frame(Opcode::kBinary, large) +
                                  encode_frame(Opcode::kClose, websocket::close_payload(4000, "the end"))));
  Result<WebSocketClient::Connected> connected =
      WebSocketClient::connect({.url = server.url(), .token = "secret"}, "/v1/jobs/job-1/session");
  ASSERT_TRUE(connected.ok() && connected->socket);
  const auto messages = all_of(*connected->socket);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_TRUE(messages[0].is_text);
  EXPECT_EQ(messages[0].data, "one");
  EXPECT_FALSE(messages[1].is_text);
  EXPECT_EQ(messages[1].data, large);
  EXPECT_EQ(connected->socket->close_code(), 4000);
  EXPECT_EQ(connected->socket->reason(), "the end");
  EXPECT_EQ(server.requests()[0].target, "/v1/jobs/job-1/session");
  EXPECT_EQ(server.requests()[0].headers.at("authorization"), "Bearer secret");
}

TEST(WebSocketClient, ABrokenConnectionIsOverWithAReason) {
  const TestServer server(upgrade(encode_frame(Opcode::kText, "one") + std::string("\x81\x05he", 4)));
  Result<WebSocketClient::Connected> connected = WebSocketClient::connect({.url = server.url()}, "/");
  ASSERT_TRUE(connected.ok() && connected->socket);
  EXPECT_EQ(all_of(*connected->socket).size(), 1u);
  EXPECT_EQ(connected->socket->close_code(), 0);
  EXPECT_EQ(connected->socket->reason(), "the connection was closed");
}

TEST(WebSocketClient, WhatIsNoWebSocketEndsIt) {
  const TestServer server(upgrade("this is no frame at all"));
  Result<WebSocketClient::Connected> connected = WebSocketClient::connect({.url = server.url()}, "/");
  ASSERT_TRUE(connected.ok() && connected->socket);
  EXPECT_TRUE(all_of(*connected->socket).empty());
  EXPECT_NE(connected->socket->reason().find("not a WebSocket"), std::string::npos);
}

TEST(WebSocketClient, ARefusalIsAnAnswer) {
  const TestServer server([](const TestServer::Request&) {
    return TestServer::Reply{.status = 404,
                             .body = R"({"error":"no such job: job-1","code":"job_not_found"})"};
  });
  const Result<WebSocketClient::Connected> connected = WebSocketClient::connect({.url = server.url()}, "/");
  ASSERT_TRUE(connected.ok());
  EXPECT_FALSE(connected->socket.has_value());
  EXPECT_EQ(connected->answer.status, 404);
  EXPECT_NE(connected->answer.body.find("job_not_found"), std::string::npos);
}

TEST(WebSocketClient, AHandshakeWithoutProofIsNone) {
  const TestServer server([](const TestServer::Request&) {
    return TestServer::Reply{.raw = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n"};
  });
  const Result<WebSocketClient::Connected> connected = WebSocketClient::connect({.url = server.url()}, "/");
  ASSERT_TRUE(connected.ok());
  EXPECT_FALSE(connected->socket.has_value());
}

TEST(WebSocketClient, NobodyThereIsUnavailable) {
  std::string url;
  {
    const TestServer server([](const TestServer::Request&) { return TestServer::Reply{}; });
    url = server.url();
  }
  const Result<WebSocketClient::Connected> connected = WebSocketClient::connect({.url = url}, "/");
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(connected.error().message, "connection refused");
}

TEST(WebSocketClient, WhatDoesNotSpeakHttpIsSaidSo) {
  const TestServer server([](const TestServer::Request&) {
    return TestServer::Reply{.close_after = true, .raw = "SSH-2.0-OpenSSH_9.2\r\n\r\n"};
  });
  const Result<WebSocketClient::Connected> connected = WebSocketClient::connect({.url = server.url()}, "/");
  ASSERT_FALSE(connected.ok());
  EXPECT_NE(connected.error().message.find("does not speak HTTP"), std::string::npos);
}

}  // namespace
}  // namespace gpusched
