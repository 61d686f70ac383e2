#include "api/contract/token.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/net/ip_network.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kTokenFileBytesMax = 4'096;

void need_sodium() {
  static const bool ready = sodium_init() >= 0;
  CHECK(ready);
}

Error io_error(const std::string& what, const std::string& path) {
  return {ErrorCode::kIo, what + " " + path + ": " + std::strerror(errno)};
}

/// Closes at the end of a scope.
struct File {
  int descriptor;
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
};

Result<std::string> read_token(int descriptor, const std::string& path) {
  struct stat facts{};
  if (fstat(descriptor, &facts) != 0) return io_error("cannot examine", path);
  if ((facts.st_mode & 077) != 0) {
    return Error{
        ErrorCode::kPermissionDenied,
        path + " can be read by other users; run chmod 600 on it, or delete it to have a new one created"};
  }
  std::string text(kTokenFileBytesMax, '\0');
  const ssize_t size = read(descriptor, text.data(), text.size());
  if (size < 0) return io_error("cannot read", path);
  text.resize(static_cast<std::size_t>(size));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  if (text.size() < 16) {
    return Error{
        ErrorCode::kCorrupt,
        path + " does not contain a token of at least 16 characters; delete it to have a new one created"};
  }
  return text;
}

Result<Unit> write_all(int descriptor, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t size = write(descriptor, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return io_error("cannot write", path);
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  if (fsync(descriptor) != 0) return io_error("cannot sync", path);
  return Unit{};
}

}  // namespace

Result<std::string> load_or_create_token(const std::string& data_dir) {
  const std::string path = data_dir + "/token";
  const File present{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (present.descriptor >= 0) return read_token(present.descriptor, path);
  if (errno != ENOENT) return io_error("cannot open", path);

  const std::string bytes = random_bytes(kTokenBytes);
  std::string token(2 * kTokenBytes + 1, '\0');
  sodium_bin2hex(token.data(), token.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
  token.pop_back();
  // Written beside and linked into place: a reader, or a second start, sees a whole token or none.
  const std::string draft = path + "." + std::to_string(getpid());
  {
    const File file{open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (file.descriptor < 0) return io_error("cannot create", draft);
    const Result<Unit> written = write_all(file.descriptor, token + "\n", draft);
    if (!written) return written.error();
  }
  const int linked = link(draft.c_str(), path.c_str());
  const int reason = errno;
  unlink(draft.c_str());
  if (linked != 0 && reason == EEXIST) {
    const File winner{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
    if (winner.descriptor < 0) return io_error("cannot open", path);
    return read_token(winner.descriptor, path);
  }
  errno = reason;
  if (linked != 0) return io_error("cannot create", path);
  return token;
}

bool same_secret(std::string_view a, std::string_view b) {
  need_sodium();
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view bearer_of(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return {};
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != kScheme[i]) return {};
  }
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  return authorization;
}

bool bearer_matches(std::string_view authorization, std::string_view token) {
  return !token.empty() && same_secret(bearer_of(authorization), token);
}

bool is_loopback(std::string_view address) {
  if (address.starts_with("127.")) return address.find_first_not_of("0123456789.") == std::string_view::npos;
  if (address == "localhost") return true;
  const std::optional<IpAddress> numeric = parse_ip_address(address);
  return numeric && numeric->is_loopback();
}

bool answers_without_credential(std::string_view address, bool token_required, bool old_agent_handshake) {
  return is_loopback(address) && !token_required && !old_agent_handshake;
}

std::string random_bytes(std::size_t size) {
  need_sodium();
  std::string bytes(size, '\0');
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

}  // namespace gpusched::api
