#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"

namespace gpusched {

/// A small HTTP/1.1 server for tests of clients: each request goes to a function, and all are remembered. It
/// can also break connections, as real ones break. Loopback only.
class TestServer {
 public:
  struct Request {
    std::string method;
    std::string target;
    std::map<std::string, std::string> headers;  ///< Names in lower case.
    std::string body;
    int connection = 0;  ///< 1 for the first one accepted.
  };
  struct Reply {
    int status = 200;
    std::string body = {};
    std::vector<std::string> chunks = {};  ///< Given: the body is sent chunked, each piece as one chunk.
    bool hang_up = false;                  ///< Close instead of answering, or in the middle of the chunks.
    bool close_after = false;              ///< Close the connection behind the answer, without saying so.
    std::string raw = {};                  ///< Given: sent as it is instead of an answer.
    std::string headers = {};              ///< More header lines, each with its end.
  };
  using Handler = std::function<Reply(const Request&)>;

  explicit TestServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listener_ >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(::listen(listener_, 16) == 0);
    socklen_t size = sizeof address;
    CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;
  ~TestServer() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& server : servers_) server.join();
    ::close(listener_);
  }

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void accept_all() {
    for (int connection = 1;; ++connection) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const std::lock_guard lock(mutex_);
      open_.push_back(fd);
      servers_.emplace_back([this, fd, connection] { serve(fd, connection); });
    }
  }

  static bool send_all(int fd, std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  static bool receive(int fd, std::string& buffer) {
    std::array<char, 16384> piece;
    const ssize_t got = ::recv(fd, piece.data(), piece.size(), 0);
    if (got <= 0) return false;
    buffer.append(piece.data(), static_cast<size_t>(got));
    return true;
  }

  static bool read_request(int fd, std::string& buffer, Request& request) {
    while (buffer.find("\r\n\r\n") == std::string::npos) {
      if (!receive(fd, buffer)) return false;
    }
    const size_t head_end = buffer.find("\r\n\r\n");
    const std::string head = buffer.substr(0, head_end + 2);
    buffer.erase(0, head_end + 4);
    const size_t first_end = head.find("\r\n");
    const std::string first = head.substr(0, first_end);
    request.method = first.substr(0, first.find(' '));
    request.target = first.substr(first.find(' ') + 1, first.rfind(' ') - first.find(' ') - 1);
    for (size_t at = first_end + 2; at < head.size();) {
      const size_t end = head.find("\r\n", at);
      const size_t colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      std::ranges::transform(name, name.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      request.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    const auto length = request.headers.find("content-length");
    const size_t size = length == request.headers.end() ? 0 : std::stoul(length->second);
    while (buffer.size() < size) {
      if (!receive(fd, buffer)) return false;
    }
    request.body = buffer.substr(0, size);
    buffer.erase(0, size);
    return true;
  }

  static bool answer(int fd, const Reply& reply) {
    if (!reply.raw.empty()) return send_all(fd, reply.raw);
    const std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " Status\r\n" + reply.headers;
    if (reply.chunks.empty()) {
      return !reply.hang_up && send_all(fd, head + "Content-Length: " + std::to_string(reply.body.size()) +
                                                "\r\n\r\n" + reply.body);
    }
    if (!send_all(fd, head + "Transfer-Encoding: chunked\r\n\r\n")) return false;
    for (const std::string& chunk : reply.chunks) {
      std::array<char, 32> size;
      const int digits = std::snprintf(size.data(), size.size(), "%zx\r\n", chunk.size());
      if (!send_all(fd, std::string(size.data(), static_cast<size_t>(digits)) + chunk + "\r\n")) return false;
    }
    return !reply.hang_up && send_all(fd, "0\r\n\r\n");
  }

  void serve(int fd, int connection) {
    std::string buffer;
    for (;;) {
      Request request{.connection = connection};
      if (!read_request(fd, buffer, request)) break;
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const Reply reply = handler_(request);
      if (!answer(fd, reply)) break;
      if (!reply.close_after) continue;
      if (!reply.raw.empty()) await_end(fd);
      break;
    }
    const std::lock_guard lock(mutex_);
    std::erase(open_, fd);
    ::close(fd);
  }

  /// Takes in what still comes: closing before would take from the client what it has not read yet.
  static void await_end(int fd) {
    ::shutdown(fd, SHUT_WR);
    char piece[4096];
    while (::read(fd, piece, sizeof piece) > 0) {
    }
  }

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::thread acceptor_;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::vector<int> open_;
  std::vector<std::thread> servers_;
};

}  // namespace gpusched
