#include "node/agent/metrics_port.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace gpusched {
namespace {

constexpr std::size_t kHeadBytesMax = 8'192;
constexpr auto kPatience = std::chrono::seconds(2);
constexpr int kStopLookMs = 100;

using Steady = std::chrono::steady_clock;

std::string response(std::string_view status, std::string_view more, std::string_view body) {
  std::string out = "HTTP/1.1 ";
  out.append(status).append("\r\nConnection: close\r\nContent-Length: ").append(std::to_string(body.size()));
  return out.append("\r\n").append(more).append("\r\n").append(body);
}

/// The value of a header, by its name in lower case; empty: not there.
std::string_view header(std::string_view head, std::string_view wanted) {
  for (std::size_t begin = head.find("\r\n"); begin != std::string_view::npos;) {
    begin += 2;
    const std::size_t end = head.find("\r\n", begin);
    const std::string_view line = head.substr(begin, end == std::string_view::npos ? end : end - begin);
    const std::size_t colon = line.find(':');
    const bool found =
        colon == wanted.size() && std::equal(wanted.begin(), wanted.end(), line.begin(), [](char a, char b) {
          return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
        });
    if (found) {
      std::string_view value = line.substr(colon + 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      return value;
    }
    begin = end;
  }
  return {};
}

bool is_token(std::string_view given, const std::string& token) {
  constexpr std::string_view kBearer = "Bearer ";
  if (!given.starts_with(kBearer)) return false;
  given.remove_prefix(kBearer.size());
  return given.size() == token.size() && sodium_memcmp(given.data(), token.data(), token.size()) == 0;
}

/// Whether it can be read, or written, before `until`.
bool wait_for(int descriptor, int16_t what, Steady::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Steady::now()).count();
  pollfd wanted{.fd = descriptor, .events = what, .revents = 0};
  return left > 0 && poll(&wanted, 1, static_cast<int>(left)) > 0;
}

std::string why_not(const MetricsPortOptions& options, const char* why) {
  return "cannot listen on " + options.address + ":" + std::to_string(options.port) + " for metrics: " + why +
         "; choose another --metrics-port or --metrics-address";
}

}  // namespace

Result<std::unique_ptr<MetricsPort>> MetricsPort::open(const MetricsPortOptions& options,
                                                       std::function<std::string()> text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown =
      getaddrinfo(options.address.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (unknown != 0) return Error{ErrorCode::kInvalidArgument, why_not(options, gai_strerror(unknown))};
  const int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool bound = listener >= 0 && bind(listener, found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!bound || listen(listener, 16) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    const int error = errno;
    if (listener >= 0) close(listener);
    return Error{error == EADDRINUSE ? ErrorCode::kLocked : ErrorCode::kIo,
                 why_not(options, std::strerror(error))};
  }
  std::array<char, 16> port{};
  getnameinfo(reinterpret_cast<sockaddr*>(&own), size, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV);
  const auto number = static_cast<uint16_t>(std::stoi(port.data()));
  return std::unique_ptr<MetricsPort>(new MetricsPort(listener, number, options.token, std::move(text)));
}

MetricsPort::MetricsPort(int listener, uint16_t port, std::string token, std::function<std::string()> text)
    : listener_(listener), port_(port), token_(std::move(token)), text_(std::move(text)) {
  thread_ = std::thread([this] { run(); });
}

MetricsPort::~MetricsPort() {
  stopping_ = true;
  thread_.join();
  close(listener_);
}

void MetricsPort::run() {
  pthread_setname_np(pthread_self(), "metrics");
  while (!stopping_) {
    pollfd wanted{.fd = listener_, .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, kStopLookMs) <= 0) continue;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kStopLookMs));  // No descriptor is left, perhaps.
      continue;
    }
    serve(connection);
    close(connection);
  }
}

void MetricsPort::serve(int connection) const {
  const Steady::time_point until = Steady::now() + kPatience;
  std::string head;
  std::array<char, 2'048> piece;
  while (head.find("\r\n\r\n") == std::string::npos) {
    if (head.size() > kHeadBytesMax || !wait_for(connection, POLLIN, until)) return;
    const ssize_t size = recv(connection, piece.data(), piece.size(), 0);
    if (size <= 0) return;
    head.append(piece.data(), static_cast<std::size_t>(size));
  }
  const std::string answer = answer_to(std::string_view(head).substr(0, head.find("\r\n\r\n")));
  for (std::size_t sent = 0; sent < answer.size();) {
    if (!wait_for(connection, POLLOUT, until)) return;
    const ssize_t size = send(connection, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
    if (size <= 0) return;
    sent += static_cast<std::size_t>(size);
  }
  // Bytes that the client sent behind its request must not reset the answer on its way.
  shutdown(connection, SHUT_WR);
  while (wait_for(connection, POLLIN, until) && recv(connection, piece.data(), piece.size(), 0) > 0) {
  }
}

std::string MetricsPort::answer_to(std::string_view request) const {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  if (!line.ends_with(" HTTP/1.1") && !line.ends_with(" HTTP/1.0"))
    return response("400 Bad Request", "", "this is not an HTTP request\n");
  if (!token_.empty() && !is_token(header(request, "authorization"), token_)) {
    return response("401 Unauthorized", "WWW-Authenticate: Bearer\r\n",
                    "send the scheduler's shared token as a bearer token\n");
  }
  const bool head = line.starts_with("HEAD ");
  if (!head && !line.starts_with("GET ")) {
    return response("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "metrics support GET only\n");
  }
  std::string_view path = line.substr(head ? 5 : 4);
  path = path.substr(0, path.find_first_of(" ?"));
  if (path != "/metrics") return response("404 Not Found", "", "no such path; metrics are at /metrics\n");
  std::string answer =
      response("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", text_());
  if (head) answer.resize(answer.find("\r\n\r\n") + 4);
  return answer;
}

}  // namespace gpusched
