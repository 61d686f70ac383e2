#pragma once

#include <string>

#include "base/fields.h"
#include "model/identity/caller_kind.h"

namespace gpusched {

/// Proposer of a command, by the credential that was shown, for the audit of a journal. Nothing is decided by
/// it, and no state holds it. Commands of agents and of the scheduler itself have none.
struct Proposer {
  CallerKind kind = CallerKind::kAnonymous;
  std::string name;    ///< Empty: a caller without a credential.
  std::string key_id;  ///< Empty: its credential is no API key.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "kind", self.kind);
    visit(2, "name", self.name);
    visit(3, "key_id", self.key_id);
  }
  friend bool operator==(const Proposer&, const Proposer&) = default;
};

}  // namespace gpusched
