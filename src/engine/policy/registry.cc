#include <algorithm>

#include "base/limits.h"
#include "engine/policy/job_orders.h"
#include "engine/policy/policies.h"
#include "engine/policy/victims.h"

// A new policy is one file beside these, its test, and one line here.
namespace gpusched::policy {

std::unique_ptr<QueueOrder> make_queue_order(std::string_view name) {
  if (name == "priority_aging") return std::make_unique<PriorityAging>();
  if (name == "fair_share") return std::make_unique<FairShare>();
  if (name == "fifo") return std::make_unique<Fifo>();
  if (name == "strict_priority") return std::make_unique<StrictPriority>();
  if (name == "cost_aware") return std::make_unique<CostAware>();
  return nullptr;
}

std::unique_ptr<JobOrder> make_job_order(std::string_view name, const SchedulingPolicy& chosen) {
  if (name == "priority_aging") return std::make_unique<PriorityFirst>();
  if (name == "deadline") return std::make_unique<DeadlineFirst>();
  if (name == "shortest") return std::make_unique<ShortestFirst>();
  if (name == "least_attained") return std::make_unique<LeastAttainedFirst>(chosen.attained_levels);
  return nullptr;
}

std::unique_ptr<Filter> make_filter(std::string_view name) {
  if (name == "capacity") return std::make_unique<Capacity>();
  return nullptr;
}

std::unique_ptr<ScorePolicy> make_score(std::string_view name) {
  if (name == "best_fit") return std::make_unique<BestFit>();
  if (name == "strong_links") return std::make_unique<StrongLinks>();
  return nullptr;
}

std::unique_ptr<RunTimes> make_run_times(std::string_view name) {
  if (name == "limits") return std::make_unique<LimitRunTimes>();
  return nullptr;
}

std::unique_ptr<VictimSelect> make_victim_select(std::string_view name) {
  if (name == "least_lost") return std::make_unique<LeastLost>(LeastLost::Params{});
  return nullptr;
}

PolicySet default_policies() {
  PolicySet set;
  set.queue_order = make_queue_order("priority_aging");
  set.job_order = make_job_order("priority_aging", {});
  set.filters.push_back(make_filter("capacity"));
  set.scores.push_back(make_score("best_fit"));
  set.scores.push_back(make_score("strong_links"));
  set.run_times = make_run_times("limits");
  set.victims = make_victim_select("least_lost");
  return set;
}

PolicySet policies_for(const SchedulingPolicy& chosen) {
  PolicySet set = default_policies();
  if (std::unique_ptr<QueueOrder> order = make_queue_order(chosen.queue_order))
    set.queue_order = std::move(order);
  if (std::unique_ptr<JobOrder> order = make_job_order(chosen.job_order, chosen))
    set.job_order = std::move(order);
  set.overtaking = chosen.overtaking;
  if (chosen.reservations && *chosen.reservations >= 0)
    set.reservations =
        static_cast<uint32_t>(std::min<int64_t>(*chosen.reservations, limits::kReservationsMax));
  return set;
}

}  // namespace gpusched::policy
