#pragma once

#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

#include "engine/engine.h"

/// Changes of the cluster's tenants and labels that are made together or not at all.
namespace gpusched {

struct ClusterEdit {
  std::variant<CreateTenant, UpdateTenant, LabelNode> command;
  /// The parent of a tenant to create is the one that this earlier edit creates.
  std::optional<std::size_t> parent_from = {};
};

/// The edits as commands, where the first one's sequence number is `first`. CHECKs that `parent_from` names
/// an earlier edit that creates a tenant.
std::vector<Command> commands_of(const std::vector<ClusterEdit>& edits, uint64_t first);

struct RefusedEdit {
  std::size_t index = 0;
  Rejection rejection;
};

/// Decides the commands of edits, each on what those before it leave, and changes nothing. Nothing is
/// returned when all would be accepted: applied next, with the same stamp and nothing between them, they are.
/// Each node may be labelled by one of them.
std::optional<RefusedEdit> try_edits(const State& state, const std::vector<Command>& commands, Stamp stamp);

}  // namespace gpusched
