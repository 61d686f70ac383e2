#include "replay/scheduler/engine_replay.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/prng.h"
#include "replay/report/measures.h"
#include "replay/trace/starving_stream.h"

namespace gpusched::replay {
namespace {

TraceJob job(int64_t submitted_s, int64_t run_s, int64_t size, int64_t requested_s = 0, uint64_t user = 1) {
  return {.id = 0,
          .submitted = seconds(submitted_s),
          .run = seconds(run_s),
          .requested = seconds(requested_s),
          .size = size,
          .user = user};
}

ReplayPolicy policy(std::string_view text) {
  const Result<ReplayPolicy> parsed = parse_policy(text);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return *parsed;
}

ReplayOutcome replay(const std::vector<TraceJob>& jobs, std::string_view text, const ReplayOptions& options) {
  const Result<ReplayOutcome> outcome = replay_engine(jobs, policy(text), options);
  EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  return *outcome;
}

TEST(ReplayPolicyText, HasAnOrderAndOptions) {
  const ReplayPolicy parsed = policy("fair_share+reservations=8+oracle");
  EXPECT_EQ(parsed.scheduling.queue_order, "fair_share");
  EXPECT_EQ(parsed.scheduling.reservations, 8);
  EXPECT_EQ(parsed.knows, ReplayPolicy::Knows::kOracle);
  for (const char* wrong : {"", "sjf", "fifo+x", "fifo+reservations=", "fifo+reservations=65", ","}) {
    const Result<std::vector<ReplayPolicy>> parsed_wrong = parse_policies(wrong);
    ASSERT_FALSE(parsed_wrong.ok()) << wrong;
    EXPECT_EQ(parsed_wrong.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(EngineReplay, AJobWaitsForWhatOthersHold) {
  const std::vector<TraceJob> jobs = {job(0, 100, 3), job(10, 50, 2), job(20, 10, 1)};
  const ReplayOutcome outcome = replay(jobs, "fifo", {.cluster = {.pool = 4}});
  EXPECT_EQ(outcome.runs[0].started, seconds(0));
  EXPECT_EQ(outcome.runs[1].started, seconds(100));
  EXPECT_EQ(outcome.runs[1].ended, seconds(150));
  EXPECT_EQ(outcome.left_out, 0u);
}

TEST(EngineReplay, AnOracleBackfillsWhatEndsInTime) {
  // The second one waits for the first; the third ends before that, the fourth does not.
  const std::vector<TraceJob> jobs = {job(0, 100, 3), job(10, 50, 4), job(20, 80, 1), job(100, 51, 1)};
  const ReplayOutcome outcome = replay(jobs, "fifo+oracle", {.cluster = {.pool = 4}});
  EXPECT_EQ(outcome.runs[2].started, seconds(20));
  EXPECT_EQ(outcome.runs[1].started, seconds(100));
  EXPECT_EQ(outcome.runs[3].started, seconds(150));
}

TEST(EngineReplay, WhatUsersAskForIsTheirLimit) {
  // The third one would end in time, but asks for too long.
  const std::vector<TraceJob> jobs = {job(0, 100, 3, 100), job(10, 50, 4, 50), job(20, 10, 1, 81)};
  const ReplayOutcome outcome = replay(jobs, "fifo+limits", {.cluster = {.pool = 4}});
  EXPECT_EQ(outcome.runs[1].started, seconds(100));
  EXPECT_EQ(outcome.runs[2].started, seconds(150));
}

/// Over how many racks of two nodes each job went, by its index.
class Racks : public ReplayWatcher {
 public:
  void placed(const State& state, const Attempt& attempt, uint32_t index, Time /*now*/) override {
    for (const Member& member : attempt.members)
      of[index].insert(*state.find_node(member.node)->label("topology.rack"));
  }
  std::map<uint32_t, std::set<std::string>> of;
};

TEST(EngineReplay, AGangIsAsManyWholeNodesAndStaysInARackThatHasThem) {
  const std::vector<TraceJob> jobs = {job(0, 100, 4), job(1, 50, 8), job(2, 10, 16), job(3, 10, 6)};
  Racks racks;
  const ReplayOutcome outcome =
      replay(jobs, "fifo+oracle",
             {.cluster = {.nodes = 4, .gpus_per_node = 4, .gangs = true, .racks = 2}, .watcher = &racks});
  EXPECT_EQ(outcome.runs[1].started, seconds(1));
  EXPECT_EQ(racks.of[1].size(), 1u);
  EXPECT_EQ(outcome.runs[2].started, seconds(100));
  EXPECT_EQ(racks.of[2].size(), 2u);
  EXPECT_EQ(outcome.runs[2].ended, seconds(110));
  EXPECT_FALSE(outcome.runs[3].ran);
}

TEST(EngineReplay, AGangThatDemandsARackWaitsForOne) {
  const std::vector<TraceJob> jobs = {job(0, 100, 4), job(0, 200, 8), job(1, 50, 8)};
  Racks racks;
  const ReplayOutcome outcome =
      replay(jobs, "fifo+oracle",
             {.cluster = {.nodes = 4, .gpus_per_node = 4, .gangs = true, .racks = 2, .rack_required = true},
              .watcher = &racks});
  EXPECT_EQ(outcome.runs[2].started, seconds(100));
  EXPECT_EQ(racks.of[2].size(), 1u);
}

TEST(EngineReplay, OnNodesAJobRunsOnOne) {
  const std::vector<TraceJob> jobs = {job(0, 100, 3), job(0, 100, 3), job(0, 10, 2), job(0, 10, 5)};
  const ReplayOutcome outcome = replay(jobs, "fifo", {.cluster = {.nodes = 2, .gpus_per_node = 4}});
  EXPECT_EQ(outcome.runs[2].started, seconds(100));
  EXPECT_FALSE(outcome.runs[3].ran);
  EXPECT_EQ(outcome.left_out, 1u);
}

TEST(EngineReplay, ATenantWithAHigherTierPreemptsAndTheVictimGoesOnWhereItWas) {
  std::vector<TraceJob> jobs = {job(0, 1000, 4), job(500, 100, 4)};
  jobs[0].queue = 1;
  jobs[1].queue = 2;
  ReplayOptions options{.cluster = {.nodes = 1, .gpus_per_node = 4}, .tenant_of = TenantOf::kQueue};
  options.tenants.resize(3);
  options.tenants[1].allow_preemption = true;
  options.tenants[2].can_preempt_others = true;
  options.tenants[2].priority_tier = 1000;
  options.restart = seconds(20);
  const ReplayOutcome outcome = replay(jobs, "priority_aging", options);
  EXPECT_EQ(outcome.preemptions, 1u);
  EXPECT_EQ(outcome.runs[0].preemptions, 1u);
  EXPECT_EQ(outcome.runs[1].started, seconds(500));
  // 500 s done, 100 s away, 20 s to restart, 500 s left.
  EXPECT_EQ(outcome.runs[0].ended, seconds(1120));
}

/// Two tenants of four GPUs each, as cores of a pool of eight; the first has taken all of them.
ReplayOptions lending(Duration grace) {
  ReplayOptions options{.cluster = {.pool = 8}, .tenant_of = TenantOf::kQueue};
  options.tenants.resize(3);
  options.tenants[1].guarantee.cpu_milli = 4'000;
  options.tenants[2].guarantee.cpu_milli = 4'000;
  options.grace = grace;
  return options;
}

std::vector<TraceJob> borrowed() {
  std::vector<TraceJob> jobs = {job(0, 1000, 4), job(0, 1000, 4), job(500, 100, 4)};
  jobs[0].queue = jobs[1].queue = 1;
  jobs[2].queue = 2;
  return jobs;
}

TEST(EngineReplay, AGuaranteeIsTakenBackAfterTheGracePeriodAndWhatWasNotSavedIsLost) {
  ReplayOptions options = lending(seconds(10));
  options.starts_anew = true;
  const ReplayOutcome outcome = replay(borrowed(), "fair_share+reservations=0", options);
  EXPECT_EQ(outcome.preemptions, 1u);
  EXPECT_EQ(outcome.runs[2].started, seconds(510));
  ASSERT_EQ(outcome.reclaims.size(), 1u);
  EXPECT_EQ(outcome.reclaims[0], seconds(10));
  EXPECT_EQ(outcome.lost_ms, 4 * seconds(510).ms());
  // It starts again when the third one has ended, for all of its 1,000 s.
  EXPECT_EQ(std::max(outcome.runs[0].ended, outcome.runs[1].ended), seconds(1610));
}

TEST(EngineReplay, WhatWasSavedGoesOn) {
  const ReplayOutcome outcome = replay(borrowed(), "fair_share+reservations=0", lending(seconds(10)));
  EXPECT_EQ(outcome.preemptions, 1u);
  EXPECT_EQ(outcome.lost_ms, 0);
  EXPECT_EQ(std::max(outcome.runs[0].ended, outcome.runs[1].ended), seconds(1100));
}

class Log final : public ReplayWatcher {
 public:
  void submitted(JobId id, uint32_t index, Time /*now*/) override { add("submitted", id, index); }
  void placed(const State& /*state*/, const Attempt& attempt, uint32_t index, Time /*now*/) override {
    add("placed", attempt.job, index);
  }
  void stopped(JobId id, uint32_t index, Time /*now*/) override { add("stopped", id, index); }
  void settled(const State& state, const Knowledge& knowledge, Time now) override {
    for (const auto& [id, index] : ids) EXPECT_EQ(knowledge.index_of(JobId{id}), index);
    EXPECT_EQ(state.last.at, now);
    EXPECT_FALSE(knowledge.expected(0, now).empty());
    ++instants;
  }
  std::vector<std::string> lines;
  std::map<uint64_t, uint32_t> ids;
  int instants = 0;

 private:
  void add(const char* what, JobId id, uint32_t index) {
    ids[id.value] = index;
    lines.push_back(what + std::to_string(index));
  }
};

TEST(EngineReplay, AWatcherIsToldOfEachStepAndChangesNothing) {
  Log log;
  ReplayOptions options = lending({});
  const uint64_t digest = replay(borrowed(), "fair_share+oracle", options).digest;
  options.watcher = &log;
  EXPECT_EQ(replay(borrowed(), "fair_share+oracle", options).digest, digest);
  const std::vector<std::string> expected = {"submitted0", "submitted1", "placed0", "placed1",
                                             "submitted2", "stopped0",   "placed2", "placed0"};
  EXPECT_EQ(log.lines, expected);
  EXPECT_GE(log.instants, 4);
}

std::vector<TraceJob> random_jobs(uint64_t seed, int count, int64_t size_max) {
  Prng prng(seed);
  std::vector<TraceJob> jobs;
  int64_t at_s = 0;
  for (int i = 0; i < count; ++i) {
    at_s += prng.between(0, 40);
    const int64_t run_s = prng.between(1, 400);
    jobs.push_back(job(at_s, run_s, prng.between(1, size_max), run_s + prng.between(0, 400),
                       static_cast<uint64_t>(prng.between(1, 5))));
  }
  return jobs;
}

TEST(EngineReplay, NeverMoreIsInUseThanThereIsAndEverybodyRuns) {
  constexpr int64_t kPool = 16;
  for (const char* text : {"fifo", "fair_share", "cost_aware+reservations=4", "priority_aging+reservations=0",
                           "fifo+limits", "strict_priority+oracle"}) {
    const std::vector<TraceJob> jobs = random_jobs(7, 400, kPool);
    const ReplayOutcome outcome =
        replay(jobs, text, {.cluster = {.pool = kPool}, .tenant_of = TenantOf::kUser});
    std::map<Duration, int64_t> changes;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_TRUE(outcome.runs[i].ran) << text;
      EXPECT_GE(outcome.runs[i].started, jobs[i].submitted);
      EXPECT_EQ(outcome.runs[i].ended - outcome.runs[i].started, jobs[i].run);
      changes[outcome.runs[i].started] += jobs[i].size;
      changes[outcome.runs[i].ended] -= jobs[i].size;
    }
    int64_t in_use = 0;
    for (const auto& [at, change] : changes) {
      in_use += change;
      EXPECT_LE(in_use, kPool) << text;
    }
  }
}

TEST(EngineReplay, TheSameReplayHasTheSameDigest) {
  const std::vector<TraceJob> jobs = random_jobs(11, 200, 8);
  const ReplayOptions options{.cluster = {.pool = 8}};
  EXPECT_EQ(replay(jobs, "fifo", options).digest, replay(jobs, "fifo", options).digest);
}

TEST(EngineReplay, OrdersOfJobsAreTheSchedulers) {
  // One GPU is taken; then the shorter of two goes first, though it came later.
  const std::vector<TraceJob> jobs = {job(0, 100, 1), job(10, 500, 1), job(20, 50, 1)};
  const ReplayOptions options{.cluster = {.nodes = 1, .gpus_per_node = 1}};
  EXPECT_EQ(replay(jobs, "fifo+oracle+reservations=0", options).runs[2].started, seconds(600));
  EXPECT_EQ(replay(jobs, "fifo+jobs=shortest+oracle+reservations=0", options).runs[2].started, seconds(100));
}

TEST(EngineReplay, AttainedServicePreemptsWhoHadMore) {
  std::vector<TraceJob> jobs = {job(0, 100'000, 1), job(20'000, 100, 1)};
  const ReplayOptions options{.cluster = {.nodes = 1, .gpus_per_node = 1}};
  const ReplayOutcome outcome = replay(jobs, "fifo+jobs=least_attained+preempt+reservations=0", options);
  EXPECT_EQ(outcome.preemptions, 1u);
  EXPECT_LT(outcome.runs[1].started, seconds(20'200));
}

TEST(EngineReplay, NobodyStarvesUnderAStreamOfSmallJobsForThirtyDays) {
  const StarvingStream stream;
  const std::vector<TraceJob> jobs = starving_stream(stream, 1);
  for (const char* text : {"priority_aging", "priority_aging+limits"}) {
    const ReplayOutcome outcome = replay(jobs, text, {.cluster = {.pool = stream.pool}});
    Duration longest;
    for (std::size_t i = 0; i < jobs.size(); ++i)
      longest = std::max(longest, outcome.runs[i].started - jobs[i].submitted);
    EXPECT_LE(longest, longest_wait_bound(stream)) << text;
  }
}

TEST(EngineReplay, WithoutAReservationTheLargeOnesOfThatStreamStarve) {
  StarvingStream stream;
  stream.days = 5;
  const std::vector<TraceJob> jobs = starving_stream(stream, 1);
  const ReplayOutcome outcome =
      replay(jobs, "priority_aging+reservations=0", {.cluster = {.pool = stream.pool}});
  Duration longest;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    longest = std::max(longest, outcome.runs[i].started - jobs[i].submitted);
  EXPECT_GT(longest, hours(24));
}

TEST(EngineReplay, ABadClusterIsRefused) {
  const std::vector<TraceJob> jobs = {job(0, 1, 1)};
  const Result<ReplayOutcome> outcome =
      replay_engine(jobs, policy("fifo"), {.cluster = {.nodes = 1, .gpus_per_node = 65}});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
}

TEST(Measures, ArithmeticByHand) {
  const std::vector<TraceJob> jobs = {job(0, 100, 2), job(0, 100, 2)};
  ReplayOutcome outcome;
  outcome.runs = {{.started = seconds(0), .ended = seconds(100), .ran = true},
                  {.started = seconds(100), .ended = seconds(200), .ran = true}};
  const Measures measures = measures_of(jobs, outcome, 2);
  EXPECT_DOUBLE_EQ(measures.wait_s.mean, 50);
  EXPECT_DOUBLE_EQ(measures.completion_s.mean, 150);
  EXPECT_DOUBLE_EQ(measures.completion_s.p50, 100);
  EXPECT_DOUBLE_EQ(measures.bounded_slowdown, 1.5);
  EXPECT_DOUBLE_EQ(measures.utilisation, 1);
  // The second: 1.5 jobs were there on average, so its share would have needed 150 s, not 200.
  EXPECT_DOUBLE_EQ(measures.unfairness.max, 200.0 / 150.0);
}

TEST(Measures, ShakenJobsStayInOrderAndNearWhereTheyWere) {
  const std::vector<TraceJob> jobs = random_jobs(3, 100, 4);
  const std::vector<TraceJob> moved = shaken(jobs, seconds(60), 5);
  EXPECT_EQ(moved.size(), jobs.size());
  for (std::size_t i = 1; i < moved.size(); ++i) EXPECT_LE(moved[i - 1].submitted, moved[i].submitted);
  EXPECT_NE(percentiles_of({1, 2}).p99, 1);
}

}  // namespace
}  // namespace gpusched::replay
