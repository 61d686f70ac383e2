#include <algorithm>
#include <utility>

#include "sim/clients.h"

// What operators change of the cluster's rules while it runs, and jobs of people who wait at the terminal.
namespace gpusched::sim {

/// Other pools, or none, or another aging.
void Clients::change_rules() {
  EngineConfig config = host_.settings().engine;
  if (!demand_.changes_rules || config.feature_level < 10) return;
  Prng prng(++rule_changes_ * 0x9E3779B97F4A7C15ULL + context_.auditor.command_count());
  if (prng.chance(500)) {
    config.aging_per_hour = prng.between(0, 1'000);
  } else if (prng.chance(300)) {
    config.pools = {};
  } else {
    const int64_t online = prng.between(200, 800);
    config.pools = {.online_milli = online, .batch_milli = 1'000 - online, .lend = !demand_.keeps_limits};
  }
  host_.reload(config);
}

/// Some jobs that stand alone are to start at once or not at all.
void Clients::make_interactive(SubmitJobs& command, uint64_t number) const {
  if (!demand_.changes_rules || number % 7 != 3 || command.jobs.size() != 1) return;
  JobRequest& job = command.jobs.front();
  job.interactive = true;
  job.held = false;
  job.preemption_mode = PreemptionMode::kCancel;  // As it ends in any case.
  job.flow.clear();
  if (job.max_runtime.ns <= 0) job.max_runtime = seconds(5);
}

void Clients::delete_tenant() {
  const TenantId tenant = some_tenant();
  call(
      DeleteTenant{.tenant = tenant}, [] {},
      [this, tenant](const Result<Decided>& result) {
        if (!result.ok() || result->applied.rejection) return;
        std::erase(tenants_, tenant);
      },
      [](bool) {});
}

}  // namespace gpusched::sim
