#include "ops/socket_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gpusched::ops {
namespace {

static_assert(sizeof(sockaddr_un{}.sun_path) == kSocketPathMax + 1);

Error failed(const std::string& path, const char* what, int error) {
  return {.code = ErrorCode::kIo,
          .message = "cannot listen on the Unix socket " + path + ": " + what + ": " + std::strerror(error)};
}

Error taken(const std::string& path) {
  return {.code = ErrorCode::kLocked,
          .message = "cannot listen on the Unix socket " + path + ": another process listens there"};
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

/// Whether somebody accepts connections there; one who has no time for more does, too.
Result<bool> is_answered(const std::string& path) {
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return failed(path, "socket", errno);
  const sockaddr_un address = address_of(path);
  const int error =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  ::close(probe);
  if (error == ECONNREFUSED || error == ENOENT) return false;
  if (error == 0 || error == EAGAIN || error == EINPROGRESS || error == EPROTOTYPE) return true;
  return failed(path, "connect", error);
}

Result<Unit> clear_place(const std::string& path) {
  struct stat facts{};
  if (::lstat(path.c_str(), &facts) != 0)
    return errno == ENOENT ? Result<Unit>(Unit{}) : Result<Unit>(failed(path, "stat", errno));
  if (!S_ISSOCK(facts.st_mode)) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "cannot listen on the Unix socket " + path +
                            ": something is there that is no socket; remove it, or choose another path"};
  }
  const Result<bool> answered = is_answered(path);
  if (!answered) return answered.error();
  if (*answered) return taken(path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return failed(path, "remove the old one", errno);
  return Unit{};
}

Result<Unit> check_path(const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "cannot listen on the Unix socket " + path + ": " + why};
  };
  if (!path.starts_with('/')) return refuse("the path must begin with /");
  if (path.find('\0') != std::string::npos) return refuse("the path has a byte of zero");
  if (path.size() > kSocketPathMax) {
    return refuse("the path has " + std::to_string(path.size()) + " bytes, and a Unix socket's has at most " +
                  std::to_string(kSocketPathMax) + "; choose a shorter one");
  }
  return Unit{};
}

}  // namespace

Result<std::unique_ptr<SocketFile>> SocketFile::bind(const std::string& path, mode_t mode) {
  if (const Result<Unit> good = check_path(path); !good) return good.error();
  const std::string lock_path = path + ".lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) return failed(path, "open its lock", errno);
  std::unique_ptr<SocketFile> file(new SocketFile(path, lock));
  // Only with the lock: of two who find the same dead socket, the second would remove the first one's.
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0)
    return errno == EWOULDBLOCK ? taken(path) : failed(path, "lock", errno);
  if (const Result<Unit> free = clear_place(path); !free) return free.error();
  file->descriptor_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file->descriptor_ < 0) return failed(path, "socket", errno);
  const sockaddr_un address = address_of(path);
  if (::bind(file->descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return errno == EADDRINUSE ? taken(path) : failed(path, "bind", errno);
  struct stat facts{};
  file->bound_ = true;
  if (::lstat(path.c_str(), &facts) != 0) return failed(path, "stat", errno);
  file->device_ = facts.st_dev;
  file->inode_ = facts.st_ino;
  // Regardless of the umask. Nobody connects before it listens.
  if (::chmod(path.c_str(), mode) != 0) return failed(path, "chmod", errno);
  return file;
}

int SocketFile::take_descriptor() { return std::exchange(descriptor_, -1); }

void SocketFile::remove() {
  if (lock_ < 0) return;
  struct stat facts{};
  const bool ours =
      bound_ && ::lstat(path_.c_str(), &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_;
  if (ours) ::unlink(path_.c_str());
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  ::close(std::exchange(lock_, -1));  // Last: whoever waits for it finds nothing there.
}

}  // namespace gpusched::ops
