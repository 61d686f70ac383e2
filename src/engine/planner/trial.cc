#include "engine/planner/trial.h"

#include "base/check.h"

namespace gpusched {

std::vector<Command> commands_of(const std::vector<ClusterEdit>& edits, uint64_t first) {
  std::vector<Command> commands;
  std::vector<uint64_t> sequences;
  uint64_t next = first;
  for (const ClusterEdit& edit : edits) {
    Command command = std::visit([](const auto& concrete) { return Command(concrete); }, edit.command);
    if (edit.parent_from) {
      CHECK(*edit.parent_from < sequences.size());
      CHECK(std::holds_alternative<CreateTenant>(edits[*edit.parent_from].command));
      std::get<CreateTenant>(command).parent = TenantId{sequences[*edit.parent_from]};
    }
    sequences.push_back(next);
    next += sequence_count(command);
    commands.push_back(std::move(command));
  }
  return commands;
}

std::optional<RefusedEdit> try_edits(const State& state, const std::vector<Command>& commands, Stamp stamp) {
  // Tenants are all that rules of tenants look at, and small beside jobs. Rules of labels look at their node.
  State tenants;
  tenants.config = state.config;
  for (const auto& [id, tenant] : state.tenants) tenants.add_tenant(tenant);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const bool labels = std::holds_alternative<LabelNode>(commands[i]);
    Events events;
    const Applied applied = decide(labels ? state : tenants, commands[i], stamp, events);
    if (applied.rejection) return RefusedEdit{.index = i, .rejection = *applied.rejection};
    if (!labels) {
      for (const Event& event : events) evolve(tenants, event);
    }
    stamp.sequence += sequence_count(commands[i]);
  }
  return std::nullopt;
}

}  // namespace gpusched
