#include "ops/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace gpusched {
namespace {

/// systemd refuses longer datagrams of no kind, but a status is one line for people.
constexpr std::size_t kStatusBytesMax = 512;

std::string taken(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  ::unsetenv(name);
  return text;
}

int64_t number(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end && value > 0 ? value : 0;
}

std::string one_line(std::string_view text) {
  std::string line(text.substr(0, kStatusBytesMax));
  for (char& c : line) c = c == '\n' ? ' ' : c;
  return line;
}

}  // namespace

ServiceNotifier ServiceNotifier::take_from_environment() {
  std::string address = taken("NOTIFY_SOCKET");
  const int64_t microseconds_max = number(taken("WATCHDOG_USEC"));
  const int64_t process = number(taken("WATCHDOG_PID"));
  const bool ours = process == 0 || process == ::getpid();
  return {std::move(address), ours ? microseconds(microseconds_max) : Duration{}};
}

ServiceNotifier::ServiceNotifier(std::string address, Duration watchdog)
    : address_(std::move(address)), watchdog_(watchdog) {
  const bool usable = address_.size() > 1 && address_.size() < sizeof(sockaddr_un{}.sun_path) &&
                      (address_[0] == '/' || address_[0] == '@');
  if (!usable) address_.clear();
  if (address_.empty()) watchdog_ = {};
}

void ServiceNotifier::ready(std::string_view text) const { send("READY=1\nSTATUS=" + one_line(text)); }

void ServiceNotifier::reloading() const {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_us = static_cast<int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1'000;
  send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(now_us));
}

void ServiceNotifier::stopping() const {
  send(
      "STOPPING=1\n"
      "STATUS=stopping; jobs continue");
}
void ServiceNotifier::status(std::string_view text) const { send("STATUS=" + one_line(text)); }
void ServiceNotifier::keep_alive() const { send("WATCHDOG=1"); }

void ServiceNotifier::send(std::string_view words) const {
  if (address_.empty()) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return;
  // A manager that does not listen is no reason to stop working; the watchdog has the last word.
  [[maybe_unused]] const ssize_t sent = ::sendto(socket, words.data(), words.size(), MSG_NOSIGNAL,
                                                 reinterpret_cast<const sockaddr*>(&to), size);
  ::close(socket);
}

}  // namespace gpusched
