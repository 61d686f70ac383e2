#include "peers/port_relay.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

namespace gpusched::peers {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// A leader's door: serves one connection after the other with a function.
class Server {
 public:
  explicit Server(std::function<void(tcp::socket&)> serve)
      : acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        thread_([this, serve = std::move(serve)] {
          for (;;) {
            error_code failed;
            tcp::socket socket(io_);
            acceptor_.accept(socket, failed);
            if (failed || ended_) return;
            serve(socket);
          }
        }) {}
  ~Server() {
    ended_ = true;
    error_code ignored;
    tcp::socket(io_).connect(tcp::endpoint(asio::ip::address_v4::loopback(), port()), ignored);
    thread_.join();
  }
  uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

/// Reads until the other end closes, or up to a byte. By the kernel's own call, which keeps the socket's
/// limit of waiting: a failed test does not hang.
std::string read_all(tcp::socket& socket, error_code& end, char last = '\0', bool to_last = false) {
  std::string all;
  char piece[65'536];
  while (!to_last || !all.ends_with(last)) {
    const ssize_t size = ::recv(socket.native_handle(), piece, sizeof piece, 0);
    if (size == 0) end = asio::error::eof;
    if (size < 0) end = error_code(errno, boost::system::system_category());
    if (size <= 0) break;
    all.append(piece, static_cast<std::size_t>(size));
  }
  return all;
}

/// Reads to the end, then answers with its name and what came.
std::function<void(tcp::socket&)> answer_at_end(const std::string& name) {
  return [name](tcp::socket& socket) {
    error_code ignored;
    const std::string came = read_all(socket, ignored);
    asio::write(socket, asio::buffer(name + came), ignored);
  };
}
/// Answers a line with its name, then waits for the client's end.
std::function<void(tcp::socket&)> answer_and_stay(const std::string& name) {
  return [name](tcp::socket& socket) {
    error_code ignored;
    std::string came;
    asio::read_until(socket, asio::dynamic_buffer(came), '\n', ignored);
    asio::write(socket, asio::buffer(name + "\n"), ignored);
    read_all(socket, ignored);
  };
}

class PortRelayTest : public testing::Test {
 protected:
  std::unique_ptr<PortRelay> start(PortRelay::Options options = {}) {
    options.address = "127.0.0.1";
    options.ports = {{.door = Door::kHttp}, {.door = Door::kGrpc}};
    options.no_leader = R"({"error":"no leader"})";
    Result<std::unique_ptr<PortRelay>> started = PortRelay::start(std::move(options));
    EXPECT_TRUE(started.ok());
    return std::move(*started);
  }
  static PortRelay::Leader leader(const Server& http) {
    return {.host = "127.0.0.1", .facts = {.http = http.port()}};
  }
  tcp::socket connect(uint16_t port) {
    tcp::socket socket(io_);
    socket.connect(tcp::endpoint(asio::ip::address_v4::loopback(), port));
    const timeval limit{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return socket;
  }
  std::string line(tcp::socket& socket) {
    error_code ignored;
    asio::write(socket, asio::buffer("hello\n", 6), ignored);
    return read_all(socket, ignored, '\n', true);
  }
  std::string request(uint16_t port) {
    tcp::socket socket = connect(port);
    asio::write(socket, asio::buffer(std::string("GET /v1/jobs HTTP/1.1\r\nHost: a\r\n\r\n")));
    error_code end;
    return read_all(socket, end);
  }
  asio::io_context io_;
};

TEST_F(PortRelayTest, PassesBytesAndEachSidesEnd) {
  const Server server(answer_at_end("A"));
  const auto relay = start();
  relay->follow(leader(server));
  tcp::socket socket = connect(relay->port(Door::kHttp));
  std::string sent(3'000'000, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + i / 251);
  asio::write(socket, asio::buffer(sent));
  socket.shutdown(tcp::socket::shutdown_send);
  error_code end;
  EXPECT_EQ(read_all(socket, end), "A" + sent);
  EXPECT_EQ(end, asio::error::eof);
}

TEST_F(PortRelayTest, WithoutALeaderHttpIsToldWhenToComeAgain) {
  const auto relay = start({.patience = milliseconds(50)});
  const std::string answer = request(relay->port(Door::kHttp));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n")) << answer;
  EXPECT_NE(answer.find("\r\nRetry-After: 1\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n{\"error\":\"no leader\"}"));
  EXPECT_EQ(request(relay->port(Door::kGrpc)), "");
  EXPECT_EQ(relay->counts().turned_away, 2u);
  const auto secret = start({.https = true, .patience = milliseconds(50)});
  EXPECT_EQ(request(secret->port(Door::kHttp)), "");
}

TEST_F(PortRelayTest, AConnectionWaitsForALeader) {
  const Server server(answer_and_stay("A"));
  const auto relay = start({.patience = seconds(20)});
  tcp::socket socket = connect(relay->port(Door::kHttp));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  relay->follow(leader(server));
  EXPECT_EQ(line(socket), "A\n");
}

TEST_F(PortRelayTest, ALeaderThatRefusesIsTriedUntilTheNextOneServes) {
  uint16_t gone = 0;
  {
    const Server server(answer_and_stay("A"));
    gone = server.port();
  }
  const Server next(answer_and_stay("B"));
  const auto relay = start({.patience = seconds(20)});
  relay->follow(PortRelay::Leader{.host = "127.0.0.1", .facts = {.http = gone}});
  tcp::socket socket = connect(relay->port(Door::kHttp));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  relay->follow(leader(next));
  EXPECT_EQ(line(socket), "B\n");
  const auto impatient = start({.patience = milliseconds(120)});
  impatient->follow(PortRelay::Leader{.host = "127.0.0.1", .facts = {.http = gone}});
  EXPECT_TRUE(request(impatient->port(Door::kHttp)).starts_with("HTTP/1.1 503 "));
}

TEST_F(PortRelayTest, AnotherLeaderEndsWhatTheOldOneServed) {
  const Server old(answer_and_stay("A")), young(answer_and_stay("B"));
  const auto relay = start();
  relay->follow(leader(old));
  tcp::socket first = connect(relay->port(Door::kHttp));
  ASSERT_EQ(line(first), "A\n");
  relay->follow(leader(old));  // The same: nothing ends.
  tcp::socket second = connect(relay->port(Door::kGrpc));
  relay->follow(leader(young));
  error_code end;
  EXPECT_EQ(read_all(first, end), "");
  EXPECT_EQ(end, asio::error::eof);
  tcp::socket third = connect(relay->port(Door::kHttp));
  EXPECT_EQ(line(third), "B\n");
  relay->follow(std::nullopt);
  EXPECT_EQ(read_all(third, end), "");
}

TEST_F(PortRelayTest, ALeadersResetIsTheClientsReset) {
  const Server server([](tcp::socket& socket) {
    std::string came;
    error_code ignored;
    asio::read_until(socket, asio::dynamic_buffer(came), '\n', ignored);
    socket.set_option(asio::socket_base::linger(true, 0));
    socket.close();
  });
  const auto relay = start();
  relay->follow(leader(server));
  tcp::socket socket = connect(relay->port(Door::kHttp));
  asio::write(socket, asio::buffer("hello\n", 6));
  error_code end;
  read_all(socket, end);
  EXPECT_EQ(end, boost::system::errc::connection_reset) << end.message();
}

TEST_F(PortRelayTest, ConnectionsAreBounded) {
  const auto relay = start({.address_connections_max = 2, .patience = seconds(20)});
  const uint16_t port = relay->port(Door::kGrpc);
  tcp::socket first = connect(port), second = connect(port), third = connect(port);
  error_code end;
  EXPECT_EQ(read_all(third, end), "");
  EXPECT_EQ(relay->counts().open, 2u);
  EXPECT_EQ(relay->counts().turned_away, 1u);
}

TEST_F(PortRelayTest, StoppedItsPortsAreFreeAtOnce) {
  const Server server(answer_and_stay("A"));
  auto relay = start();
  relay->follow(leader(server));
  const uint16_t port = relay->port(Door::kHttp);
  tcp::socket socket = connect(port);
  ASSERT_EQ(line(socket), "A\n");
  const auto taken = PortRelay::start(
      {.address = "127.0.0.1", .ports = {{.door = Door::kHttp, .port = port, .setting = "api.http_port"}}});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kLocked);
  EXPECT_EQ(taken.error().field, "api.http_port");
  relay->stop();
  tcp::acceptor again(io_, tcp::endpoint(asio::ip::address_v4::loopback(), port));
  error_code end;
  EXPECT_EQ(read_all(socket, end), "");
}

}  // namespace
}  // namespace gpusched::peers
