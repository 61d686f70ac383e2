#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/planner/trial.h"
#include "model/identity/proposer.h"

namespace gpusched {

/// Outcome of an EditSet.
struct EditsDecided {
  std::optional<RefusedEdit> refused;  ///< Then nothing was changed.
  uint64_t sequence = 0;  ///< Number of the last edit; if nothing was changed, of the state that was tried.
};

/// Edits that are one journal record, or nothing: they are tried on the state that they will meet, and are
/// refused together for what any of them is refused for.
struct EditSet {
  std::vector<ClusterEdit> edits;
  bool dry_run = false;  ///< Only tried.
  std::function<void(Result<EditsDecided>)> decided;
  std::optional<Proposer> by = {};  ///< Journaled with each.
};

/// At least what the edits take in the journal.
std::size_t encoded_bytes(const EditSet& set);

}  // namespace gpusched
