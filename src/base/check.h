#pragma once

namespace gpusched {

/// Prints the failed fact and ends the process; on a thread with ThrowingChecks throws a CheckFailure
/// instead. Never returns.
[[noreturn]] void check_failed(const char* fact, const char* file, int line);

/// A CHECK that failed on a thread with ThrowingChecks.
struct CheckFailure {
  const char* fact;
  const char* file;
  int line;
};

/// While one lives, a failed CHECK of its thread throws a CheckFailure instead of ending the process. Only
/// for work on copies that are thrown away with it, such as a forecast: what the work changed is not to be
/// trusted afterwards. A CHECK in a `noexcept` function or a destructor ends the process all the same.
class ThrowingChecks {
 public:
  ThrowingChecks();
  ~ThrowingChecks();
  ThrowingChecks(const ThrowingChecks&) = delete;
  ThrowingChecks& operator=(const ThrowingChecks&) = delete;
};

}  // namespace gpusched

/// States a fact that only our own bug can break. Always on. One fact per CHECK.
#define CHECK(fact)                                        \
  do {                                                     \
    if (!(fact)) [[unlikely]]                              \
      ::gpusched::check_failed(#fact, __FILE__, __LINE__); \
  } while (false)

/// A place that control flow cannot reach, such as after a switch over every enumerator.
#define UNREACHABLE() ::gpusched::check_failed("unreachable", __FILE__, __LINE__)
