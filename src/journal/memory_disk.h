#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "journal/disk.h"

namespace gpusched {

/// A file system in memory for tests and the simulation. It knows what is durable and what is not, breaks on
/// demand, and can say what a crash at this moment would leave. Thread-safe; files stay usable as long as the
/// disk lives.
class MemoryDisk final : public Disk {
 public:
  /// Calls that can be made to fail.
  enum class Call { kOpen, kWrite, kRead, kSync, kAllocate, kRename, kRemove, kSyncDir };

  MemoryDisk();
  ~MemoryDisk() override;

  Result<std::unique_ptr<DiskFile>> open(const std::string& path, DiskOpen mode) override;
  Result<std::unique_ptr<DiskMapping>> map(const std::string& path) override;
  Result<Unit> rename(const std::string& from, const std::string& to) override;
  Result<Unit> remove(const std::string& path) override;
  Result<Unit> make_dir(const std::string& path) override;
  Result<Unit> sync_dir(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<std::unique_ptr<DiskLock>> lock(const std::string& path) override;

  /// What the disk holds after a crash now: each 512 bytes of each unsynced write is there or not, each name
  /// whose folder was not synced is the old or the new one. The same draws give the same image.
  std::unique_ptr<MemoryDisk> crash(Prng& prng) const;
  /// A copy with everything as it reads now, as after a kill of the process only.
  std::unique_ptr<MemoryDisk> copy() const;

  /// Bytes that all files together may take; writes and allocations over it are kStorageFull.
  void set_capacity(uint64_t bytes);
  uint64_t used() const;
  /// The `after`-th such call from now on fails with `code`, and every later one until `heal`. 0: the next.
  void fail(Call call, ErrorCode code, uint64_t after = 0);
  void heal();
  /// Writes of more than one byte stop half-way, as `pwrite` may.
  void set_short_writes(bool on);
  /// Called behind every call that changes something, outside the lock. It must not change the disk.
  void set_after_change(std::function<void()> hook);

  /// The file's bytes as they read now. The file must exist.
  std::string content(const std::string& path) const;
  /// Overwrites bytes of an existing file, durably, as decay or a person would.
  void corrupt(const std::string& path, uint64_t offset, std::string_view bytes);
  bool exists(const std::string& path) const;

 private:
  friend class MemoryFile;
  struct Inode;
  struct LockTable;
  class Lock;
  struct NameChange {
    std::string dir;
    std::vector<std::pair<std::string, std::shared_ptr<Inode>>> names;  // Null: the name goes.
  };
  struct Fault {
    ErrorCode code = ErrorCode::kIo;
    uint64_t after = 0;
  };

  std::optional<Error> fault(Call call, const std::string& path);
  Result<Unit> grow(Inode& inode, uint64_t size);
  void change_names(NameChange change);
  void changed();

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Inode>> names_;
  std::map<std::string, std::shared_ptr<Inode>> durable_names_;
  std::vector<NameChange> name_changes_;
  std::set<std::string> dirs_;
  std::shared_ptr<LockTable> locks_;
  std::map<Call, Fault> faults_;
  uint64_t capacity_ = UINT64_MAX;
  bool short_writes_ = false;
  std::function<void()> after_change_;
};

}  // namespace gpusched
