#include "host/forecast/learned_run_times.h"

#include <gtest/gtest.h>

#include "base/task_labels.h"
#include "base/text/task_worker.h"
#include "engine/testing/test_engine.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class LearnedRunTimesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
    engine.add_node("n1", {.gpus = 8});
  }
  JobId submit(const std::string& name, const std::string& script, Duration limit = {}) {
    v1::JobSpec spec;
    spec.set_name(name);
    spec.set_script(script);
    spec.set_user("u1");
    JobRequest request = request_of({.gpus = 1, .max_runtime = limit});
    request.spec = Blob(spec.SerializeAsString());
    const Applied applied =
        engine.apply(SubmitJobs{.tenant = kDefaultTenant, .request_key = {}, .jobs = {request}});
    return JobId{applied.first_id};
  }
  void run(JobId job, Duration run, int32_t exit_code = 0) {
    engine.cycle();
    told([&] { engine.started(job); });
    engine.advance(run);
    told([&] { engine.ended(job, exited(exit_code)); });
    engine.release_all();
  }
  template <typename Act>
  void told(Act&& act) {
    act();
    for (const Event& event : engine.events()) times.observe(engine.state(), event);
  }
  Duration to_pass(JobId job) { return times.to_pass(engine.state(), engine.job(job), engine.now()); }
  Duration of_running(JobId job, Duration elapsed) {
    return times.of_running(engine.state(), engine.job(job), elapsed, engine.now());
  }

  TestEngine engine;
  LearnedRunTimes times;
};

TEST_F(LearnedRunTimesTest, AJobIsExpectedToRunAsThoseLikeItDid) {
  for (int i = 0; i < 10; ++i)
    run(submit("train-" + std::to_string(i), "python train.py --seed 1"), minutes(10));
  const JobId next = submit("train-99", "python train.py --seed 7");
  EXPECT_EQ(to_pass(next), minutes(10));
  EXPECT_EQ(of_running(next, {}), minutes(10));
  EXPECT_EQ(times.quality().p90.count(), 9);  // Nothing was known of the first.
  EXPECT_EQ(times.quality().p90.covered_per_mille(), 1000);
}

TEST_F(LearnedRunTimesTest, AShortLimitLetsAJobPassThatMayBeShort) {
  for (int i = 0; i < 20; ++i)
    run(submit("train", "python train.py", hours(2)), i % 2 == 0 ? minutes(1) : minutes(90));
  EXPECT_EQ(to_pass(submit("train", "python train.py", hours(2))), minutes(1));
  EXPECT_EQ(of_running(submit("train", "python train.py", hours(2)), {}), minutes(90));
}

TEST_F(LearnedRunTimesTest, WhereNothingIsKnownTheLimitCounts) {
  EXPECT_EQ(to_pass(submit("a", "true", minutes(7))), minutes(7));
  EXPECT_EQ(to_pass(submit("b", "true")), policy::LimitRunTimes::kUnlimitedRunTime);
}

TEST_F(LearnedRunTimesTest, NoJobIsExpectedToRunBeyondItsLimit) {
  for (int i = 0; i < 10; ++i) run(submit("train", "python train.py"), minutes(50));
  EXPECT_LE(to_pass(submit("train", "python train.py", minutes(20))), minutes(20));
}

TEST_F(LearnedRunTimesTest, WhoRanLongerThanAllOthersIsExpectedUpToTheLimit) {
  for (int i = 0; i < 10; ++i) run(submit("train", "python train.py"), minutes(10));
  EXPECT_EQ(of_running(submit("train", "python train.py", hours(5)), minutes(30)), hours(5));
}

TEST_F(LearnedRunTimesTest, TheConfigurationMaySayThatLimitsCount) {
  for (int i = 0; i < 10; ++i) run(submit("train", "python train.py"), minutes(10));
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel, .policy = {.run_times = "limits"}}});
  EXPECT_EQ(to_pass(submit("train", "python train.py", hours(3))), hours(3));
}

TEST_F(LearnedRunTimesTest, ARestartLearnsFromTheFinishedJobs) {
  for (int i = 0; i < 10; ++i) run(submit("train", "python train.py"), minutes(10));
  LearnedRunTimes fresh;
  fresh.begin(engine.state());
  const JobId next = submit("train", "python train.py");
  EXPECT_EQ(fresh.to_pass(engine.state(), engine.job(next), engine.now()), minutes(10));
}

TEST_F(LearnedRunTimesTest, ACancelledRunTeachesNothing) {
  for (int i = 0; i < 10; ++i) run(submit("train", "python train.py"), minutes(10));
  const JobId cancelled = submit("train", "python train.py");
  engine.cycle();
  told([&] { engine.started(cancelled); });
  engine.advance(hours(9));
  told([&] { engine.apply(CancelJob{.job = cancelled}); });
  told([&] { engine.ended(cancelled, exited(1)); });
  EXPECT_EQ(to_pass(submit("train", "python train.py")), minutes(10));
  EXPECT_EQ(times.quality().p90.count(), 9);
}

TEST_F(LearnedRunTimesTest, ATaskOfAnAgentIsExpectedToRunAsThoseOfItsTypeAndSizeDid) {
  int count = 0;
  const auto submit_task = [&](const std::string& type, std::size_t payload_bytes) {
    v1::JobSpec spec;
    spec.set_name("an-id" + std::string(static_cast<std::size_t>(++count), 'x'));
    spec.set_script("command -v base64");
    spec.set_user("u1");
    (*spec.mutable_labels())[std::string(kTaskIdLabel)] = spec.name();
    (*spec.mutable_labels())[std::string(kTaskTypeLabel)] = type;
    (*spec.mutable_environment())[std::string(kTaskPayloadVariable)] = std::string(payload_bytes, 'A');
    JobRequest request = request_of({.gpus = 1});
    request.spec = Blob(spec.SerializeAsString());
    return JobId{
        engine.apply(SubmitJobs{.tenant = kDefaultTenant, .request_key = {}, .jobs = {request}}).first_id};
  };
  for (int i = 0; i < 10; ++i) {
    run(submit_task("embedding", 40), seconds(1));
    run(submit_task("llm", 40), seconds(20));
    run(submit_task("llm", 40'000), seconds(90));
  }
  const auto to_order = [&](JobId job) {
    return times.to_order(engine.state(), engine.job(job), {}, engine.now());
  };
  EXPECT_EQ(to_order(submit_task("embedding", 50)), seconds(1));
  EXPECT_EQ(to_order(submit_task("llm", 50)), seconds(20));
  EXPECT_EQ(to_order(submit_task("llm", 50'000)), seconds(90));
  const auto facts = [&](JobId job) { return facts_of(engine.state(), engine.job(job)); };
  const predict::JobFacts small = facts(submit_task("llm", 40)), large = facts(submit_task("llm", 40'000));
  EXPECT_EQ(small.name, large.name);
  EXPECT_NE(small.shape, large.shape);
  EXPECT_NE(small.name, facts(submit_task("embedding", 40)).name);
}

TEST_F(LearnedRunTimesTest, AScriptIsKnownByItsFirstCommandNotByItsInterpreter) {
  const auto shape = [&](const std::string& script) {
    return facts_of(engine.state(), engine.job(submit("job", script))).shape;
  };
  const std::string head = "#!/bin/bash\n#SBATCH --gpus 1\n\n  # a comment\nset -euo pipefail\n";
  EXPECT_NE(shape(head + "python train.py\n"), shape(head + "python serve.py\n"));
  EXPECT_EQ(shape(head + "python train.py --seed 1\n"), shape("python train.py --seed 7"));
  EXPECT_EQ(shape("#!/bin/bash"), shape(""));
}

TEST_F(LearnedRunTimesTest, ASpecificationThatDoesNotParseIsNobodysInParticular) {
  JobRequest request = request_of({.gpus = 1});
  request.spec = Blob("\xff\xff");
  const Applied applied =
      engine.apply(SubmitJobs{.tenant = kDefaultTenant, .request_key = {}, .jobs = {request}});
  EXPECT_EQ(facts_of(engine.state(), engine.job(JobId{applied.first_id})).name, 0u);
}

}  // namespace
}  // namespace gpusched
