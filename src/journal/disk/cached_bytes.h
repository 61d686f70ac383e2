#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"

namespace gpusched {

/// A file's bytes twice: as readers see them, in the page cache, and as the device has them. A written byte
/// is dirty until it is synced; a power loss leaves each dirty sector as the device has it or as the cache
/// has it. For tests and the simulation. Not thread-safe.
class CachedBytes {
 public:
  /// Written whole or not at all.
  static constexpr uint64_t kSectorBytes = 512;

  const std::string& cached() const { return cached_; }
  const std::string& on_device() const { return device_; }
  bool is_dirty() const { return dirty_count_ > 0 || cached_.size() != device_.size(); }

  void write(uint64_t offset, std::string_view bytes);
  /// Grows with zero bytes; a size that is not larger changes nothing.
  void grow(uint64_t size);
  /// Everything dirty reaches the device.
  void sync();
  /// A sync that the device only says it did: nothing reaches it now. `settle` makes it true, whatever later
  /// syncs do to these sectors.
  void lie_about_sync();
  /// A sync that failed: each dirty sector reached the device or did not, by the draw, and none is dirty any
  /// more. No later sync writes it again; readers see it until the cache drops it.
  void fail_sync(Prng& prng);
  /// Writes some dirty sectors to the device, as the kernel may at any time.
  void write_back(Prng& prng);
  /// Clean sectors are read from the device from now on.
  void drop_cache();
  /// The power goes and comes back.
  void lose_power(Prng& prng);

  /// Changes bytes in the cache and on the device, as a person would. They must exist.
  void overwrite(uint64_t offset, std::string_view bytes);
  /// Changes bytes on the device only, as far as they are there: the cache shows it once it has dropped them.
  void decay(uint64_t offset, std::string_view bytes);
  /// The device has what the cache has, whatever became of earlier syncs.
  void settle();
  /// The sectors of a write that was just made never reach their place on the device. With `to`, they land at
  /// that sector and those behind it instead, in this file or in `other`.
  void misdirect(uint64_t offset, uint64_t size, std::optional<uint64_t> to, CachedBytes& other);
  /// The device differs from what was written to it by decay or misdirection, and no later write has repaired
  /// it.
  bool is_damaged() const { return !intact_.empty(); }
  /// Puts back what should be there, as a mirror or a backup would.
  void repair();

 private:
  uint64_t sectors() const { return (cached_.size() + kSectorBytes - 1) / kSectorBytes; }
  void set_dirty(uint64_t sector, bool dirty);
  /// Copies one sector from the cache to the device.
  void reach_device(uint64_t sector);
  void overwrite_on_device(uint64_t sector, std::string_view bytes);
  std::string sector_of(const std::string& bytes, uint64_t sector) const;

  std::string cached_;
  std::string device_;
  std::vector<bool> dirty_;  ///< Indexed by sector; may be shorter than the file.
  uint64_t dirty_count_ = 0;
  std::map<uint64_t, std::string> promised_;  ///< Sectors of a sync that the device only said it did.
  std::map<uint64_t, std::string> intact_;    ///< Intact content of damaged sectors of the device.
};

}  // namespace gpusched
