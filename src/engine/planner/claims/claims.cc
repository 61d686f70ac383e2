#include "engine/planner/claims/claims.h"

#include <algorithm>

namespace gpusched {

const BackfillHold* BackfillReservation::on(uint32_t slot) const {
  const auto found =
      std::lower_bound(holds.begin(), holds.end(), slot,
                       [](const BackfillHold& hold, uint32_t other) { return hold.node < other; });
  return found == holds.end() || found->node != slot ? nullptr : &*found;
}

}  // namespace gpusched
