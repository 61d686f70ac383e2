#include "shim/file_source.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/session_limits.h"
#include "shim/sessions/session.h"

namespace gpusched::shim {
namespace {

struct Refusal {
  std::string code;
  std::string message;
};

/// A file as it was when it was opened.
class FileSource {
 public:
  FileSource(int file, int64_t size) : file_(file), size_(size) {}
  ~FileSource() { close(file_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  /// The next at most `size` bytes; empty at the end; nothing when it cannot be read.
  std::optional<std::string> next(std::size_t size) {
    std::string data(std::min<std::size_t>(size, static_cast<std::size_t>(size_ - at_)), '\0');
    if (data.empty()) return data;
    ssize_t count = 0;
    do {
      count = pread(file_, data.data(), data.size(), at_);
    } while (count < 0 && errno == EINTR);
    if (count <= 0) return std::nullopt;  // An error, or it is shorter than it was.
    data.resize(static_cast<std::size_t>(count));
    at_ += count;
    return data;
  }

 private:
  const int file_;
  const int64_t size_;
  int64_t at_ = 0;
};

int open_beneath(int folder, const std::string& path, uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  // Magic links are /proc's ways to other processes' files.
  how.resolve = path.starts_with('/') ? RESOLVE_NO_MAGICLINKS : RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  int file = -1;
  do {
    file = static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how));
  } while (file < 0 && (errno == EINTR || errno == EAGAIN));
  return file;
}

Refusal refusal_of(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return {"file_not_found", "there is no file " + path + " in the job's working directory"};
    case EXDEV:
      return {"permission_denied",
              path + " leads outside the job's working directory; give the absolute path of the file itself"};
    case ELOOP:
      return {"permission_denied",
              path + " is a symbolic link, which is not followed; give the file that it points to"};
    case EACCES:
    case EPERM:
      return {"permission_denied", "the job's user does not have permission to read " + path};
    case ENOSYS:
      return {"session_failed", "the node's kernel is older than Linux 5.6 and cannot read files safely"};
    default:
      return {"session_failed", "cannot open " + path + ": " + std::strerror(error)};
  }
}

std::string kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a link";
  return "a device";
}

/// Opened twice: first without effect, to see that it is a regular file, because opening a device or a pipe
/// may do something; then to read, and it must be the same one.
std::optional<Refusal> open_regular(int folder, const std::string& path, int& file, struct stat& facts) {
  const int look = open_beneath(folder, path, O_PATH);
  if (look < 0) return refusal_of(path, errno);
  const bool seen = fstat(look, &facts) == 0;
  close(look);
  if (!seen) return refusal_of(path, errno);
  if (S_ISDIR(facts.st_mode))
    return Refusal{"is_directory",
                   path + " is a folder; copy it with: gpu-cli exec JOB -- tar -c " + path + " > folder.tar"};
  if (!S_ISREG(facts.st_mode))
    return Refusal{"permission_denied",
                   path + " is " + kind_of(facts.st_mode) + "; only regular files are copied"};
  file = open_beneath(folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return refusal_of(path, errno);
  struct stat opened{};
  const bool same = fstat(file, &opened) == 0 && S_ISREG(opened.st_mode) && opened.st_dev == facts.st_dev &&
                    opened.st_ino == facts.st_ino;
  if (same) {
    facts = opened;
    return std::nullopt;
  }
  close(file);
  file = -1;
  return Refusal{"conflict", path + " was replaced while it was opened; try again"};
}

void send_event(int socket, const SessionEvent& event) {
  const std::string packet = encode(event);
  while (send(socket, packet.data(), packet.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

int refuse(int socket, const Refusal& refusal) {
  send_event(socket, {.kind = SessionEvent::Kind::kFailed, .code = refusal.code, .message = refusal.message});
  return 1;
}

int serve(int socket, FileSource& source) {
  while (true) {
    std::array<char, 256> packet;
    const ssize_t size = recv(socket, packet.data(), packet.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return 0;
    const std::optional<SessionOrder> order =
        decode_session_order({packet.data(), static_cast<std::size_t>(size)});
    if (!order || order->kind != SessionOrder::Kind::kRead) continue;
    const int64_t wanted = std::clamp<int64_t>(order->size, 1, limits::kFilePieceBytes);
    std::optional<std::string> data = source.next(static_cast<std::size_t>(wanted));
    if (!data) {
      return refuse(
          socket, {"conflict", "the file became shorter, or cannot be read, while it was copied; try again"});
    }
    send_event(socket, {.kind = SessionEvent::Kind::kData, .data = std::move(*data)});
  }
}

}  // namespace

int serve_file(int socket, int folder, const std::string& path, bool reader_is_root) {
  if (path.empty() || path.size() > limits::kPathBytesMax || path.find('\0') != std::string::npos)
    return refuse(socket, {"invalid_argument", "the path must have 1 to 4096 bytes and no NUL byte"});
  if (path.starts_with('/') && reader_is_root) {
    return refuse(socket, {"permission_denied",
                           "absolute paths are read as the job's user, which must not be root; give a path "
                           "below the job's working directory"});
  }
  int file = -1;
  struct stat facts{};
  if (const auto refusal = open_regular(folder, path, file, facts)) return refuse(socket, *refusal);
  send_event(socket,
             {.kind = SessionEvent::Kind::kStarted, .size = facts.st_size, .mode = facts.st_mode & 0777});
  FileSource source(file, facts.st_size);
  return serve(socket, source);
}

}  // namespace gpusched::shim
