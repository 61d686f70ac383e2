// Any commands to the engine: the planner plans on the state that comes of them, and every question about it
// is answered. A CHECK that fails ends this test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/limits.h"
#include "engine/policy/victims.h"
#include "engine/testing/wild_commands.h"
#include "forecast/changes.h"
#include "forecast/forecast.h"
#include "forecast/moves.h"

namespace gpusched::forecast {
namespace {

using gpusched::testing::WildCommands;

class TenMinutes final : public RunSource {
 public:
  Duration whole_run(const State&, const Job&, Duration elapsed, int32_t) override {
    return std::max(minutes(10), elapsed + milliseconds(1));
  }
};

policy::PolicySet policies() {
  policy::PolicySet set = policy::default_policies();
  set.victims = std::make_shared<policy::LeastLost>(policy::LeastLost::Params{});
  return set;
}

/// A state under wild commands with the real planner beside it, as the scheduler has them.
class WildCluster : public ::testing::TestWithParam<uint64_t> {
 protected:
  void apply_one(const Command& command) {
    events_.clear();
    apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events_);
    for (const Event& event : events_) planner_.observe(state_, event);
  }
  Command next() {
    if (state_.last.sequence < kFirstSequence) {
      EngineConfig config{.feature_level = kFeatureLevel};
      static constexpr const char* kPlacements[] = {"", "fgd", "least_value_lost"};
      static constexpr const char* kOrders[] = {"", "deadline", "shortest", "least_attained"};
      config.policy.placement = kPlacements[GetParam() % 3];
      config.policy.job_order = kOrders[GetParam() % 4];
      config.policy.attained_levels = {1, 5, 20};
      if (GetParam() % 5 == 0) config.pools = {.online_milli = 300, .batch_milli = 700, .lend = true};
      return Configure{.config = config};
    }
    if (state_.next_due() <= now_) return AdvanceTime{};
    Command command = random_.next(state_, now_);
    if (auto* configure = std::get_if<Configure>(&command)) {
      configure->config.feature_level = kFeatureLevel;
      configure->config.policy = state_.config.policy;
    }
    return command;
  }
  void plan() {
    if (planner_.next_look() <= now_) planner_.look_at_promises(now_);
    for (int slices = 0; slices < 50 && planner_.wants_cycle(); ++slices) {
      const Planner::Slice slice = planner_.plan(state_, now_);
      if (!slice.plan.groups.empty()) apply_one(slice.plan);
      planner_.plan_applied(state_);
    }
  }
  void ask_everything() {
    World world(state_.clone_unfinished(), policies(), now_);
    Work settling{.left = 20'000};
    if (!world.settle(settling)) return;
    TenMinutes runs;
    forecast(world, runs, {.runs = 1, .work = 3'000});
    std::vector<JobId> waiting;
    world.state().jobs.for_each([&](const Job& job) {
      if (subject_of(world.state(), job.id).valid()) waiting.push_back(job.id);
      return waiting.size() < 3;
    });
    for (const JobId job : waiting) {
      World scratch = world.copy();
      const State& state = scratch.state();
      const JobId subject = subject_of(state, job);
      const std::vector<Part> before = state.class_of(*state.jobs.find(subject)).parts;
      Work work{.left = 5'000};
      smallest_changes(scratch, job, 10, work);
      EXPECT_EQ(state.class_of(*state.jobs.find(subject)).parts, before);
    }
    Work moving{.left = 20'000};
    plan_moves(world, {.protection = {}, .recent = {}}, moving);
  }

  WildCommands random_{GetParam() + 10'000};
  State state_;
  Events events_;
  Planner planner_{policies()};
  Time now_ = Time{} + seconds(1'750'000'000);
};

TEST_P(WildCluster, IsPlannedOnAndEveryQuestionIsAnswered) {
  planner_.reset(state_);
  for (int i = 0; i < 600; ++i) {
    now_ = now_ + random_.pause();
    apply_one(next());
    if (i % 3 == 0) plan();
    if (i % 20 == 0) ask_everything();
  }
}

/// More of them on request: GPUSCHED_WILD_SEEDS=1000.
uint64_t seeds() {
  const char* wanted = std::getenv("GPUSCHED_WILD_SEEDS");
  return wanted == nullptr ? 24 : std::strtoull(wanted, nullptr, 10);
}

INSTANTIATE_TEST_SUITE_P(Seeds, WildCluster, ::testing::Range<uint64_t>(0, seeds()));

}  // namespace
}  // namespace gpusched::forecast
