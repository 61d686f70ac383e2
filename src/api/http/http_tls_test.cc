#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "api/http/http_server.h"
#include "base/net/websocket.h"
#include "sign/testing/certificates.h"
#include "sign/tls_trust.h"

namespace gpusched::api {
namespace {

using sign::TestAuthority;
using sign::TlsStep;

constexpr const char* kHere = "DNS:localhost,IP:127.0.0.1";
constexpr int kPatienceMs = 20'000;

class Tcp {
 public:
  explicit Tcp(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::fcntl(socket_, F_SETFL, O_NONBLOCK);
  }
  ~Tcp() { ::close(socket_); }
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;

  int socket() const { return socket_; }
  bool ready(short what) const {
    pollfd source{.fd = socket_, .events = what, .revents = 0};
    return ::poll(&source, 1, kPatienceMs) == 1;
  }
  void send(std::string_view bytes) const {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// Until the server ends it.
  std::string read_all() const {
    std::string all;
    char piece[4'096];
    while (ready(POLLIN)) {
      const ssize_t got = ::recv(socket_, piece, sizeof piece, 0);
      if (got <= 0) return all;
      all.append(piece, static_cast<std::size_t>(got));
    }
    return all + "(still open)";
  }

 private:
  const int socket_;
};

/// A client that speaks bytes over TLS.
class TlsClient {
 public:
  TlsClient(uint16_t port, const TestAuthority& authority) : tcp_(port) {
    const auto trust = sign::TlsTrust::of_file(authority.file());
    CHECK(trust.ok());
    tls_ = (*trust)->connect(tcp_.socket(), "localhost");
    shaken_ = run([this] { return tls_->handshake(); }) == TlsStep::kDone;
  }

  bool shaken() const { return shaken_; }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      std::size_t sent = 0;
      if (run([&] { return tls_->write(bytes.data(), bytes.size(), sent); }) != TlsStep::kDone) return;
      bytes.remove_prefix(sent);
    }
  }
  void end_sending() { tls_->end_sending(); }
  std::string read_until(std::string_view text) {
    while (seen_.find(text) == std::string::npos && receive()) {
    }
    return seen_;
  }
  /// Until the end; whether that was one in order.
  bool read_all(std::string& all) {
    while (receive()) {
    }
    all = seen_;
    return last_ == TlsStep::kEnd;
  }
  void forget() { seen_.clear(); }

 private:
  template <typename Do>
  TlsStep run(const Do& what) {
    while (true) {
      const TlsStep step = what();
      if (step == TlsStep::kWantRead && tcp_.ready(POLLIN)) continue;
      if (step == TlsStep::kWantWrite && tcp_.ready(POLLOUT)) continue;
      return step;
    }
  }
  bool receive() {
    char piece[16'384];
    std::size_t got = 0;
    last_ = run([&] { return tls_->read(piece, sizeof piece, got); });
    if (last_ == TlsStep::kDone) seen_.append(piece, got);
    return last_ == TlsStep::kDone;
  }

  Tcp tcp_;
  std::unique_ptr<sign::TlsChannel> tls_;
  bool shaken_ = false;
  TlsStep last_ = TlsStep::kDone;
  std::string seen_;
};

std::shared_ptr<const sign::TlsIdentity> identity_of(const TestAuthority::Files& files) {
  auto identity = sign::TlsIdentity::load({.certificate = files.certificate, .key = files.key});
  CHECK(identity.ok());
  return *identity;
}

struct Serving {
  explicit Serving(HttpHandler handler, HttpServerOptions options = {}, HttpStreams streams = nullptr)
      : tls(std::make_shared<sign::TlsServer>(identity_of(authority.sign("here", kHere)))) {
    auto started = HttpServer::start(
        options, {{.handler = std::move(handler), .streams_body = std::move(streams), .tls = tls}});
    CHECK(started.ok());
    server = std::move(*started);
  }
  uint16_t port() const { return server->ports()[0]; }

  TestAuthority authority;
  std::shared_ptr<sign::TlsServer> tls;
  std::unique_ptr<HttpServer> server;
};

void echo_path(HttpRequest&& request, HttpReply reply) {
  reply.send({.status = 200, .body = request.path + " " + request.body});
}

TEST(HttpOverTls, AnswersRequestsOnOneConnection) {
  Serving serving(echo_path);
  TlsClient client(serving.port(), serving.authority);
  ASSERT_TRUE(client.shaken());
  client.send("POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_NE(client.read_until("hello").find("HTTP/1.1 200 OK\r\n"), std::string::npos);
  client.forget();
  client.send("GET /second HTTP/1.1\r\nHost: x\r\n\r\nGET /third HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.read_until("/third ").find("/second "), std::string::npos);
  EXPECT_EQ(serving.server->counts().connections_accepted, 1u);
}

TEST(HttpOverTls, LargeBodiesComeWholeInBothDirections) {
  Serving serving(echo_path);
  TlsClient client(serving.port(), serving.authority);
  std::string body(3'000'000, 'x');
  for (std::size_t i = 0; i < body.size(); i += 1'001) body[i] = static_cast<char>('a' + i % 26);
  client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_NE(client.read_until("100 Continue\r\n\r\n").find("100 Continue"), std::string::npos);
  client.send(body);
  std::string all;
  // Ended in order: a client need not fear that something was cut off.
  EXPECT_TRUE(client.read_all(all));
  EXPECT_TRUE(all.ends_with("/ " + body));
}

TEST(HttpOverTls, AStreamGoesOnWhenItsReaderIsSlow) {
  constexpr int kPieces = 200;
  struct Pump : std::enable_shared_from_this<Pump> {
    explicit Pump(HttpStream to) : stream(std::move(to)) {}
    void next() {
      if (left-- == 0) return stream.finish();
      stream.write(std::string(50'000, '~'), [self = shared_from_this()](bool alive) {
        if (alive) self->next();
      });
    }
    HttpStream stream;
    int left = kPieces;
  };
  Serving serving(
      [](HttpRequest&&, HttpReply reply) { std::make_shared<Pump>(reply.stream({.status = 200}))->next(); });
  TlsClient client(serving.port(), serving.authority);
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ::usleep(300'000);  // The kernel's buffers are full by now.
  const std::string all = client.read_until("\r\n0\r\n\r\n");
  EXPECT_EQ(std::count(all.begin(), all.end(), '~'), kPieces * 50'000);
}

TEST(HttpOverTls, AStreamedBodyArrivesAsItIsSent) {
  struct Reader : std::enable_shared_from_this<Reader> {
    explicit Reader(HttpReply to) : reply(std::move(to)), body(reply.body()) {}
    void next() {
      body.read([self = shared_from_this()](const std::string& piece, HttpBody::State state) {
        self->total += piece.size();
        if (state == HttpBody::State::kMore) return self->next();
        self->reply.send({.status = 200, .body = "got " + std::to_string(self->total)});
      });
    }
    HttpReply reply;
    HttpBody body;
    std::size_t total = 0;
  };
  Serving serving([](HttpRequest&&, HttpReply reply) { std::make_shared<Reader>(std::move(reply))->next(); },
                  {}, [](HttpMethod, std::string_view) { return true; });
  TlsClient client(serving.port(), serving.authority);
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  for (int i = 0; i < 10; ++i) client.send(std::string(100'000, 'z'));
  EXPECT_NE(client.read_until("got ").find("got 1000000"), std::string::npos);
}

TEST(HttpOverTls, AWebSocketEchoesAndSaysGoodbyeAtShutdown) {
  const auto socket = std::make_shared<WebSocket>();
  Serving serving([socket](HttpRequest&& request, HttpReply reply) {
    *socket = reply.upgrade(
        request.websocket_key, 1u << 20,
        {.on_message = [socket](bool is_text, std::string data) { socket->send(is_text, std::move(data)); }});
  });
  TlsClient client(serving.port(), serving.authority);
  client.send(
      "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  client.read_until("\r\n\r\n");
  client.forget();
  const std::string large(200'000, 'w');
  client.send(websocket::encode_frame(websocket::Opcode::kBinary, large, 0x01020304));
  EXPECT_NE(client.read_until(large).find(large), std::string::npos);
  client.forget();
  std::thread stopping([&] { serving.server->shutdown(); });
  EXPECT_NE(client.read_until("shutting down").find("shutting down"), std::string::npos);
  stopping.join();
  *socket = {};  // It holds the server, whose handler holds it.
}

TEST(HttpOverTls, PlainHttpIsAnsweredWithWhatHelps) {
  Serving serving(echo_path);
  const Tcp plain(serving.port());
  plain.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string answer = plain.read_all();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 Bad Request\r\n")) << answer;
  EXPECT_NE(answer.find("https://"), std::string::npos) << answer;
  EXPECT_EQ(serving.server->counts().requests, 0u);
}

TEST(HttpOverTls, WhatIsNoHandshakeIsClosed) {
  Serving serving(echo_path);
  const Tcp other(serving.port());
  other.send("\x16\x03\x01\x02 and then something else, long enough to be a record of five hundred bytes" +
             std::string(600, '\0'));
  EXPECT_EQ(other.read_all().find("HTTP"), std::string::npos);
}

TEST(HttpOverTls, ASlowHandshakeIsEnded) {
  Serving serving(echo_path, {.handshake_timeout = milliseconds(300)});
  const auto began = std::chrono::steady_clock::now();
  const Tcp silent(serving.port());
  const Tcp slow(serving.port());
  slow.send("\x16\x03\x01");
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_EQ(slow.read_all(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST(HttpOverTls, TheOldestHandshakeGivesItsPlaceToANewOne) {
  Serving serving(echo_path, {.handshakes_max = 3, .handshake_timeout = seconds(60)});
  std::vector<std::unique_ptr<Tcp>> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(std::make_unique<Tcp>(serving.port()));
  TlsClient client(serving.port(), serving.authority);
  EXPECT_TRUE(client.shaken());
  EXPECT_EQ(waiting.front()->read_all(), "");
  // Three, of which one became the client's.
  EXPECT_LE(serving.server->counts().connections_open, 4u);
}

TEST(HttpOverTls, NewConnectionsGetTheNewCertificate) {
  Serving serving(echo_path);
  TlsClient old(serving.port(), serving.authority);
  TestAuthority next;
  serving.tls->exchange(identity_of(next.sign("here", kHere)));
  EXPECT_FALSE(TlsClient(serving.port(), serving.authority).shaken());
  EXPECT_TRUE(TlsClient(serving.port(), next).shaken());
  old.send("GET /old HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(old.read_until("/old ").find("/old "), std::string::npos);
}

TEST(HttpOverTls, AClientThatEndsItsSideGetsItsAnswer) {
  std::thread later;
  Serving serving([&later](HttpRequest&& request, HttpReply reply) {
    later = std::thread([path = request.path, answer = std::make_shared<HttpReply>(std::move(reply))] {
      ::usleep(200'000);
      answer->send({.status = 200, .body = path + " done"});
    });
  });
  TlsClient client(serving.port(), serving.authority);
  client.send("GET /half HTTP/1.1\r\nHost: x\r\n\r\n");
  client.end_sending();
  std::string all;
  EXPECT_TRUE(client.read_all(all));
  later.join();
  EXPECT_TRUE(all.ends_with("/half done")) << all;
}

}  // namespace
}  // namespace gpusched::api
