#include <gtest/gtest.h>

#include "engine/testing/test_engine.h"

namespace gpusched::policy {
namespace {

using testing::TestEngine;

TEST(BestFit, TakesTheNodeOnWhichFewerGpusStayFree) {
  TestEngine engine;
  engine.add_node("large", {.gpus = 8});
  const NodeId small = engine.add_node("small", {.gpus = 2});
  EXPECT_EQ(engine.job(engine.run({.gpus = 1})).node, small);
}

TEST(BestFit, OfEquallyManyFreeGpusTakesTheNodeOnWhichLessCpuStaysIdle) {
  TestEngine engine;
  engine.add_node("much", {.gpus = 2, .cpu_milli = 64'000});
  const NodeId little = engine.add_node("little", {.gpus = 2, .cpu_milli = 16'000});
  engine.add_node("more", {.gpus = 2, .cpu_milli = 128'000});
  EXPECT_EQ(engine.job(engine.run({.gpus = 1, .cpu_milli = 8'000})).node, little);
}

}  // namespace
}  // namespace gpusched::policy
