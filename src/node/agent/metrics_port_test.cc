#include "node/agent/metrics_port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "node/agent/agent_metrics.h"

namespace gpusched {
namespace {

/// The answer of the port to these bytes, until it closes.
std::string ask(const MetricsPort& port, std::string_view bytes) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string answer;
  std::array<char, 4'096> piece;
  for (ssize_t size = 0; (size = recv(connection, piece.data(), piece.size(), 0)) > 0;)
    answer.append(piece.data(), static_cast<std::size_t>(size));
  close(connection);
  return answer;
}

std::unique_ptr<MetricsPort> open_port(MetricsPortOptions options = {}) {
  auto port = MetricsPort::open(options, [] { return std::string("answer 1\n"); });
  EXPECT_TRUE(port.ok()) << port.error().message;
  return std::move(*port);
}

TEST(MetricsPort, AnswersAScrapeAndNothingElse) {
  const auto port = open_port();
  const std::string told = ask(*port, "GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n");
  EXPECT_TRUE(told.starts_with("HTTP/1.1 200 OK\r\n")) << told;
  EXPECT_NE(told.find("Content-Length: 9\r\n"), std::string::npos);
  EXPECT_TRUE(told.ends_with("\r\n\r\nanswer 1\n"));
  EXPECT_TRUE(ask(*port, "HEAD /metrics?x HTTP/1.0\r\n\r\n").ends_with("charset=utf-8\r\n\r\n"));
  EXPECT_TRUE(ask(*port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(ask(*port, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(ask(*port, "\x16\x03\x01\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_EQ(ask(*port, std::string(100'000, 'x')), "");
}

TEST(MetricsPort, AsksForItsToken) {
  const auto port = open_port({.token = "secret"});
  const auto with = [&](const std::string& header) {
    return ask(*port, "GET /metrics HTTP/1.1\r\n" + header + "\r\n\r\n").substr(9, 3);
  };
  EXPECT_EQ(with("Authorization: Bearer secret"), "200");
  EXPECT_EQ(with("authorization:Bearer secret"), "200");
  EXPECT_EQ(with("Authorization: Bearer secre"), "401");
  EXPECT_EQ(with("Authorization: Basic secret"), "401");
  EXPECT_EQ(with("X: y"), "401");
}

TEST(MetricsPort, APortThatIsTakenIsNamed) {
  const auto first = open_port();
  const auto second = MetricsPort::open({.port = first->port()}, [] { return std::string(); });
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
  EXPECT_NE(second.error().message.find(std::to_string(first->port())), std::string::npos);
  EXPECT_FALSE(MetricsPort::open({.address = "nowhere.example"}, [] { return std::string(); }).ok());
}

TEST(AgentMetrics, WhatADriverDoesNotTellIsLeftOut) {
  AgentFigures figures{.node_name = "n1", .version = "1", .connected = true, .attempts_running = 2};
  figures.devices.push_back({.uuid = "GPU-1", .model = "A \"100\"", .reading = {.memory_used_mb = 3}});
  const std::string text = agent_metrics_text(figures, {.cpu_seconds = 1.5});
  EXPECT_NE(text.find("gpu_agent_connected 1\n"), std::string::npos);
  EXPECT_NE(text.find("gpu_agent_attempts_running 2\n"), std::string::npos);
  EXPECT_NE(
      text.find(R"(gpu_agent_gpu_memory_used_bytes{gpu="n1-gpu-0",uuid="GPU-1",model="A \"100\""} 3145728)"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("process_cpu_seconds_total 1.500000\n"), std::string::npos);
  EXPECT_EQ(text.find("temperature_celsius{"), std::string::npos);
  EXPECT_EQ(text.find("process_open_fds"), std::string::npos);
}

}  // namespace
}  // namespace gpusched
