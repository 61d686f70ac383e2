#include "ops/api_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ops/socket_file.h"

namespace gpusched::ops {
namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

/// Whether the folder is one and its owner alone puts files there; then who that is.
std::optional<uid_t> sole_writer(const std::string& folder) {
  struct stat facts{};
  if (::lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) return std::nullopt;
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) return std::nullopt;
  return facts.st_uid;
}

bool is_believed(const std::string& path, uid_t listener) {
  const std::string folder = folder_of(path);
  const std::optional<uid_t> owner = sole_writer(folder);
  if (!owner) return false;
  const bool ours = *owner == 0 || *owner == ::geteuid();
  if (ours) return *owner == 0 || listener == 0 || listener == *owner;
  // A service's own user has the folder that the service manager made for it, and nobody else may make one.
  return listener == *owner && sole_writer(folder_of(folder)) == uid_t{0};
}

struct Connected {
  int descriptor;
  uid_t listener;
};

Result<Connected> connect_to(const std::string& path) {
  const auto failed = [&path](int error) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "cannot connect to the Unix socket " + path + ": " + std::strerror(error)};
  };
  if (path.size() > kSocketPathMax) return failed(ENAMETOOLONG);
  const int end = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (end < 0) return failed(errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  ucred facts{};
  socklen_t size = sizeof facts;
  if (::connect(end, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::getsockopt(end, SOL_SOCKET, SO_PEERCRED, &facts, &size) == 0) {
    return Connected{.descriptor = end, .listener = facts.uid};
  }
  const int error = errno;
  ::close(end);
  return failed(error);
}

}  // namespace

std::optional<uid_t> socket_listener(const std::string& path) {
  const Result<Connected> connected = connect_to(path);
  if (!connected) return std::nullopt;
  ::close(connected->descriptor);
  return connected->listener;
}

std::string personal_socket(const std::string& runtime_dir, const char* name) {
  return runtime_dir.starts_with('/') ? runtime_dir + "/gpu-scheduler/" + name : std::string();
}

bool make_socket_folder(const std::string& path, bool for_everybody) {
  const std::string folder = folder_of(path);
  const mode_t mode = for_everybody ? 0755 : 0700;
  if (::mkdir(folder.c_str(), mode) == 0) {
    ::chmod(folder.c_str(), mode);  // Regardless of the umask.
  } else if (errno != EEXIST) {
    return false;
  }
  return sole_writer(folder) == ::geteuid();
}

std::string find_api_socket(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    const std::optional<uid_t> listener = socket_listener(path);
    if (listener && is_believed(path, *listener)) return path;
  }
  return {};
}

Result<int> connect_believed(const std::string& path) {
  const Result<Connected> connected = connect_to(path);
  if (!connected) return connected.error();
  if (is_believed(path, connected->listener)) return connected->descriptor;
  ::close(connected->descriptor);
  return Error{.code = ErrorCode::kPermissionDenied,
               .message = "the Unix socket " + path + ", at which user " +
                          std::to_string(connected->listener) +
                          " listens, or its folder is in the hands of others than root and this user; give "
                          "the folder to root or to this user, for its owner alone to write"};
}

}  // namespace gpusched::ops
