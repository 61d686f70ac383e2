#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "engine/policy/backfill/pool_amounts.h"

namespace gpusched::policy {

/// Running work as backfilling sees it: what it holds, and when it is expected to give that back.
struct Release {
  Time end;
  uint64_t id = 0;
  PoolAmounts amounts;
};

/// When something blocked will fit, and what stays free then beside everything that runs on.
struct Shadow {
  Time at = kNever;  ///< kNever: it asks for more than the pool has, whoever ends.
  PoolAmounts free;  ///< At `at`, what is asked for not yet taken off.
};

/// The running work of one pool in the order of its estimated ends (docs/policies.md, "Backfilling").
///
/// Problem: "when will 5 GPUs be free at once?" is asked for every blocked head, and work comes and goes
/// between two questions.
/// Idea: work sorted by its estimated end, in blocks that know the sum of what they hold, so that whole
/// blocks are passed over.
/// Example: 6 GPUs; A holds 4 until 10, B holds 2 until 20. 5 GPUs are wanted: at 10 only 4 are free, at 20
/// all 6, so the shadow time is 20, and 1 is left over then.
/// Cost: a change O(log n + B), a question O(n / B + B) for n pieces of work and blocks of at most B = 128;
/// 100,000 pieces answer in about a microsecond. Not thread-safe.
///
/// Work whose estimated end has come counts as gone, also while its real end is still to be reported: whoever
/// knows better moves its end on (`overrun.h`).
class ReleaseTimeline {
 public:
  /// Adds a piece of work. Its (end, id) is used once.
  void add(const Release& release);
  /// Takes a piece of work out; it must be there under this end.
  void remove(Time end, uint64_t id);
  /// Its estimate has changed.
  void move(Time end, uint64_t id, Time new_end);

  std::size_t size() const { return size_; }
  const PoolAmounts& total() const { return total_; }

  /// Resources held by work whose estimated end is later than `at`.
  PoolAmounts held_after(Time at) const;
  /// The earliest instant, `now` or an estimated end after it, at which `wanted` fits into `capacity` beside
  /// the work that runs on (Lifka 1995, "The ANL/IBM SP scheduling system": the shadow time of EASY's head).
  Shadow shadow(const PoolAmounts& capacity, const PoolAmounts& wanted, Time now) const;

  /// Visits the work in order of (end, id), beginning with the first whose end is later than `after`.
  template <typename Visit>
  void for_each_after(Time after, Visit&& visit) const {
    for (const Block& block : blocks_) {
      if (block.items.back().end <= after) continue;
      for (const Release& item : block.items) {
        if (item.end > after) visit(item);
      }
    }
  }

 private:
  struct Block {
    std::vector<Release> items;
    PoolAmounts sum;
  };

  std::size_t block_of(Time end, uint64_t id) const;
  PoolAmounts released_until(Time at) const;

  std::vector<Block> blocks_;  ///< None is empty.
  PoolAmounts total_;
  std::size_t size_ = 0;
};

}  // namespace gpusched::policy
