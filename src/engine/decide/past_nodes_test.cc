#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Places the job's next attempt on this node and ends it with a failure.
void fail_on(TestEngine& engine, JobId job, NodeId node) {
  const uint32_t attempt = engine.job(job).attempt_count + 1;
  MemberPlacement member{.node = node, .device_mask = 1, .generations = {engine.device(node, 0).generation}};
  const Applied placed = engine.apply(
      CommitPlan{.groups = {PlanGroup{.job = job, .attempt = attempt, .members = {std::move(member)}}}});
  ASSERT_FALSE(placed.rejection.has_value());
  ASSERT_EQ(engine.job(job).attempt_count, attempt);
  engine.apply(AttemptStarted{.job = job, .attempt = attempt, .node = node});
  engine.apply(AttemptEnded{.job = job, .attempt = attempt, .node = node, .outcome = exited(1)});
  for (uint32_t device = 0; device < engine.node(node).devices.size(); ++device) {
    if (engine.node(node).devices[device].state != DeviceState::kDraining) continue;
    engine.apply(DeviceReleased{
        .node = node, .device = device, .generation = engine.node(node).devices[device].generation});
  }
  engine.advance(minutes(10));
}

TEST(PastNodes, EachOfTheLastAttemptsIsFoundWhereItRan) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const NodeId nodes[] = {engine.add_node("n1", {.gpus = 1}), engine.add_node("n2", {.gpus = 1}),
                          engine.add_node("n3", {.gpus = 1})};
  const JobId job = engine.submit({.gpus = 1, .retry = {.exit_code_retries = 1'000}});
  constexpr uint32_t kAttempts = limits::kPastNodesMax + 5;
  for (uint32_t i = 0; i < kAttempts; ++i) fail_on(engine, job, nodes[i % 3]);
  for (uint32_t attempt = 1; attempt <= kAttempts; ++attempt) {
    const NodeId found = engine.job(job).node_of_attempt(attempt);
    if (attempt + limits::kPastNodesMax < kAttempts) {
      EXPECT_FALSE(found.valid()) << attempt;
    } else {
      EXPECT_EQ(found, nodes[(attempt - 1) % 3]) << attempt;
    }
  }
  EXPECT_FALSE(engine.job(job).node_of_attempt(0).valid());
  EXPECT_FALSE(engine.job(job).node_of_attempt(kAttempts + 1).valid());
}

// Journals from before must replay to the digests that they were recorded with.
TEST(PastNodes, NothingIsRememberedBelowTheFeatureLevel) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit({.gpus = 1, .retry = {.exit_code_retries = 5}});
  fail_on(engine, job, node);
  fail_on(engine, job, node);
  EXPECT_TRUE(engine.job(job).extras->past_nodes.empty());
  EXPECT_EQ(engine.job(job).node_of_attempt(2), node);
  EXPECT_FALSE(engine.job(job).node_of_attempt(1).valid());
}

}  // namespace
}  // namespace gpusched
