#pragma once

#include <cstdint>

#include "engine/policy/backfill/pool_amounts.h"

/// For tests only: amounts of the first two resources.
namespace gpusched::testing {

inline policy::PoolAmounts amounts(int64_t a, int64_t b = 0) { return {.value = {a, b}}; }

}  // namespace gpusched::testing
