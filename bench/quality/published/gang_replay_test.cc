#include "published/gang_replay.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace gpusched::replay {
namespace {

TraceJob job(int64_t submitted_s, int64_t run_s, int64_t size) {
  return {.id = 0, .submitted = seconds(submitted_s), .run = seconds(run_s), .requested = {}, .size = size};
}

constexpr GangRules kTwoNodes = {.nodes = 2, .gpus_per_node = 8, .consolidated = true};

TEST(GangReplay, AJobThatFitsTheFreeGpusButNotTheNodesWaits) {
  // Four GPUs of each node are free, but no node has eight.
  const std::vector<TraceJob> jobs = {job(0, 100, 5), job(0, 90, 4), job(0, 10, 8)};
  FirstCome order;
  const ReplayOutcome outcome = replay_gangs(jobs, kTwoNodes, order);
  EXPECT_EQ(outcome.runs[1].started, seconds(0));
  EXPECT_EQ(outcome.runs[2].started, seconds(90));
}

TEST(GangReplay, AGangHasWholeNodesAndTheFullestForItsRest) {
  const GangRules rules{.nodes = 3, .gpus_per_node = 8, .consolidated = true};
  // The second one takes what the first left of its node, so that the third has two whole ones.
  const std::vector<TraceJob> jobs = {job(0, 100, 4), job(0, 100, 4), job(0, 10, 16)};
  FirstCome order;
  EXPECT_EQ(replay_gangs(jobs, rules, order).runs[2].started, seconds(0));
}

TEST(GangReplay, AStrictHeadIsPassedByNobodyAndAPatientOneByWhoeverFits) {
  const std::vector<TraceJob> jobs = {job(0, 100, 8), job(1, 10, 16), job(2, 10, 8)};
  FirstCome order;
  EXPECT_EQ(replay_gangs(jobs, kTwoNodes, order).runs[2].started, seconds(110));
  GangRules passing = kTwoNodes;
  passing.pass_blocked = true;
  EXPECT_EQ(replay_gangs(jobs, passing, order).runs[2].started, seconds(2));
}

TEST(GangReplay, WhoHasWaitedLongEnoughIsPassedNoMore) {
  GangRules rules = kTwoNodes;
  rules.pass_blocked = true;
  std::vector<TraceJob> jobs = {job(0, 100, 8), job(1, 10, 16)};
  for (int64_t at = 0; at < 1000; at += 50) jobs.push_back(job(at + 2, 100, 8));
  FirstCome order;
  const Duration endless = replay_gangs(jobs, rules, order).runs[1].started;
  rules.patience = seconds(200);
  const Duration bounded = replay_gangs(jobs, rules, order).runs[1].started;
  EXPECT_GT(endless, seconds(900));
  EXPECT_LE(bounded, seconds(201 + 100));  // Its patience, and what runs by then.
}

TEST(GangReplay, ShortestRemainingTimeStopsTheLongerAndChargesItsRestart) {
  const GangRules rules{
      .nodes = 1, .gpus_per_node = 4, .preemptive = true, .pass_blocked = true, .restart = seconds(5)};
  const std::vector<TraceJob> jobs = {job(0, 100, 4), job(10, 20, 4)};
  ShortestTime order;
  const ReplayOutcome outcome = replay_gangs(jobs, rules, order);
  EXPECT_EQ(outcome.runs[1].ended, seconds(30));
  EXPECT_EQ(outcome.runs[0].ended, seconds(125));
  EXPECT_EQ(outcome.preemptions, 1u);
}

TEST(GangReplay, AttainedServiceLetsAYoungJobGoFirstAndChangesWithoutAnEvent) {
  const GangRules rules{.nodes = 1, .gpus_per_node = 1, .preemptive = true, .pass_blocked = true};
  const std::vector<TraceJob> jobs = {job(0, 1000, 1), job(500, 50, 1), job(501, 300, 1)};
  AttainedLevels order(100, 2000);
  const ReplayOutcome outcome = replay_gangs(jobs, rules, order);
  EXPECT_EQ(outcome.runs[1].started, seconds(500));
  EXPECT_EQ(outcome.runs[1].ended, seconds(550));
  // The third passes the first until it has as much behind it, level by level.
  EXPECT_EQ(outcome.runs[2].started, seconds(550));
  EXPECT_LT(outcome.runs[2].ended, seconds(1000));
  EXPECT_GE(outcome.preemptions, 1u);
}

TEST(GangReplay, NeverMoreIsInUseThanThereIsAndAllWorkIsDone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Prng prng(seed);
    std::vector<TraceJob> jobs;
    int64_t at_s = 0;
    for (int i = 0; i < 120; ++i) {
      at_s += prng.between(0, 30);
      jobs.push_back(job(at_s, prng.between(1, 300), prng.between(1, 16)));
    }
    GangRules rules = kTwoNodes;
    rules.pass_blocked = prng.chance(500);
    LeastService order;
    const ReplayOutcome outcome = replay_gangs(jobs, rules, order);
    std::map<Duration, int64_t> changes;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_TRUE(outcome.runs[i].ran);
      EXPECT_EQ(outcome.runs[i].ended - outcome.runs[i].started, jobs[i].run);
      changes[outcome.runs[i].started] += jobs[i].size;
      changes[outcome.runs[i].ended] -= jobs[i].size;
    }
    int64_t in_use = 0;
    for (const auto& [at, change] : changes) EXPECT_LE(in_use += change, 16);
  }
}

}  // namespace
}  // namespace gpusched::replay
