#pragma once

#include <sodium.h>

#include "base/check.h"

namespace gpusched::sign {

/// Makes libsodium ready; the first call does the work. Thread-safe.
inline void init_sodium() {
  static const bool ready = sodium_init() >= 0;
  CHECK(ready);
}

}  // namespace gpusched::sign
