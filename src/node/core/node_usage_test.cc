#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "node/testing/attempt_key.h"
#include "node/testing/node_core_fakes.h"

// Use by an attempt, as the agent tells it with the attempt's end.
namespace gpusched {
namespace {

using testing::Node;

/// The use that is told of an attempt that ran for a minute and was watched for `watched`; `beside`: another
/// one has the same of the same GPUs.
v1::MeasuredUsage used_in_a_minute(Node& node, const std::vector<HeldDevice>& held, Duration watched,
                                   std::optional<AttemptKey> beside = {}) {
  node.connect();
  if (beside) node.order_start(*beside, held);
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

TEST(NodeUsage, HowBusyAShareIsIsKnownOnlyWhileItIsAloneOnItsGpu) {
  const HeldDevice share{.index = 0, .generation = 1, .milli = 500, .memory_mb = 100};
  Node alone;
  alone.devices.readings[0] = {.utilization_percent = 80};
  const v1::MeasuredUsage usage = used_in_a_minute(alone, {share}, seconds(60));
  EXPECT_GE(usage.gpu_watched_ms(), 50'000);
  EXPECT_EQ(usage.gpu_busy_ms(), usage.gpu_watched_ms() * 4 / 5);
  Node beside;
  beside.devices.readings[0] = {.utilization_percent = 80};
  EXPECT_EQ(used_in_a_minute(beside, {share}, seconds(60), AttemptKey{JobId{8}, 1, 0}).gpu_watched_ms(), 0);
}

/// An agent that sees a process of the attempt with so much memory for a minute, beside another's.
v1::MeasuredUsage used_beside(Node& node, int64_t own_mb) {
  node.spawner.owned.insert({kKey, 17});
  DeviceReading& reading = node.devices.readings[0];
  reading.memory_used_mb = 70'000;
  reading.processes = {17, 99};
  reading.process_memory_mb = {own_mb, 60'000};
  return used_in_a_minute(node, {{.index = 0, .generation = 1, .milli = 500, .memory_mb = 20'000}},
                          seconds(60));
}

TEST(NodeUsage, TheMemoryThatItsProcessesHaveOnASharedGpuIsToldWithItsEnd) {
  Node node;
  EXPECT_EQ(used_beside(node, 9'000).peak_gpu_memory_mb(), 9'000);
}

TEST(NodeUsage, TasksThatOneWorkerHasAtOnceCountForEqualParts) {
  Node node;
  node.spawner.beside = 4;
  EXPECT_EQ(used_beside(node, 9'001).peak_gpu_memory_mb(), 2'251);
}

TEST(NodeUsage, EachTaskNeedsAllOfAWorkerThatIsHeldToTheShareOfOne) {
  Node node;
  node.spawner.beside = 4;
  node.devices.readings[0].daemons = {{.pid = 5, .program = kMpsServer}};
  EXPECT_EQ(used_beside(node, 9'000).peak_gpu_memory_mb(), 9'000);
}

TEST(NodeUsage, MemoryThatTheDriverDoesNotTellIsUnknown) {
  Node node;
  EXPECT_EQ(used_beside(node, -1).peak_gpu_memory_mb(), 0);
}

TEST(NodeUsage, OfWholeGpusAllMemoryIsItsOwn) {
  Node node;
  node.devices.readings[0] = {.memory_used_mb = 300};
  node.devices.readings[1] = {.memory_used_mb = 50};
  const v1::MeasuredUsage usage =
      used_in_a_minute(node, {{.index = 0, .generation = 1}, {.index = 1, .generation = 1}}, seconds(60));
  EXPECT_EQ(usage.peak_gpu_memory_mb(), 350);
}

}  // namespace
}  // namespace gpusched
