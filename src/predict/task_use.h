#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace gpusched::predict {

/// Learns what tasks of a kind use of a GPU from those that ended. A kind is a number that its owner makes;
/// tasks of one kind are expected to be alike.
///
/// Memory, by the newest `window` tasks of the kind whose memory is known, with m(1) <= ... <= m(n):
///
///     q        = m(ceil(0.95 n)), and at least the largest of those that were cut off
///     expected = q + max(q / 8, 64 MB)
///
/// A task that was cut off, ended for having more than it was given, would have had more still: its memory
/// counts as twice what was seen. Up to twenty tasks q is the largest. Nothing is said below three tasks.
///
/// The answer changes seldom, because tasks of another size are another class of jobs, and start another
/// persistent worker: it stays while `expected <= said <= 1.5 expected`, and otherwise becomes `expected`,
/// rounded up to four binary digits (9,000 to 9,216).
///
/// Utilisation is the mean of the newest `window` tasks of which it is known, from three on.
///
/// Costs: 0.8 kB for a kind at most, and `kinds_max` kinds: the one whose last task ended longest ago makes
/// room. `finished` is O(window log window + log kinds), all else O(1) or O(window). Not thread-safe.
class TaskUse {
 public:
  /// Shares are in thousandths.
  struct Options {
    std::size_t kinds_max = 4'096;
    std::size_t window = 64;
    std::size_t trusted_from = 3;  ///< Tasks of which something has to be known.
    int32_t memory_per_mille = 950;
    int32_t margin_per_mille = 125;
    int64_t margin_mb_min = 64;
  };
  /// How one task used its GPU.
  struct Seen {
    int64_t memory_mb = 0;                       ///< Its peak; 0: not known.
    std::optional<int32_t> busy_per_mille = {};  ///< How busy its GPU was; none: not known.
    bool cut_off = false;                        ///< Ended for having more memory than it was given.
  };

  TaskUse() : TaskUse(Options{}) {}
  explicit TaskUse(const Options& options) : options_(options) {}

  /// A task of the kind ended.
  void finished(uint64_t kind, const Seen& seen);
  /// Forgets the kind: what was learned of it is wrong.
  void forget(uint64_t kind);
  /// Memory that a task of the kind should have, in MB; nothing: too little is known.
  std::optional<int64_t> memory_mb(uint64_t kind) const;
  /// How busy it is expected to keep its GPU, 0 to 1000; nothing: too little is known.
  std::optional<int32_t> busy_per_mille(uint64_t kind) const;
  std::size_t kinds() const { return kinds_.size(); }

 private:
  struct Memory {
    int64_t mb = 0;
    bool cut_off = false;
  };
  /// The newest, as a ring.
  template <typename T>
  struct Ring {
    std::vector<T> values;
    std::size_t next = 0;

    void push(const T& value, std::size_t window);
  };
  struct Kind {
    uint64_t used = 0;
    int64_t said_mb = 0;  ///< 0: nothing yet.
    Ring<Memory> memory;
    Ring<int32_t> busy;
  };

  const Kind* find(uint64_t kind) const;
  Kind& kind_of(uint64_t kind);
  int64_t expected_mb(const Ring<Memory>& memory) const;

  Options options_;
  boost::unordered_flat_map<uint64_t, Kind> kinds_;
  std::set<std::pair<uint64_t, uint64_t>> by_use_;  ///< When, and which kind.
  uint64_t uses_ = 0;
};

}  // namespace gpusched::predict
