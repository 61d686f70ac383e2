#pragma once

#include "base/ids.h"

namespace gpusched {

/// The attempt that most tests run: the first one of job 7, on its first node.
constexpr AttemptKey kKey{JobId{7}, 1, 0};

}  // namespace gpusched
