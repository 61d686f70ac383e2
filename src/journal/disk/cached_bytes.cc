#include "journal/disk/cached_bytes.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace gpusched {

void CachedBytes::write(uint64_t offset, std::string_view bytes) {
  if (bytes.empty()) return;
  grow(offset + bytes.size());
  std::memcpy(cached_.data() + offset, bytes.data(), bytes.size());
  const uint64_t last = (offset + bytes.size() - 1) / kSectorBytes;
  for (uint64_t sector = offset / kSectorBytes; sector <= last; ++sector) set_dirty(sector, true);
}

void CachedBytes::grow(uint64_t size) {
  if (size > cached_.size()) cached_.resize(size, '\0');
}

void CachedBytes::sync() {
  device_.resize(cached_.size(), '\0');
  for (uint64_t sector = 0; dirty_count_ > 0; ++sector) {
    if (dirty_[sector]) reach_device(sector);
  }
}

void CachedBytes::lie_about_sync() {
  for (uint64_t sector = 0; sector < dirty_.size(); ++sector) {
    if (dirty_[sector]) promised_[sector] = sector_of(cached_, sector);
  }
}

void CachedBytes::fail_sync(Prng& prng) {
  write_back(prng);
  dirty_.clear();
  dirty_count_ = 0;
}

void CachedBytes::write_back(Prng& prng) {
  enum Mood : uint64_t { kAll, kNone, kSome, kFirst, kLast, kMoods };
  const uint64_t mood = prng.below(kMoods);
  const uint64_t bound = prng.below(dirty_count_ + 1);
  uint64_t seen = 0;
  for (uint64_t sector = 0; sector < dirty_.size() && dirty_count_ > 0; ++sector) {
    if (!dirty_[sector]) continue;
    seen += 1;
    const bool reaches = mood == kAll || (mood == kSome && prng.chance(500)) ||
                         (mood == kFirst && seen <= bound) || (mood == kLast && seen > bound);
    if (reaches) reach_device(sector);
  }
  if (prng.chance(500)) device_.resize(std::max(device_.size(), cached_.size()), '\0');
}

void CachedBytes::drop_cache() {
  for (uint64_t sector = 0; sector < sectors(); ++sector) {
    if (sector < dirty_.size() && dirty_[sector]) continue;
    const uint64_t at = sector * kSectorBytes;
    const uint64_t size = std::min(kSectorBytes, cached_.size() - at);
    std::string bytes = at < device_.size() ? device_.substr(at, size) : std::string();
    bytes.resize(size, '\0');
    cached_.replace(at, size, bytes);
  }
}

void CachedBytes::lose_power(Prng& prng) {
  write_back(prng);
  dirty_.clear();
  dirty_count_ = 0;
  cached_ = device_;
}

void CachedBytes::overwrite(uint64_t offset, std::string_view bytes) {
  CHECK(offset + bytes.size() <= cached_.size());
  std::memcpy(cached_.data() + offset, bytes.data(), bytes.size());
  decay(offset, bytes);
}

void CachedBytes::decay(uint64_t offset, std::string_view bytes) {
  if (offset >= device_.size() || bytes.empty()) return;
  bytes = bytes.substr(0, device_.size() - offset);
  const uint64_t last = (offset + bytes.size() - 1) / kSectorBytes;
  for (uint64_t sector = offset / kSectorBytes; sector <= last; ++sector) {
    intact_.try_emplace(sector, sector_of(device_, sector));
  }
  std::memcpy(device_.data() + offset, bytes.data(), bytes.size());
}

void CachedBytes::settle() {
  for (const auto& [sector, bytes] : promised_) {
    const bool dirty = sector < dirty_.size() && dirty_[sector];
    if (!dirty) cached_.replace(sector * kSectorBytes, bytes.size(), bytes);
  }
  promised_.clear();
  device_ = cached_;
  dirty_.clear();
  dirty_count_ = 0;
  intact_.clear();
}

void CachedBytes::misdirect(uint64_t offset, uint64_t size, std::optional<uint64_t> to, CachedBytes& other) {
  if (size == 0) return;
  const uint64_t last = (offset + size - 1) / kSectorBytes;
  for (uint64_t sector = offset / kSectorBytes; sector <= last; ++sector) {
    const std::string bytes = sector_of(cached_, sector);
    if (to) other.overwrite_on_device(*to + sector - offset / kSectorBytes, bytes);
    set_dirty(sector, false);
    promised_.erase(sector);
    intact_[sector] = bytes;
  }
  device_.resize(std::max(device_.size(), cached_.size()), '\0');
}

void CachedBytes::overwrite_on_device(uint64_t sector, std::string_view bytes) {
  const uint64_t at = sector * kSectorBytes;
  if (at >= device_.size()) return;
  intact_.try_emplace(sector, sector_of(device_, sector));
  std::memcpy(device_.data() + at, bytes.data(), std::min<std::size_t>(bytes.size(), device_.size() - at));
}

void CachedBytes::repair() {
  for (const auto& [sector, bytes] : intact_) {
    const uint64_t at = sector * kSectorBytes;
    if (device_.size() < at + bytes.size()) device_.resize(at + bytes.size(), '\0');
    std::memcpy(device_.data() + at, bytes.data(), bytes.size());
    const bool dirty = sector < dirty_.size() && dirty_[sector];
    if (!dirty && at + bytes.size() <= cached_.size())
      std::memcpy(cached_.data() + at, bytes.data(), bytes.size());
  }
  intact_.clear();
}

void CachedBytes::set_dirty(uint64_t sector, bool dirty) {
  if (sector >= dirty_.size()) dirty_.resize(std::max<uint64_t>(sector + 1, sectors()));
  if (dirty_[sector] == dirty) return;
  dirty_[sector] = dirty;
  if (dirty) {
    dirty_count_ += 1;
  } else {
    dirty_count_ -= 1;
  }
}

void CachedBytes::reach_device(uint64_t sector) {
  const uint64_t at = sector * kSectorBytes;
  const uint64_t size = std::min(kSectorBytes, cached_.size() - at);
  if (device_.size() < at + size) device_.resize(at + size, '\0');
  std::memcpy(device_.data() + at, cached_.data() + at, size);
  set_dirty(sector, false);
  intact_.erase(sector);
  promised_.erase(sector);
}

std::string CachedBytes::sector_of(const std::string& bytes, uint64_t sector) const {
  return bytes.substr(std::min<std::size_t>(sector * kSectorBytes, bytes.size()), kSectorBytes);
}

}  // namespace gpusched
