#include "host/forecast/learned_task_use.h"

#include <gtest/gtest.h>

#include <string>

#include "base/task_labels.h"
#include "base/text/task_worker.h"
#include "engine/testing/test_engine.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kPayload = 40;

class LearnedTaskUseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
    engine.add_node("n1", {.gpus = 1});
  }
  static std::string spec_of(const std::string& type, std::size_t payload_bytes, bool learned = false) {
    v1::JobSpec spec;
    (*spec.mutable_labels())[std::string(kTaskIdLabel)] = "an id";
    (*spec.mutable_labels())[std::string(kTaskTypeLabel)] = type;
    if (learned) (*spec.mutable_labels())[std::string(kTaskMemoryLabel)] = kTaskMemoryLearned;
    (*spec.mutable_environment())[std::string(kTaskPayloadVariable)] = std::string(payload_bytes, 'A');
    return spec.SerializeAsString();
  }
  static uint64_t kind(const std::string& type = "llm", std::size_t payload_bytes = kPayload) {
    return task_kind_of(kDefaultTenant, spec_of(type, payload_bytes)).value_or(0);
  }
  /// Runs one with so much memory, which used `peak_mb`.
  void run(const std::string& spec, int64_t given_mb, int64_t peak_mb, Outcome outcome = exited(0)) {
    JobRequest request = request_of({.gpus = 1, .gpu_milli = 10, .gpu_share_mb = given_mb});
    request.spec = Blob(spec);
    const Applied applied =
        engine.apply(SubmitJobs{.tenant = kDefaultTenant, .request_key = {}, .jobs = {request}});
    const JobId job{applied.first_id};
    engine.cycle();
    engine.started(job);
    engine.advance(seconds(1));
    outcome.usage = {.gpu_busy_ms = 300, .gpu_watched_ms = 1'000, .peak_gpu_memory_mb = peak_mb};
    engine.ended(job, outcome);
    for (const Event& event : engine.events()) learned.observe(engine.state(), event);
    engine.release_all();
  }
  std::optional<int64_t> memory(uint64_t of) const { return learned.use().memory_mb(of); }

  TestEngine engine;
  LearnedTaskUse learned;
};

TEST_F(LearnedTaskUseTest, KindsAreOfTenantTypeAndOrderOfThePayload) {
  EXPECT_EQ(kind("llm", 40), kind("llm", 50));
  EXPECT_NE(kind("llm", 40), kind("llm", 70));
  EXPECT_NE(kind("llm", 40), kind("embedding", 40));
  EXPECT_NE(task_kind_of(TenantId{77}, spec_of("llm", 40)), task_kind_of(kDefaultTenant, spec_of("llm", 40)));
  EXPECT_FALSE(task_kind_of(kDefaultTenant, "no specification").has_value());
  EXPECT_FALSE(task_kind_of(kDefaultTenant, spec_of("", 40)).has_value());
}

TEST_F(LearnedTaskUseTest, TasksThatCompletedTeachTheirKind) {
  for (int i = 0; i < 3; ++i) run(spec_of("llm", kPayload), 20'000, 8'000);
  EXPECT_EQ(memory(kind()), 9'216);
  EXPECT_EQ(learned.use().busy_per_mille(kind()), 300);
  EXPECT_FALSE(memory(kind("embedding")).has_value());
  EXPECT_EQ(learned.score().count, 0);  // None of them was given what was learned.
}

TEST_F(LearnedTaskUseTest, AStartLearnsFromTheFinishedTasks) {
  for (int i = 0; i < 3; ++i) run(spec_of("llm", kPayload, true), 20'000, 8'000);
  LearnedTaskUse fresh;
  fresh.begin(engine.state());
  EXPECT_EQ(fresh.use().memory_mb(kind()), 9'216);
  EXPECT_EQ(fresh.score().count, 0);
}

TEST_F(LearnedTaskUseTest, WhoseUseIsNotKnownAndWhoFailedTeachesNothing) {
  for (int i = 0; i < 9; ++i) run(spec_of("llm", kPayload), 20'000, 0);
  for (int i = 0; i < 9; ++i) run(spec_of("llm", kPayload), 20'000, 100, exited(1));
  EXPECT_FALSE(memory(kind()).has_value());
}

TEST_F(LearnedTaskUseTest, ATaskThatFailedWithLearnedMemoryMayHaveHadTooLittle) {
  for (int i = 0; i < 3; ++i) run(spec_of("llm", kPayload), 20'000, 8'000);
  run(spec_of("llm", kPayload), 20'000, 8'000, exited(1));  // With the default it was something else.
  EXPECT_TRUE(memory(kind()).has_value());
  run(spec_of("llm", kPayload, true), 9'216, 9'000, exited(1));
  EXPECT_FALSE(memory(kind()).has_value());
}

TEST_F(LearnedTaskUseTest, ATaskThatWasEndedForPassingItsShareCountsTwice) {
  for (int i = 0; i < 3; ++i) run(spec_of("llm", kPayload), 20'000, 8'000);
  run(spec_of("llm", kPayload, true), 9'216, 16'000, {.cause = EndCause::kOverLimit, .detail = {}});
  EXPECT_EQ(memory(kind()), 36'864);
}

TEST_F(LearnedTaskUseTest, CountsHowManyStayedWithinWhatTheyWereGiven) {
  for (int i = 0; i < 3; ++i) run(spec_of("llm", kPayload, true), 9'000, 8'000);
  run(spec_of("llm", kPayload, true), 9'000, 10'000);
  run(spec_of("llm", kPayload, true), 9'000, 0);
  for (const LearnedTaskUse::Score& score : {learned.score(), learned.score_by_tenant().at(kDefaultTenant)}) {
    EXPECT_EQ(score.count, 4);
    EXPECT_EQ(score.within, 3);
    EXPECT_EQ(score.given_mb, 36'000);
    EXPECT_EQ(score.peak_mb, 34'000);
  }
}

}  // namespace
}  // namespace gpusched
