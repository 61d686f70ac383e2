// rooms: bench_support engine model base
//
// All commands of a job's life, in process: submit (batches of 100), plan and commit, started, ended, its
// devices released. 1,000 nodes of 8 GPUs, 100,000 jobs waiting at any time. No disk, no network.
#include <time.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/policies.h"
#include "support/machine.h"

namespace gpusched {
namespace {

using bench::print_line;
using bench::text_of;

constexpr int kNodes = 1'000;
constexpr int kGpus = 8;
constexpr uint32_t kBatch = 100;

class Bench {
 public:
  Bench() : planner_(policy::default_policies()) {
    planner_.reset(state_);
    for (int i = 0; i < kNodes; ++i) {
      RegisterNode offer{.name = "node-" + std::to_string(i),
                         .instance = "data",
                         .boot_id = "boot",
                         .cpu_milli = 128'000,
                         .memory_mb = 1'000'000};
      for (int gpu = 0; gpu < kGpus; ++gpu) {
        offer.devices.push_back({.uuid = "GPU-" + std::to_string(i) + "-" + std::to_string(gpu),
                                 .model = "NVIDIA A100-SXM4-80GB",
                                 .memory_mb = 81'920});
      }
      apply(offer);
    }
  }

  void submit(int64_t jobs) {
    std::vector<Command> commands;
    for (int64_t done = 0; done < jobs; done += kBatch) commands.emplace_back(batch());
    const Lap lap(submit_);
    for (const Command& command : commands) apply(command);
  }

  /// One cycle, and the whole life of what it placed.
  int64_t turn() {
    for (bool more = true; more;) {
      Planner::Slice slice;
      {
        const Lap lap(plan_);
        slice = planner_.plan(state_, state_.last.at);
      }
      more = slice.more;
      if (slice.plan.groups.empty()) break;
      const Command plan = std::move(slice.plan);
      {
        const Lap lap(commit_);
        apply(plan);
      }
      {
        const Lap lap(plan_);
        planner_.plan_applied(state_);
      }
      for (const PlanGroup& group : std::get<CommitPlan>(plan).groups) {
        const MemberPlacement& member = group.members[0];
        running_.push_back({group.job, member.node, member.device_mask, member.generations[0]});
      }
    }
    {
      const Lap lap(started_);
      for (const Running& job : running_)
        apply(AttemptStarted{.job = job.job, .attempt = 1, .node = job.node});
    }
    {
      const Lap lap(ended_);
      for (const Running& job : running_) {
        apply(AttemptEnded{.job = job.job,
                           .attempt = 1,
                           .node = job.node,
                           .outcome = {.cause = EndCause::kExited, .detail = {}}});
      }
    }
    {
      const Lap lap(released_);
      for (const Running& job : running_) {
        apply(DeviceReleased{.node = job.node,
                             .device = static_cast<uint32_t>(std::countr_zero(job.device_mask)),
                             .generation = job.generation});
      }
    }
    const auto placed = static_cast<int64_t>(running_.size());
    running_.clear();
    return placed;
  }

  void run(int64_t waiting, int64_t jobs) {
    submit(waiting);
    submit_ = {};
    int64_t done = 0;
    while (done < jobs) {
      const int64_t placed = turn();
      CHECK(placed > 0);
      done += placed;
      submit(placed);
    }
    CHECK(state_.count(JobState::kCompleted) == done);
    Spent total;
    for (const Spent* spent : {&submit_, &plan_, &commit_, &started_, &ended_, &released_}) {
      total.wall += spent->wall;
      total.cpu += spent->cpu;
    }
    const auto count = static_cast<double>(done);
    print_line("lives", text_of("%lld in %.2f s: %.0f jobs/s; in %.2f s of CPU: %.0f jobs/s",
                                static_cast<long long>(done), total.wall, count / total.wall, total.cpu,
                                count / total.cpu));
    const auto us = [&](const Spent& spent) { return spent.cpu * 1e6 / count; };
    print_line("us of CPU",
               text_of("submit %.3f  plan %.3f  commit %.3f  started %.3f  ended %.3f  "
                       "released %.3f",
                       us(submit_), us(plan_), us(commit_), us(started_), us(ended_), us(released_)));
    print_line("at the end",
               text_of("%lld waiting, %lld finished", static_cast<long long>(state_.waiting_count()),
                       static_cast<long long>(state_.finished.size())));
  }

 private:
  struct Running {
    JobId job;
    NodeId node;
    uint64_t device_mask;
    uint32_t generation;
  };

  struct Spent {
    double wall = 0;
    double cpu = 0;  ///< Time of this thread, which the machine's other work does not change.
  };
  /// Adds its own lifetime.
  class Lap {
   public:
    explicit Lap(Spent& spent) : spent_(spent), wall_(seconds_of(CLOCK_MONOTONIC)), cpu_(cpu_now()) {}
    ~Lap() {
      spent_.wall += seconds_of(CLOCK_MONOTONIC) - wall_;
      spent_.cpu += cpu_now() - cpu_;
    }
    Lap(const Lap&) = delete;
    Lap& operator=(const Lap&) = delete;

   private:
    static double seconds_of(clockid_t clock) {
      timespec now{};
      clock_gettime(clock, &now);
      return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
    }
    static double cpu_now() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }
    Spent& spent_;
    double wall_;
    double cpu_;
  };

  SubmitJobs batch() {
    SubmitJobs command{.tenant = kDefaultTenant};
    command.jobs.reserve(kBatch);
    for (uint32_t i = 0; i < kBatch; ++i) {
      const uint64_t shape = next_++ % 16;
      command.jobs.push_back(JobRequest{
          .priority = static_cast<int32_t>(shape % 4),
          .parts = {Part{.gpu_count = 1,
                         .cpu_milli = static_cast<int32_t>(1'000 + 500 * (shape / 4)),
                         .memory_mb = 4'000}},
          .spec = Blob("{name: train-0000001, command: python train.py --epochs 10, team: vision}")});
    }
    return command;
  }
  void apply(const Command& command) {
    events_.clear();
    now_ = now_ + microseconds(10);
    const Applied applied =
        gpusched::apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events_);
    CHECK(!applied.rejection.has_value());
    for (const Event& event : events_) planner_.observe(state_, event);
  }

  State state_;
  Planner planner_;
  Events events_;
  std::vector<Running> running_;
  Time now_ = Time{} + seconds(1'700'000'000);
  uint64_t next_ = 0;
  Spent submit_, plan_, commit_, started_, ended_, released_;
};

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  using gpusched::bench::text_of;
  const int64_t waiting = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const int64_t jobs = argc > 2 ? std::atoll(argv[2]) : 1'000'000;
  gpusched::bench::print_line("machine", gpusched::bench::machine_line());
  gpusched::bench::print_line("durability", "none: no journal, no disk");
  gpusched::bench::print_line(
      "sizes", text_of("%d nodes x %d GPUs, %lld jobs waiting, 16 shapes of job, submitted by %u, one thread",
                       gpusched::kNodes, gpusched::kGpus, static_cast<long long>(waiting), gpusched::kBatch));
  gpusched::Bench bench;
  bench.run(waiting, jobs);
  return 0;
}
