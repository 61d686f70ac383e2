#include "backup/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace gpusched::backup {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::string Sha256::finish() {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256_final(&state_, digest.data());
  std::array<char, 2 * crypto_hash_sha256_BYTES + 1> text{};
  sodium_bin2hex(text.data(), text.size(), digest.data(), digest.size());
  return text.data();
}

std::string sha256_of(std::string_view bytes) {
  Sha256 digest;
  digest.add(bytes);
  return digest.finish();
}

Error file_failed(const char* what, const std::string& path) {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return {.code = full ? ErrorCode::kStorageFull : ErrorCode::kIo,
          .message = std::string(what) + " " + path + ": " + std::strerror(errno)};
}

Result<Unit> read_range(int fd, const std::string& path, uint64_t offset, uint64_t bytes,
                        const TakeBytes& take) {
  std::vector<char> piece(std::min<uint64_t>(kPieceBytes, bytes));
  while (bytes > 0) {
    const ssize_t got =
        ::pread(fd, piece.data(), std::min<uint64_t>(piece.size(), bytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_failed("cannot read", path);
    if (got == 0) return Error{.code = ErrorCode::kCorrupt, .message = path + " was cut off"};
    Result<Unit> taken = take(std::string_view(piece.data(), static_cast<std::size_t>(got)));
    if (!taken.ok()) return taken;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return Unit{};
}

Result<Unit> write_fully(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return file_failed("cannot write", path);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return Unit{};
}

Result<Unit> sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open() || ::fsync(folder.get()) != 0) return file_failed("cannot sync", path);
  return Unit{};
}

Result<Descriptor> open_regular(const std::string& path, uint64_t& bytes) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.is_open() && errno == ENOENT)
    return Error{.code = ErrorCode::kNotFound, .message = path + " is not there"};
  if (!file.is_open()) return file_failed("cannot read", path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return file_failed("cannot read", path);
  if (!S_ISREG(status.st_mode))
    return Error{.code = ErrorCode::kInvalidArgument, .message = path + " is no regular file"};
  bytes = static_cast<uint64_t>(status.st_size);
  return file;
}

}  // namespace gpusched::backup
