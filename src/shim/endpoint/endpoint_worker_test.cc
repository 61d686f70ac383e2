// The worker between a shim and an endpoint, both played by the test.
#include "shim/endpoint/endpoint_worker.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace gpusched::shim {
namespace {

constexpr int kPatienceMs = 20'000;

std::string answer_of(const std::string& status, const std::string& body = "") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// A server on loopback: each connection's request is answered as `respond` says; an empty answer is none,
/// and the connection stays until its client closes it.
class Server {
 public:
  using Respond = std::function<std::string(const std::string& request)>;

  explicit Server(Respond respond) : respond_(std::move(respond)) {
    sockaddr_in place{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof place;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size), 0);
    port_ = ntohs(place.sin_port);
  }
  ~Server() {
    shutdown(listener_, SHUT_RDWR);
    if (accepter_.joinable()) accepter_.join();
    close(listener_);
    for (std::thread& thread : threads_) thread.join();
  }
  /// Before it, nobody listens.
  void begin() {
    EXPECT_EQ(listen(listener_, 64), 0);
    accepter_ = std::thread([this] {
      while (true) {
        const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) return;
        threads_.emplace_back([this, client] { serve(client); });
      }
    });
  }

  std::string url(const std::string& path = "/v1/run") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  std::atomic<int> open = 0;    ///< Requests that have no answer yet.
  std::atomic<int> most = 0;    ///< At once.
  std::atomic<int> closed = 0;  ///< Connections that their clients closed without an answer.

 private:
  void serve(int client) {
    std::string request;
    std::array<char, 4096> buffer;
    while (!is_whole(request)) {
      const ssize_t size = recv(client, buffer.data(), buffer.size(), 0);
      if (size <= 0) break;
      request.append(buffer.data(), static_cast<std::size_t>(size));
    }
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    most = std::max<int>(most, ++open);
    const std::string answer = respond_(request);
    --open;
    if (answer.empty()) {
      while (recv(client, buffer.data(), buffer.size(), 0) > 0) {
      }
      ++closed;
    } else {
      send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
    close(client);
  }

  static bool is_whole(const std::string& request) {
    const std::size_t head = request.find("\r\n\r\n");
    if (head == std::string::npos) return false;
    const std::size_t at = request.find("Content-Length: ");
    return at == std::string::npos || request.size() >= head + 4 + std::stoul(request.substr(at + 16));
  }

  const Respond respond_;
  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
  std::thread accepter_;
  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
};

/// The shim's side of a worker that runs in a thread.
class Worker {
 public:
  explicit Worker(const Endpoint& endpoint, uint32_t tasks_max = 8) {
    std::array<int, 2> pair{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
    frames_ = pair[0];
    theirs_ = pair[1];
    thread_ =
        std::thread([this, endpoint, tasks_max] { code_ = serve_endpoint(theirs_, endpoint, tasks_max); });
    EXPECT_EQ(frame(), "ready " + std::to_string(tasks_max) + " cancel health");
  }
  ~Worker() { end(); }
  int end() {
    if (!thread_.joinable()) return code_;
    shutdown(frames_, SHUT_RDWR);
    thread_.join();
    close(frames_);
    close(theirs_);
    return code_;
  }

  void give(const std::string& text) {
    const auto size = static_cast<uint32_t>(text.size());
    std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
    bytes += text;
    ASSERT_EQ(send(frames_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void task(const std::string& id, const std::string& payload = "{}") {
    give("{\"id\":\"" + id + "\",\"job\":\"job-1\",\"environment\":{}}\n" + payload);
  }
  /// Empty: none came in time.
  std::string frame() {
    uint32_t size = 0;
    if (!read(reinterpret_cast<char*>(&size), sizeof size)) return "";
    std::string text(size, '\0');
    return read(text.data(), text.size()) ? text : "";
  }

 private:
  bool read(char* to, std::size_t size) {
    while (size > 0) {
      pollfd source{.fd = frames_, .events = POLLIN, .revents = 0};
      if (poll(&source, 1, kPatienceMs) <= 0) return false;
      const ssize_t got = recv(frames_, to, size, 0);
      if (got <= 0) return false;
      to += got;
      size -= static_cast<std::size_t>(got);
    }
    return true;
  }

  int frames_ = -1;
  int theirs_ = -1;
  std::atomic<int> code_ = -1;
  std::thread thread_;
};

bool is_check(const std::string& request) { return request.starts_with("GET /health HTTP/1.1\r\n"); }

void wait_for(const std::function<bool()>& good) {
  for (int i = 0; i < kPatienceMs / 10 && !good(); ++i) poll(nullptr, 0, 10);
  EXPECT_TRUE(good());
}

TEST(EndpointWorker, APayloadIsTheRequestAndTheAnswerTheResult) {
  Server server([](const std::string& request) {
    return is_check(request) ? answer_of("200 OK") : answer_of("200 OK", "{\"a\":1}\nb");
  });
  server.begin();
  Worker worker({.url = server.url("/v1/run?x=y"), .health_path = "/health"});
  worker.task("12-1-0", "{\"prompt\":\"hi\"}\nthere");
  EXPECT_EQ(worker.frame(), "12-1-0 0\n{\"a\":1}\nb");
  worker.task("13-1-0", "");
  EXPECT_EQ(worker.frame(), "13-1-0 0\n{\"a\":1}\nb");
  const std::vector<std::string> requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);  // It was healthy a moment ago.
  EXPECT_TRUE(is_check(requests[0]));
  EXPECT_TRUE(requests[1].starts_with("POST /v1/run?x=y HTTP/1.1\r\nHost: 127.0.0.1:")) << requests[1];
  EXPECT_NE(requests[1].find("\r\nContent-Type: application/json\r\n"), std::string::npos);
  EXPECT_NE(requests[1].find("\r\nX-Request-Id: 12-1-0\r\n"), std::string::npos);
  EXPECT_TRUE(requests[1].ends_with("\r\nContent-Length: 21\r\n\r\n{\"prompt\":\"hi\"}\nthere"))
      << requests[1];
  EXPECT_TRUE(requests[2].ends_with("\r\nContent-Length: 0\r\n\r\n"));
  worker.give("{\"check\":7}\n");
  EXPECT_EQ(worker.frame(), "healthy 7");
  EXPECT_EQ(worker.end(), 0);
}

TEST(EndpointWorker, AStatusThatIsNoSuccessFailsTheTask) {
  Server server([](const std::string& request) {
    if (request.find("moved") != std::string::npos)
      return std::string("HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n");
    return answer_of("404 Not Found", "no such model");
  });
  server.begin();
  Worker worker({.url = server.url()});
  worker.task("12-1-0");
  EXPECT_EQ(worker.frame(), "12-1-0 1 the endpoint answered 404 Not Found\nno such model");
  worker.task("13-1-0", "moved");
  EXPECT_EQ(worker.frame(), "13-1-0 1 the endpoint answered 302 Found\n");
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST(EndpointWorker, WhatMayPassIsTriedAgainAndNotForEver) {
  std::atomic<int> tries = 0;
  Server server([&tries](const std::string& request) {
    if (request.find("never") != std::string::npos) return answer_of("503 Busy", "later");
    return ++tries < 2 ? answer_of("500 Oh") : answer_of("200 OK", "done");
  });
  server.begin();
  Worker worker({.url = server.url(), .retries = 1});
  worker.task("12-1-0");
  EXPECT_EQ(worker.frame(), "12-1-0 0\ndone");
  EXPECT_EQ(tries, 2);
  worker.task("13-1-0", "never");
  EXPECT_EQ(worker.frame(), "13-1-0 1 the endpoint answered 503 Busy (2 tries)\nlater");
}

TEST(EndpointWorker, AnEndpointThatIsNotThereIsTriedAgain) {
  Server server([](const std::string&) { return answer_of("200 OK", "here"); });
  Worker worker({.url = server.url(), .retries = 1});
  worker.task("12-1-0");
  poll(nullptr, 0, 100);
  server.begin();
  EXPECT_EQ(worker.frame(), "12-1-0 0\nhere");
  const std::string gone = Server([](const std::string&) { return ""; }).url();
  Worker other({.url = gone, .retries = 0});
  other.task("13-1-0");
  EXPECT_EQ(other.frame(), "13-1-0 1 the endpoint failed: cannot connect: Connection refused\n");
}

TEST(EndpointWorker, OneThatNeverAnswersIsLeftAfterItsTime) {
  Server server([](const std::string&) { return ""; });
  server.begin();
  Worker worker({.url = server.url(), .timeout = milliseconds(200)});
  worker.task("12-1-0");
  EXPECT_EQ(worker.frame(), "12-1-0 1 the endpoint is too slow: it did not answer within 200 ms\n");
  wait_for([&server] { return server.closed == 1; });
  EXPECT_EQ(server.requests().size(), 1u);  // Its time is not spent twice.
}

TEST(EndpointWorker, ATaskThatIsCancelledClosesItsConnection) {
  Server server([](const std::string&) { return ""; });
  server.begin();
  Worker worker({.url = server.url()});
  worker.task("12-1-0");
  worker.task("13-1-0");
  wait_for([&server] { return server.requests().size() == 2; });
  worker.give("{\"cancel\":\"12-1-0\"}\n");
  EXPECT_EQ(worker.frame(), "12-1-0 1 cancelled\n");
  wait_for([&server] { return server.closed == 1; });
  worker.give("{\"cancel\":\"99-1-0\"}\n");  // It has no such task.
  EXPECT_EQ(worker.end(), 0);
  wait_for([&server] { return server.closed == 2; });
}

TEST(EndpointWorker, TasksWaitUntilTheEndpointIsHealthy) {
  std::atomic<bool> healthy = false;
  Server server([&healthy](const std::string& request) {
    if (is_check(request)) return healthy ? answer_of("200 OK") : answer_of("503 Loading");
    return answer_of("200 OK", healthy ? "done" : "too early");
  });
  server.begin();
  Worker worker({.url = server.url(), .health_path = "/health", .patience = seconds(20)});
  worker.task("12-1-0");
  worker.task("13-1-0");
  poll(nullptr, 0, 300);
  for (const std::string& request : server.requests()) EXPECT_TRUE(is_check(request)) << request;
  healthy = true;
  const std::set<std::string> answers = {worker.frame(), worker.frame()};
  EXPECT_EQ(answers, (std::set<std::string>{"12-1-0 0\ndone", "13-1-0 0\ndone"}));
  healthy = false;
  Worker hasty({.url = server.url(), .health_path = "/health", .patience = {}});
  hasty.task("14-1-0");
  EXPECT_EQ(hasty.frame(),
            "14-1-0 1 the endpoint was not healthy within 0 s: GET /health: it answered 503 Loading\n");
}

TEST(EndpointWorker, ManyTasksAreUnderWayAtOnce) {
  std::atomic<bool> gate = false;
  Server server([&gate](const std::string&) {
    while (!gate) poll(nullptr, 0, 5);
    return answer_of("200 OK");
  });
  server.begin();
  Worker worker({.url = server.url()}, 64);
  for (int i = 1; i <= 64; ++i) worker.task(std::to_string(i) + "-1-0");
  wait_for([&server] { return server.open == 64; });
  gate = true;
  for (int i = 1; i <= 64; ++i) EXPECT_TRUE(worker.frame().ends_with("-1-0 0\n"));
}

TEST(EndpointWorker, AnAnswerThatIsNoneOrTooLargeFailsTheTask) {
  Server server([](const std::string& request) {
    if (request.find("large") != std::string::npos)
      return std::string("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx");
    return request.find("short") != std::string::npos
               ? std::string("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
               : std::string("hello\r\n");
  });
  server.begin();
  Worker worker({.url = server.url(), .retries = 0});
  worker.task("12-1-0", "large");
  EXPECT_EQ(worker.frame(), "12-1-0 1 the endpoint failed: the body of its answer is too large\n");
  worker.task("13-1-0", "short");
  EXPECT_EQ(worker.frame(), "13-1-0 1 the endpoint failed: it closed the connection within its answer\n");
  worker.task("14-1-0");
  EXPECT_EQ(worker.frame(), "14-1-0 1 the endpoint failed: what it said is no HTTP\n");
}

TEST(EndpointWorker, WhatIsNoFrameEndsIt) {
  Worker worker({.url = "http://127.0.0.1:1/"});
  worker.give("hello\n");
  EXPECT_EQ(worker.end(), 1);
}

}  // namespace
}  // namespace gpusched::shim
