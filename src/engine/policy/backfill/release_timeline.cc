#include "engine/policy/backfill/release_timeline.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpusched::policy {
namespace {

constexpr std::size_t kBlockMax = 128;

using Key = std::pair<Time, uint64_t>;

Key key_of(const Release& release) { return {release.end, release.id}; }

bool before(const Release& release, const Key& key) { return key_of(release) < key; }

}  // namespace

// The block whose range holds the key: the last that begins at or before it, or the first one.
std::size_t ReleaseTimeline::block_of(Time end, uint64_t id) const {
  CHECK(!blocks_.empty());
  const Key key{end, id};
  const auto after =
      std::upper_bound(blocks_.begin(), blocks_.end(), key,
                       [](const Key& k, const Block& block) { return k < key_of(block.items.front()); });
  return after == blocks_.begin() ? 0 : static_cast<std::size_t>(after - blocks_.begin()) - 1;
}

void ReleaseTimeline::add(const Release& release) {
  if (blocks_.empty()) blocks_.emplace_back();
  const std::size_t at = blocks_.size() == 1 ? 0 : block_of(release.end, release.id);
  std::vector<Release>& items = blocks_[at].items;
  const auto place = std::lower_bound(items.begin(), items.end(), key_of(release), before);
  CHECK(place == items.end() || key_of(*place) != key_of(release));
  items.insert(place, release);
  blocks_[at].sum += release.amounts;
  total_ += release.amounts;
  ++size_;
  if (items.size() <= kBlockMax) return;
  Block upper;
  upper.items.assign(items.begin() + kBlockMax / 2, items.end());
  items.resize(kBlockMax / 2);
  for (const Release& item : upper.items) upper.sum += item.amounts;
  blocks_[at].sum -= upper.sum;
  blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(upper));
}

void ReleaseTimeline::remove(Time end, uint64_t id) {
  const std::size_t at = block_of(end, id);
  Block& block = blocks_[at];
  const auto found = std::lower_bound(block.items.begin(), block.items.end(), Key{end, id}, before);
  CHECK(found != block.items.end());
  CHECK(key_of(*found) == Key(end, id));
  block.sum -= found->amounts;
  total_ -= found->amounts;
  --size_;
  block.items.erase(found);
  if (block.items.empty()) blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
}

void ReleaseTimeline::move(Time end, uint64_t id, Time new_end) {
  if (end == new_end) return;
  const Block& block = blocks_[block_of(end, id)];
  const auto found = std::lower_bound(block.items.begin(), block.items.end(), Key{end, id}, before);
  CHECK(found != block.items.end());
  CHECK(key_of(*found) == Key(end, id));
  const PoolAmounts amounts = found->amounts;
  remove(end, id);
  add({.end = new_end, .id = id, .amounts = amounts});
}

PoolAmounts ReleaseTimeline::released_until(Time at) const {
  PoolAmounts released;
  for (const Block& block : blocks_) {
    if (block.items.back().end <= at) {
      released += block.sum;
      continue;
    }
    for (const Release& item : block.items) {
      if (item.end > at) break;
      released += item.amounts;
    }
    break;
  }
  return released;
}

PoolAmounts ReleaseTimeline::held_after(Time at) const { return total_ - released_until(at); }

Shadow ReleaseTimeline::shadow(const PoolAmounts& capacity, const PoolAmounts& wanted, Time now) const {
  PoolAmounts free = capacity - held_after(now);
  if (wanted.fits(free)) return {.at = now, .free = free};
  if (!wanted.fits(capacity)) return {};
  // Releases only add up, so whole blocks that do not suffice are stepped over.
  free = capacity - total_;
  for (const Block& block : blocks_) {
    if (!wanted.fits(free + block.sum)) {
      free += block.sum;
      continue;
    }
    for (const Release& item : block.items) {
      free += item.amounts;
      if (wanted.fits(free)) return {.at = item.end, .free = capacity - held_after(item.end)};
    }
  }
  UNREACHABLE();  // With everything given back, all of the capacity is free.
}

}  // namespace gpusched::policy
