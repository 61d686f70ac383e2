#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "consensus/testing/simulated_group.h"

namespace gpusched::consensus {
namespace {

/// GPUSCHED_CONSENSUS_SEEDS=FROM..TO: others than the first ones of each test.
std::optional<std::pair<uint64_t, uint64_t>> chosen_seeds() {
  const char* range = std::getenv("GPUSCHED_CONSENSUS_SEEDS");
  if (range == nullptr) return std::nullopt;
  const std::string text = range;
  const std::size_t dots = text.find("..");
  const uint64_t from = std::stoull(text.substr(0, dots));
  return std::pair{from, dots == std::string::npos ? from : std::stoull(text.substr(dots + 2))};
}

/// Runs `count` seeds of one kind: none may break a promise, and together they must have seen at least this.
void run_seeds(uint64_t count, SimulationOptions options, const SimulationReport& at_least) {
  SimulationReport sum;
  const auto [from, to] = chosen_seeds().value_or(std::pair{uint64_t{1}, count});
  for (options.seed = from; options.seed <= to; ++options.seed) {
    const SimulationReport report = SimulatedGroup(options).run();
    EXPECT_EQ(report.violation, "") << "seed " << options.seed;
    sum.committed += report.committed;
    sum.reads += report.reads;
    sum.elections += report.elections;
    sum.crashes += report.crashes;
    sum.installed += report.installed;
    sum.removed += report.removed;
  }
  std::printf(
      "%llu groups: %llu entries, %llu reads, %llu elections, %llu crashes, %llu snapshots, %llu removals\n",
      static_cast<unsigned long long>(to - from + 1), static_cast<unsigned long long>(sum.committed),
      static_cast<unsigned long long>(sum.reads), static_cast<unsigned long long>(sum.elections),
      static_cast<unsigned long long>(sum.crashes), static_cast<unsigned long long>(sum.installed),
      static_cast<unsigned long long>(sum.removed));
  if (chosen_seeds()) return;
  EXPECT_GE(sum.committed, at_least.committed);
  EXPECT_GE(sum.reads, at_least.reads);
  EXPECT_GE(sum.elections, at_least.elections);
  EXPECT_GE(sum.crashes, at_least.crashes);
  EXPECT_GE(sum.installed, at_least.installed);
  EXPECT_GE(sum.removed, at_least.removed);
}

TEST(SimulatedGroup, ThreeReplicasKeepEveryPromise) {
  run_seeds(40, {.replicas = 3},
            {.committed = 5'000, .reads = 2'000, .elections = 200, .crashes = 200, .installed = 20});
}

TEST(SimulatedGroup, FiveReplicasKeepEveryPromise) {
  run_seeds(20, {.replicas = 5}, {.committed = 2'000, .elections = 100, .crashes = 100, .installed = 10});
}

TEST(SimulatedGroup, MembersComeAndGoWithoutABrokenPromise) {
  run_seeds(40, {.replicas = 3, .changes_members = true}, {.committed = 4'000, .removed = 40});
}

TEST(SimulatedGroup, TheSameSeedGivesTheSameRun) {
  const SimulationOptions options = {.seed = 7, .replicas = 3};
  const SimulationReport first = SimulatedGroup(options).run();
  const SimulationReport second = SimulatedGroup(options).run();
  EXPECT_EQ(first.trace, second.trace);
  EXPECT_EQ(first.committed, second.committed);
  const SimulationReport other = SimulatedGroup({.seed = 8, .replicas = 3}).run();
  EXPECT_NE(first.trace, other.trace);
}

/// Violations that seeds find, each in a line.
std::string violations(const PlantedBugs& bugs, uint64_t seeds) {
  std::string found;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    found += SimulatedGroup({.seed = seed, .replicas = 3, .bugs = bugs}).run().violation + "\n";
  }
  return found;
}

TEST(PlantedBugs, AForgottenVoteElectsTwoLeaders) {
  EXPECT_NE(violations({.store = {.forgets_votes = true}}, 60).find("both lead term"), std::string::npos);
}

TEST(PlantedBugs, AForgottenTermIsFoundAtTheNextStart) {
  EXPECT_NE(violations({.store = {.forgets_terms = true}}, 5).find("knows of term 0 only"),
            std::string::npos);
}

TEST(PlantedBugs, ACommitWithoutAMajorityLosesEntries) {
  const std::string found = violations({.acknowledges_for_others = true}, 60);
  EXPECT_NE(found.find("had the committed entry"), std::string::npos);
  EXPECT_NE(found.find("differs between replicas"), std::string::npos);
}

TEST(PlantedBugs, ADiskThatSyncsNothingLosesEntries) {
  const std::string found = violations({.store = {.syncs_nothing = true}}, 60);
  EXPECT_NE(found.find("had the committed entry"), std::string::npos);
  EXPECT_NE(found.find("differs between replicas"), std::string::npos);
}

TEST(PlantedBugs, ASnapshotWithoutItsSuffixLeavesAGap) {
  EXPECT_NE(violations({.store = {.drops_suffix = true}}, 5).find("has a gap"), std::string::npos);
}

TEST(PlantedBugs, ASnapshotInTwoStepsRefusesEveryLaterStart) {
  EXPECT_NE(violations({.store = {.tears_snapshots = true}}, 60).find("does not start"), std::string::npos);
}

TEST(PlantedBugs, AReadWithoutAMajorityIsStale) {
  EXPECT_NE(violations({.reads_without_asking = true}, 5).find("a read saw less"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::consensus
