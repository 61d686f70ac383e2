#include "node/endpoints/endpoint_watch.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "node/ports/system_clock.h"
#include "node/testing/attempt_key.h"

namespace gpusched {
namespace {

/// A port of this machine where the test says what is answered.
class Server {
 public:
  Server() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    socklen_t size = sizeof place;
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&place), &size), 0);
    port_ = ntohs(place.sin_port);
  }
  ~Server() { close(socket_); }

  uint32_t port() const { return port_; }
  void listen() const { EXPECT_EQ(::listen(socket_, 16), 0); }
  /// The request that comes next, answered so; empty: none came.
  std::string answer(const std::string& text) const {
    pollfd source{.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&source, 1, 10'000) <= 0) return {};
    const int peer = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    std::string request(1'000, '\0');
    const ssize_t size = recv(peer, request.data(), request.size(), 0);
    request.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    send(peer, text.data(), text.size(), MSG_NOSIGNAL);
    close(peer);
    return request;
  }

 private:
  int socket_;
  uint32_t port_ = 0;
};

class Endpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "gpusched-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    data_ = name;
    std::filesystem::create_directories(data_ + "/attempts/7-1-0");
    watch_.emplace(data_, clock_);
  }
  void TearDown() override {
    watch_.reset();
    std::filesystem::remove_all(data_);
  }

  void note(const std::string& line) const { std::ofstream(data_ + "/attempts/7-1-0/port") << line << '\n'; }
  void note(uint32_t port, const ReadyProbe& probe) const {
    note(to_line({.ports = {.first = port, .last = port}, .probe = probe}));
  }
  EndpointReading only() {
    const std::vector<EndpointReading> all = watch_->readings();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? EndpointReading{} : all.front();
  }
  /// The reading when that holds of it.
  EndpointReading wait_until(const std::function<bool(const EndpointReading&)>& holds) {
    for (int i = 0; i < 1'000; ++i) {
      EndpointReading now = only();
      if (holds(now)) return now;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "it never came to that";
    return {};
  }

  SystemClock clock_;
  std::string data_;
  std::optional<EndpointWatch> watch_;
};

constexpr Duration kPeriod = milliseconds(20);

TEST(Probe, AnHttpAnswerIsJudgedByItsStatus) {
  const auto judged = [](const char* text) {
    shim::HttpAnswer answer(0);
    answer.add(text);
    return judge_http_answer(answer);
  };
  for (const char* const good :
       {"HTTP/1.1 200 OK\r\n", "HTTP/1.0 302 Found\n", "HTTP/1.1 204\r\n", "HTTP/1.1 200 OK\r\n\r\nbody",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"})
    EXPECT_EQ(judged(good), "") << good;
  EXPECT_EQ(judged("HTTP/1.1 503 x\r\n"), "it answered with HTTP status 503");
  for (const char* const bad : {"HTTP/1.1 abc\r\n", "SSH-2.0", "HTTP/2"})
    EXPECT_EQ(judged(bad), "its answer is not HTTP") << bad;
  for (const char* const part : {"", "HTT", "HTTP/1.1 20", "HTTP/1.1 100 Continue\r\n"})
    EXPECT_FALSE(judged(part)) << part;
}

TEST_F(Endpoints, AnAttemptWithoutANoteHasNoPort) {
  watch_->began(kKey);
  EXPECT_TRUE(watch_->readings().empty());
  note("torn 123");
  watch_->began(kKey);
  EXPECT_TRUE(watch_->readings().empty());
}

TEST_F(Endpoints, APortWithoutAProbeIsToldAndNotProbed) {
  note("12345 -");
  watch_->began(kKey);
  EXPECT_EQ(only().port, 12'345U);
  EXPECT_FALSE(only().ready);
  watch_->ended(kKey);
  EXPECT_TRUE(watch_->readings().empty());
}

TEST_F(Endpoints, TcpIsReadyOnceSomebodyListens) {
  const Server server;
  note(server.port(), {.period = kPeriod});
  watch_->began(kKey);
  EXPECT_NE(wait_until([](const auto& now) { return now.ready == false; }).detail, "");
  server.listen();
  EXPECT_EQ(wait_until([](const auto& now) { return now.ready == true; }).detail, "");
}

TEST_F(Endpoints, HttpIsReadyByItsStatusAndUnreadyAfterFailuresInARow) {
  const Server server;
  server.listen();
  note(server.port(), {.path = "/up?x=1", .period = kPeriod, .timeout = seconds(5), .failures = 2});
  watch_->began(kKey);
  const std::string request = server.answer("HTTP/1.1 503 Not yet\r\n\r\n");
  EXPECT_TRUE(request.starts_with("GET /up?x=1 HTTP/1.1\r\nHost: 127.0.0.1")) << request;
  EXPECT_EQ(wait_until([](const auto& now) { return now.ready == false; }).detail,
            "it answered with HTTP status 503");
  server.answer("HTTP/1.1 200 OK\r\n\r\n");
  wait_until([](const auto& now) { return now.ready == true; });
  server.answer("HTTP/1.1 500 Oh\r\n\r\n");
  server.answer("HTTP/1.1 200 OK\r\n\r\n");  // One failure alone is none.
  server.answer("HTTP/1.1 500 Oh\r\n\r\n");
  EXPECT_EQ(only().ready, true);
  server.answer("HTTP/1.1 500 Oh\r\n\r\n");
  wait_until([](const auto& now) { return now.ready == false; });
}

TEST_F(Endpoints, WhoDoesNotAnswerInTimeIsNotReadyAndHoldsNobodyUp) {
  const Server server;
  server.listen();  // The kernel takes the connection; nobody answers.
  note(server.port(), {.path = "/", .period = kPeriod, .timeout = milliseconds(50)});
  watch_->began(kKey);
  EXPECT_EQ(wait_until([](const auto& now) { return now.ready == false; }).detail,
            "it did not answer within 50 ms");
  watch_->ended(kKey);  // While a call is under way.
  EXPECT_TRUE(watch_->readings().empty());
}

}  // namespace
}  // namespace gpusched
