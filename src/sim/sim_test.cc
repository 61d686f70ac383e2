#include <gtest/gtest.h>

#include <sstream>

#include "sim/world.h"

namespace gpusched::sim {
namespace {

TEST(Simulation, AWorldWithoutFaultsKeepsItsPromisesAndComesToRest) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const RunResult result = run_seed({.seed = seed, .faults = FaultSet()});
    EXPECT_EQ(result.failure, "") << "seed " << seed;
    EXPECT_EQ(result.host_starts, 1u);
    EXPECT_GT(result.jobs, 0u);
    EXPECT_GT(result.attempts, 0u);
  }
}

TEST(Simulation, AWorldInWhichEverythingBreaksKeepsItsPromisesAndComesToRest) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const RunResult result = run_seed({.seed = seed});
    EXPECT_EQ(result.failure, "") << "seed " << seed;
  }
}

TEST(Simulation, AWorldWithExternalNodesThatRefuseStartsComesToRest) {
  uint64_t refused = 0;
  for (uint64_t seed = 1'001; seed <= 1'040; ++seed) {
    const RunResult result = run_seed({.seed = seed});
    EXPECT_EQ(result.failure, "") << "seed " << seed;
    refused += result.refused_starts;
  }
  EXPECT_GT(refused, 0u);
}

TEST(Simulation, ASeedIsTheSameRunEveryTime) {
  for (uint64_t seed = 41; seed <= 45; ++seed) {
    EXPECT_EQ(run_seed({.seed = seed}).digest, run_seed({.seed = seed}).digest) << "seed " << seed;
  }
}

TEST(Simulation, TwoSeedsAreTwoRuns) {
  EXPECT_NE(run_seed({.seed = 51}).digest, run_seed({.seed = 52}).digest);
}

TEST(Faults, AreNamedAddedAndTakenAway) {
  EXPECT_EQ(*parse_faults("all"), FaultSet::all());
  EXPECT_EQ(*parse_faults("none"), FaultSet());
  const Result<FaultSet> some = parse_faults("cut,host-kill");
  ASSERT_TRUE(some.ok());
  EXPECT_TRUE(some->has(Fault::kCut));
  EXPECT_TRUE(some->has(Fault::kHostKill));
  EXPECT_EQ(to_string(*some), "cut,host-kill");
  const Result<FaultSet> less = parse_faults("all,-reorder");
  ASSERT_TRUE(less.ok());
  EXPECT_FALSE(less->has(Fault::kReorder));
  EXPECT_EQ(*parse_faults(to_string(*less)), *less);
}

TEST(Faults, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const Result<FaultSet> faults = parse_faults("cut,meteor");
  ASSERT_FALSE(faults.ok());
  EXPECT_NE(faults.error().message.find("meteor"), std::string::npos);
  EXPECT_NE(faults.error().message.find("host-power"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::sim
