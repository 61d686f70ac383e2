#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

#include "load/load.h"
#include "sign/tls_trust.h"

namespace gpusched::bench {
namespace {

constexpr std::size_t kAnswerBytesMax = 4096;

struct Connection {
  int socket = -1;
  std::unique_ptr<sign::TlsChannel> tls = nullptr;  ///< None: plain.
  int64_t sent_at = 0;
  std::size_t used = 0;
  std::array<char, kAnswerBytesMax> buffer;
};

int connect_to(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  expect(socket >= 0, "no socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  expect(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "cannot connect");
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return socket;
}

/// On a socket that waits: one step is the whole handshake.
std::unique_ptr<sign::TlsChannel> shake_hands(int socket, const sign::TlsTrust& trust) {
  auto tls = trust.connect(socket, "127.0.0.1");
  expect(tls->handshake() == sign::TlsStep::kDone, "no handshake: " + tls->error());
  return tls;
}

void send_whole(Connection& connection, std::string_view bytes) {
  std::size_t taken = 0;
  if (connection.tls == nullptr) {
    const ssize_t size = ::send(connection.socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    taken = size > 0 ? static_cast<std::size_t>(size) : 0;
  } else {
    connection.tls->write(bytes.data(), bytes.size(), taken);
  }
  expect(taken == bytes.size(), "a request was not taken whole");
}

/// Reads once into the connection's buffer; false when nothing came, which TLS alone knows.
bool receive(Connection& connection) {
  char* const to = connection.buffer.data() + connection.used;
  const std::size_t room = connection.buffer.size() - connection.used;
  if (connection.tls == nullptr) {
    const ssize_t size = ::recv(connection.socket, to, room, 0);
    expect(size > 0, "the server closed a connection");
    connection.used += static_cast<std::size_t>(size);
    return true;
  }
  std::size_t size = 0;
  const sign::TlsStep step = connection.tls->read(to, room, size);
  expect(step == sign::TlsStep::kDone || step == sign::TlsStep::kWantRead, "the server closed a connection");
  if (step == sign::TlsStep::kDone) connection.used += size;
  return step == sign::TlsStep::kDone;
}

/// The number behind `key` in `text`; fails without one.
uint64_t number_behind(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  uint64_t number = 0;
  const bool found =
      at != std::string_view::npos &&
      std::from_chars(text.data() + at + key.size(), text.data() + text.size(), number).ec == std::errc{};
  expect(found, "an answer without " + std::string(key) + ": " + std::string(text));
  return number;
}

/// Bytes of a whole answer at the beginning of `text`, 0 while some are missing. Reads the job's id from it.
std::size_t take_answer(std::string_view text, uint64_t& job) {
  const std::size_t head = text.find("\r\n\r\n");
  if (head == std::string_view::npos) return 0;
  const std::size_t size = head + 4 + number_behind(text.substr(0, head), "Content-Length: ");
  if (text.size() < size) return 0;
  expect(text.starts_with("HTTP/1.1 201 "), "an answer that is not 201: " + std::string(text));
  job = number_behind(text.substr(head, size - head), "\"job_id\":\"job-");
  return size;
}

}  // namespace

std::string benchmark_job_json() {
  return R"({"name":"train-model","command":["/bin/true"],"args":["--epochs","20"],"labels":{"team":"research"}})";
}

LoadResult run_rest_load(const RestLoad& load) {
  const std::string body = benchmark_job_json();
  const std::string credential = load.token.empty() ? "" : "Authorization: Bearer " + load.token + "\r\n";
  const std::string request =
      "POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n" + credential +
      "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<Connection> connections(static_cast<std::size_t>(load.connections));
  std::shared_ptr<const sign::TlsTrust> trust;
  if (!load.certificate.empty()) {
    const auto made = sign::TlsTrust::of_server(load.certificate);
    expect(made.ok(), "no certificate");
    trust = *made;
  }
  for (Connection& connection : connections) {
    connection.socket = connect_to(load.port);
    if (trust != nullptr) {
      connection.tls = shake_hands(connection.socket, *trust);
      // Bytes behind a handshake are not an answer: a read must not wait for one.
      ::fcntl(connection.socket, F_SETFL, O_NONBLOCK);
    }
    epoll_event interest{.events = EPOLLIN, .data = {.ptr = &connection}};
    expect(::epoll_ctl(epoll, EPOLL_CTL_ADD, connection.socket, &interest) == 0, "epoll_ctl");
  }
  LoadResult result;
  result.jobs.reserve(static_cast<std::size_t>(load.requests));
  int64_t sent = 0;
  const auto send_next = [&](Connection& connection) {
    if (sent == load.requests) return;
    ++sent;
    connection.sent_at = now_ns();
    send_whole(connection, request);
  };
  const int64_t begin = now_ns();
  for (Connection& connection : connections) send_next(connection);
  std::array<epoll_event, 64> ready;
  while (static_cast<int64_t>(result.jobs.size()) < load.requests) {
    const int count = ::epoll_wait(epoll, ready.data(), static_cast<int>(ready.size()), 30'000);
    expect(count > 0, "no answer for 30 s");
    for (int i = 0; i < count; ++i) {
      Connection& connection = *static_cast<Connection*>(ready[static_cast<std::size_t>(i)].data.ptr);
      if (!receive(connection)) continue;
      uint64_t job = 0;
      if (take_answer({connection.buffer.data(), connection.used}, job) != connection.used) continue;
      connection.used = 0;
      result.latency.add(now_ns() - connection.sent_at);
      result.jobs.push_back(job);
      send_next(connection);
    }
  }
  result.seconds = seconds_between(begin, now_ns());
  for (const Connection& connection : connections) ::close(connection.socket);
  ::close(epoll);
  return result;
}

}  // namespace gpusched::bench
