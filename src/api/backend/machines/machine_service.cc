#include "api/backend/machines/machine_service.h"

#include <array>
#include <map>
#include <string>

#include "api/views/rights.h"

namespace gpusched::api {
namespace {

constexpr std::array<std::string_view, 7> kStates = {"provisioning", "validating",     "ready",      "busy",
                                                     "draining",     "deprovisioning", "unreachable"};

using machines::PoolView;
using Counter = MetricsView::Counter;

/// One number of each pool; those of one name stand behind each other.
template <typename Value>
void add_of_pools(const machines::MachinesView& view, const Counter& about, const Value& value,
                  MetricsView& metrics) {
  for (const PoolView& pool : view.pools) {
    Counter counter = about;
    counter.labels = {{"pool", pool.name}};
    value(pool, counter);
    metrics.counters.push_back(std::move(counter));
  }
}

double money(int64_t micro) { return static_cast<double>(micro) / 1e6; }

}  // namespace

void MachineService::list_machines(const CallerPtr& caller, Done<machines::MachinesView> done) {
  if (auto refused = refuse(*caller, access::Action::kSeeNode, "list machines"))
    return done(std::move(*refused));
  done(machines_ == nullptr ? machines::MachinesView{} : machines_->view());
}

void MachineService::add_metrics(MetricsView& metrics) const {
  if (machines_ == nullptr) return;
  const machines::MachinesView view = machines_->view();
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  for (const machines::MachineView& machine : view.machines) ++counts[{machine.pool, machine.state}];
  for (const PoolView& pool : view.pools) {
    for (const std::string_view state : kStates) {
      metrics.counters.push_back({.name = "machines",
                                  .type = "gauge",
                                  .help = "Machines of a pool, by state.",
                                  .value = counts[{pool.name, std::string(state)}],
                                  .labels = {{"pool", pool.name}, {"state", std::string(state)}}});
    }
  }
  add_of_pools(
      view, {.name = "machines_requested_total", .type = "counter", .help = "Machines asked for, ever."},
      [](const PoolView& pool, Counter& out) { out.value = pool.made; }, metrics);
  add_of_pools(
      view, {.name = "machines_gone_total", .type = "counter", .help = "Machines that are gone, ever."},
      [](const PoolView& pool, Counter& out) { out.value = pool.gone; }, metrics);
  add_of_pools(
      view,
      {.name = "machine_call_failures_total",
       .type = "counter",
       .help = "Calls of a pool's provider that failed since the start."},
      [](const PoolView& pool, Counter& out) { out.value = pool.failures; }, metrics);
  add_of_pools(
      view,
      {.name = "machine_orphans",
       .type = "gauge",
       .help = "Machines that the provider lists as this scheduler's and the record does not have."},
      [](const PoolView& pool, Counter& out) { out.value = static_cast<int64_t>(pool.orphans.size()); },
      metrics);
  add_of_pools(
      view,
      {.name = "machine_pool_open",
       .type = "gauge",
       .help = "1 while the pool may be asked for machines; 0 after its provider failed or refused."},
      [](const PoolView& pool, Counter& out) { out.value = pool.open ? 1 : 0; }, metrics);
  add_of_pools(
      view,
      {.name = "machine_cost_total",
       .type = "counter",
       .help = "Price of all machines of a pool, ever, in the configuration's currency."},
      [](const PoolView& pool, Counter& out) { out.real = money(pool.cost_micro); }, metrics);
}

}  // namespace gpusched::api
