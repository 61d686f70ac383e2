#include "engine/commands.h"

#include <array>

namespace gpusched {

uint32_t sequence_count(const Command& command) {
  const auto* submit = std::get_if<SubmitJobs>(&command);
  if (submit == nullptr || submit->jobs.empty()) return 1;
  return static_cast<uint32_t>(submit->jobs.size());
}

std::string_view name_of(const Command& command) {
  static constexpr std::array<std::string_view, std::variant_size_v<Command>> kNames = {
      "configure",       "advance_time",     "create_tenant",   "update_tenant",     "delete_tenant",
      "register_node",   "node_lease_lost",  "node_lease_back", "confirm_node_dead", "set_device_condition",
      "submit_jobs",     "cancel_job",       "commit_plan",     "attempt_started",   "attempt_ended",
      "device_released", "device_still_busy"};
  return kNames[command.index()];
}

bool is_new_work(const Command& command) {
  return std::holds_alternative<SubmitJobs>(command) || std::holds_alternative<CreateTenant>(command) ||
         std::holds_alternative<UpdateTenant>(command) || std::holds_alternative<CommitPlan>(command) ||
         std::holds_alternative<Configure>(command);
}

}  // namespace gpusched
