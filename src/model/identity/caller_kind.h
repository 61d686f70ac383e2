#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gpusched {

/// Kinds of callers. The numbers are for ever: owners of jobs are journaled. 0 stands for nobody in
/// particular, where something may have no owner.
enum class CallerKind : uint8_t {
  kAnonymous = 1,  ///< No credential.
  kPerson,    ///< A person: a Unix user of this machine, or somebody a provider of identities vouches for.
  kService,   ///< A program with an API key.
  kNode,      ///< An agent.
  kOperator,  ///< The holder of the shared token.
};
inline constexpr CallerKind kCallerKindLast = CallerKind::kOperator;
std::string_view to_string(CallerKind kind);
std::optional<CallerKind> caller_kind_named(std::string_view name);

}  // namespace gpusched
