#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace gpusched {
namespace {

thread_local int throwing_checks = 0;

}  // namespace

ThrowingChecks::ThrowingChecks() { ++throwing_checks; }
ThrowingChecks::~ThrowingChecks() { --throwing_checks; }

void check_failed(const char* fact, const char* file, int line) {
  std::fprintf(stderr, "CHECK failed: %s (%s:%d)\n", fact, file, line);
  if (throwing_checks > 0) throw CheckFailure{.fact = fact, .file = file, .line = line};
  std::abort();
}

}  // namespace gpusched
