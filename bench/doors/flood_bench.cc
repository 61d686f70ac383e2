// rooms: bench_load
//
// Durable submissions by REST with an API key, alone and beside a flood of wrong credentials from the same
// address, in turns. The flood is paced; what it costs the scheduler is measured by itself, too.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "load/load.h"

namespace gpusched::bench {
namespace {

constexpr int kFloodConnections = 32;

/// Sends wrong credentials at a steady rate over keep-alive connections until it is destroyed.
class Flood {
 public:
  Flood(uint16_t port, int per_second) : port_(port), per_second_(per_second), thread_([this] { run(); }) {}
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  int64_t answered() const { return answered_; }
  int64_t unseen() const { return unseen_; }  ///< Answered with 429, without a look at the credential.

 private:
  struct Connection {
    int socket = -1;
    bool waits = false;
    std::string text;
  };

  int connect_one() const {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    expect(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "cannot connect");
    const int one = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return socket;
  }

  void send_one(Connection& connection) {
    const std::string secret = text_of("%064lld", static_cast<long long>(++sent_));
    const std::string request =
        "GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer gsk_zzzzzzzzzzzz." + secret +
        "\r\n\r\n";
    expect(::send(connection.socket, request.data(), request.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(request.size()),
           "the flood is not taken");
    connection.waits = true;
  }

  void receive(Connection& connection) {
    std::array<char, 4'096> buffer;
    const ssize_t size = ::recv(connection.socket, buffer.data(), buffer.size(), 0);
    expect(size > 0, "the flood's connection was closed");
    connection.text.append(buffer.data(), static_cast<std::size_t>(size));
    const std::size_t head = connection.text.find("\r\n\r\n");
    const std::size_t length = connection.text.find("Content-Length: ");
    if (head == std::string::npos || length > head) return;
    const auto body = static_cast<std::size_t>(std::atoi(connection.text.c_str() + length + 16));
    if (connection.text.size() < head + 4 + body) return;
    ++answered_;
    if (connection.text.starts_with("HTTP/1.1 429 ")) ++unseen_;
    connection.text.clear();
    connection.waits = false;
  }

  void run() {
    std::array<Connection, kFloodConnections> connections;
    std::array<pollfd, kFloodConnections> polled;
    for (std::size_t i = 0; i < connections.size(); ++i) {
      connections[i].socket = connect_one();
      polled[i] = {.fd = connections[i].socket, .events = POLLIN, .revents = 0};
    }
    const int64_t begin = now_ns();
    while (!stop_) {
      const auto due = static_cast<int64_t>(seconds_between(begin, now_ns()) * per_second_);
      for (Connection& connection : connections) {
        if (sent_ < due && !connection.waits) send_one(connection);
      }
      ::poll(polled.data(), polled.size(), 1);
      for (std::size_t i = 0; i < connections.size(); ++i) {
        if (polled[i].revents != 0) receive(connections[i]);
      }
    }
    for (const Connection& connection : connections) ::close(connection.socket);
  }

  const uint16_t port_;
  const int per_second_;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> answered_ = 0, unseen_ = 0;
  int64_t sent_ = 0;
  std::thread thread_;
};

struct Side {
  const char* name;
  int per_second;
  std::vector<double> rates = {}, p50s = {}, p99s = {}, floods = {}, unseen = {};

  void round(Scheduler& scheduler, const std::string& key, int64_t requests, int connections) {
    const int64_t begin = now_ns();
    Flood flood(scheduler.http_port(), per_second);
    const LoadResult result = run_rest_load({.port = scheduler.http_port(),
                                             .connections = connections,
                                             .requests = requests,
                                             .certificate = {},
                                             .token = key});
    const double took = seconds_between(begin, now_ns());
    print_round(name, result);
    rates.push_back(result.requests_per_second());
    p50s.push_back(result.latency.percentile_ms(0.5));
    p99s.push_back(result.latency.percentile_ms(0.99));
    floods.push_back(static_cast<double>(flood.answered()) / took);
    unseen.push_back(static_cast<double>(flood.unseen()) / took);
  }
};

int run(int rounds, int64_t requests, int connections, int per_second) {
  const WorkFolder folder;
  print_head(folder.path());
  Scheduler scheduler(folder.path());
  const std::string key =
      scheduler.post("/v1/keys", R"({"name":"good","roles":[{"role":"user"}]})")["secret"].text();
  print_line("sizes",
             text_of("%d connections (requests in flight) of the good caller; %d wrong credentials a second "
                     "on %d others",
                     connections, per_second, kFloodConnections));
  Side alone{"alone", 0}, flooded{"flooded", per_second};
  Side(alone).round(scheduler, key, requests / 10, connections);  // Warms up.
  for (int round = 0; round < rounds; ++round) {
    alone.round(scheduler, key, requests, connections);
    flooded.round(scheduler, key, requests, connections);
  }
  print_line(
      "figure",
      text_of("%.0f submissions/s alone, p50 %.2f ms, p99 %.2f ms; %.0f beside %.0f wrong credentials/s, of "
              "which %.0f unseen: %.2f of it, p50 %.2f ms, p99 %.2f ms; medians of %d rounds of %lld",
              median(alone.rates), median(alone.p50s), median(alone.p99s), median(flooded.rates),
              median(flooded.floods), median(flooded.unseen), median(flooded.rates) / median(alone.rates),
              median(flooded.p50s), median(flooded.p99s), rounds, static_cast<long long>(requests)));
  const double before = scheduler.process().cpu_seconds();
  const int64_t begin = now_ns();
  int64_t answered = 0;
  {
    const Flood flood(scheduler.http_port(), per_second);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    answered = flood.answered();
  }
  const double cpu = scheduler.process().cpu_seconds() - before;
  print_line("",
             text_of("by itself: %.0f wrong credentials/s cost the scheduler %.2f of a core, %.1f us each",
                     static_cast<double>(answered) / seconds_between(begin, now_ns()),
                     cpu / seconds_between(begin, now_ns()), cpu * 1e6 / static_cast<double>(answered)));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// flood_bench [ROUNDS [REQUESTS [CONNECTIONS [WRONG_A_SECOND]]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atoll(argv[2]) : 100'000,
                              argc > 3 ? std::atoi(argv[3]) : 64, argc > 4 ? std::atoi(argv[4]) : 10'000);
}
