#include "api/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace gpusched::api {
namespace {

/// A client that speaks bytes. Reads give up after 20 s, so that a hanging server fails a test and not the
/// run.
class Client {
 public:
  /// `from`: the address that it comes from, all of 127.0.0.0/8 are this machine's.
  explicit Client(uint16_t port, const char* from = "127.0.0.1") : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void end_sending() { shutdown(socket_, SHUT_WR); }
  /// Reads until `text` has come, or the connection ended.
  std::string read_until(std::string_view text) {
    while (seen_.find(text) == std::string::npos && receive()) {
    }
    return seen_;
  }
  std::string read_all() {
    while (receive()) {
    }
    return seen_;
  }
  void forget() { seen_.clear(); }

 private:
  bool receive() {
    char buffer[65'536];
    const ssize_t size = recv(socket_, buffer, sizeof buffer, 0);
    if (size <= 0) return false;
    seen_.append(buffer, static_cast<std::size_t>(size));
    return true;
  }
  int socket_;
  bool connected_ = false;
  std::string seen_;
};

std::unique_ptr<HttpServer> serve(HttpHandler handler, HttpServerOptions options = {}) {
  auto server = HttpServer::start(options, {{.handler = std::move(handler)}});
  EXPECT_TRUE(server.ok());
  return std::move(*server);
}

void echo(HttpRequest&& request, HttpReply reply) {
  std::string body(to_string(request.method));
  body += " " + request.path + "?" + request.query + " " + request.body;
  reply.send({.status = 200, .body = std::move(body)});
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(HttpServer, AnswersTwoRequestsOnOneConnection) {
  const auto server = serve(echo);
  Client client(server->ports()[0]);
  client.send("POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_NE(client.read_until("hello").find("HTTP/1.1 200 OK\r\n"), std::string::npos);
  client.forget();
  client.send("GET /second HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.read_until("second? ").find("GET /second? "), std::string::npos);
  EXPECT_EQ(server->counts().connections_accepted, 1u);
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  std::vector<std::thread> threads;
  const auto server = serve([&](HttpRequest&& request, HttpReply reply) {
    // Every second one is answered by another thread, later than the next could be.
    if (request.path.back() % 2 == 0) {
      reply.send({.status = 200, .body = request.path});
      return;
    }
    threads.emplace_back([path = request.path, answer = std::make_shared<HttpReply>(std::move(reply))] {
      answer->send({.status = 200, .body = path});
    });
  });
  Client client(server->ports()[0]);
  std::string all;
  for (int i = 0; i < 10; ++i) all += "GET /p" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  client.send(all);
  const std::string answers = client.read_until("/p9");
  std::size_t at = 0;
  for (int i = 0; i < 10; ++i) {
    at = answers.find("/p" + std::to_string(i), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  server->shutdown();
  for (auto& thread : threads) thread.join();
}

TEST(HttpServer, AByteAtATimeIsARequestToo) {
  const auto server = serve(echo);
  Client client(server->ports()[0]);
  for (const char c : std::string_view("\r\nPOST /slow HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                                       "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")) {
    client.send({&c, 1});
  }
  EXPECT_NE(client.read_until("abc").find("POST /slow? abc"), std::string::npos);
}

TEST(HttpServer, RepliesOfAnotherThreadGoOutAtTheFlush) {
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::unique_ptr<HttpReply>> waiting;
  const auto server = serve([&](HttpRequest&&, HttpReply reply) {
    const std::lock_guard lock(mutex);
    waiting.push_back(std::make_unique<HttpReply>(std::move(reply)));
    arrived.notify_one();
  });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Client>(server->ports()[0]));
    clients.back()->send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  {
    std::unique_lock lock(mutex);
    arrived.wait(lock, [&] { return waiting.size() == 8; });
    for (auto& reply : waiting) reply->send_at_flush({.status = 201, .body = "done"});
  }
  server->flush();
  for (auto& client : clients) EXPECT_NE(client->read_until("done").find("201 Created"), std::string::npos);
}

TEST(HttpServer, AHugeBodyIsRefusedWithoutReadingItAll) {
  const auto server = serve(echo);
  Client client(server->ports()[0]);
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n");
  const std::string chunk(1u << 20, 'x');
  int sent = 0;
  while (sent < 100 && client.send(chunk)) ++sent;
  EXPECT_LT(sent, 100);  // The connection ended before.
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("HTTP/1.1 413 "), std::string::npos);
  EXPECT_NE(answer.find(R"("code":"too_large")"), std::string::npos);
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

TEST(HttpServer, AHugeChunkedBodyIsRefused) {
  const auto server = serve(echo);
  Client client(server->ports()[0]);
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
  for (int i = 0; i < 200 && client.send(chunk); ++i) {
  }
  EXPECT_NE(client.read_all().find("HTTP/1.1 413 "), std::string::npos);
}

TEST(HttpServer, ABodyOfExactlyTheLimitIsTaken) {
  const auto server = serve([](HttpRequest&& request, HttpReply reply) {
    reply.send({.status = 200, .body = std::to_string(request.body.size()) + "!"});
  });
  Client client(server->ports()[0]);
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4194304\r\n\r\n");
  client.send(std::string(4u << 20, 'x'));
  EXPECT_NE(client.read_until("!").find("4194304!"), std::string::npos);
}

TEST(HttpServer, LongHeadersAreRefused) {
  const auto server = serve(echo);
  Client client(server->ports()[0]);
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n");
  EXPECT_NE(client.read_all().find("HTTP/1.1 431 "), std::string::npos);
}

TEST(HttpServer, WhatIsNoHttpIsRefused) {
  const auto server = serve(echo);
  for (const std::string_view nonsense :
       {"hello\r\n\r\n", "GET / HTTP/3.0\r\n\r\n", "GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nA b: c\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"}) {
    Client client(server->ports()[0]);
    client.send(nonsense);
    EXPECT_NE(client.read_all().find("HTTP/1.1 400 "), std::string::npos) << nonsense;
  }
}

TEST(HttpServer, ASlowHeaderAndASlowBodyAreEndedWith408) {
  const auto server = serve(echo, {.header_timeout = milliseconds(50), .body_timeout = milliseconds(50)});
  Client header(server->ports()[0]);
  header.send("GET / HTTP/1.1\r\nHost: localhost\r\nHo");
  EXPECT_NE(header.read_all().find("HTTP/1.1 408 "), std::string::npos);
  Client body(server->ports()[0]);
  body.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_NE(body.read_all().find("HTTP/1.1 408 "), std::string::npos);
}

TEST(HttpServer, AnIdleConnectionIsClosedSilently) {
  const auto server = serve(echo, {.header_timeout = milliseconds(50)});
  Client client(server->ports()[0]);
  EXPECT_EQ(client.read_all(), "");
}

TEST(HttpServer, AThousandSlowConnectionsDoNotStopService) {
  const auto server = serve(echo);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 1'000; ++i) {
    slow.push_back(std::make_unique<Client>(server->ports()[0]));
    if (!slow.back()->connected()) break;  // This test's own limit of open files.
    slow.back()->send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Le");
  }
  slow.resize(slow.size() - 4);
  Client client(server->ports()[0]);
  client.send("GET /served HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(client.read_until("served").find("200 OK"), std::string::npos);
}

TEST(HttpServer, BeyondTheLimitTheLongestIdleConnectionMakesRoom) {
  const auto server = serve(echo, {.connection_max = 16});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 17; ++i) {
    clients.push_back(std::make_unique<Client>(server->ports()[0]));
    clients.back()->send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_NE(clients.back()->read_until("/x?").find("200 OK"), std::string::npos);
    clients.back()->forget();
  }
  EXPECT_EQ(clients[0]->read_all(), "");  // Closed.
  clients[1]->send("GET /y HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(clients[1]->read_until("/y?").find("200 OK"), std::string::npos);
}

TEST(HttpServer, AnAddressHasNoMoreConnectionsThanItMay) {
  const auto server = serve(echo, {.address_connections_max = 4, .bounds_loopback = true});
  const uint16_t port = server->ports()[0];
  const auto asked = [&](Client& client) {
    client.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return client.read_until("/x?").find("200 OK") != std::string::npos;
  };
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 5; ++i) {
    idle.push_back(std::make_unique<Client>(port));
    EXPECT_TRUE(asked(*idle.back())) << i;
    idle.back()->forget();
  }
  EXPECT_EQ(idle[0]->read_all(), "");  // It made room for the last one.
  EXPECT_EQ(server->counts().connections_turned_away, 0u);
  EXPECT_LE(server->counts().connections_open, 4u);
  // All of them are at work: nobody's work is ended for one more.
  idle.clear();
  std::vector<std::unique_ptr<Client>> busy;
  for (int i = 0; i < 4; ++i) {
    busy.push_back(std::make_unique<Client>(port));
    busy.back()->send(
        "POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_NE(busy.back()->read_until("\r\n\r\n").find("100 Continue"), std::string::npos);
  }
  EXPECT_EQ(Client(port).read_all(), "");
  EXPECT_EQ(server->counts().connections_turned_away, 1u);
  for (const auto& one : busy) one->send("ab");
  for (const auto& one : busy) EXPECT_NE(one->read_until("ab").find("200 OK"), std::string::npos);
}

TEST(HttpServer, AnAddressMakesRoomAmongItsOwnConnectionsHoweverTheyCameAndWent) {
  const auto server = serve(echo, {.address_connections_max = 4, .bounds_loopback = true});
  const auto ask = [&](Client& client) {
    client.forget();
    client.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return client.read_until("/x?").find("200 OK") != std::string::npos;
  };
  const auto open = [&](const char* from) {
    auto client = std::make_unique<Client>(server->ports()[0], from);
    EXPECT_TRUE(ask(*client));
    return client;
  };
  std::vector<std::unique_ptr<Client>> others, own;
  for (int i = 0; i < 4; ++i) {
    others.push_back(open("127.0.0.1"));  // Older, and idle for longer, than each of the others.
    own.push_back(open("127.0.0.2"));
  }
  // From the middle, the end and the beginning of the server's list.
  for (const std::size_t index : {1U, 2U, 0U}) own.erase(own.begin() + static_cast<std::ptrdiff_t>(index));
  for (int i = 0; i < 2'000 && server->counts().connections_open > 5; ++i) usleep(10'000);
  while (own.size() < 6) own.push_back(open("127.0.0.2"));
  for (const int gone : {0, 1}) {
    own[static_cast<std::size_t>(gone)]->forget();
    EXPECT_EQ(own[static_cast<std::size_t>(gone)]->read_all(), "") << gone;
  }
  for (std::size_t i = 2; i < own.size(); ++i) EXPECT_TRUE(ask(*own[i])) << i;
  for (const auto& other : others) EXPECT_TRUE(ask(*other));
  EXPECT_EQ(server->counts().connections_open, 8U);
  EXPECT_EQ(server->counts().connections_turned_away, 0U);
}

TEST(HttpServer, HasAsManyConnectionsAsTheProcessMayHaveFilesFor) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{.rlim_cur = std::min<rlim_t>(before.rlim_max, 1'024), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const std::size_t most = serve(echo)->connection_max();
  rlimit raised{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &raised), 0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(raised.rlim_cur, std::min<rlim_t>(before.rlim_max, 2 * 16'384 + 256));
  EXPECT_EQ(most, (raised.rlim_cur - 256) / 2);
}

TEST(HttpServer, LoopbackHasAllConnections) {
  const auto server = serve(echo, {.address_connections_max = 1});
  Client first(server->ports()[0]), second(server->ports()[0]);
  for (Client* const client : {&first, &second}) {
    client->send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_NE(client->read_until("/x?").find("200 OK"), std::string::npos);
    client->forget();
  }
  first.send("GET /y HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(first.read_until("/y?").find("200 OK"), std::string::npos);
}

TEST(HttpServer, BytesOfBodiesThatArriveAreSharedAmongWhoeverSendsThem) {
  auto server = HttpServer::start(
      {.bodies_bytes_max = 4'000},
      {{.handler = echo, .payer = [](const HttpRequest& head) { return head.authorization; }}});
  ASSERT_TRUE(server.ok());
  const auto ask = [&server](const std::string& who, int bytes) {
    auto client = std::make_unique<Client>((*server)->ports()[0]);
    client->send("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nAuthorization: " + who +
                 "\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n");
    return client;
  };
  const auto may_send = [](Client& client) {
    return client.read_until("\r\n\r\n").starts_with("HTTP/1.1 100 Continue\r\n");
  };
  const auto first = ask("a", 2'000);
  EXPECT_TRUE(may_send(*first));
  EXPECT_NE(ask("a", 100)->read_all().find("HTTP/1.1 503 "), std::string::npos);
  const auto other = ask("b", 900);
  EXPECT_TRUE(may_send(*other));
  first->send(std::string(2'000, 'x'));
  EXPECT_NE(first->read_until("xxx").find("200 OK"), std::string::npos);
  const auto again = ask("a", 100);
  EXPECT_TRUE(may_send(*again));
}

TEST(HttpServer, ADroppedReplyIs500) {
  const auto server = serve([](HttpRequest&&, HttpReply) {});
  Client client(server->ports()[0]);
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(client.read_until("bug of the scheduler").find("HTTP/1.1 500 "), std::string::npos);
}

TEST(HttpServer, HeadHasTheLengthAndNoBody) {
  const auto server = serve(echo);
  Client client(server->ports()[0]);
  client.send("HEAD /h HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("Content-Length: 9\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST(HttpServer, AClientThatAsksMayGoOn) {
  const auto server = serve(echo);
  Client client(server->ports()[0]);
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_NE(client.read_until("abc").find("200 OK"), std::string::npos);
}

TEST(HttpServer, AnOldClientGetsAnAnswerAndAnEnd) {
  const auto server = serve(echo);
  Client client(server->ports()[0]);
  client.send("GET /old HTTP/1.0\r\n\r\n");
  client.end_sending();
  EXPECT_NE(client.read_all().find("GET /old?"), std::string::npos);
}

TEST(HttpServer, AStreamIsChunkedAndItsPiecesWaitForTheReader) {
  constexpr int kPieces = 200;
  std::atomic<int> written{0};
  std::function<void(HttpStream, int)> next = [&](HttpStream stream, int left) {
    if (left == 0) return stream.finish();
    stream.write(std::string(64 * 1024, 'a'), [&, stream, left](bool alive) {
      if (!alive) return;
      written.fetch_add(1);
      next(stream, left - 1);
    });
  };
  const auto server = serve(
      [&](HttpRequest&&, HttpReply reply) { next(reply.stream({.content_type = "text/plain"}), kPieces); });
  Client client(server->ports()[0]);
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  // Nothing is read yet: the kernel takes a few pieces, and then the stream waits.
  EXPECT_NE(client.read_until("chunked").find("200 OK"), std::string::npos);
  const std::string all = client.read_until("0\r\n\r\n");
  EXPECT_EQ(count(all, "10000\r\naaaa"), static_cast<std::size_t>(kPieces));
  EXPECT_EQ(written.load(), kPieces);
  client.forget();
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");  // The connection lives on.
  EXPECT_NE(client.read_until("\r\n\r\n").find("200 OK"), std::string::npos);
}

TEST(HttpServer, AWaitingHandlerIsToldThatTheClientIsGone) {
  std::mutex mutex;
  std::condition_variable changed;
  bool waiting = false, gone = false;
  std::unique_ptr<HttpReply> kept;
  const auto server = serve([&](HttpRequest&&, HttpReply reply) {
    const std::lock_guard lock(mutex);
    reply.on_gone([&] {
      const std::lock_guard inner(mutex);
      gone = true;
      changed.notify_all();
    });
    kept = std::make_unique<HttpReply>(std::move(reply));
    waiting = true;
    changed.notify_all();
  });
  {
    Client client(server->ports()[0]);
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return waiting; });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return gone; });
  EXPECT_TRUE(gone);
}

TEST(HttpServer, AShutdownFinishesWhatIsInFlight) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_ptr<HttpReply> kept;
  const auto server = serve([&](HttpRequest&&, HttpReply reply) {
    const std::lock_guard lock(mutex);
    kept = std::make_unique<HttpReply>(std::move(reply));
    changed.notify_all();
  });
  const uint16_t port = server->ports()[0];
  Client idle(port);
  Client client(port);
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return kept != nullptr; });
  }
  std::thread stopping([&] { server->shutdown(); });
  EXPECT_EQ(idle.read_all(), "");  // It has begun.
  EXPECT_FALSE(Client(port).connected());
  kept->send({.status = 200, .body = "late"});
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("late"), std::string::npos);
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  stopping.join();
}

TEST(HttpServer, TimersFireInTheirOrderAndCancelledOnesDoNot) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> fired;
  const auto server = serve(echo);
  const auto note = [&](int number) {
    const std::lock_guard lock(mutex);
    fired.push_back(number);
    changed.notify_all();
  };
  server->run_after(milliseconds(40), [&] { note(3); });
  const HttpTimer cancelled = server->run_after(milliseconds(20), [&] { note(2); });
  server->run_after(milliseconds(1), [&] { note(1); });
  server->cancel(cancelled);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !fired.empty() && fired.back() == 3; });
  EXPECT_EQ(fired, (std::vector<int>{1, 3}));
}

TEST(HttpServer, AnAddressInUseIsAnError) {
  const auto server = serve(echo);
  const auto second = HttpServer::start({}, {{.port = server->ports()[0], .handler = echo}});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kLocked);
}

}  // namespace
}  // namespace gpusched::api
