#include <vector>

#include "base/check.h"
#include "engine/decide/decide.h"
#include "model/job.h"

// The cluster's rules, and what follows for what came under older ones.
namespace gpusched {

EngineConfig config_taken(const EngineConfig& now, EngineConfig asked) {
  if (asked.feature_level >= 6 && !now.cluster.empty()) {  // Once named it is that for ever.
    asked.cluster = now.cluster;
    asked.cluster_since = now.cluster_since;
  }
  asked.pause = now.pause;
  // Shares that were set stay, until the configuration says the same.
  asked.pools.set = now.pools.set && !asked.pools.same_shares(now.pools);
  if (asked.pools.set) {
    asked.pools.online_milli = now.pools.online_milli;
    asked.pools.batch_milli = now.pools.batch_milli;
  }
  return asked;
}

namespace rules {
namespace {

/// Moves the timers of silent nodes to where the new limit has them.
void move_node_timers(State& state, Duration lost_after) {
  for (const Node& node : state.nodes) {
    if (node.state != NodeState::kUnreachable) continue;
    Timer timer{
        .due = node.state_since + state.config.lost_after, .kind = TimerKind::kNodeLost, .id = node.id.value};
    state.timers.erase(timer);
    timer.due = node.state_since + lost_after;
    state.timers.insert(timer);
  }
}

/// Whether unfinished jobs stand elsewhere in line under the new rules.
bool reorders(const EngineConfig& before, const EngineConfig& after) {
  return after.feature_level >= 9 &&
         (before.feature_level < 9 || before.aging_per_hour != after.aging_per_hour);
}

/// Jobs that came when there were no pools say nothing of which they are of. Those that wait are of one now;
/// what runs is counted as batch until it ends or comes back.
void put_in_pools(State& state) {
  std::vector<JobId> jobs;
  state.jobs.for_each([&](const Job& job) {
    const bool unset = work_of(state.class_of(job).parts) == WorkClass::kUnset;
    if (job.state == JobState::kPending && unset) jobs.push_back(job.id);
    return true;
  });
  for (const JobId id : jobs) {
    Job& job = state.job_at(id);
    std::vector<Part> parts = state.class_of(job).parts;
    const int64_t effective = int64_t{job.priority} + state.tenant_at(job.tenant).priority_tier;
    for (Part& part : parts) part.work = kind_of_work(part.work, effective);
    state.set_parts(job, parts);
  }
}

/// Whether there are pools now, and jobs may wait that are of none.
bool has_new_pools(const EngineConfig& before, const EngineConfig& after) {
  return after.feature_level >= 10 && after.pools.on() && (before.feature_level < 10 || !before.pools.on());
}

}  // namespace

Applied configure(const State& state, const Configure& command, Stamp stamp, Events& events) {
  EngineConfig config = config_taken(state.config, command.config);
  if (config == state.config) return accept();
  const PoolShares& pools = config.pools;
  if (pools.online_milli < 0 || pools.batch_milli < 0 || pools.online_milli + pools.batch_milli > 1000)
    return reject(RejectionCode::kPoolsInvalid);
  if (config.feature_level >= 9 && state.config.feature_level < 9) {  // Older rules left them there.
    for (const auto& [id, booking] : state.bookings) {
      const Tenant* tenant = state.find_tenant(booking.tenant);
      if (booking.tenant.valid() && (tenant == nullptr || tenant->deleted))
        events.push_back(BookingEnded{.booking = id, .at = stamp.at, .cancelled = true});
    }
  }
  const Time at = config.feature_level >= 9 ? stamp.at : Time{};
  events.push_back(Configured{.config = std::move(config), .at = at});
  return accept();
}

Applied pause_starts(const State& state, const PauseStarts& command, Stamp stamp, Events& events) {
  if (command.paused == state.config.pause.on()) return accept();  // The first pause keeps its name.
  EngineConfig config = state.config;
  config.pause = command.paused ? Pause{.since = stamp.at, .by = command.by, .why = command.why} : Pause{};
  events.push_back(Configured{.config = std::move(config)});
  return accept();
}

Applied set_pools(const State& state, const SetPools& command, Stamp stamp, Events& events) {
  EngineConfig config = state.config;
  PoolShares& pools = config.pools;
  pools.online_milli = command.online_milli;
  pools.batch_milli = command.batch_milli;
  if (pools.same_shares(state.config.pools)) return accept();
  int64_t gpus = 0;
  for (const Node& node : state.nodes) gpus += node.in_service() ? std::ssize(node.devices) : 0;
  for (const bool online : {true, false}) {
    const int64_t share = pools.gpus_of(online, gpus) * kMilliPerGpu;
    const int64_t before = state.config.pools.gpus_of(online, gpus) * kMilliPerGpu;
    const int64_t held = (online ? state.online : state.batch).milli;
    // A smaller share is refused only: a pool that holds too much for it already keeps nobody from a larger.
    if (!pools.on() || pools.lends() || held <= share || (state.config.pools.on() && share >= before))
      continue;
    return reject(
        {.code = RejectionCode::kPoolInUse, .limit = share, .current = held, .index = online ? 0U : 1U});
  }
  pools.set = true;
  const Time at = config.feature_level >= 9 ? stamp.at : Time{};
  events.push_back(Configured{.config = std::move(config), .at = at});
  return accept();
}

void configured(State& state, const Configured& event) {
  const EngineConfig before = state.config;
  if (event.config.lost_after != before.lost_after) move_node_timers(state, event.config.lost_after);
  if (event.at.valid() && event.config.half_life() != before.half_life()) {
    for (auto& [id, tenant] : state.tenants) state.accrue_usage(tenant, event.at);  // As it was until now.
  }
  state.config = event.config;
  if ((before.feature_level < 12) != (event.config.feature_level < 12)) {  // External nodes are known now.
    for (Node& node : state.nodes) node.feature_bits = state.feature_bits_of(node.features);
  }
  if (event.config.admission != before.admission) state.refill_buckets();
  if (reorders(before, event.config)) put_in_line(state, {});
  if (has_new_pools(before, event.config)) put_in_pools(state);
}

void put_in_line(State& state, TenantId tenant) {
  std::vector<JobId> jobs;
  state.jobs.for_each([&](const Job& job) {
    if (!is_final(job.state) && (!tenant.valid() || job.tenant == tenant)) jobs.push_back(job.id);
    return true;
  });
  for (const JobId id : jobs) {
    Job* job = state.jobs.find(id);
    CHECK(job != nullptr);
    const int64_t effective = int64_t{job->priority} + state.tenant_at(job->tenant).priority_tier;
    const int64_t key = order_key_of(effective, state.config.aging_per_hour, job->submitted_at);
    if (key != job->order_key) state.reorder(*job, key);
  }
}

}  // namespace rules
}  // namespace gpusched
