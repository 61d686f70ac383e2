#pragma once

#include <string>
#include <vector>

#include "base/time.h"
#include "model/identity/binding.h"
#include "model/identity/caller_kind.h"

namespace gpusched::access {

using gpusched::caller_kind_named;
using gpusched::CallerKind;

/// Identity of a call: made from its credential, or from the kernel's word on the process that calls, before
/// anything else looks at the call, and never from an address. A value; reading it is thread-safe.
struct Caller {
  CallerKind kind = CallerKind::kAnonymous;
  /// Name, unique among callers of one kind: what jobs' owners are compared with. Empty: anonymous.
  std::string name = {};
  std::string key_id = {};  ///< Id of the key that it showed; empty: its credential is another.
  /// Its rights. Without meaning for nodes and anonymous callers, whose kind decides.
  std::vector<Binding> bindings = {};
  /// Unix users whom its jobs and sessions may run as. `*`: all but root, which is named or not meant.
  std::vector<std::string> unix_users = {};
  std::string node = {};  ///< Name of the node, of an agent.
  /// Wall clock: when its credential ends, where the credential itself says so. None: whoever keeps the
  /// credentials knows.
  Time ends_at = {};
  uint64_t session = 0;  ///< Number of the browser's session that it came by; 0: of none.
  /// It is a user of all tenants that are open to callers without a credential, the default one among them.
  bool uses_open_tenants = false;
  /// Jobs of callers without a credential are its own, too.
  bool owns_anonymous = false;
};

/// The caller without a credential.
Caller anonymous_caller();
/// The holder of the shared token, which may do all that people may.
Caller shared_token_caller();
/// A Unix user of the scheduler's machine to whom nobody gave a role. `has_anonymous`: callers without a
/// credential are answered there, so that it loses no job of theirs by having one.
Caller unix_person(std::string name, bool has_anonymous);
/// One who may do all that the holder of the shared token may, under its own name.
Caller unix_admin(std::string name);

}  // namespace gpusched::access
