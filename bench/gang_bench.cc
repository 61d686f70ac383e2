// rooms: bench_support engine model base
//
// Gangs in process: 10,000 nodes of 8 GPUs in 250 racks, 10 blocks and 2 zones. Cost of placing 512 GPUs as
// 64 members of 8, as one domain's and over domains; with a leader; when the nodes are known already and when
// they are looked at for the first time; and its cost while it waits. No disk, no network.
#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
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
constexpr int kNodesInRack = 40;
constexpr int kRacksInBlock = 25;
constexpr int kBlocksInZone = 5;
constexpr int kMembers = 64;
constexpr int kRounds = 25;

double ms_since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) / 1e6; }

class Bench {
 public:
  Bench() : planner_(policy::default_policies()) {
    planner_.reset(state_);
    EngineConfig config;
    config.feature_level = kFeatureLevel;
    run(Configure{.config = config});
    for (int i = 0; i < kNodes; ++i) add_node(i);
    // The nodes themselves, without any gang.
    submit({Part{.gpu_count = 1}});
    cycle();
  }

  /// A gang of this kind again and again, each ended before the next comes.
  void measure(const char* name, const std::vector<Part>& parts) {
    std::vector<double> plans;
    double commit_ms = 0;
    for (int round = 0; round < kRounds; ++round) {
      const JobId job = submit(parts);
      int64_t begin = now_ns();
      const Planner::Slice slice = planner_.plan(state_, state_.last.at);
      plans.push_back(ms_since(begin));
      CHECK(slice.plan.groups.size() == 1);
      begin = now_ns();
      run(slice.plan);
      planner_.plan_applied(state_);
      commit_ms += ms_since(begin);
      end(job);
    }
    const double first = plans.front();
    plans.erase(plans.begin());
    std::sort(plans.begin(), plans.end());
    print_line(
        name,
        text_of("planned in %.2f ms (median; at most %.2f; the first, which looks at every node, %.2f), "
                "committed in %.2f",
                plans[plans.size() / 2], plans.back(), first, commit_ms / kRounds));
  }

  /// A gang that does not fit: what a cycle costs in which a single job ended.
  void measure_waiting() {
    std::vector<JobId> singles;
    for (int i = 0; i < kNodes; ++i) singles.push_back(submit({Part{.gpu_count = kGpus}}));
    cycle();
    const JobId gang = submit({Part{.member_count = 2 * kMembers, .gpu_count = kGpus}});
    const int64_t begin = now_ns();
    cycle();
    const double blocked_ms = ms_since(begin);
    CHECK(state_.jobs.find(gang)->state == JobState::kPending);
    std::vector<double> cycles;
    for (int i = 0; i < kRounds; ++i) {
      end(singles[static_cast<std::size_t>(i)]);
      now_ = now_ + milliseconds(10);
      const int64_t again = now_ns();
      cycle();
      cycles.push_back(ms_since(again));
    }
    CHECK(state_.jobs.find(gang)->state == JobState::kPending);
    std::sort(cycles.begin(), cycles.end());
    print_line(
        "waits, full cluster",
        text_of(
            "blocked and promised a start in %.2f ms; a cycle after one job's end %.3f ms (median), at most "
            "%.2f",
            blocked_ms, cycles[cycles.size() / 2], cycles.back()));
  }

 private:
  void add_node(int i) {
    const int rack = i / kNodesInRack;
    const int block = rack / kRacksInBlock;
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
                              .model = "NVIDIA H100 80GB HBM3",
                              .memory_mb = 81'920});
    }
    node.labels = {{.name = "topology.block", .value = "b" + std::to_string(block)},
                   {.name = "topology.rack", .value = "r" + std::to_string(rack)},
                   {.name = "topology.zone", .value = "z" + std::to_string(block / kBlocksInZone)}};
    run(node);
  }
  JobId submit(const std::vector<Part>& parts) {
    SubmitJobs command{.tenant = kDefaultTenant, .request_key = {}, .jobs = {}};
    command.jobs.push_back({.parts = parts, .max_runtime = hours(24), .spec = Blob("spec")});
    return JobId{run(command).first_id};
  }
  void end(JobId job) {
    const uint32_t number = state_.jobs.find(job)->attempt_count;
    const Attempt attempt = *state_.find_attempt(job, number);
    for (uint32_t i = 0; i < attempt.members.size(); ++i) {
      run(AttemptEnded{.job = job,
                       .attempt = number,
                       .member = i,
                       .node = attempt.members[i].node,
                       .outcome = {.cause = EndCause::kExited, .detail = {}}});
      const NodeId node = attempt.members[i].node;
      for (uint32_t device = 0; device < kGpus; ++device) {
        if (((attempt.members[i].device_mask >> device) & 1) == 0) continue;
        run(DeviceReleased{.node = node,
                           .device = device,
                           .generation = state_.find_node(node)->devices[device].generation,
                           .share_of = {}});
      }
    }
  }
  void cycle() {
    for (bool more = true; more;) {
      const Planner::Slice slice = planner_.plan(state_, now_);
      more = slice.more;
      if (!slice.plan.groups.empty()) run(slice.plan);
      planner_.plan_applied(state_);
    }
  }
  Applied run(const Command& command) {
    events_.clear();
    const uint64_t sequence = state_.last.sequence + 1;
    Applied applied =
        apply(state_, command, {.sequence = sequence, .at = std::max(now_, state_.last.at)}, events_);
    CHECK(!applied.rejection.has_value());
    for (const Event& event : events_) planner_.observe(state_, event);
    return applied;
  }

  State state_;
  Planner planner_;
  Events events_;
  Time now_ = Time{} + seconds(1'700'000'000);
};

int run() {
  print_line("machine", bench::machine_line());
  print_line("durability", "none: in process, one thread");
  print_line("sizes", text_of("%d nodes x %d GPUs in racks of %d, blocks of %d racks, 2 zones", kNodes, kGpus,
                              kNodesInRack, kRacksInBlock));
  Bench bench;
  const Part eight{.member_count = kMembers, .gpu_count = kGpus};
  bench.measure("512 GPUs, 64 x 8", {eight});
  Part in_block = eight;
  in_block.domain = DomainLevel::kBlock;
  in_block.domain_required = true;
  bench.measure("the same, in one block", {in_block});
  Part wide{.member_count = 4'096, .gpu_count = 2};
  bench.measure("8,192 GPUs, 4,096 x 2", {wide});
  Part leader{.gpu_count = 1};
  bench.measure("64 x 8 and a leader", {leader, eight});
  Part ones{.member_count = 512, .gpu_count = 1};
  bench.measure("512 x 1", {ones});
  bench.measure_waiting();
  return 0;
}

}  // namespace
}  // namespace gpusched

int main() { return gpusched::run(); }
