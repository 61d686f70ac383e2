#include "api/grpc/agent_socket.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "log/log.h"

namespace gpusched::api {
namespace {

constexpr int kBacklog = 64;
constexpr int kPauseMs = 100;  ///< While the process has no file left for another connection.

Error failed(const std::string& path, const char* what) {
  return {.code = ErrorCode::kIo,
          .message = "cannot listen on the Unix socket " + path + ": " + what + ": " + std::strerror(errno)};
}

}  // namespace

bool may_come_without_token(const sign::PeerCredential& peer) {
  if (peer.uid == 0) return true;
  // In a user namespace that lacks users, all of these have the number of one that it has.
  const bool is_one_user = !sign::is_overflow_uid(peer.uid) || sign::sees_all_users();
  return is_one_user && peer.uid == ::geteuid();
}

/// So gRPC calls a connection that it was given; those that it accepted are "ipv4:..." or "ipv6:...".
bool is_of_agent_socket(std::string_view grpc_peer) { return grpc_peer.starts_with("fd:"); }

Result<Unit> AgentSocket::start() {
  listener_ = file_->take_descriptor();
  stop_event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_event_ < 0) return failed(file_->path(), "eventfd");
  if (::listen(listener_, kBacklog) != 0) return failed(file_->path(), "listen");
  thread_ = std::thread([this] { run(); });
  return Unit{};
}

void AgentSocket::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = ::write(stop_event_, &one, sizeof one);
    thread_.join();
  }
  for (int* const descriptor : {&listener_, &stop_event_}) {
    if (*descriptor >= 0) ::close(std::exchange(*descriptor, -1));
  }
  file_->remove();
}

void AgentSocket::run() {
  pthread_setname_np(pthread_self(), "api-agents");
  pollfd watched[] = {{.fd = stop_event_, .events = POLLIN, .revents = 0},
                      {.fd = listener_, .events = POLLIN, .revents = 0}};
  while (true) {
    if (::poll(watched, 2, -1) < 0 && errno != EINTR) return;
    if (watched[0].revents != 0) return;
    if (watched[1].revents == 0) continue;
    accept_all();
    if (errno != EAGAIN && errno != EWOULDBLOCK) ::poll(watched, 1, kPauseMs);
  }
}

/// Leaves `errno` as what ended it.
void AgentSocket::accept_all() {
  while (true) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) return;
    const std::optional<sign::PeerCredential> peer = sign::read_peer_credential(connection);
    if (peer && may_come_without_token(*peer)) {
      take_(connection);
      continue;
    }
    log_event(LogLevel::kWarning, "scheduler", "agent_refused", {},
              {{"peer", "unix:" + (peer ? std::to_string(peer->uid) : std::string("unknown"))},
               {"code", "permission_denied"}});
    ::close(connection);
  }
}

}  // namespace gpusched::api
