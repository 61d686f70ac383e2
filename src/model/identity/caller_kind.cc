#include "model/identity/caller_kind.h"

#include "base/check.h"

namespace gpusched {
namespace {

constexpr std::string_view kKinds[] = {"anonymous", "person", "service", "node", "operator"};
static_assert(std::size(kKinds) == static_cast<std::size_t>(kCallerKindLast));

}  // namespace

std::string_view to_string(CallerKind kind) {
  const std::size_t index = static_cast<std::size_t>(kind) - 1;
  CHECK(index < std::size(kKinds));
  return kKinds[index];
}

std::optional<CallerKind> caller_kind_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i] == name) return static_cast<CallerKind>(i + 1);
  }
  return std::nullopt;
}

}  // namespace gpusched
