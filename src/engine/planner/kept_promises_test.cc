#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/test_tasks.h"
#include "engine/testing/worlds.h"

// In random worlds in which work ends when its limit says: once the first in line was promised a start it
// starts no later, whatever comes later: single jobs, gangs that may grow, jobs of tenants that share a
// limit, tasks of users, which pass each other, and on nodes that are kept for maintenance again and again.
namespace gpusched {
namespace {

using testing::TestEngine;
using testing::Want;

enum class Limited : uint8_t { kNobody, kFamily };

class BusyWorld {
 public:
  BusyWorld(uint64_t seed, Limited limited, bool has_tasks)
      : prng_(seed),
        tasks_(seed),
        has_tasks_(has_tasks),
        engine_(has_tasks ? testing::policies_with_tasks(testing::RandomTasks::kWeightMax)
                          : policy::default_policies()) {
    EngineConfig config{.aging_per_hour = has_tasks ? 10 : 0,
                        .feature_level = kFeatureLevel,
                        .policy = {.run_times = "limits"}};
    engine_.apply(Configure{.config = config});
    for (int i = 0; i < 4; ++i) nodes_.push_back(engine_.add_node("n" + std::to_string(i), {.gpus = 4}));
    TenantId family;
    Limits own;
    if (limited == Limited::kFamily) {
      Limits all;
      all.set(Resource::kGpus, prng_.between(9, 14));
      family = engine_.add_tenant("family", {}, all);
      own.set(Resource::kGpus, prng_.between(8, 10));
    }
    tenants_ = {kDefaultTenant, engine_.add_tenant("a", family), engine_.add_tenant("b", family, own)};
    if (prng_.chance(700)) {
      engine_.apply(MakeBooking{.name = "maintenance",
                                .nodes = {nodes_.front(), nodes_.back()},
                                .begin_after = minutes(prng_.between(30, 120)),
                                .length = minutes(prng_.between(10, 60)),
                                .every = minutes(prng_.between(200, 400))});
    }
  }

  void run() {
    for (int left = 150; left > 0 || !running_.empty() || !engine_.state().line.empty();) {
      for (uint64_t more = prng_.below(4); more > 0 && left > 0; --more, --left) submit_something();
      while (engine_.planner().wants_cycle()) cycle();
      if (::testing::Test::HasFailure()) return;
      note_promise();
      const Time before = engine_.now();
      Time next = before + minutes(prng_.between(1, 5));
      for (const auto& [job, end] : running_) next = std::min(next, end);
      engine_.advance(next - before);
      std::vector<JobId> over;
      for (const auto& [job, end] : running_)
        if (end <= engine_.now()) over.push_back(job);
      for (const JobId job : over) {
        running_.erase(job);
        engine_.finish(job);
      }
      ASSERT_LT(engine_.now(), begin_ + hours(24 * 60)) << "somebody waits for ever";
    }
  }

  static inline int kept = 0;
  static inline int kept_gangs = 0;
  static inline int overtaken = 0;

 private:
  void submit_something() {
    const Want want = some_job();
    if (!has_tasks_ || !tasks_.prng().chance(400)) {
      engine_.submit(want);
      return;
    }
    Prng& prng = tasks_.prng();
    JobRequest request = testing::request_of({.gpus = 1,
                                              .max_runtime = want.max_runtime,
                                              .gpu_milli = static_cast<int32_t>(prng.between(1, 9) * 100),
                                              .gpu_share_mb = prng.between(1, 5) * 10'000});
    request.spec = tasks_.some_spec();
    const Applied applied = engine_.apply(SubmitJobs{.tenant = want.tenant, .jobs = {request}});
    ASSERT_FALSE(applied.rejection.has_value());
  }
  bool is_task(JobId job) const { return engine_.job(job).spec.view().starts_with("task "); }
  Want some_job() {
    Want want{.gpus = static_cast<int32_t>(prng_.between(1, 4)),
              .tenant = tenants_[prng_.below(tenants_.size())],
              .max_runtime = minutes(prng_.between(1, 60))};
    if (!prng_.chance(250)) return want;
    want.gpus = static_cast<int32_t>(prng_.between(1, 3));
    want.members = static_cast<int32_t>(prng_.between(2, 3));
    if (want.gpus * want.members > 8) want.members = 2;
    if (prng_.chance(400)) want.members_max = want.members + static_cast<int32_t>(prng_.between(1, 3));
    want.one_member_per_node = prng_.chance(300);
    return want;
  }
  void cycle() {
    const JobId first = engine_.state().line.empty() ? JobId{} : engine_.state().line.front().job;
    for (const PlanGroup& group : engine_.cycle()) {
      engine_.started(group.job);
      running_[group.job] = engine_.now() + engine_.job(group.job).max_runtime;
      overtaken += group.job > first ? 1 : 0;
      const auto promise = promised_.find(group.job);
      if (promise == promised_.end()) continue;
      ASSERT_LE(engine_.now(), promise->second) << "job " << group.job.value;
      ++kept;
      kept_gangs += group.members.size() > 1 ? 1 : 0;
    }
  }
  void note_promise() {
    if (engine_.state().line.empty()) return;
    const JobId first = engine_.state().line.front().job;
    const Time start = engine_.planner().reason(engine_.job(first).job_class).start;
    // One that has come already is found again when it is looked at next. Before a task others may go that
    // came later.
    if (start > engine_.now() && !is_task(first)) promised_.try_emplace(first, start);
    const auto promise = promised_.find(first);
    if (promise == promised_.end()) return;
    ASSERT_LE(engine_.now(), promise->second)
        << "job " << first.value
        << " still waits: " << describe(engine_.planner().reason(engine_.job(first).job_class));
  }

  Prng prng_;
  testing::RandomTasks tasks_;
  const bool has_tasks_;
  TestEngine engine_;
  const Time begin_ = engine_.now();
  std::vector<NodeId> nodes_;
  std::vector<TenantId> tenants_;
  std::map<JobId, Time> running_;   ///< With its end.
  std::map<JobId, Time> promised_;  ///< The first that it was told.
};

class KeptPromises : public ::testing::TestWithParam<std::tuple<Limited, bool>> {};

TEST_P(KeptPromises, NothingThatComesLaterDelaysTheFirst) {
  BusyWorld::kept = BusyWorld::kept_gangs = BusyWorld::overtaken = 0;
  const uint64_t worlds = testing::worlds_to_draw(48);
  for (uint64_t seed = 1; seed <= worlds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    BusyWorld(seed, std::get<0>(GetParam()), std::get<1>(GetParam())).run();
  }
  EXPECT_GT(BusyWorld::kept, 200);
  EXPECT_GT(BusyWorld::kept_gangs, 50);
  EXPECT_GT(BusyWorld::overtaken, 200);
}

INSTANTIATE_TEST_SUITE_P(LimitsAndTasks, KeptPromises,
                         ::testing::Combine(::testing::Values(Limited::kNobody, Limited::kFamily),
                                            ::testing::Bool()));

}  // namespace
}  // namespace gpusched
