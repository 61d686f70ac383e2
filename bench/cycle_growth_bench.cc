// rooms: bench_support engine model base
//
// Cost of one change for the planner: a job ends, its devices are seen empty, one like it is submitted, and
// all slices that follow are planned. The median over many such changes, for more and more waiting jobs,
// nodes and tenants, for each order of tenants and of jobs; and by how much it grows with each doubling. The
// cluster is full, so a change is of the same size everywhere. Only the planner's work counts (observing and
// planning), not deciding and applying. No disk, no network; `tools/bench cycle_growth [changes] [order
// [row]]`, such as `2000 fair_share nodes`.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/policies.h"
#include "support/machine.h"

namespace gpusched {
namespace {

using bench::now_ns;
using bench::print_line;
using bench::text_of;

struct Point {
  int waiting = 10'000;
  int nodes = 1'000;
  int tenants = 100;
  /// Half of the cluster is guaranteed to the tenants together, to each as much as to any other.
  bool guaranteed = false;
};

/// A full cluster in which jobs end and come.
class Cluster {
 public:
  Cluster(const Point& point, const SchedulingPolicy& policy)
      : prng_(7), planner_(policy::policies_for(policy)) {
    planner_.reset(state_);
    run(Configure{.config = {.feature_level = kFeatureLevel, .policy = policy}});
    for (int i = 0; i < point.tenants; ++i) {
      const int64_t share = int64_t{point.nodes} * 8 / 2 / point.tenants;
      run(CreateTenant{.name = "t" + std::to_string(i),
                       .weight_milli = prng_.between(1, 4) * 1000,
                       .guarantee = {.gpus = point.guaranteed ? std::max<int64_t>(share, 1) : 0}});
      tenants_.push_back(TenantId{state_.last.sequence});
    }
    for (int i = 0; i < point.nodes; ++i) add_node(i);
    do {
      while (state_.waiting_count() < 500) submit_some(500);
      plan();
    } while (planned_some_);
    while (state_.waiting_count() < point.waiting) submit_some(point.waiting - state_.waiting_count());
    plan();
  }

  /// Nanoseconds that the planner works for one change.
  int64_t change() {
    now_ = now_ + milliseconds(20);
    spent_ns_ = 0;
    const std::size_t at = prng_.below(running_.size());
    std::swap(running_[at], running_.back());
    const JobId job = running_.back();
    running_.pop_back();
    const Job& ending = *state_.jobs.find(job);
    const NodeId node = ending.node;
    const uint64_t mask = ending.device_mask;
    SubmitJobs like{.tenant = tenants_[prng_.below(tenants_.size())],
                    .request_key = {},
                    .jobs = {{.priority = static_cast<int32_t>(prng_.below(10)),
                              .parts = state_.class_of(ending).parts,
                              .max_runtime = ending.max_runtime}}};
    run(AttemptEnded{
        .job = job, .attempt = ending.attempt_count, .node = node, .outcome = {.cause = EndCause::kExited}});
    for (uint32_t i = 0; i < 8; ++i) {
      if (((mask >> i) & 1) == 0) continue;
      run(DeviceReleased{
          .node = node, .device = i, .generation = state_.find_node(node)->devices[i].generation});
    }
    run(like);
    plan();
    return spent_ns_;
  }

 private:
  void add_node(int i) {
    RegisterNode node{.name = "n" + std::to_string(i),
                      .instance = "folder",
                      .boot_id = "boot",
                      .version = {},
                      .cpu_milli = 128'000,
                      .memory_mb = 1'000'000,
                      .devices = {},
                      .attempts = {}};
    for (int gpu = 0; gpu < 8; ++gpu) {
      node.devices.push_back({.uuid = "GPU-" + std::to_string(i) + "-" + std::to_string(gpu),
                              .model = "NVIDIA A100-SXM4-80GB",
                              .memory_mb = 81'920});
    }
    run(node);
  }
  void submit_some(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const auto gpus = static_cast<int32_t>(1 << prng_.below(4));
      run(SubmitJobs{
          .tenant = tenants_[prng_.below(tenants_.size())],
          .request_key = {},
          .jobs = {{.priority = static_cast<int32_t>(prng_.below(10)),
                    .parts = {Part{.gpu_count = gpus, .cpu_milli = gpus * 4'000, .memory_mb = gpus * 16'000}},
                    .max_runtime = minutes(prng_.between(10, 2'000))}}});
    }
  }
  void plan() {
    planned_some_ = false;
    while (planner_.wants_cycle()) {
      const int64_t begin = now_ns();
      const Planner::Slice slice = planner_.plan(state_, now_);
      spent_ns_ += now_ns() - begin;
      if (!slice.plan.groups.empty()) {
        planned_some_ = true;
        run(slice.plan);
      }
      const int64_t then = now_ns();
      planner_.plan_applied(state_);
      planner_.take_changed_reasons();
      spent_ns_ += now_ns() - then;
    }
  }
  void run(const Command& command) {
    events_.clear();
    const Applied applied =
        apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events_);
    CHECK(!applied.rejection.has_value());
    const int64_t begin = now_ns();
    for (const Event& event : events_) planner_.observe(state_, event);
    spent_ns_ += now_ns() - begin;
    for (const Event& event : events_) {
      if (const auto* placed = std::get_if<AttemptPlaced>(&event)) running_.push_back(placed->job);
    }
  }

  Prng prng_;
  State state_;
  Planner planner_;
  Events events_;
  Time now_ = Time{} + seconds(1'700'000'000);
  std::vector<TenantId> tenants_;
  std::vector<JobId> running_;
  bool planned_some_ = true;
  int64_t spent_ns_ = 0;
};

double median_us(const Point& point, const SchedulingPolicy& policy, int changes) {
  Cluster cluster(point, policy);
  for (int i = 0; i < changes / 10; ++i) cluster.change();
  std::vector<double> samples;
  for (int i = 0; i < changes; ++i) samples.push_back(static_cast<double>(cluster.change()) / 1e3);
  return bench::median(samples);
}

/// One row: the medians of the points, and the growth with each doubling from the first to the last.
void measure(const std::string& name, const std::vector<Point>& points, double factor,
             const SchedulingPolicy& policy, int changes) {
  std::string text;
  std::vector<double> medians;
  for (const Point& point : points) {
    medians.push_back(median_us(point, policy, changes));
    text += text_of("%8.1f", medians.back());
  }
  const double growth = std::pow(medians.back() / medians.front(), 1 / std::log2(factor)) - 1;
  print_line(name.c_str(),
             text + text_of("   %+.1f %% a doubling%s", growth * 100, growth <= 0.1 ? "" : ", MISSED"));
}

void run_bench(int changes, std::string_view only, std::string_view row) {
  print_line("machine", bench::machine_line());
  print_line("durability", "none: in process, one thread");
  print_line("sizes",
             text_of("medians of %d changes in us; 10,000 jobs waiting, 1,000 nodes x 8, 100 tenants where "
                     "not said otherwise; jobs of 1, 2, 4 and 8 GPUs",
                     changes));
  struct Order {
    const char* name;
    const char* tenants;
    const char* jobs;
    bool guaranteed = false;
  };
  struct Row {
    const char* name;
    const char* sizes;
    double factor;  ///< Growth from the first point to the last.
    std::vector<Point> points;
  };
  const std::vector<Row> kRows = {
      {"waiting", "1k 10k 100k", 100, {{.waiting = 1'000}, {}, {.waiting = 100'000}}},
      {"nodes", "100 1k 10k", 100, {{.nodes = 100}, {}, {.nodes = 10'000}}},
      {"tenants", "10 100 1k 5k", 500, {{.tenants = 10}, {}, {.tenants = 1'000}, {.tenants = 5'000}}}};
  const Order orders[] = {{"priority_aging", "priority_aging", "priority_aging"},
                          {"fair_share", "fair_share", "priority_aging"},
                          {"fifo", "fifo", "priority_aging"},
                          {"strict_priority", "strict_priority", "priority_aging"},
                          {"cost_aware", "cost_aware", "priority_aging"},
                          {"guarantees", "priority_aging", "priority_aging", true},
                          {"jobs by deadline", "priority_aging", "deadline"},
                          {"jobs by shortest", "priority_aging", "shortest"},
                          {"jobs by least_attained", "priority_aging", "least_attained"}};
  for (const Order& order : orders) {
    if (!only.empty() && std::string_view(order.name).find(only) == std::string_view::npos) continue;
    const SchedulingPolicy policy{.queue_order = order.tenants,
                                  .run_times = "limits",
                                  .job_order = order.jobs,
                                  .attained_levels = {3'600, 36'000},
                                  .overtaking = hours(24)};
    const std::string name = order.name;
    for (const Row& each : kRows) {
      if (!row.empty() && row != each.name) continue;
      std::vector<Point> points = each.points;
      for (Point& point : points) point.guaranteed = order.guaranteed;
      measure(name + ", " + each.name + " " + each.sizes, points, each.factor, policy, changes);
    }
  }
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  const int changes = argc > 1 ? std::max(std::atoi(argv[1]), 100) : 2'000;
  gpusched::run_bench(changes, argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
  return 0;
}
