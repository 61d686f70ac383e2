#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpusched {

/// An open file. Calls may come from one thread at a time. Errors: kStorageFull when the disk or the quota
/// is full, kIo otherwise; the message names the call, the path and the system's reason.
class DiskFile {
 public:
  virtual ~DiskFile() = default;
  /// Writes at least one byte of `bytes` and returns how many; see `write_all`.
  virtual Result<std::size_t> pwrite(uint64_t offset, std::string_view bytes) = 0;
  /// Reads up to `size` bytes; 0 only at the end of the file.
  virtual Result<std::size_t> pread(uint64_t offset, char* out, std::size_t size) = 0;
  /// Makes all bytes and the size durable.
  virtual Result<Unit> fdatasync() = 0;
  /// Reserves room for `size` bytes, which read as zero. A file system that cannot reserve is no error.
  virtual Result<Unit> allocate(uint64_t size) = 0;
  virtual Result<uint64_t> size() = 0;
  /// Asks the system to forget its own copies of what is durable, so that the next reading comes from the
  /// disk. A wish: a system that cannot is no error.
  virtual void drop_cached() {}
};

/// A whole file's bytes, readable as long as this lives, whatever happens to its name.
class DiskMapping {
 public:
  virtual ~DiskMapping() = default;
  virtual std::string_view bytes() const = 0;
};

/// An exclusive lock that ends with this object or with its process.
class DiskLock {
 public:
  virtual ~DiskLock() = default;
  /// Whether the folder at the path is still the one that was locked. kLocked: it was replaced, and another
  /// process may hold the new one: stop writing.
  virtual Result<Unit> check() const = 0;
};

/// Size of a volume, and the free space that may still be written.
struct DiskRoom {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

enum class DiskOpen {
  kRead,       ///< Must exist.
  kReadWrite,  ///< Must exist.
  kCreate,     ///< Made new and empty, whatever was there.
};

/// Everything that the journal and the snapshots ask of a file system. A name is durable once `sync_dir` of
/// its folder returned. Thread-safe.
class Disk {
 public:
  virtual ~Disk() = default;
  /// kNotFound: there is no such file.
  virtual Result<std::unique_ptr<DiskFile>> open(const std::string& path, DiskOpen mode) = 0;
  virtual Result<std::unique_ptr<DiskMapping>> map(const std::string& path) = 0;
  virtual Result<Unit> rename(const std::string& from, const std::string& to) = 0;
  virtual Result<Unit> remove(const std::string& path) = 0;
  /// Makes one folder; one that is there already is no error.
  virtual Result<Unit> make_dir(const std::string& path) = 0;
  virtual Result<Unit> sync_dir(const std::string& path) = 0;
  /// Names of the files in a folder, sorted. kNotFound: there is no such folder.
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;
  /// Locks the folder of `path`, and the file at `path`, which is made when missing and holds the holder's
  /// process id. kLocked: held by another one, even if somebody removed or replaced the file meanwhile; the
  /// message names its process id.
  virtual Result<std::unique_ptr<DiskLock>> lock(const std::string& path) = 0;
  /// The volume on which `path` lies; nothing when that cannot be known.
  virtual std::optional<DiskRoom> room(const std::string& /*path*/) { return std::nullopt; }
};

/// The computer's own file system. Lives as long as the process.
Disk& posix_disk();

/// The folder that a file or folder is in: "/a" for "/a/b", "." for "b".
std::string folder_above(const std::string& path);
/// Writes all of `bytes`, however many calls that takes.
Result<Unit> write_all(DiskFile& file, uint64_t offset, std::string_view bytes);
/// Writes zero bytes from `offset` to `end`.
Result<Unit> write_zeros(DiskFile& file, uint64_t offset, uint64_t end);
/// Reads exactly `size` bytes to `out`; fewer in the file is kCorrupt.
Result<Unit> read_exact(DiskFile& file, uint64_t offset, char* out, std::size_t size);
/// Replaces the file `dir`/`name` by `bytes`, durably and whole or not at all.
Result<Unit> replace_file(Disk& disk, const std::string& dir, const std::string& name,
                          std::string_view bytes);
/// The whole of a small file. kTooLarge: over `bytes_max`.
Result<std::string> read_file(Disk& disk, const std::string& path, uint64_t bytes_max);

}  // namespace gpusched
