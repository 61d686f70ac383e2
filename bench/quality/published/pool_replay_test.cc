#include "published/pool_replay.h"

#include <gtest/gtest.h>

#include <string>

#include "base/prng.h"
#include "predict/baselines.h"
#include "predict/learned.h"
#include "published/estimators.h"
#include "replay/trace/swf.h"
#include "replay/trace/traces_folder.h"

namespace gpusched::replay {
namespace {

TraceJob job(int64_t submitted_s, int64_t size, int64_t run_s, int64_t requested_s, uint64_t user = 1) {
  return {.submitted = seconds(submitted_s),
          .run = seconds(run_s),
          .requested = seconds(requested_s),
          .size = size,
          .user = user};
}

std::vector<int64_t> starts_of(const PoolOutcome& outcome) {
  std::vector<int64_t> starts;
  for (const Duration start : outcome.started) starts.push_back(start.ns / seconds(1).ns);
  return starts;
}

PoolOutcome replay_requested(const std::vector<TraceJob>& jobs, const PoolRules& rules) {
  predict::Requested requested;
  PredictedRuns estimates(requested, {});
  return replay_pool(jobs, rules, estimates);
}

TEST(PoolReplay, EasyReservesForTheHeadAndShortOrSmallJobsPass) {
  const std::vector<TraceJob> jobs = {
      job(0, 6, 100, 100),  // Starts.
      job(1, 8, 50, 50),    // The head: reserved at 100, which leaves 2 over.
      job(2, 4, 200, 200),  // Fits, but would still be there at 100, and 4 are more than 2.
      job(3, 4, 97, 97),    // Gone at 100 exactly: passes.
      job(4, 2, 10, 10),    // Nothing is free until 100, and 2 are left beside the head then.
  };
  const PoolOutcome outcome = replay_requested(jobs, {.capacity = 10});
  EXPECT_EQ(starts_of(outcome), (std::vector<int64_t>{0, 100, 150, 3, 100}));
  // Waits 0, 99, 148, 0, 96: slowdowns 1, 149/50, 348/200, 1, 106/10.
  EXPECT_DOUBLE_EQ(bounded_slowdown(jobs, outcome.started, seconds(10)),
                   (1 + 149.0 / 50 + 348.0 / 200 + 1 + 106.0 / 10) / 5);
}

TEST(PoolReplay, ShortestFirstScansTheTailByEstimateAndKeepsTheHead) {
  const std::vector<TraceJob> jobs = {
      job(0, 6, 100, 100), job(0, 4, 10, 10),
      job(1, 8, 500, 500),  // The head: reserved at 100, which leaves 2 over.
      job(2, 4, 88, 88),    // At 10 either of these two can pass, but then not the other.
      job(3, 4, 50, 50),
  };
  EXPECT_EQ(starts_of(replay_requested(jobs, {.capacity = 10, .shortest_first = true})),
            (std::vector<int64_t>{0, 0, 100, 600, 10}));
  EXPECT_EQ(starts_of(replay_requested(jobs, {.capacity = 10})), (std::vector<int64_t>{0, 0, 100, 10, 600}));
}

TEST(PoolReplay, AnEstimateThatRunsOutIsCorrectedAndStartsNoPass) {
  // Users' last two runs of 10 s make everybody's estimate 10 s.
  std::vector<TraceJob> jobs = {job(0, 1, 10, 900), job(0, 1, 10, 900)};
  jobs.push_back(job(100, 6, 50, 900));     // Believed to end at 110, then at 170; ends at 150.
  jobs.push_back(job(101, 10, 10, 900));    // The head: reserved at 110.
  jobs.push_back(job(105, 4, 30, 900, 2));  // Its request says 900 s: not gone by then.
  jobs.push_back(job(120, 10, 10, 900));    // Does not fit.
  predict::LastTwo last_two(1000);
  PredictedRuns estimates(last_two, {});
  const PoolRules rules{.capacity = 10};
  PoolOutcome outcome = replay_pool(jobs, rules, estimates);
  EXPECT_EQ(starts_of(outcome), (std::vector<int64_t>{0, 0, 100, 150, 160, 190}));
  EXPECT_EQ(outcome.corrections, 1u);
}

TEST(PoolReplay, EverySubmissionMayStartAPass) {
  std::vector<TraceJob> jobs = {job(0, 1, 10, 900), job(0, 1, 10, 900)};
  jobs.push_back(job(20, 1, 20, 20, 2));
  jobs.push_back(job(21, 1, 20, 20, 2));
  jobs.push_back(job(100, 6, 50, 900));     // Believed to end at 110, then at 170; ends at 150.
  jobs.push_back(job(101, 10, 10, 900));    // The head: reserved at 110.
  jobs.push_back(job(105, 4, 20, 900, 2));  // 20 s: not gone at 110, but well before 170.
  jobs.push_back(job(120, 10, 10, 900));    // Does not fit.
  for (const bool every : {false, true}) {
    predict::LastTwo last_two(1000);
    PredictedRuns estimates(last_two, {});
    const PoolOutcome outcome =
        replay_pool(jobs, {.capacity = 10, .pass_at_every_submission = every}, estimates);
    EXPECT_EQ(outcome.started[6], seconds(every ? 120 : 160));
    EXPECT_EQ(outcome.started[5], seconds(150));
  }
}

TEST(PoolReplay, AtOneInstantSubmissionsComeBeforeEnds) {
  const std::vector<TraceJob> jobs = {job(0, 10, 10, 10), job(10, 10, 10, 10)};
  const PoolOutcome outcome = replay_requested(jobs, {.capacity = 10});
  EXPECT_EQ(starts_of(outcome), (std::vector<int64_t>{0, 10}));
  EXPECT_EQ(outcome.overfull_starts, 1u);  // The first one's end comes a moment later.
}

TEST(PoolReplay, JobsAreEstimatedFromWhatEndedBeforeTheyCame) {
  class Watch final : public Estimator {
   public:
    RunEstimate submitted(uint32_t job, const TraceJob&, Duration now) override {
      EXPECT_EQ(seen_at_, now - Duration{});
      (void)job;
      return {.order = seconds(5), .hold = seconds(5)};
    }
    Duration ran_out(uint32_t, const TraceJob&, Duration, Duration elapsed) override {
      return elapsed + seconds(5);
    }
    void finished(uint32_t, const TraceJob& what, Duration now) override {
      EXPECT_LE(what.submitted + what.run, now);
      ended_.push_back(now);
    }
    Duration seen_at_ = seconds(3);
    std::vector<Duration> ended_;
  };
  Watch watch;
  const std::vector<TraceJob> jobs = {job(3, 5, 17, 60), job(3, 10, 4, 60)};
  const PoolOutcome outcome = replay_pool(jobs, {.capacity = 10}, watch);
  EXPECT_EQ(starts_of(outcome), (std::vector<int64_t>{3, 20}));
  EXPECT_EQ(watch.ended_, (std::vector<Duration>{seconds(20), seconds(24)}));
  EXPECT_EQ(outcome.corrections, 3u);
}

TEST(PoolReplay, RandomJobsAllStartAndNeverOverfillThePool) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Prng prng(seed);
    std::vector<TraceJob> jobs;
    int64_t at = 0;
    for (int i = 0; i < 400; ++i) {
      at += prng.between(0, 40);
      const int64_t run = prng.between(1, 300);
      jobs.push_back(job(at, prng.between(1, 16), run, run + prng.between(0, 600), prng.between(1, 5)));
    }
    predict::Learned learned;
    PredictedRuns estimates(learned, {.least = seconds(1)});
    const PoolOutcome outcome = replay_pool(
        jobs, {.capacity = 16, .reservations = seed % 2 == 0 ? 1u : 4u, .shortest_first = true}, estimates);
    // At any start, whoever runs is within the pool but for those whose end is this very instant.
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_GE(outcome.started[i], jobs[i].submitted);
      int64_t in_use = 0;
      for (std::size_t k = 0; k < jobs.size(); ++k) {
        const bool runs =
            outcome.started[k] <= outcome.started[i] && outcome.started[k] + jobs[k].run > outcome.started[i];
        if (runs) in_use += jobs[k].size;
      }
      ASSERT_LE(in_use, 16);
    }
  }
}

// One of the averages of Gaussier et al. (SC'15) to the last digit; `tools/bench quality kth` has all five.
TEST(PoolReplay, PublishedAverageOfKthSp2UnderEasySjbf) {
  const std::string path = traces_folder() + "/kth/KTH-SP2.swf.gz";
  const Result<Trace> trace = read_swf(path);
  if (!trace.ok()) GTEST_SKIP() << trace.error().message << "; GPUSCHED_TRACES names the folder of traces";
  ASSERT_EQ(trace->jobs.size(), 28'481u);
  predict::Requested requested;
  PredictedRuns estimates(requested, {});
  const PoolOutcome outcome = replay_pool(trace->jobs, {.capacity = 100, .shortest_first = true}, estimates);
  EXPECT_NEAR(bounded_slowdown(trace->jobs, outcome.started, seconds(10)), 69.405401, 5e-7);
}

}  // namespace
}  // namespace gpusched::replay
