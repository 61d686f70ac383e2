#include <gtest/gtest.h>

#include <vector>

#include "node/testing/node_core_fakes.h"

// What an attempt used, as the agent tells it with the attempt's end.
namespace gpusched {
namespace {

using testing::Node;

const AttemptKey kKey{JobId{7}, 1, 0};

/// What is told of an attempt that ran for a minute and was watched for `watched`.
v1::MeasuredUsage used_in_a_minute(Node& node, const std::vector<HeldDevice>& held, Duration watched) {
  node.connect();
  node.order_start(kKey, held);
  node.core->on_shim_started(kKey, 17, 5);
  node.core->settle();
  node.pass(watched);
  v1::Outcome outcome;
  outcome.set_cause(v1::Outcome::EXITED);
  outcome.set_started_unix_ns(1'000'000'000);
  outcome.set_ended_unix_ns(61'000'000'000);
  outcome.mutable_usage()->set_cpu_ns(77);
  node.core->on_shim_ended(kKey, outcome);
  node.core->settle();
  node.sync();
  return node.last_outcome().usage();
}

TEST(NodeUsage, HowBusyItsGpusWereIsToldWithItsEnd) {
  Node node;
  node.devices.readings[0] = {.utilization_percent = 80};
  node.devices.readings[1] = {.utilization_percent = 20};
  const v1::MeasuredUsage usage =
      used_in_a_minute(node, {{.index = 0, .generation = 1}, {.index = 1, .generation = 1}}, seconds(60));
  EXPECT_EQ(usage.cpu_ns(), 77);
  EXPECT_GE(usage.gpu_watched_ms(), 100'000);
  EXPECT_LE(usage.gpu_watched_ms(), 120'000);
  EXPECT_EQ(usage.gpu_busy_ms(), usage.gpu_watched_ms() / 2);
}

TEST(NodeUsage, GpusThatWereWatchedForLessThanHalfOfTheTimeAreUnknown) {
  Node node;
  node.devices.readings[0] = {.utilization_percent = 80};
  const v1::MeasuredUsage usage = used_in_a_minute(node, {{.index = 0, .generation = 1}}, seconds(25));
  EXPECT_EQ(usage.cpu_ns(), 77);
  EXPECT_EQ(usage.gpu_watched_ms(), 0);
}

TEST(NodeUsage, HowBusyAShareIsIsUnknown) {
  Node node;
  node.devices.readings[0] = {.utilization_percent = 80};
  const v1::MeasuredUsage usage =
      used_in_a_minute(node, {{.index = 0, .generation = 1, .milli = 500, .memory_mb = 100}}, seconds(60));
  EXPECT_EQ(usage.gpu_watched_ms(), 0);
}

}  // namespace
}  // namespace gpusched
