#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "sign/keys/sodium.h"

/// Descriptors and digests for the room's own use.
namespace gpusched::backup {

/// A file descriptor that is closed; -1: none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// SHA-256 of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256() {
    sign::init_sodium();
    crypto_hash_sha256_init(&state_);
  }
  void add(std::string_view bytes) {
    crypto_hash_sha256_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
  /// 64 hexadecimal digits; once.
  std::string finish();

 private:
  crypto_hash_sha256_state state_;
};
std::string sha256_of(std::string_view bytes);

/// "WHAT PATH: " and errno's text; kStorageFull when the disk or the quota is full.
Error file_failed(const char* what, const std::string& path);

using TakeBytes = std::function<Result<Unit>(std::string_view)>;
/// Reads `bytes` bytes of a file from `offset` on, piece by piece. kCorrupt: the file is shorter.
Result<Unit> read_range(int fd, const std::string& path, uint64_t offset, uint64_t bytes,
                        const TakeBytes& take);
Result<Unit> write_fully(int fd, const std::string& path, std::string_view bytes);
Result<Unit> sync_folder(const std::string& path);
/// Opens a regular file for reading, and tells its size. kNotFound: there is none. Never through a symbolic
/// link.
Result<Descriptor> open_regular(const std::string& path, uint64_t& bytes);

}  // namespace gpusched::backup
