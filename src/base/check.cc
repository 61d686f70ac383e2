#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace gpusched {

void check_failed(const char* fact, const char* file, int line) noexcept {
  std::fprintf(stderr, "CHECK failed: %s (%s:%d)\n", fact, file, line);
  std::abort();
}

}  // namespace gpusched
