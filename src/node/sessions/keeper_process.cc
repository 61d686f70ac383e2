#include "node/sessions/keeper_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/errors.h"
#include "base/session_limits.h"

extern char** environ;

namespace gpusched {
namespace {

constexpr int kHighDescriptor = 100;  // Above those that the keeper has: none stands in another's place.
constexpr int kSocketBufferBytes = 1 << 20;
constexpr std::size_t kPacketBytesMax = limits::kFilePieceBytes + 8 * 1024;

OwnedDescriptor high_copy(int descriptor) {
  return OwnedDescriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, kHighDescriptor));
}

Result<OwnedDescriptor> memory_file(const std::string& bytes) {
  const OwnedDescriptor memory(memfd_create("session", MFD_CLOEXEC));
  if (!memory) return io_error("cannot create a memory file");
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(memory.get(), bytes.data() + done, bytes.size() - done);
    if (wrote < 0) return io_error("cannot write a memory file");
    done += static_cast<std::size_t>(wrote);
  }
  return high_copy(memory.get());
}

}  // namespace

void OwnedDescriptor::reset() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Result<KeeperProcess> KeeperProcess::start(const std::string& shim_program,
                                           const shim::SessionRequest& request,
                                           const StandardStreams& streams) {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return io_error("cannot create a socket");
  KeeperProcess keeper;
  keeper.socket_ = OwnedDescriptor(pair[0]);
  const OwnedDescriptor theirs(pair[1]);
  setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  const OwnedDescriptor socket = high_copy(pair[1]);
  const Result<OwnedDescriptor> memory = memory_file(encode(request));
  if (!memory) return memory.error();
  std::array<OwnedDescriptor, 3> copies;

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const int target = static_cast<int>(i);
    if (streams[i] < 0) {
      posix_spawn_file_actions_addopen(&actions, target, "/dev/null", O_RDWR, 0);
      continue;
    }
    copies[i] = high_copy(streams[i]);
    posix_spawn_file_actions_adddup2(&actions, copies[i].get(), target);
  }
  posix_spawn_file_actions_adddup2(&actions, socket.get(), shim::kSessionSocket);
  posix_spawn_file_actions_adddup2(&actions, memory->get(), shim::kSessionRequestFile);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::array<const char*, 3> arguments = {"gpu-shim", shim::kSessionFlag, nullptr};
  const int error = posix_spawn(&keeper.pid_, shim_program.c_str(), &actions, &attributes,
                                const_cast<char**>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return Error{.code = ErrorCode::kIo,
                 .message = "cannot start " + shim_program + ": " + std::strerror(error)};
  }
  fcntl(keeper.socket_.get(), F_SETFL, O_NONBLOCK);
  return keeper;
}

void KeeperProcess::send(const shim::SessionOrder& order) const {
  const std::string packet = encode(order);
  // A keeper that takes nothing any more is ending, which its socket shows.
  static_cast<void>(::send(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

std::optional<shim::SessionEvent> KeeperProcess::receive(bool& closed) const {
  std::string packet(kPacketBytesMax, '\0');
  ssize_t size = recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
  // A keeper that ended without reading our last order: said once, before what it had sent.
  if (size < 0 && errno == ECONNRESET) size = recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
  closed = size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
  if (size <= 0) return std::nullopt;
  return shim::decode_session_event(std::string_view(packet).substr(0, static_cast<std::size_t>(size)));
}

void EndedKeepers::reap() {
  std::erase_if(pids_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
}

}  // namespace gpusched
