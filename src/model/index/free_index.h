#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/limits.h"

namespace gpusched {

/// A set of small integers, one bit each; grows on insert.
/// It costs what its members cost, not what its largest one does: a second level says which words have any.
class Bitmap {
 public:
  bool test(uint32_t index) const {
    return index / 64 < words_.size() && ((words_[index / 64] >> (index % 64)) & 1) != 0;
  }
  void set(uint32_t index) {
    const std::size_t at = index / 64;
    if (at >= words_.size()) words_.resize(at + 1);
    if (at / 64 >= filled_.size()) filled_.resize(at / 64 + 1);
    words_[at] |= uint64_t{1} << (index % 64);
    filled_[at / 64] |= uint64_t{1} << (at % 64);
  }
  void clear(uint32_t index) {
    const std::size_t at = index / 64;
    if (at >= words_.size()) return;
    words_[at] &= ~(uint64_t{1} << (index % 64));
    if (words_[at] == 0) filled_[at / 64] &= ~(uint64_t{1} << (at % 64));
  }
  void clear_all() {
    words_.clear();
    filled_.clear();
  }
  bool empty() const {
    return std::all_of(filled_.begin(), filled_.end(), [](uint64_t word) { return word == 0; });
  }
  uint64_t word(std::size_t at) const { return at < words_.size() ? words_[at] : 0; }

  /// The smallest member >= `from` that is not in `except`; kNone when there is none.
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t next_not_in(const Bitmap& except, uint32_t from) const {
    const std::size_t first = from / 64;
    for (std::size_t group = first / 64; group < filled_.size(); ++group) {
      uint64_t filled = filled_[group];
      if (group == first / 64) filled &= ~uint64_t{0} << (first % 64);
      for (; filled != 0; filled &= filled - 1) {
        const std::size_t at = group * 64 + static_cast<std::size_t>(__builtin_ctzll(filled));
        uint64_t word = words_[at] & ~except.word(at);
        if (at == first) word &= ~uint64_t{0} << (from % 64);
        if (word != 0) return static_cast<uint32_t>(at * 64) + static_cast<uint32_t>(__builtin_ctzll(word));
      }
    }
    return kNone;
  }

 private:
  std::vector<uint64_t> words_;
  std::vector<uint64_t> filled_;  ///< One bit for each nonzero word.
};

/// Nodes by how many free devices of each class they have (docs/policies.md, "Where a job fits best"; why a
/// placement must not look at all nodes: docs/adr/waiting-jobs.md#group-waiting-jobs-into-classes).
///
/// Problem: best fit wants the node with the fewest free devices that still suffice, among ten thousand
/// nodes.
/// Idea: one bucket for each class and count, a bitmap of nodes each; a search begins at the count that is
/// wanted and goes up. Class `kNoDevices` holds every node by its free devices of any class: jobs without
/// GPUs start at the nodes that have fewest to lose.
/// Example: n0, n1 and n2 have 1, 4 and 8 free A100s. For 2 buckets 2 and 3 are empty, bucket 4 has n1: it is
/// looked at first, and n2 only if a filter turns n1 down. n0 is never looked at.
/// Cost: `put` and `remove` O(1), a search O(buckets + nodes that are turned down). Not thread-safe.
class FreeIndex {
 public:
  static constexpr uint32_t kNoDevices = limits::kDeviceClassesMax;

  /// Puts `node` into the bucket of `free` devices of `device_class`, out of the bucket it was in.
  void put(uint32_t node, uint32_t device_class, uint32_t free);
  /// Takes `node` out of every bucket of `device_class`.
  void remove(uint32_t node, uint32_t device_class);
  /// The nodes with exactly `free` free devices of `device_class`.
  const Bitmap& bucket(uint32_t device_class, uint32_t free) const;
  /// The largest `free` that some node has of `device_class`; 0 when there is none.
  uint32_t free_max(uint32_t device_class) const;

 private:
  static constexpr uint8_t kAbsent = UINT8_MAX;
  struct Class {
    std::vector<Bitmap> buckets;        ///< Indexed by free count.
    std::vector<uint32_t> counts;       ///< Nodes in each.
    std::vector<uint8_t> free_of_node;  ///< Indexed by node slot.
  };
  std::vector<Class> classes_;
  Bitmap empty_;
};

}  // namespace gpusched
