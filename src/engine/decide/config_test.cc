// Effects of a change of the cluster's rules on jobs that came under the old ones.
#include <gtest/gtest.h>

#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

EngineConfig rules_of(int64_t level, int64_t aging = 10) {
  return {.aging_per_hour = aging, .feature_level = level};
}

/// Where a job of the default tenant would stand had it come under that aging.
int64_t key_of(const TestEngine& engine, JobId job, int64_t aging) {
  const int64_t effective = engine.job(job).priority + engine.tenant(kDefaultTenant).priority_tier;
  return order_key_of(effective, aging, engine.job(job).submitted_at);
}

TEST(NewHalfLife, HoldsForWhatIsUsedFromThenOn) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  EngineConfig config = rules_of(kFeatureLevel);
  config.use_half_life = hours(1);
  engine.apply(Configure{.config = config});
  engine.run({.gpus = 1});
  const DecayedUse before = engine.tenant(kDefaultTenant).use;
  const Amount usage = engine.tenant(kDefaultTenant).usage;
  engine.advance(hours(10));
  config.use_half_life = seconds(1);
  engine.apply(Configure{.config = config});
  DecayedUse expected = before;
  expected.settle(usage, hours(1), engine.now(), true);
  EXPECT_EQ(engine.tenant(kDefaultTenant).use.gpus, expected.gpus);
  EXPECT_GT(expected.gpus, 3'600'000);
}

TEST(NewAging, MovesAllWhoWaitAndNoneBeforeLevelNine) {
  for (const int64_t level : {int64_t{8}, kFeatureLevel}) {
    TestEngine engine;
    engine.apply(Configure{.config = rules_of(level)});
    const JobId job = engine.submit({.gpus = 1, .priority = 5});
    const JobId held = engine.submit({.gpus = 1, .held = true});
    engine.apply(Configure{.config = rules_of(level, 1'000)});
    const int64_t holds = level < 9 ? 10 : 1'000;
    EXPECT_EQ(engine.job(job).order_key, key_of(engine, job, holds));
    EXPECT_EQ(engine.job(held).order_key, key_of(engine, held, holds));
  }
}

TEST(ReachingLevelNine, MendsWhatOlderRulesLeft) {
  TestEngine engine;
  engine.apply(Configure{.config = rules_of(8)});
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const TenantId gone = engine.add_tenant("gone");
  engine.apply(
      MakeBooking{.name = "b", .tenant = gone, .nodes = {node}, .begin_after = hours(1), .length = hours(1)});
  engine.apply(
      MakeBooking{.name = "maintenance", .nodes = {node}, .begin_after = hours(5), .length = hours(1)});
  engine.apply(DeleteTenant{.tenant = gone});
  const JobId job = engine.submit({.gpus = 2});
  engine.apply(Configure{.config = rules_of(8, 1'000)});
  ASSERT_EQ(engine.state().bookings.size(), 2u);
  engine.apply(Configure{.config = rules_of(9, 1'000)});
  ASSERT_EQ(engine.state().bookings.size(), 1u);
  EXPECT_EQ(engine.state().bookings.begin()->second.name, "maintenance");
  EXPECT_EQ(engine.job(job).order_key, key_of(engine, job, 1'000));
}

}  // namespace
}  // namespace gpusched
