#include "node/process/default_memory.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

constexpr NodeMemory kNode = {
    .total_mb = 400'000, .offered_mb = 400'000, .cpu_milli = 100'000, .device_count = 4};
constexpr int64_t kMost = 380'000;  ///< Memory of kNode for jobs.

v1::StartAttempt order(int64_t cpu_milli, int gpus = 0, int32_t share_milli = 0) {
  v1::StartAttempt order;
  order.set_cpu_milli(cpu_milli);
  for (int i = 0; i < gpus; ++i) order.add_devices()->set_share_milli(share_milli);
  return order;
}

TEST(DefaultMemory, IsTheShareOfTheCoresWithoutGpus) {
  EXPECT_EQ(default_memory_mb(order(10'000), kNode), kMost / 10);
}

TEST(DefaultMemory, IsTheLargerShare) {
  EXPECT_EQ(default_memory_mb(order(1'000, 1), kNode), kMost / 4);
  EXPECT_EQ(default_memory_mb(order(50'000, 1), kNode), kMost / 2);
  EXPECT_EQ(default_memory_mb(order(1'000, 1, 500), kNode), kMost / 8);
}

TEST(DefaultMemory, IsEnoughToStartAProgram) {
  EXPECT_EQ(default_memory_mb(order(0), kNode), 1'024);
  EXPECT_EQ(default_memory_mb(order(10), kNode), 1'024);
}

TEST(DefaultMemory, LeavesTheSystemItsPart) {
  EXPECT_EQ(default_memory_mb(order(100'000, 4), kNode), kMost);
  EXPECT_EQ(default_memory_mb(order(200'000, 8), kNode), kMost);
  NodeMemory less = kNode;
  less.offered_mb = 100'000;
  EXPECT_EQ(default_memory_mb(order(100'000), less), 100'000);
  // 1 GiB would be too much of a small machine.
  EXPECT_EQ(default_memory_mb(order(1'000), {.total_mb = 800, .offered_mb = 800, .cpu_milli = 1'000}), 600);
}

TEST(DefaultMemory, IsNoneWhereTheMemoryIsNotKnown) {
  EXPECT_EQ(default_memory_mb(order(1'000, 1), {.cpu_milli = 1'000, .device_count = 1}), 0);
}

}  // namespace
}  // namespace gpusched
