#pragma once

#include <cstdint>

#include "base/time.h"

/// Estimates that ran out (docs/policies.md, "The arithmetic of backfilling").
///
/// Problem: work that should have ended runs on. Left in the past, its estimate would promise room that is
/// not there.
/// Idea: the estimate moves on, by little at first, since most overruns are short, then by ever more.
/// Example: estimated at 10 min, without a limit: expected at 11, 15, 25, 40 min and so on, each time that
/// the one before has passed. With `kLimit` it is expected at its limit at once.
/// Cost: O(1).
namespace gpusched::policy {

/// Ways to correct an estimate that ran out while its work runs on.
enum class Correction : uint8_t {
  kTsafrir = 1,  ///< A little more than first estimated, then ever more (`tsafrir_increment`).
  kLimit,        ///< At once the work's own limit; as kTsafrir where it has none or that is over too.
};

/// Amount that correction number `correction` (0 is the first) adds to the first estimate: 1, 5, 15, 30 min,
/// then 1, 2, 5, 10, 20, 50, 100 h, and 100 h from then on. Tsafrir, Etsion, Feitelson 2007, "Backfilling
/// using system-generated predictions rather than user runtime estimates", section 4.2. O(1).
Duration tsafrir_increment(uint32_t correction);

/// An estimate that ran out, and what the next one may know.
struct Overrun {
  Duration first_estimate;   ///< Estimate of the whole run, before any correction.
  Duration elapsed;          ///< Since the work started.
  uint32_t corrections = 0;  ///< How many this run has had before; `corrected_estimate` counts on.
  Duration limit;            ///< The work is ended then; zero: it has none.
};

/// The new estimate of the whole run. It is always longer than `elapsed`, so that work which still runs is
/// never counted as gone, and not beyond the limit while that lies ahead. Makes as many corrections at once
/// as that takes. O(1).
Duration corrected_estimate(Correction correction, Overrun& overrun);

}  // namespace gpusched::policy
