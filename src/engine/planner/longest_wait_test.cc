#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/test_tasks.h"

// No starvation: a large job among a stream of small ones that every order but for its bound would put first.
// The bound is docs/policies.md's: W <= D + (A + 1) x (L + d).
namespace gpusched {
namespace {

using testing::TestEngine;

/// How each order may be abused, and for how long it lets a job be overtaken.
struct Abuse {
  const char* job_order = "";
  int32_t priority = 0;  ///< Priority of the small jobs.
  Duration deadline;     ///< Deadline of the small jobs, if any.
  Duration overtaken;    ///< D
  bool tasks = false;    ///< The small jobs are tasks of users.
};

constexpr int64_t kAgingPerHour = 10;
constexpr Duration kOvertaking = hours(12);
constexpr Duration kSmallRun = hours(1);
constexpr Duration kLargeRun = hours(2);
/// L: no job has a longer limit. d: a device is seen empty at once here.
constexpr Duration kLimitMax = kLargeRun;
constexpr Duration kSeenEmpty = seconds(1);

class Stream {
 public:
  Stream(const Abuse& abuse, uint64_t seed)
      : abuse_(abuse),
        prng_(seed),
        tasks_(seed),
        engine_(abuse.tasks ? testing::policies_with_tasks(testing::RandomTasks::kWeightMax)
                            : policy::default_policies()) {
    engine_.apply(Configure{.config = {.aging_per_hour = kAgingPerHour,
                                       .feature_level = kFeatureLevel,
                                       .policy = {.run_times = "limits",
                                                  .job_order = abuse.job_order,
                                                  .attained_levels = {600, 6000},
                                                  .overtaking = kOvertaking}}});
    engine_.add_node("n1", {.gpus = 4});
  }

  /// Days of small jobs, more than the node has room for, and a large one each day.
  void run(int days) {
    const Time until = engine_.now() + hours(24 * days);
    Time next_large = engine_.now() + minutes(5);
    while (engine_.now() < until) {
      if (engine_.now() >= next_large) {
        next_large = next_large + hours(24);
        large_.insert(engine_.submit({.gpus = 4, .max_runtime = kLargeRun}));
      }
      // Five in an hour: one more than leave. A job that waits for too long is withdrawn, so that the line is
      // bounded.
      submit_small();
      if (small_.size() > 30) withdraw();
      step(minutes(prng_.between(10, 14)));
      count_before();
    }
  }
  Duration longest() const { return longest_; }
  int started() const { return started_; }

 private:
  void submit_small() {
    JobRequest small =
        testing::request_of({.gpus = 1, .priority = abuse_.priority, .max_runtime = kSmallRun});
    if (abuse_.deadline.ns > 0) small.flow = {JobFlow{.deadline_after = abuse_.deadline}};
    if (abuse_.tasks) {
      small.spec = tasks_.some_spec();
      small.parts.front().gpu_milli = 600;
    }
    const Applied applied = engine_.apply(SubmitJobs{.tenant = kDefaultTenant, .jobs = {small}});
    ASSERT_FALSE(applied.rejection.has_value());
    small_.push_back(JobId{applied.first_id});
  }
  void withdraw() {
    const JobId oldest = small_.front();
    small_.erase(small_.begin());
    if (engine_.state_of(oldest) == JobState::kPending) engine_.apply(CancelJob{.job = oldest});
  }
  void step(Duration by) {
    const Time until = engine_.now() + by;
    for (;;) {
      for (const PlanGroup& group : engine_.cycle()) placed(group.job);
      if (ends_.empty() || ends_.begin()->first > until) break;
      const auto [end, job] = *ends_.begin();
      ends_.erase(ends_.begin());
      engine_.advance(std::max(end - engine_.now(), Duration{}));
      engine_.finish(job);
      count_before();
    }
    engine_.advance(until - engine_.now());
  }
  void placed(JobId id) {
    engine_.started(id);
    const Job& job = engine_.job(id);
    ends_.insert({engine_.now() + job.max_runtime, id});
    if (!large_.contains(id)) return;
    ++started_;
    const Duration wait = engine_.now() - job.submitted_at;
    longest_ = std::max(longest_, wait);
    const auto before = before_.find(id);
    const int64_t others = before == before_.end() ? 0 : before->second;
    EXPECT_LE(wait, abuse_.overtaken + (kLimitMax + kSeenEmpty) * (others + 1)) << others << " before it";
  }
  /// A, of each large job that can be overtaken no more: who stands before it and waits.
  void count_before() {
    for (const JobId id : large_) {
      const Job& job = engine_.job(id);
      if (job.state != JobState::kPending || before_.contains(id)) continue;
      if (engine_.now() < job.submitted_at + abuse_.overtaken) continue;
      const bool of_state = std::string(abuse_.job_order) == "priority_aging";
      const auto older = [&](const auto& jobs) {
        return std::count_if(jobs.begin(), jobs.end(), [&](JobId other) {
          return other < id && engine_.state_of(other) == JobState::kPending;
        });
      };
      before_[id] = of_state ? static_cast<int64_t>(engine_.state().line.rank(job.order()))
                             : older(small_) + older(large_);
    }
  }

  Abuse abuse_;
  Prng prng_;
  testing::RandomTasks tasks_;
  TestEngine engine_;
  std::set<JobId> large_;
  std::vector<JobId> small_;
  std::set<std::pair<Time, JobId>> ends_;
  std::map<JobId, int64_t> before_;
  Duration longest_;
  int started_ = 0;
};

class LongestWait : public ::testing::TestWithParam<Abuse> {};

TEST_P(LongestWait, StaysBelowItsBoundInAStreamOfSmallJobs) {
  Stream stream(GetParam(), 11);
  stream.run(6);
  EXPECT_GE(stream.started(), 3);
  // Their being overtaken at all shows that the stream is what it is meant to be.
  EXPECT_GT(stream.longest(), hours(3));
}

INSTANTIATE_TEST_SUITE_P(
    Orders, LongestWait,
    ::testing::Values(
        Abuse{.job_order = "priority_aging", .priority = 100, .overtaken = hours(100 / kAgingPerHour)},
        Abuse{.job_order = "deadline", .deadline = hours(6), .overtaken = kOvertaking},
        Abuse{.job_order = "shortest", .overtaken = kOvertaking},
        Abuse{.job_order = "priority_aging",
              .priority = 100,
              .overtaken = hours(100 / kAgingPerHour),
              .tasks = true}),
    [](const ::testing::TestParamInfo<Abuse>& order) {
      return std::string(order.param.job_order) + (order.param.tasks ? "_of_tasks" : "");
    });

}  // namespace
}  // namespace gpusched
