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

/// What is kept for jobs that wait: of nodes, and of limits (docs/policies.md, "Backfilling").
namespace gpusched {

/// What a promised job needs of one node.
struct BackfillHold {
  uint32_t node = 0;
  policy::PoolAmounts wanted;
  policy::PoolAmounts extra;  ///< What is left beside it at the start.
};

/// The earliest start of a blocked class's first job, on the nodes that come to have room for it.
struct BackfillReservation {
  uint32_t job_class = 0;
  JobId job;
  policy::QueueKey key;
  Time start;
  std::vector<BackfillHold> holds;        ///< By node, ascending; of a job of one member there is one.
  Time looked_at;                         ///< Of a gang: when its start was last looked for,
  DomainLevel level = DomainLevel::kAny;  ///< and the level of the domain that holds it.

  const BackfillHold* on(uint32_t slot) const;
  BackfillHold* on(uint32_t slot) { return const_cast<BackfillHold*>(std::as_const(*this).on(slot)); }
  /// Until then work may pass it that is expected to be gone by `start`; after that only work that must be.
  Time trusting_until;
};

/// Whose limit, without a tenant this work's pool, and whether for who waits for another limit.
using LimitKey = std::tuple<TenantId, WorkClass, bool>;

/// What is left of a limit is kept for who waits first for it, or is first to need it then.
struct LimitClaim {
  uint32_t job_class = 0;
  LimitKey nearest;  ///< The limit that keeps it waiting.
  JobId job;
  policy::QueueKey key;
  /// When enough of all its limits is expected to be back; when that was found; see BackfillReservation.
  Time start, found_at, trusting_until;
};

}  // namespace gpusched
