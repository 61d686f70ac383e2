#pragma once

#include "base/time.h"

namespace gpusched::cli {

/// The time at which tests look at jobs: 2025-01-31, 09:01:40 UTC.
constexpr Time kNow{1'738'314'100'000'000'000};

}  // namespace gpusched::cli
