#include "forecast/rough_waits.h"

#include <gtest/gtest.h>

#include "engine/testing/test_engine.h"
#include "forecast/forecast.h"

namespace gpusched::forecast {
namespace {

using gpusched::testing::TestEngine;

TEST(RoughWaits, WithoutNodesNothingIsKnown) {
  const TestEngine engine;
  EXPECT_FALSE(RoughWaits().wait(0, 0, Time{1}));
  EXPECT_FALSE(RoughWaits(engine.state(), engine.now()).wait(0, 0, engine.now()));
}

TEST(RoughWaits, WhatIsFreeStartsAtOnceAndMoreThanThereIsIsNotKnown) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  const RoughWaits rough(engine.state(), engine.now());
  EXPECT_EQ(rough.wait(2'000, 0, engine.now()), Duration{});
  EXPECT_EQ(rough.wait(0, 0, engine.now()), Duration{});
  EXPECT_FALSE(rough.wait(2'001, 0, engine.now()));
}

TEST(RoughWaits, CountsToTheLimitOfWhatRunsFromTheTimeOfTheReader) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  engine.run({.gpus = 1, .max_runtime = minutes(10)});
  engine.run({.gpus = 1, .max_runtime = minutes(20)});
  const RoughWaits rough(engine.state(), engine.now());
  EXPECT_NEAR(static_cast<double>(rough.wait(1'000, 0, engine.now())->ms()), 600'000, 1'000);
  EXPECT_NEAR(static_cast<double>(rough.wait(2'000, 0, engine.now())->ms()), 1'200'000, 1'000);
  EXPECT_NEAR(static_cast<double>(rough.wait(1'000, 0, engine.now() + minutes(4))->ms()), 360'000, 1'000);
  EXPECT_EQ(rough.wait(1'000, 0, engine.now() + minutes(11)), Duration{}) << "it is overdue";
}

TEST(RoughWaits, JobsThatWaitBeforeItTakeTheirTime) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1, .max_runtime = minutes(10)});
  for (int i = 0; i < 3; ++i) engine.submit({.gpus = 1, .max_runtime = minutes(5)});
  const RoughWaits rough(engine.state(), engine.now());
  EXPECT_NEAR(static_cast<double>(rough.wait(1'000, 3, engine.now())->ms()), 1'500'000, 1'000);
}

TEST(RoughWaits, ManyEndsArePutTogether) {
  TestEngine engine;
  for (const char* const node : {"n1", "n2"}) engine.add_node(node, {.gpus = 60, .cpu_milli = 600'000});
  for (int i = 1; i <= 120; ++i) engine.run({.gpus = 1, .max_runtime = seconds(10 * i)});
  const RoughWaits rough(engine.state(), engine.now());
  EXPECT_GT(*rough.wait(1'000, 0, engine.now()), Duration{});
  EXPECT_LE(*rough.wait(1'000, 0, engine.now()), seconds(30));
  EXPECT_NEAR(static_cast<double>(rough.wait(120'000, 0, engine.now())->ms()), 1'200'000, 1'000);
}

TEST(RoughWaits, AJobWithoutALimitIsExpectedToRunTwiceAsLongAsItHas) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  EXPECT_EQ(RoughWaits(engine.state(), engine.now()).wait(1'000, 0, engine.now())->ms() / 1'000,
            2 * kFirstRun.ms() / 1'000);
}

}  // namespace
}  // namespace gpusched::forecast
