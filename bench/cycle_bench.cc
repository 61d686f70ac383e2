// rooms: bench_support codec engine model base
//
// Scheduling cycles in process: 10,000 nodes of 8 GPUs, 1,000,000 jobs waiting. Cost of a cycle that has
// nothing to do, of 10,000 placements in slices, and of the waiting jobs in memory, to copy and to restore.
// No disk, no network.
#include <malloc.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/policies.h"
#include "support/machine.h"

namespace gpusched {
namespace {

using bench::now_ns;
using bench::print_line;
using bench::text_of;

constexpr int kNodes = 10'000;
constexpr int kGpus = 8;
constexpr int kJobs = 1'000'000;
constexpr int kBatch = 100;
constexpr std::size_t kPlacements = 10'000;
constexpr int kIdleCycles = 10'000;

double used_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

double ms_since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) / 1e6; }

class Bench {
 public:
  Bench() : planner_(policy::default_policies()) { planner_.reset(state_); }

  void add_nodes() {
    for (int i = 0; i < kNodes; ++i) {
      RegisterNode node{.name = "n" + std::to_string(i),
                        .instance = "folder",
                        .boot_id = "boot",
                        .version = {},
                        .cpu_milli = 128'000,
                        .memory_mb = 1'000'000,
                        .devices = {},
                        .attempts = {}};
      for (int gpu = 0; gpu < kGpus; ++gpu) {
        node.devices.push_back({.uuid = "GPU-" + std::to_string(i) + "-" + std::to_string(gpu),
                                .model = "NVIDIA A100-SXM4-80GB",
                                .memory_mb = 81'920});
      }
      run(node);
    }
  }

  /// Four kinds of job, each with the packed specification of a name, two arguments and one label.
  void add_jobs() {
    const std::string spec = "train-0000001 python train.py --epochs 10 team vision and a few bytes of tags";
    for (int i = 0; i < kJobs / kBatch; ++i) {
      SubmitJobs batch{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
      for (int job = 0; job < kBatch; ++job) {
        batch.jobs.push_back(
            {.priority = job % 4,
             .parts = {Part{.gpu_count = 1, .cpu_milli = 1000 + 500 * (job % 4), .memory_mb = 4000}},
             .spec = Blob(spec)});
      }
      run(batch);
    }
  }

  void measure_memory() {
    const double before = used_bytes();
    add_jobs();
    const double added = used_bytes();
    int64_t begin = now_ns();
    const State copy = state_.clone();
    const double clone_ms = ms_since(begin);
    print_line("memory, first copy",
               text_of("%.0f B a waiting job, its specification included", (added - before) / kJobs));
    print_line("memory, second copy",
               text_of("%.0f B a waiting job, made in %.0f ms", (used_bytes() - added) / kJobs, clone_ms));
    std::string bytes;
    const Result<Unit> encoded = encode_snapshot(state_, [&](std::string_view piece) -> Result<Unit> {
      bytes += piece;
      return Unit{};
    });
    CHECK(encoded.ok());
    begin = now_ns();
    const Result<State> restored = decode_snapshot(bytes);
    CHECK(restored.ok());
    print_line("snapshot", text_of("%zu MB, decoded in %.0f ms", bytes.size() >> 20, ms_since(begin)));
  }

  void measure_placements() {
    std::size_t placed = 0;
    std::vector<double> slices;
    double commit_ms = 0;
    while (placed < kPlacements) {
      int64_t begin = now_ns();
      const Planner::Slice slice = planner_.plan(state_, state_.last.at);
      slices.push_back(ms_since(begin));
      CHECK(!slice.plan.groups.empty());
      placed += slice.plan.groups.size();
      begin = now_ns();
      run(slice.plan);
      planner_.plan_applied(state_);
      commit_ms += ms_since(begin);
    }
    double plan_ms = 0;
    for (const double slice : slices) plan_ms += slice;
    print_line("placements", text_of("%zu in %.1f ms (%.1f ms planning, %.1f ms committing)", placed,
                                     plan_ms + commit_ms, plan_ms, commit_ms));
    const double first = slices.front();
    slices.erase(slices.begin());
    print_line("slices",
               text_of("%zu; the first, which learns every node, %.2f ms; the longest of the others %.2f ms",
                       slices.size() + 1, first, *std::max_element(slices.begin(), slices.end())));
  }

  void measure_idle_cycles() {
    // Fill the cluster, so that every class waits with its reason.
    while (planner_.wants_cycle()) {
      const Planner::Slice slice = planner_.plan(state_, state_.last.at);
      if (!slice.plan.groups.empty()) run(slice.plan);
      planner_.plan_applied(state_);
    }
    const int64_t begin = now_ns();
    for (int i = 0; i < kIdleCycles; ++i) {
      const Planner::Slice slice = planner_.plan(state_, state_.last.at);
      CHECK(slice.plan.groups.empty());
      planner_.plan_applied(state_);
    }
    print_line("nothing changed",
               text_of("%.3f us a cycle, %lld jobs waiting", ms_since(begin) * 1e3 / kIdleCycles,
                       static_cast<long long>(state_.waiting_count())));
  }

 private:
  void run(Command command) {
    events_.clear();
    apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events_);
    for (const Event& event : events_) planner_.observe(state_, event);
  }

  State state_;
  Planner planner_;
  Events events_;
  Time now_ = Time{} + seconds(1'700'000'000);
};

void run_bench() {
  print_line("machine", bench::machine_line());
  print_line("durability", "none: in process, one thread");
  print_line("sizes", text_of("%d nodes x %d GPUs, %d jobs waiting in 4 classes", kNodes, kGpus, kJobs));
  Bench bench;
  bench.add_nodes();
  bench.measure_memory();
  bench.measure_placements();
  bench.measure_idle_cycles();
}

}  // namespace
}  // namespace gpusched

int main() {
  gpusched::run_bench();
  return 0;
}
