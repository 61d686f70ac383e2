// The native API's machines: pools of providers, and what came from them.
#include "api/contract/machines.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/native/native_views.h"
#include "gpusched/v1/machines.pb.h"

namespace gpusched::api {
namespace {

double of_milli(int64_t milli) { return static_cast<double>(milli) / 1e3; }
double of_micro(int64_t micro) { return static_cast<double>(micro) / 1e6; }

void write_pool(const machines::PoolView& pool, v1::MachinePool& out) {
  out.set_name(pool.name);
  out.set_driver(pool.driver);
  out.set_region(pool.region);
  out.set_minimum(pool.minimum);
  out.set_maximum(pool.maximum);
  out.set_machines(pool.machines);
  out.set_price_per_hour(of_milli(pool.price_milli));
  out.set_budget_per_hour(of_milli(pool.budget_milli));
  out.set_cost(of_micro(pool.cost_micro));
  out.set_requested_total(pool.made);
  out.set_gone_total(pool.gone);
  out.set_call_failures(pool.failures);
  out.set_boot_seconds(of_milli(pool.boot.ms()));
  out.set_open(pool.open);
  out.set_trouble(pool.trouble);
  for (const std::string& name : pool.orphans) out.add_orphans(name);
}

void write_machine(const machines::MachineView& machine, v1::Machine& out) {
  out.set_name(machine.name);
  out.set_pool(machine.pool);
  out.set_state(machine.state);
  write_time(machine.asked_at, *out.mutable_requested_at());
  write_time(machine.ready_at, *out.mutable_ready_at());
  if (machine.has_node) out.set_node_name(machine.name);
  out.set_price_per_hour(of_milli(machine.price_milli));
  out.set_cost(of_micro(machine.cost_micro));
  out.set_trouble(machine.trouble);
}

void write_machines(const machines::MachinesView& view, v1::ListMachinesResponse& out) {
  for (const machines::PoolView& pool : view.pools) write_pool(pool, *out.add_pools());
  for (const machines::MachineView& machine : view.machines) write_machine(machine, *out.add_machines());
}

}  // namespace

void NativeRest::list_machines(NativeCall& call) {
  if (call.refused()) return;
  if (machines_ == nullptr)
    return answer_with<machines::MachinesView>(call, write_machines)(machines::MachinesView{});
  machines_->list_machines(call.call->caller(), answer_with<machines::MachinesView>(call, write_machines));
}

}  // namespace gpusched::api
