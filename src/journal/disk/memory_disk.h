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
#include "journal/disk/disk.h"

namespace gpusched {

/// A file system in memory for tests and the simulation, with a page cache: what was written and not synced
/// survives the end of its process, and is lost, torn or reordered when the power goes. Names are durable
/// once their folder was synced. It breaks on demand. Thread-safe; files stay usable as long as the disk
/// lives.
class MemoryDisk final : public Disk {
 public:
  enum class Call {
    kOpen,
    kWrite,
    kRead,
    kSync,
    kAllocate,
    kRename,
    kRemove,
    kSyncDir,
    kMap,
    kList,
    kMakeDir,
  };
  static constexpr std::size_t kCallCount = 11;
  /// Behaviour of a call.
  enum class Outcome : uint8_t {
    kDone,
    /// An error, and nothing was done. A failed `fdatasync` leaves its file clean, and on the device by
    /// chance.
    kFails,
    /// An error, and yet it was done; a write was done by half.
    kFailsLate,
    /// No error, and nothing more: a sync leaves everything dirty, a write never reaches the device, a read
    /// and a mapping have one wrong bit. Other calls are done.
    kLies,
    /// A write is read back as it should be, and reaches the device at another place. Other calls are done.
    kStrays,
  };
  struct Verdict {
    Outcome outcome = Outcome::kDone;
    ErrorCode code = ErrorCode::kIo;
  };
  /// Asked before each call; must not use the disk.
  using Rule = std::function<Verdict(Call, const std::string& path)>;

  /// `seed`: for what chance decides in a call that fails.
  explicit MemoryDisk(uint64_t seed = 1);
  ~MemoryDisk() override;

  Result<std::unique_ptr<DiskFile>> open(const std::string& path, DiskOpen mode) override;
  Result<std::unique_ptr<DiskMapping>> map(const std::string& path) override;
  Result<Unit> rename(const std::string& from, const std::string& to) override;
  Result<Unit> remove(const std::string& path) override;
  Result<Unit> make_dir(const std::string& path) override;
  Result<Unit> sync_dir(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<std::unique_ptr<DiskLock>> lock(const std::string& path) override;
  /// Known once it has a capacity.
  std::optional<DiskRoom> room(const std::string& path) override;

  /// Image of the disk after a power loss now: each dirty sector of 512 bytes is the old or the new one, and
  /// so is each name whose folder was not synced. The same draws give the same image.
  std::unique_ptr<MemoryDisk> crash(Prng& prng) const;
  /// Image for another process after this one was killed: everything as it reads now, and what was not synced
  /// can still be lost.
  std::unique_ptr<MemoryDisk> killed() const;
  /// The power goes, here. Files that are open stay usable and are nobody's any more.
  void lose_power(Prng& prng);
  /// The kernel writes some of what is dirty.
  void write_back(Prng& prng);
  /// Everything that reads as written becomes durable.
  void settle();
  /// The kernel forgets clean pages: what a failed sync did not write reads as before.
  void drop_cache();

  /// Bytes that all files together may take; writes and allocations over it are kStorageFull.
  void set_capacity(uint64_t bytes);
  uint64_t used() const;
  /// Null: every call is done.
  void set_rule(Rule rule);
  /// The `after`-th such call from now on fails with `code`, and every later one until `heal`. 0: the next.
  void fail(Call call, ErrorCode code, uint64_t after = 0);
  /// Only the `after`-th such call from now on behaves so. One for each kind of call.
  void fail_once(Call call, Verdict verdict, uint64_t after = 0);
  void heal();
  /// Writes of more than one byte stop half-way, as `pwrite` may.
  void set_short_writes(bool on);
  /// Called behind every call that changes something, outside the lock. It must not change the disk.
  void set_after_change(std::function<void()> hook);

  /// The file's bytes as they read now. The file must exist.
  std::string content(const std::string& path) const;
  /// The file's bytes as they would read behind a loss of power now. The file must exist.
  std::string on_device(const std::string& path) const;
  /// Overwrites bytes of an existing file, durably, as a person would.
  void corrupt(const std::string& path, uint64_t offset, std::string_view bytes);
  /// The same on the device only: it reads so once the kernel has forgotten the pages.
  void decay(const std::string& path, uint64_t offset, std::string_view bytes);
  /// A file's bytes on the device are not what was written there, by `corrupt`, `decay` or a write that
  /// strayed or never came, and no later write has repaired it.
  bool is_damaged() const;
  /// Repairs all that, as a mirror would.
  void repair();
  bool exists(const std::string& path) const;
  /// Paths of all files, sorted.
  std::vector<std::string> files() const;

 private:
  friend class MemoryFile;
  struct Inode;
  struct LockTable;
  class Lock;
  struct NameChange {
    std::string dir;  ///< Folder whose sync makes it durable.
    std::vector<std::pair<std::string, std::shared_ptr<Inode>>> names;  ///< Null: the name goes.
    std::string made_dir;                                               ///< Not empty: this folder comes.
  };
  struct Planned {
    Verdict verdict;
    uint64_t after = 0;
    bool once = false;
  };

  Verdict judge(Call call, const std::string& path);
  static Error injected(const Verdict& verdict, const std::string& path);
  Result<Unit> grow(const Inode& inode, uint64_t size) const;
  void change_names(NameChange change);
  void make_durable(const NameChange& change);
  void stray(Inode& inode, uint64_t offset, uint64_t size);
  std::unique_ptr<MemoryDisk> clone() const;
  void changed();

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Inode>> names_;
  std::map<std::string, std::shared_ptr<Inode>> durable_names_;
  std::set<std::string> dirs_;
  std::set<std::string> durable_dirs_;
  std::vector<NameChange> name_changes_;  ///< Not durable yet.
  std::shared_ptr<LockTable> locks_;
  Rule rule_;
  std::map<Call, Planned> planned_;
  Prng prng_;
  uint64_t capacity_ = UINT64_MAX;
  bool short_writes_ = false;
  std::function<void()> after_change_;
};

}  // namespace gpusched
