#include "engine/policy/policies.h"

// A new policy is one file beside these, its test, and one line here.
namespace gpusched::policy {

std::unique_ptr<QueueOrder> make_queue_order(std::string_view name) {
  if (name == "priority_aging") return std::make_unique<PriorityAging>();
  return nullptr;
}

std::unique_ptr<Filter> make_filter(std::string_view name) {
  if (name == "capacity") return std::make_unique<Capacity>();
  return nullptr;
}

std::unique_ptr<ScorePolicy> make_score(std::string_view name) {
  if (name == "best_fit") return std::make_unique<BestFit>();
  return nullptr;
}

std::unique_ptr<RunTimes> make_run_times(std::string_view name) {
  if (name == "limits") return std::make_unique<LimitRunTimes>();
  return nullptr;
}

PolicySet default_policies() {
  PolicySet set;
  set.queue_order = make_queue_order("priority_aging");
  set.filters.push_back(make_filter("capacity"));
  set.scores.push_back(make_score("best_fit"));
  set.run_times = make_run_times("limits");
  return set;
}

}  // namespace gpusched::policy
