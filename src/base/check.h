#pragma once

namespace gpusched {

/// Prints the failed fact and ends the process. Never returns, never throws.
[[noreturn]] void check_failed(const char* fact, const char* file, int line) noexcept;

}  // namespace gpusched

/// States a fact that only our own bug can break. Always on. One fact per CHECK.
#define CHECK(fact)                                        \
  do {                                                     \
    if (!(fact)) [[unlikely]]                              \
      ::gpusched::check_failed(#fact, __FILE__, __LINE__); \
  } while (false)

/// A place that control flow cannot reach, such as after a switch over every enumerator.
#define UNREACHABLE() ::gpusched::check_failed("unreachable", __FILE__, __LINE__)
