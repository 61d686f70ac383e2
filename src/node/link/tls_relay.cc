#include "node/link/tls_relay.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"

namespace gpusched {
namespace {

using sign::TlsStep;

constexpr Duration kSecurePatience = seconds(10);  ///< For a connection with its handshake.
constexpr std::size_t kWayBytes = 16 * 1024;       // One record of TLS.

int64_t relay_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

Error relay_trouble(std::string why) { return {.code = ErrorCode::kUnavailable, .message = std::move(why)}; }

}  // namespace

/// What is on its way in one direction.
struct TlsRelay::Way {
  std::array<char, kWayBytes> bytes;
  std::size_t from = 0, until = 0;

  bool empty() const { return from == until; }
  void filled(std::size_t count) {
    from = 0;
    until = count;
  }
  void taken(std::size_t count) { from += count; }
  const char* data() const { return bytes.data() + from; }
  std::size_t size() const { return until - from; }
};

Result<std::shared_ptr<const sign::TlsTrust>> LinkTls::trust() const {
  if (!fingerprint.empty()) return sign::TlsTrust::of_fingerprint(fingerprint);
  if (!ca_file.empty()) return sign::TlsTrust::of_file(ca_file);
  return sign::TlsTrust::of_system();
}

Result<LinkTls> link_tls_of(bool on, const std::string& ca_file, const std::string& ca) {
  if (!ca_file.empty() && !ca.empty())
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "give either --ca-file or --ca: the agent believes one of them"};
  LinkTls tls{.on = on || !ca_file.empty() || !ca.empty(), .ca_file = ca_file, .fingerprint = ca};
  if (ca.empty()) return tls;
  const Result<std::string> digits = sign::parse_fingerprint(ca);
  if (digits) return tls;
  return Error{.code = ErrorCode::kInvalidArgument, .message = "--ca: " + digits.error().message};
}

TlsRelay::TlsRelay(Address scheduler, LinkTls tls, int end)
    : scheduler_(std::move(scheduler)),
      tls_(std::move(tls)),
      end_(end),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(stop_event_ >= 0);
}

TlsRelay::~TlsRelay() {
  close(end_);
  close(stop_event_);
}

std::shared_ptr<TlsRelay> TlsRelay::start(const Address& scheduler, const LinkTls& tls, int& grpc_end) {
  int ends[2];
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  grpc_end = ends[1];
  std::shared_ptr<TlsRelay> relay(new TlsRelay(scheduler, tls, ends[0]));
  // Detached: a name server that does not answer must not hold up the agent's end.
  std::thread([relay] { relay->run(); }).detach();
  return relay;
}

std::string TlsRelay::why() {
  const std::lock_guard lock(mutex_);
  return trouble_ ? trouble_->message : std::string();
}

void TlsRelay::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(stop_event_, &one, sizeof one);
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.wait(lock, [this] { return !busy_; });
}

bool TlsRelay::may_begin() {
  const std::lock_guard lock(mutex_);
  busy_ = !stopping_;
  return busy_;
}

void TlsRelay::run() {
  const Result<Unit> outcome = relay();
  if (socket_ >= 0) ::close(socket_);
  {
    const std::lock_guard lock(mutex_);
    if (!outcome && !stopping_) trouble_ = outcome.error();
    busy_ = false;
    changed_.notify_all();
  }
  // Last, and to both directions: gRPC asks why as soon as it sees that.
  ::shutdown(end_, SHUT_RDWR);
}

/// True: ready. False: the deadline came, or `stop`.
bool TlsRelay::wait(int descriptor, short events, int64_t deadline_ns) {
  std::array<pollfd, 2> sources = {{{.fd = descriptor, .events = events, .revents = 0},
                                    {.fd = stop_event_, .events = POLLIN, .revents = 0}}};
  while (true) {
    const int64_t left_ms = (deadline_ns - relay_now_ns() + 999'999) / 1'000'000;
    const int ready =
        ::poll(sources.data(), sources.size(), static_cast<int>(std::clamp<int64_t>(left_ms, 0, 60'000)));
    if (sources[1].revents != 0) return false;
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

/// A connected, non-blocking socket, or -1.
int TlsRelay::connect_to(int64_t deadline_ns, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown =
      ::getaddrinfo(scheduler_.host.c_str(), std::to_string(scheduler_.port).c_str(), &hints, &found);
  if (!may_begin()) {
    if (unknown == 0) ::freeaddrinfo(found);
    return -1;
  }
  if (unknown != 0) {
    why = "the host name " + scheduler_.host + " could not be resolved: " + gai_strerror(unknown);
    return -1;
  }
  int socket = -1;
  for (const addrinfo* entry = found; entry != nullptr && socket < 0; entry = entry->ai_next) {
    socket = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = socket < 0 || ::connect(socket, entry->ai_addr, entry->ai_addrlen) != 0 ? errno : 0;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      error = ETIMEDOUT;
      if (wait(socket, POLLOUT, deadline_ns)) ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) break;
    why = "cannot connect: " + std::string(std::strerror(error));
    if (socket >= 0) ::close(socket);
    socket = -1;
  }
  ::freeaddrinfo(found);
  return socket;
}

Result<Unit> TlsRelay::relay() {
  std::string why;
  const int64_t deadline_ns = relay_now_ns() + kSecurePatience.ns;
  socket_ = connect_to(deadline_ns, why);
  if (socket_ < 0) return relay_trouble(why);
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const Result<std::shared_ptr<const sign::TlsTrust>> trust = tls_.trust();
  if (!trust) return trust.error();
  const std::unique_ptr<sign::TlsChannel> channel =
      (*trust)->connect(socket_, scheduler_.host, sign::TlsUse::kGrpc);
  if (!tls_.identity.empty()) {
    if (const Result<Unit> shown = sign::show_certificate(*channel, tls_.identity); !shown) return shown;
  }
  if (const Result<Unit> shaken = shake_hands(*channel, deadline_ns); !shaken) return shaken;
  const Result<Unit> passed = pass_on(*channel);
  channel->end_sending();
  return passed;
}

Result<Unit> TlsRelay::shake_hands(sign::TlsChannel& channel, int64_t deadline_ns) {
  while (true) {
    const TlsStep step = channel.handshake();
    if (step == TlsStep::kDone) {
      const std::lock_guard lock(mutex_);
      shaken_ = true;
      changed_.notify_all();
      return Unit{};
    }
    if (step != TlsStep::kWantRead && step != TlsStep::kWantWrite)
      return sign::handshake_error(channel, scheduler_.host, sign::TlsUse::kGrpc);
    if (!wait(socket_, step == TlsStep::kWantWrite ? POLLOUT : POLLIN, deadline_ns))
      return relay_trouble("the scheduler did not take part in a TLS handshake within 10 s");
  }
}

/// Each turn does what can be done at once in both directions, and waits only when nothing could.
Result<Unit> TlsRelay::pass_on(sign::TlsChannel& channel) {
  const auto up = std::make_unique<Way>();    // From gRPC to the scheduler.
  const auto down = std::make_unique<Way>();  // And back.
  while (true) {
    bool moved = false;
    TlsStep written = TlsStep::kDone, read = TlsStep::kDone;
    std::size_t count = 0;
    if (up->empty()) {
      const ssize_t got = ::recv(end_, up->bytes.data(), up->bytes.size(), 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return Unit{};  // gRPC is done.
      if (got > 0) up->filled(static_cast<std::size_t>(got));
    }
    if (!up->empty()) {
      written = channel.write(up->data(), up->size(), count);
      if (written == TlsStep::kDone) up->taken(count);
      moved = moved || written == TlsStep::kDone;
    }
    if (down->empty()) {
      read = channel.read(down->bytes.data(), down->bytes.size(), count);
      if (read == TlsStep::kDone) down->filled(count);
      if (read == TlsStep::kEnd) return Unit{};
    }
    if (written == TlsStep::kBroken || read == TlsStep::kBroken)
      return relay_trouble("the TLS connection broke: " + channel.error());
    if (!down->empty()) {
      const ssize_t sent = ::send(end_, down->data(), down->size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return Unit{};
      if (sent > 0) down->taken(static_cast<std::size_t>(sent));
      moved = moved || sent > 0;
    }
    if (moved) continue;
    const bool to_write = written == TlsStep::kWantWrite || read == TlsStep::kWantWrite;
    const short ours = static_cast<short>((up->empty() ? POLLIN : 0) | (down->empty() ? 0 : POLLOUT));
    const short theirs = static_cast<short>((down->empty() ? POLLIN : 0) | (to_write ? POLLOUT : 0));
    // One that nothing is wanted of is left out: that it was closed would wake us again and again.
    std::array<pollfd, 3> sources = {{{.fd = ours == 0 ? -1 : end_, .events = ours, .revents = 0},
                                      {.fd = theirs == 0 ? -1 : socket_, .events = theirs, .revents = 0},
                                      {.fd = stop_event_, .events = POLLIN, .revents = 0}}};
    ::poll(sources.data(), sources.size(), -1);
    if (sources[2].revents != 0) return Unit{};
  }
}

void TlsRelay::await(Duration patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(patience.ns), [this] { return shaken_ || trouble_; });
}

bool TlsRelay::met_tls() {
  const std::lock_guard lock(mutex_);
  return shaken_ || (trouble_ && trouble_->code == ErrorCode::kUnauthenticated);
}

bool speaks_tls(const Address& scheduler, Duration patience) {
  int end = -1;
  const std::shared_ptr<TlsRelay> relay = TlsRelay::start(scheduler, {.on = true}, end);
  // A failure wakes us, and so do HTTP/2's first words.
  pollfd source{.fd = end, .events = POLLIN, .revents = 0};
  ::poll(&source, 1, static_cast<int>(patience.ms()));
  const bool met = relay->met_tls();
  relay->stop();
  ::close(end);
  return met;
}

}  // namespace gpusched
