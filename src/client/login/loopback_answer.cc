#include "client/login/loopback_answer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "base/text/single_value.h"

namespace gpusched::login {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::string_view kPath = "/callback";
constexpr std::size_t kHeadBytesMax = 16 << 10;
constexpr std::size_t kConnectionsMax = 16;  ///< Browsers open some that they do not use.
constexpr int kSendPatienceMs = 1'000;

struct Connection {
  int socket = -1;
  std::string head;
};

void send_page(int socket, int status, std::string_view text) {
  const std::string body =
      "<!doctype html><meta charset=utf-8><title>gpu-cli</title><p>" + std::string(text) + "\n";
  const std::string whole = "HTTP/1.1 " + std::to_string(status) + (status == 200 ? " OK" : " Not Found") +
                            "\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
                            "Referrer-Policy: no-referrer\r\nConnection: close\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n" + body;
  pollfd source{.fd = socket, .events = POLLOUT, .revents = 0};
  if (::poll(&source, 1, kSendPatienceMs) == 1) {
    [[maybe_unused]] const ssize_t sent =
        ::send(socket, whole.data(), whole.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ::shutdown(socket, SHUT_WR);
}

/// The query of a GET of our path; nothing: it is another request.
std::optional<std::string> query_of(std::string_view head) {
  if (!head.starts_with("GET ")) return std::nullopt;
  head.remove_prefix(4);
  const std::string_view target = head.substr(0, head.find_first_of(" \r\n"));
  const std::size_t mark = target.find('?');
  if (target.substr(0, mark) != kPath) return std::nullopt;
  return mark == std::string_view::npos ? std::string() : std::string(target.substr(mark + 1));
}

/// Reads what has come. False: the connection is of no use any more.
bool read_some(Connection& connection) {
  std::array<char, 4096> piece;
  const ssize_t size = ::recv(connection.socket, piece.data(), piece.size(), MSG_DONTWAIT);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  connection.head.append(piece.data(), static_cast<std::size_t>(size));
  return connection.head.size() <= kHeadBytesMax;
}

class Callers {
 public:
  Callers() = default;
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;
  ~Callers() {
    for (const Connection& one : all_) ::close(one.socket);
  }

  /// One round: the query that ends the waiting, or nothing.
  std::optional<std::string> turn(int listener, int patience_ms) {
    std::vector<pollfd> sources{{.fd = listener, .events = POLLIN, .revents = 0}};
    for (const Connection& one : all_) sources.push_back({.fd = one.socket, .events = POLLIN, .revents = 0});
    if (::poll(sources.data(), sources.size(), patience_ms) <= 0) return std::nullopt;
    for (std::size_t i = all_.size(); i-- > 0;) {
      if (sources[i + 1].revents == 0) continue;
      bool stays = read_some(all_[i]);
      if (stays && all_[i].head.find("\r\n\r\n") != std::string::npos) {
        if (std::optional<std::string> query = query_of(all_[i].head)) {
          send_page(all_[i].socket, 200,
                    "gpu-cli has the provider's answer. Go on in the terminal; this page can be closed.");
          return query;
        }
        send_page(all_[i].socket, 404, "There is nothing here.");
        stays = false;
      }
      if (!stays) drop(i);
    }
    if (sources[0].revents != 0) add(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    return std::nullopt;
  }

 private:
  void add(int socket) {
    if (socket < 0) return;
    if (all_.size() == kConnectionsMax) drop(0);  // The oldest has had the longest time.
    all_.push_back({.socket = socket, .head = {}});
  }
  void drop(std::size_t at) {
    ::close(all_[at].socket);
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  std::vector<Connection> all_;
};

}  // namespace

Result<LoopbackAnswer> LoopbackAnswer::open() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool listens = listener >= 0 &&
                       ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                       ::listen(listener, static_cast<int>(kConnectionsMax)) == 0 &&
                       ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (listens) return LoopbackAnswer(listener, ntohs(address.sin_port));
  const Error error = io_error("cannot listen on 127.0.0.1 for the browser's answer");
  if (listener >= 0) ::close(listener);
  return error;
}

LoopbackAnswer::~LoopbackAnswer() {
  if (listener_ >= 0) ::close(listener_);
}

std::string LoopbackAnswer::redirect_uri() const {
  return "http://127.0.0.1:" + std::to_string(port_) + std::string(kPath);
}

Result<Form> LoopbackAnswer::wait(Duration patience) {
  const auto deadline = SteadyClock::now() + std::chrono::nanoseconds(patience.ns);
  Callers callers;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
    if (left <= 0)
      return Error{
          .code = ErrorCode::kTimeout,
          .message = "no browser brought the provider's answer in time; log in again with gpu-cli login"};
    if (const auto query = callers.turn(listener_, static_cast<int>(std::min<int64_t>(left, 1'000))))
      return parse_form(*query);
  }
}

Result<std::string> code_of(const Form& answer, const std::string& state, const std::string& issuer) {
  const auto refused = [](ErrorCode code, const std::string& why) {
    return Error{.code = code, .message = why + "; nothing is kept, log in again with gpu-cli login"};
  };
  if (single_value(answer, "state") != std::optional<std::string_view>(state))
    return refused(ErrorCode::kUnauthenticated,
                   "what the browser brought is not the answer to this login (its state is not the one that "
                   "was sent)");
  const std::optional<std::string_view> from = single_value(answer, "iss");
  if (from && *from != issuer)
    return refused(ErrorCode::kUnauthenticated, "what the browser brought is another provider's answer");
  if (const std::optional<std::string_view> error = single_value(answer, "error")) {
    std::string word(error->substr(0, 64));
    std::ranges::replace_if(word, [](char c) { return c < ' ' || c >= '\x7f'; }, '?');
    return refused(ErrorCode::kPermissionDenied, word == "access_denied"
                                                     ? "the login was denied at the provider"
                                                     : "the provider refuses the login: " + word);
  }
  const std::optional<std::string_view> code = single_value(answer, "code");
  if (!code || code->empty() || code->size() > 4'096)
    return refused(ErrorCode::kUnauthenticated, "the provider's answer has no code");
  return std::string(*code);
}

}  // namespace gpusched::login
