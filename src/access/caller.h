#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/identity/binding.h"

namespace gpusched::access {

/// Who is asking. The numbers are for ever: owners of jobs are to be journaled.
enum class CallerKind : uint8_t {
  kAnonymous = 1,  ///< No credential.
  kPerson,    ///< A person: a Unix user of this machine, or somebody a provider of identities vouches for.
  kService,   ///< A program with an API key.
  kNode,      ///< An agent.
  kOperator,  ///< The holder of the shared token.
};
std::string_view to_string(CallerKind kind);
std::optional<CallerKind> caller_kind_named(std::string_view name);

/// Identity of a call: made from its credential, once, before anything else looks at the call, and never from
/// where the connection comes. A value; reading it is thread-safe.
struct Caller {
  CallerKind kind = CallerKind::kAnonymous;
  /// Name, unique among callers of one kind: what jobs' owners are compared with. Empty: anonymous.
  std::string name = {};
  std::string key_id = {};  ///< Public part of the credential; empty: it has none.
  /// What it may do. Of no meaning for nodes and for anonymous callers, whose kind says it.
  std::vector<Binding> bindings = {};
  /// Unix users whom its jobs and sessions may run as. `*`: all but root, which is named or not meant.
  std::vector<std::string> unix_users = {};
  std::string node = {};  ///< Name of the node, of an agent.
};

/// The caller without a credential.
Caller anonymous_caller();
/// The holder of the shared token, which may do all that people may.
Caller shared_token_caller();

}  // namespace gpusched::access
