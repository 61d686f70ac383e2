#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "engine/policy/backfill/pool_amounts.h"
#include "engine/policy/policy.h"
#include "model/types.h"

/// Resources kept for waiting jobs: parts of nodes, and of limits (docs/policies.md, "Backfilling").
namespace gpusched {

/// Needs of a promised job on one node.
struct BackfillHold {
  uint32_t node = 0;
  policy::PoolAmounts wanted;
  policy::PoolAmounts extra;  ///< Rest beside it at the start.
};

/// The earliest start of a blocked class's first job, on the nodes that come to have room for it.
struct BackfillReservation {
  uint32_t job_class = 0;
  JobId job;
  policy::QueueKey key;
  Time start;
  std::vector<BackfillHold> holds;        ///< By node, ascending; of a job of one member there is one.
  Time looked_at;                         ///< Gangs only: when its start was last looked for.
  DomainLevel level = DomainLevel::kAny;  ///< Gangs only: level of the domain that holds it.

  const BackfillHold* on(uint32_t slot) const;
  BackfillHold* on(uint32_t slot) { return const_cast<BackfillHold*>(std::as_const(*this).on(slot)); }
  /// Until then work may pass it that is expected to be gone by `start`; after that only work that must be.
  Time trusting_until;
};

/// Key of a limit: its tenant (none: the work's pool), the pool, and whether the job waits for another one.
using LimitKey = std::tuple<TenantId, WorkClass, bool>;

/// Keeps the rest of a limit for the job that waits first for it, or that is first to need it then.
struct LimitClaim {
  uint32_t job_class = 0;
  LimitKey nearest;  ///< The limit that keeps it waiting.
  JobId job;
  policy::QueueKey key;
  /// When enough of all its limits is expected to be back; when that was found; see BackfillReservation.
  Time start, found_at, trusting_until;
};

}  // namespace gpusched
