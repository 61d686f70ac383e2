#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "engine/policy/backfill/availability.h"
#include "engine/policy/backfill/pool_amounts.h"
#include "engine/policy/backfill/release_timeline.h"

/// Backfilling over one pool: docs/policies.md, "The arithmetic of backfilling", has formulas and sources.
///
/// Problem: in strict order every job waits behind a large one; without order the large one waits for ever.
/// Idea: work that waits may start before older work that does not fit yet, as long as that is not made to
/// wait longer by it. EASY (Lifka 1995; Mu'alem, Feitelson 2001) reserves for the head alone, conservative
/// backfilling for everyone; both are one pass here with another number of reservations.
/// Example: 8 GPUs, 6 of them held until 10:00, and it is 9:00. The head wants 6: it is promised 10:00, when
/// 8 - 6 = 2 are left over. A job of 2 for half an hour starts: it is gone by then. A job of 2 for five hours
/// could start beside the head instead, and would use up what is left over; the next such one is blocked.
/// Cost: with one reservation about a microsecond for the head and O(1) for each job behind it.
///
///   BackfillPass pass({.capacity = all, .running = &timeline, .now = now, .reservations_max = 1});
///   for (const Waiting& work : queue) {                       // first in queue order, ...
///     const Offer offer = pass.offer(work);
///     if (offer.verdict == Verdict::kStart) start(work);
///   }                                                         // ... once one is blocked in any other
///
/// Pure: integers, time comes as an argument, nothing depends on the order of memory.
namespace gpusched::policy {

/// A piece of work that waits for one pool.
struct Waiting {
  uint64_t id = 0;
  PoolAmounts amounts;
  Duration estimate;  ///< How long it is expected to run; zero is allowed and means "gone at once".
};

/// A start that was promised to blocked work.
struct Reservation {
  uint64_t id = 0;
  Time start;
  PoolAmounts amounts;
  Duration estimate;
};

enum class Verdict : uint8_t {
  kStart = 1,  ///< It fits now and delays no reservation; it is in the timeline already.
  kReserved,   ///< Blocked, and its start is promised.
  kBlocked,    ///< Blocked, or it would delay a reservation; all reservations are given out.
  kTooLarge,   ///< It asks for more than the whole pool has.
};

struct Offer {
  Verdict verdict = Verdict::kBlocked;
  Time start = kNever;  ///< `now` for kStart, the promise for kReserved.
};

/// One scheduling pass over the waiting work of one pool at one instant.
///
/// Guarantee: as long as running work ends no later than estimated, reserved work starts no later than any
/// pass promised it, whatever was started in its place. With one reservation that holds while the reserved
/// work stays the first one blocked; with more, hand the last pass's promises (those still waiting) in as
/// `promises`. Work that overruns its estimate pushes reservations by as much as its new estimate says, and
/// no pass pretends otherwise.
///
/// Costs, for n pieces running and s steps of the profile: with one reservation O(n / 128 + 128) when the
/// first is blocked and O(1) for each further offer; with more O(n) at the first block and O(s) for each
/// offer. Not thread-safe.
class BackfillPass {
 public:
  struct Setup {
    PoolAmounts capacity;
    /// The running work of the pool. All that this pass starts is added; take it out again if it does not
    /// start after all. Outlives the pass.
    ReleaseTimeline* running = nullptr;
    Time now;
    /// 0: whatever fits starts, and large work may starve. 1: EASY. UINT32_MAX: conservative.
    uint32_t reservations_max = 1;
    /// Promises of an earlier pass to work that still waits, in the order in which it is offered. Used with
    /// more than one reservation. Those that overruns made impossible are forgotten.
    std::span<const Reservation> promises = {};
  };

  explicit BackfillPass(const Setup& setup);

  /// The next in line. Its id is offered once in a pass.
  Offer offer(const Waiting& work);

  /// True once something was blocked: from here on the order of offers is the caller's choice, such as the
  /// shortest first, for the work beyond the reservations.
  bool blocked() const { return blocked_; }
  /// True while a blocked offer would be given a reservation.
  bool reserving() const { return given_.size() + kept_.size() < reservations_max_; }
  /// Free resources now, without what this pass has started.
  const PoolAmounts& free() const { return free_; }
  /// The reservations of this pass in the order in which they were given.
  const std::vector<Reservation>& reservations() const { return given_; }

 private:
  bool uses_profile() const { return reservations_max_ > 1; }
  Offer start(const Waiting& work);
  Offer offer_easy(const Waiting& work);
  Offer offer_profile(const Waiting& work);
  void keep(std::span<const Reservation> promises);

  PoolAmounts capacity_;
  ReleaseTimeline* running_;
  Time now_;
  uint32_t reservations_max_;
  PoolAmounts free_;
  bool blocked_ = false;
  std::vector<Reservation> given_;
  Time shadow_ = kNever;               ///< With one reservation: its start.
  PoolAmounts extra_;                  ///< With one reservation: the rest beside it then.
  std::vector<Availability> profile_;  ///< With several: none or one.
  std::vector<Reservation> kept_;      ///< Promises that the profile holds and that were not offered yet.
};

/// Puts the indexes 0 .. n-1 of `estimates` in the order of the estimates, equal ones as they stand: the scan
/// order of EASY-SJBF (Tsafrir et al. 2007). O(n log n).
std::vector<uint32_t> shortest_first(std::span<const Duration> estimates);

}  // namespace gpusched::policy
