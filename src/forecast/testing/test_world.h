#pragma once

#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"
#include "forecast/world.h"

/// For tests only: the copy of a state that a forecast runs forward.
namespace gpusched::testing {

inline forecast::World world_of(const TestEngine& engine) {
  forecast::World world(engine.state().clone_unfinished(), policy::default_policies(), engine.now());
  forecast::Work work{.left = limits::kForecastWorkMax};
  EXPECT_TRUE(world.settle(work));
  return world;
}

}  // namespace gpusched::testing
