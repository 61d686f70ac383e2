#include "api/metrics/health_metrics.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/views/reader_clock.h"
#include "api/views/state_views.h"

namespace gpusched::api {

void add_health(const State& state, MetricsView& metrics) {
  int64_t faulty = 0;
  int64_t noted = 0;
  int64_t hot = 0;
  int64_t suspect = 0;
  int64_t drained = 0;
  for (const Node& node : state.nodes) {
    suspect += node.suspect_detail.empty() ? 0 : 1;
    drained += node.availability == Availability::kDraining && node.availability_by == "scheduler" ? 1 : 0;
    for (const Device& device : node.devices) {
      faulty += device.fault >= FaultClass::kDrain ? 1 : 0;
      noted += device.fault == FaultClass::kNote ? 1 : 0;
      hot += device.hot ? 1 : 0;
    }
  }
  int64_t warned = 0;
  for (const auto& [key, attempt] : state.attempts) {
    const Job* job = state.jobs.find(attempt.job);
    warned += job != nullptr && !attempt.abandoned && job->extras->watch != WatchdogFinding::kNone ? 1 : 0;
  }
  const auto gauge = [&metrics](std::string_view name, std::string_view help, int64_t value) {
    metrics.counters.push_back({.name = name, .type = "gauge", .help = help, .value = value});
  };
  gauge("gpus_faulty", "GPUs that get no new jobs because of a fault.", faulty);
  gauge("gpus_noted", "GPUs with a fault that is only noted.", noted);
  gauge("gpus_hot", "GPUs that are too hot for new jobs.", hot);
  gauge("nodes_suspect", "Nodes that an operator should examine.", suspect);
  gauge("nodes_drained_by_themselves", "Nodes that the scheduler has drained by itself.", drained);
  gauge("jobs_warned", "Running jobs with a warning: idle, hung, or over their share.", warned);
}

namespace {

constexpr std::size_t kTenantsShown = 1'000;

/// Values by labels, which become one family.
class Family {
 public:
  Family(std::string_view name, std::string_view help) : name_(name), help_(help) {}
  void add(std::vector<std::pair<std::string_view, std::string>> labels, int64_t value) {
    values_[std::move(labels)] += value;
  }
  void write(MetricsView& metrics) const {
    for (const auto& [labels, value] : values_)
      metrics.counters.push_back(
          {.name = name_, .type = "gauge", .help = help_, .value = value, .labels = labels});
  }

 private:
  std::string_view name_, help_;
  std::map<std::vector<std::pair<std::string_view, std::string>>, int64_t> values_;
};

/// A GPU that is not fit for new work is not free, though nobody holds it.
std::string state_of(const Device& device) {
  if (device.state != DeviceState::kFree || device.fit()) return std::string(to_string(device.state));
  if (device.fault >= FaultClass::kDrain) return std::string(to_string(DeviceState::kQuarantined));
  return device.sound() ? "hot" : "unhealthy";
}

/// One that does not report is that, whatever else it is.
std::string contact_or_life(const Node& node) {
  if (node.state != NodeState::kReady) return std::string(to_string(node.state));
  return life_of(node);
}

/// Nothing without pools.
void add_pools(const State& state, MetricsView& metrics) {
  const PoolsView pools = pools_of(state);
  if (!pools.on) return;
  Family used("pool_gpus_used", "GPUs that the jobs of a pool hold, rounded up.");
  Family shares("pool_gpus_share", "GPUs in service that are a pool's share.");
  for (const auto& [name, pool] : {std::pair("online", pools.online), std::pair("batch", pools.batch)}) {
    used.add({{"pool", name}}, pool.used);
    shares.add({{"pool", name}}, pool.quota);
  }
  used.write(metrics);
  shares.write(metrics);
}

}  // namespace

void add_sums(const State& state, MetricsView& metrics) {
  Family nodes("nodes", "Nodes, by state.");
  Family gpus("gpus", "GPUs, by state and model.");
  for (const Node& node : state.nodes) {
    if (node.removed) continue;
    nodes.add({{"state", contact_or_life(node)}}, 1);
    for (const Device& device : node.devices) {
      gpus.add({{"state", state_of(device)}, {"model", state.device_classes[device.device_class].model}}, 1);
    }
  }
  nodes.write(metrics);
  gpus.write(metrics);
  Family jobs("jobs", "Jobs that have not ended, by state.");
  for (const JobState each :
       {JobState::kPending, JobState::kScheduled, JobState::kRunning, JobState::kPreempted})
    jobs.add({{"state", std::string(to_string(each))}}, state.count(each));
  jobs.write(metrics);
  Family used("tenant_gpus_used", "GPUs allocated to a tenant's jobs.");
  Family limits("tenant_gpus_limit", "Maximum GPUs of a tenant's jobs.");
  Family guarantees("tenant_gpus_guaranteed", "GPUs that are guaranteed to a tenant's jobs.");
  std::size_t shown = 0;
  for (const auto& [id, tenant] : state.tenants) {
    const std::optional<int64_t> limit = tenant.limits.resources.gpus;
    const int64_t guaranteed = tenant.guarantee.gpus;
    if (tenant.deleted || (tenant.usage.gpus == 0 && !limit && guaranteed == 0)) continue;
    if (++shown > kTenantsShown) break;
    used.add({{"tenant", tenant.name}}, tenant.usage.gpus);
    if (limit) limits.add({{"tenant", tenant.name}}, *limit);
    if (guaranteed != 0) guarantees.add({{"tenant", tenant.name}}, guaranteed);
  }
  used.write(metrics);
  limits.write(metrics);
  guarantees.write(metrics);
  add_pools(state, metrics);
  metrics.counters.push_back({.name = "starts_paused",
                              .type = "gauge",
                              .help = "1 while the cluster is paused by an operator.",
                              .value = state.config.pause.on() ? 1 : 0});
}

void add_waiting(const State& state, const std::vector<WaitReason>& reasons, MetricsView& metrics) {
  struct Waiting {
    int64_t jobs = 0;
    int64_t longest_seconds = 0;
  };
  std::map<std::string_view, Waiting> by_reason;
  const Time now = reader_now(state);
  int64_t longest_seconds = 0;
  for (std::size_t i = 0; i < state.classes.size(); ++i) {
    const OrderedJobs& line = state.classes[i].waiting;
    if (line.empty()) continue;
    Waiting& waiting = by_reason[to_string(i < reasons.size() ? reasons[i].code : WaitCode::kQueued)];
    waiting.jobs += static_cast<int64_t>(line.size());
    // Only the first of the jobs with the same request is examined: all of them would take too long.
    const Duration wait = now - state.job_at(line.front().job).submitted_at;
    waiting.longest_seconds = std::max(waiting.longest_seconds, wait.ms() / 1'000);
    longest_seconds = std::max(longest_seconds, waiting.longest_seconds);
  }
  Family jobs("jobs_waiting", "Jobs that wait in line, by the reason that their requests wait.");
  Family longest(
      "jobs_waiting_longest_seconds",
      "Longest wait of a job that is first among the waiting jobs with the same request, by reason.");
  for (const auto& [reason, waiting] : by_reason) {
    jobs.add({{"reason", std::string(reason)}}, waiting.jobs);
    longest.add({{"reason", std::string(reason)}}, waiting.longest_seconds);
  }
  jobs.write(metrics);
  longest.write(metrics);
  metrics.counters.push_back(
      {.name = "longest_wait_seconds",
       .type = "gauge",
       .help = "Longest wait of a job that is first among the waiting jobs with the same request.",
       .value = longest_seconds});
}

void add_keeping(const HostHealth& health, MetricsView& metrics) {
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help, uint64_t value) {
    metrics.counters.push_back(
        {.name = name, .type = type, .help = help, .value = static_cast<int64_t>(value)});
  };
  add("snapshots_written_total", "counter", "Snapshots written, read back and verified.",
      health.snapshots.written);
  add("snapshots_failed_total", "counter", "Snapshots that could not be written.", health.snapshots.failed);
  add("snapshots_unprovable_total", "counter",
      "Snapshots discarded because they did not read back as the state.", health.snapshots.unprovable);
  add("snapshots_refused", "gauge", "Snapshots that the last start could not use.", health.refused_snapshots);
  add("snapshot_bytes", "gauge", "Size of the newest snapshot; 0 before the first one.",
      health.snapshots.last_bytes);
  metrics.counters.push_back({.name = "clock_ahead_seconds",
                              .type = "gauge",
                              .help = "Seconds by which the wall clock is ahead of the journal's time.",
                              .value = health.clock_gap.ms() / 1'000});
  metrics.journal_syncs = static_cast<int64_t>(health.journal_syncs);
  metrics.journal_sync_seconds = static_cast<double>(health.journal_sync_time.ns) / 1e9;
  add("storage_full", "gauge", "1 while new work is refused because the disk is full.",
      health.serving ? 0 : 1);
  if (health.snapshot_age) {
    add("snapshot_age_seconds", "gauge", "Age of the newest snapshot that this process has written.",
        static_cast<uint64_t>(health.snapshot_age->ms() / 1'000));
  }
  if (health.free_bytes)
    add("data_free_bytes", "gauge", "Free bytes on the volume of the data folder.", *health.free_bytes);
}

}  // namespace gpusched::api
