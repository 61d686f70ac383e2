#include "node/endpoints/probe_call.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/errors.h"

namespace gpusched {
namespace {

constexpr std::size_t kPieceBytes = 4'096;
constexpr std::size_t kBodyBytesMax = 0;  // The status is what counts.

std::string no_connection(int error) {
  errno = error;
  return "no connection to it: " + errno_words();
}

}  // namespace

std::optional<std::string> judge_http_answer(const shim::HttpAnswer& answer) {
  if (answer.status() >= 200 && answer.status() < 400) return "";
  if (answer.status() != 0) return "it answered with HTTP status " + std::to_string(answer.status());
  if (answer.state() == shim::HttpAnswer::State::kMalformed) return "its answer is not HTTP";
  return std::nullopt;
}

ProbeCall::ProbeCall(const ReadyProbe& probe, uint32_t port) : path_(probe.path), answer_(kBodyBytesMax) {
  if (!path_.empty()) {
    request_ = "GET " + path_ + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
               "\r\nUser-Agent: gpu-agent\r\nAccept: */*\r\nConnection: close\r\n\r\n";
  }
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool begun =
      socket_ >= 0 && (connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0 ||
                       errno == EINPROGRESS);
  if (!begun) failed_ = no_connection(errno);
}

ProbeCall::~ProbeCall() {
  if (socket_ >= 0) close(socket_);
}

short ProbeCall::events() const { return step_ == Step::kRead ? POLLIN : POLLOUT; }

std::optional<std::string> ProbeCall::advance() {
  if (!failed_.empty()) return failed_;
  if (step_ == Step::kConnect) {
    if (std::optional<std::string> answer = connected()) return answer;
  }
  if (step_ == Step::kSend) {
    if (std::optional<std::string> answer = send_rest()) return answer;
  }
  return step_ == Step::kRead ? read_some() : std::nullopt;
}

std::optional<std::string> ProbeCall::connected() {
  pollfd source{.fd = socket_, .events = POLLOUT, .revents = 0};
  if (poll(&source, 1, 0) <= 0) return std::nullopt;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return no_connection(error);
  if (path_.empty()) return "";
  step_ = Step::kSend;
  return std::nullopt;
}

std::optional<std::string> ProbeCall::send_rest() {
  while (sent_ < request_.size()) {
    const ssize_t size = send(socket_, request_.data() + sent_, request_.size() - sent_, MSG_NOSIGNAL);
    if (size < 0 && errno == EAGAIN) return std::nullopt;
    if (size < 0) return "it took no request: " + errno_words();
    sent_ += static_cast<std::size_t>(size);
  }
  step_ = Step::kRead;
  return std::nullopt;
}

std::optional<std::string> ProbeCall::read_some() {
  std::array<char, kPieceBytes> bytes{};
  const ssize_t size = recv(socket_, bytes.data(), bytes.size(), 0);
  if (size < 0 && errno == EAGAIN) return std::nullopt;
  if (size < 0) return "it gave no answer: " + errno_words();
  if (size == 0) return "it closed the connection without an answer";
  answer_.add({bytes.data(), static_cast<std::size_t>(size)});
  return judge_http_answer(answer_);
}

}  // namespace gpusched
