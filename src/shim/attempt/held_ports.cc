#include "shim/attempt/held_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "shim/container/container_runner.h"
#include "shim/protocol.h"

namespace gpusched::shim {
namespace {

void close_if_open(int& descriptor) {
  if (descriptor >= 0) close(std::exchange(descriptor, -1));
}

/// -1: somebody has it, which errno says.
int listen_at(uint32_t port) {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  place.sin_addr.s_addr = htonl(INADDR_ANY);
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  // Bound alone it would not keep out another one that is bound so.
  if (bind(probe, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0 && listen(probe, 1) == 0)
    return probe;
  const int error = errno;
  if (probe >= 0) close(probe);
  errno = error;
  return -1;
}

/// -1: another attempt has it.
int claim(uint32_t port) {
  const int socket_file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string name = "gpu-scheduler/port/" + std::to_string(port);
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  std::memcpy(place.sun_path + 1, name.data(), name.size());  // Behind a zero byte: abstract.
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(socket_file, reinterpret_cast<const sockaddr*>(&place), size) == 0) return socket_file;
  if (socket_file >= 0) close(socket_file);
  return -1;
}

}  // namespace

HeldPorts::~HeldPorts() {
  for (int* const descriptor : {&rendezvous_, &endpoint_, &claim_}) close_if_open(*descriptor);
}

std::string HeldPorts::take(uint32_t rendezvous, std::vector<char*>& environment, const AttemptKey& key,
                            bool is_container) {
  if (rendezvous != 0) {
    if (std::string problem = hold_rendezvous(rendezvous); !problem.empty()) return problem;
  }
  const std::string name = std::string(kPortWishVariable) + '=';
  for (char*& entry : environment) {
    if (entry == nullptr || !std::string_view(entry).starts_with(name)) continue;
    std::optional<ServicePort> wish = parse_service_port(entry + name.size());
    if (!wish) return "the agent's wish for a port cannot be read: " + std::string(entry);
    const uint32_t port = take_one_of(wish->ports, key);
    if (port == 0) {
      return "none of the ports " + to_string(wish->ports) +
             " is free on this node; give it more (gpu-agent --service-ports)";
    }
    wish->ports = {.first = port, .last = port};
    note_ = to_line(*wish) + '\n';
    if (is_container) entry_ = kJobEntryMark;
    entry_ += std::string(kPortVariable) + '=' + std::to_string(port);
    entry = entry_.data();
    return {};
  }
  return {};
}

std::string HeldPorts::hold_rendezvous(uint32_t port) {
  rendezvous_ = listen_at(port);
  if (rendezvous_ >= 0 || errno != EADDRINUSE) return {};
  return "port " + std::to_string(port) +
         ", its gang's rendezvous port, is in use on this node; the next attempt gets another port";
}

uint32_t HeldPorts::take_one_of(const PortRange& ports, const AttemptKey& key) {
  const uint64_t count = ports.last - ports.first + 1;
  const uint64_t begin = key.job.value + key.attempt;
  for (uint64_t i = 0; i < count; ++i) {
    const auto port = static_cast<uint32_t>(ports.first + (begin + i) % count);
    claim_ = claim(port);
    if (claim_ < 0) continue;
    endpoint_ = listen_at(port);
    if (endpoint_ >= 0) return port;
    close_if_open(claim_);
  }
  return 0;
}

int HeldPorts::hand_over(bool to_container) {
  int& kept = rendezvous_ >= 0 ? rendezvous_ : endpoint_;
  const int handed_over = to_container && kept >= 0 ? dup2(kept, kPortDescriptor) : -1;
  close_if_open(rendezvous_);
  close_if_open(endpoint_);
  return handed_over;
}

}  // namespace gpusched::shim
