#include "engine/policy/fragmentation/index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace gpusched::policy {
namespace {

/// Ratings that one shape remembers by space.
constexpr std::size_t kKnownMax = 1u << 15;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 32);
}

}  // namespace

FragmentationIndex::Key FragmentationIndex::key_of(const NodeSpace& node) {
  Key key{.low = mixed(1, static_cast<uint64_t>(node.cpu_milli)),
          .high = mixed(2, static_cast<uint64_t>(node.memory_mb))};
  key.low = mixed(key.low, static_cast<uint64_t>(node.memory_mb));
  key.high = mixed(key.high, static_cast<uint64_t>(node.cpu_milli));
  const uint64_t kind = uint64_t{node.device_class} << 32 | node.device_count;
  key.low = mixed(key.low, kind);
  key.high = mixed(key.high, ~kind);
  std::array<uint64_t, limits::kDevicesPerNodeMax> holes{};
  for (uint32_t i = 0; i < node.device_count; ++i)
    holes[i] = uint64_t{node.milli[i]} << 32 | node.device_memory_mb[i];
  std::sort(holes.begin(), holes.begin() + node.device_count);
  for (uint32_t i = 0; i < node.device_count; ++i) {
    key.low = mixed(key.low, holes[i]);
    key.high = mixed(key.high, ~holes[i]);
  }
  return key;
}

void FragmentationIndex::use(const PlacementRule& rule) {
  rule_ = &rule;
  numbers_.clear();
  shapes_.clear();
  for (Held& held : nodes_) held.stands = false;
}

void FragmentationIndex::note(uint32_t slot) {
  // A shape that is further behind looks at every node instead.
  if (changes_.size() >= 4 * nodes_.size() + 64) {
    const std::size_t dropped = changes_.size() / 2;
    changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>(dropped));
    first_change_ += dropped;
  }
  nodes_[slot].changed = first_change_ + changes_.size();
  changes_.push_back(slot);
}

void FragmentationIndex::put(uint32_t slot, const NodeSpace& node) {
  CHECK(slot <= nodes_.size());
  CHECK(node.device_count <= limits::kDevicesPerNodeMax);
  if (slot == nodes_.size()) nodes_.emplace_back();
  Held& held = nodes_[slot];
  held.space = node;
  held.key = key_of(node);
  held.present = true;
  held.stands = false;
  note(slot);
}

void FragmentationIndex::remove(uint32_t slot) {
  CHECK(slot < nodes_.size());
  nodes_[slot].present = false;
  note(slot);
}

FragmentationIndex::Shape& FragmentationIndex::shape_of(const TaskShape& shape) {
  const auto [at, added] = numbers_.try_emplace(shape, shapes_.size());
  if (!added) return shapes_[at->second];
  if (shapes_.size() >= kShapesMax) {
    const auto oldest = std::min_element(shapes_.begin(), shapes_.end(),
                                         [](const Shape& a, const Shape& b) { return a.asked < b.asked; });
    numbers_.erase(oldest->shape);
    at->second = static_cast<std::size_t>(oldest - shapes_.begin());
    *oldest = Shape{};
    oldest->shape = shape;
    return *oldest;
  }
  shapes_.emplace_back().shape = shape;
  return shapes_.back();
}

int64_t FragmentationIndex::standing_of(Held& held) const {
  if (!held.stands) held.standing = rule_->standing(held.space);
  held.stands = true;
  return held.standing;
}

int32_t FragmentationIndex::value_of(Shape& shape, uint32_t slot) {
  Held& held = nodes_[slot];
  if (!held.present || !fits(shape.shape, held.space)) return kNone;
  if (shape.known.size() >= kKnownMax) shape.known.clear();
  const auto [at, added] = shape.known.try_emplace(held.key, 0);
  if (added) {
    ++ratings_;
    at->second = rule_->rate(shape.shape, held.space, standing_of(held)).value;
    CHECK(at->second != kNone);
  }
  return at->second;
}

void FragmentationIndex::set(Shape& shape, uint32_t slot, int32_t value) {
  std::size_t at = shape.leaves + slot;
  shape.tree[at] = value;
  for (at /= 2; at > 0; at /= 2) {
    const int32_t higher = std::max(shape.tree[2 * at], shape.tree[2 * at + 1]);
    if (shape.tree[at] == higher) return;
    shape.tree[at] = higher;
  }
}

// All nodes again, in a tree that has room for them.
void FragmentationIndex::grow(Shape& shape) {
  shape.leaves = std::bit_ceil(std::max<std::size_t>(nodes_.size(), 1));
  shape.tree.assign(2 * shape.leaves, kNone);
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot)
    shape.tree[shape.leaves + slot] = value_of(shape, slot);
  for (std::size_t at = shape.leaves - 1; at > 0; --at)
    shape.tree[at] = std::max(shape.tree[2 * at], shape.tree[2 * at + 1]);
}

void FragmentationIndex::catch_up(Shape& shape) {
  const uint64_t end = first_change_ + changes_.size();
  if (shape.leaves < nodes_.size() || shape.seen < first_change_) {
    grow(shape);
  } else {
    for (uint64_t change = shape.seen; change < end; ++change) {
      const uint32_t slot = changes_[static_cast<std::size_t>(change - first_change_)];
      // A node that changed again is looked at then.
      if (nodes_[slot].changed == change) set(shape, slot, value_of(shape, slot));
    }
  }
  shape.seen = end;
}

uint32_t FragmentationIndex::winner(const Shape& shape) {
  if (shape.tree[1] == kNone) return kGone;
  std::size_t at = 1;
  while (at < shape.leaves) at = shape.tree[2 * at] == shape.tree[at] ? 2 * at : 2 * at + 1;
  return static_cast<uint32_t>(at - shape.leaves);
}

FragmentationIndex::Found FragmentationIndex::found_at(const Shape& shape, uint32_t slot) {
  const NodeSpace& space = nodes_[slot].space;
  Found found{.slot = slot, .rate = {.value = shape.tree[shape.leaves + slot], .device = 0}, .devices = 0};
  // The device depends on their order, which nodes that share a rating need not share.
  if (shape.shape.is_share()) found.rate = rule_->rate(shape.shape, space, standing_of(nodes_[slot]));
  found.devices = devices_for(shape.shape, space, found.rate.device);
  return found;
}

std::optional<FragmentationIndex::Found> FragmentationIndex::best(const TaskShape& shape) {
  return best(shape, {});
}

std::optional<FragmentationIndex::Found> FragmentationIndex::best(
    const TaskShape& asked, const std::function<bool(const Found&)>& accept) {
  if (nodes_.empty()) return std::nullopt;
  Shape& shape = shape_of(asked);
  shape.asked = ++questions_;
  catch_up(shape);
  std::optional<Found> taken;
  std::vector<std::pair<uint32_t, int32_t>> turned_down;
  while (turned_down.size() < kTurnedDownMax) {
    const uint32_t slot = winner(shape);
    if (slot == kGone) break;
    const Found found = found_at(shape, slot);
    if (!accept || accept(found)) {
      taken = found;
      break;
    }
    turned_down.emplace_back(slot, found.rate.value);
    set(shape, slot, kNone);
  }
  for (const auto& [slot, value] : turned_down) set(shape, slot, value);
  return taken;
}

}  // namespace gpusched::policy
