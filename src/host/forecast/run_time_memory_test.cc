// The memory of LearnedRunTimes changes none of its answers, and spares reading and predicting again.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"
#include "base/task_labels.h"
#include "base/text/task_worker.h"
#include "engine/testing/test_engine.h"
#include "gpusched/v1/types.pb.h"
#include "host/forecast/job_facts.h"
#include "host/forecast/learned_run_times.h"

namespace gpusched {
namespace {

using testing::exited;
using testing::request_of;
using testing::TestEngine;

Blob spec_of(const std::string& user, const std::string& name, const std::string& script) {
  v1::JobSpec spec;
  spec.set_user(user);
  spec.set_name(name);
  spec.set_script(script);
  return Blob(spec.SerializeAsString());
}

Blob task_spec_of(const std::string& id, const std::string& type, std::size_t payload_bytes) {
  v1::JobSpec spec;
  spec.set_name(id);
  spec.set_user("agents");
  (*spec.mutable_labels())[std::string(kTaskIdLabel)] = id;
  (*spec.mutable_labels())[std::string(kTaskTypeLabel)] = type;
  (*spec.mutable_environment())[std::string(kTaskPayloadVariable)] = std::string(payload_bytes, 'A');
  return Blob(spec.SerializeAsString());
}

/// A cluster whose events a LearnedRunTimes sees.
class RunTimeMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    told(Configure{.config = {.feature_level = kFeatureLevel}});
    engine.add_node("n1", {.gpus = 8});
  }
  Applied told(const Command& command) {
    Applied applied = engine.apply(command);
    for (const Event& event : engine.events()) times.observe(engine.state(), event);
    return applied;
  }
  JobId submit(const Blob& spec, int32_t gpus = 1, Duration limit = {}) {
    JobRequest request = request_of({.gpus = gpus, .max_runtime = limit});
    request.spec = spec;
    return JobId{told(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request}}).first_id};
  }
  void start(JobId id) {
    const Job& job = engine.job(id);
    told(AttemptStarted{.job = id, .attempt = job.attempt_count, .node = job.node});
  }
  void end(JobId id, const Outcome& outcome = exited(0)) {
    const Job& job = engine.job(id);
    told(AttemptEnded{.job = id, .attempt = job.attempt_count, .node = job.node, .outcome = outcome});
    engine.release_all();
  }
  void run(JobId id, Duration run) {
    engine.cycle();
    start(id);
    engine.advance(run);
    end(id);
  }
  Duration of_running(JobId id, Duration elapsed = {}) {
    return times.of_running(engine.state(), engine.job(id), elapsed, engine.now());
  }

  TestEngine engine;
  LearnedRunTimes times;
};

TEST_F(RunTimeMemoryTest, AllThatWaitOfOneKindArePredictedOnce) {
  for (int i = 0; i < 5; ++i) run(submit(task_spec_of("t" + std::to_string(i), "llm", 40)), seconds(3));
  std::vector<JobId> waiting;
  for (int i = 0; i < 200; ++i) waiting.push_back(submit(task_spec_of("w" + std::to_string(i), "llm", 40)));
  const uint64_t made = times.predictions_made(), read = times.specs_read();
  for (int look = 0; look < 3; ++look)
    for (const JobId id : waiting) ASSERT_EQ(of_running(id), seconds(3));
  EXPECT_EQ(times.predictions_made(), made + 1);
  EXPECT_EQ(times.specs_read(), read + waiting.size());
  // While nothing of the kind runs, nothing of it changes with time.
  engine.advance(hours(1));
  EXPECT_EQ(of_running(waiting.front()), seconds(3));
  EXPECT_EQ(times.predictions_made(), made + 1);
}

TEST_F(RunTimeMemoryTest, OfARunningKindEachMomentHasAPredictionOfItsOwn) {
  for (int i = 0; i < 5; ++i) run(submit(spec_of("u", "train", "python train.py")), minutes(1));
  const JobId running = submit(spec_of("u", "train", "python train.py"));
  engine.cycle();
  start(running);
  const JobId next = submit(spec_of("u", "train", "python train.py"));
  const auto quantile = [&] {
    return times.expected(facts_of(engine.state(), engine.job(next)), engine.now()).quantile_ms(900);
  };
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(of_running(next).ms(), quantile());
    engine.advance(minutes(7));
  }
  EXPECT_GT(of_running(next), minutes(1));  // One has run much longer.
}

TEST_F(RunTimeMemoryTest, AChangedSpecificationIsReadAnew) {
  for (int i = 0; i < 5; ++i) {
    run(submit(spec_of("a", "short", "echo")), seconds(1));
    run(submit(spec_of("b", "long", "python train.py")), hours(1));
  }
  const JobId id = submit(spec_of("a", "short", "echo"));
  const Duration before = of_running(id);
  told(UpdateJob{.job = id, .given = kJobSpec, .spec = spec_of("b", "long", "python train.py")});
  ASSERT_EQ(engine.job(id).spec, spec_of("b", "long", "python train.py"));
  EXPECT_GT(of_running(id), before);
  const JobId same = submit(spec_of("b", "long", "python train.py"));
  EXPECT_EQ(of_running(id), of_running(same));
}

TEST_F(RunTimeMemoryTest, FinishedJobsAreForgotten) {
  FactsMemory memory;
  const JobId id = submit(spec_of("u", "train", "echo"));
  memory.facts_of(engine.state(), engine.job(id));
  EXPECT_EQ(memory.size(), 1u);
  memory.forget(id);
  EXPECT_EQ(memory.size(), 0u);
  run(id, seconds(1));
  memory.facts_of(engine.state(), engine.job(id));
  EXPECT_EQ(memory.size(), 0u);
  for (int i = 0; i < 3; ++i) run(submit(spec_of("u", "train", "echo")), seconds(1));
  EXPECT_EQ(times.jobs_remembered(), 0u);
}

/// Random worlds, in which each question is asked again without any memory.
class RunTimeMemoryWorlds : public RunTimeMemoryTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  Blob some_spec() {
    const std::string number = std::to_string(prng.below(100));
    if (prng.chance(400))
      return task_spec_of("id" + number, prng.chance(500) ? "llm" : "embedding", prng.below(2'000));
    if (prng.chance(50)) return Blob("\xff\xff");
    static constexpr const char* kScripts[] = {"python train.py", "python eval.py --seed 3", "echo"};
    return spec_of("u" + std::to_string(prng.below(3)), "job-" + number, kScripts[prng.below(3)]);
  }
  Duration some_limit() { return prng.chance(300) ? Duration{} : minutes(prng.between(1, 4) * 30); }
  JobId some_job() { return jobs[prng.below(jobs.size())]; }

  void step() {
    if (prng.chance(350) || jobs.empty()) {
      jobs.push_back(submit(some_spec(), static_cast<int32_t>(prng.between(1, 3)), some_limit()));
      return;
    }
    if (prng.chance(300)) {
      for (const PlanGroup& group : engine.cycle()) start(group.job);
      return;
    }
    if (prng.chance(400)) return engine.advance(milliseconds(prng.between(0, 900'000)));
    const JobId id = some_job();
    const Job* const job = engine.state().jobs.find(id);
    if (job == nullptr) return;
    if (job->state == JobState::kRunning) {
      if (prng.chance(150)) told(CancelJob{.job = id});
      return end(id, exited(prng.chance(200) ? 1 : 0));
    }
    if (prng.chance(300)) told(UpdateJob{.job = id, .given = kJobSpec, .spec = some_spec()});
    if (prng.chance(200)) told(UpdateJob{.job = id, .given = kJobMaxRuntime, .max_runtime = some_limit()});
  }

  void compare() {
    for (const JobId id : jobs) {
      const Job* const job = engine.state().jobs.find(id);
      if (job == nullptr) continue;
      const State& state = engine.state();
      const Time now = engine.now();
      const Duration elapsed = prng.chance(500) ? Duration{} : seconds(prng.between(0, 4'000));
      const predict::RunTimes known = times.expected(facts_of(state, *job), now);
      ASSERT_EQ(times.to_pass(state, *job, now), expected_to_pass(known, state, *job, now));
      ASSERT_EQ(times.of_running(state, *job, elapsed, now),
                expected_of_running(known, state, *job, elapsed, now));
      ASSERT_EQ(times.to_order(state, *job, elapsed, now),
                expected_to_order(known, state, *job, elapsed, now));
      ++compared;
    }
  }

  Prng prng{GetParam()};
  std::vector<JobId> jobs;
  int compared = 0;
};

TEST_P(RunTimeMemoryWorlds, AnswersAreThoseWithoutMemory) {
  for (int i = 0; i < 300; ++i) {
    step();
    compare();
    ASSERT_FALSE(HasFatalFailure()) << "step " << i;
  }
  EXPECT_GT(compared, 3'000);
  // It is asked three times of each.
  EXPECT_LT(times.predictions_made(), static_cast<uint64_t>(compared));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RunTimeMemoryWorlds, ::testing::Range<uint64_t>(1, 7));

}  // namespace
}  // namespace gpusched
