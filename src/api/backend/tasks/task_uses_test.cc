#include "api/backend/tasks/task_uses.h"

#include <gtest/gtest.h>

#include <string>

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "base/task_labels.h"
#include "engine/testing/test_engine.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

using gpusched::testing::exited;
using gpusched::testing::request_of;
using gpusched::testing::TestEngine;

class TaskUsesTest : public ::testing::Test {
 protected:
  /// Packed once: the order of a map's entries differs from one packing to the next.
  static const std::string& spec() {
    static const std::string packed = [] {
      v1::JobSpec spec;
      (*spec.mutable_labels())[std::string(kTaskIdLabel)] = "an id";
      (*spec.mutable_labels())[std::string(kTaskTypeLabel)] = "llm";
      spec.add_secret_variables("X");
      return spec.SerializeAsString();
    }();
    return packed;
  }
  /// A state in which three tasks used so much.
  void teach(int64_t peak_mb) {
    engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
    engine.add_node("n1", {.gpus = 1});
    for (int i = 0; i < 3; ++i) {
      gpusched::JobRequest request = request_of({.gpus = 1, .gpu_milli = 10, .gpu_share_mb = 20'000});
      request.spec = Blob(spec());
      const JobId job{
          engine.apply(SubmitJobs{.tenant = kDefaultTenant, .request_key = {}, .jobs = {request}}).first_id};
      engine.cycle();
      engine.started(job);
      Outcome outcome = exited(0);
      outcome.usage = {.gpu_busy_ms = 500, .gpu_watched_ms = 1'000, .peak_gpu_memory_mb = peak_mb};
      engine.ended(job, outcome);
      engine.release_all();
    }
    uses.fill(engine.state());
  }
  JobRequest given(bool is_default) const {
    JobRequest job{.spec = spec(), .gpu_memory_mb = 1'024, .memory_is_default = is_default};
    uses.give(kDefaultTenant, job);
    return job;
  }

  TestEngine engine;
  TaskUses uses;
};

TEST_F(TaskUsesTest, ATaskThatAsksForNoMemoryGetsWhatWasLearned) {
  EXPECT_EQ(given(true).gpu_memory_mb, 1'024);
  EXPECT_EQ(given(true).spec, spec());
  teach(8'000);
  const JobRequest job = given(true);
  EXPECT_EQ(job.gpu_memory_mb, 9'216);
  EXPECT_EQ(spec_label(job.spec, kTaskMemoryLabel), kTaskMemoryLearned);
  EXPECT_EQ(spec_label(job.spec, kTaskIdLabel), "an id");
  JobRequest of_another{.spec = spec(), .gpu_memory_mb = 1'024, .memory_is_default = true};
  uses.give(TenantId{77}, of_another);
  EXPECT_EQ(of_another.gpu_memory_mb, 1'024);
}

TEST_F(TaskUsesTest, ATaskThatAsksForMemoryGetsThat) {
  teach(8'000);
  EXPECT_EQ(given(false).gpu_memory_mb, 1'024);
  EXPECT_FALSE(spec_label(given(false).spec, kTaskMemoryLabel).has_value());
}

TEST_F(TaskUsesTest, EveryTaskIsToldTheLoadThatWasLearned) {
  EXPECT_FALSE(spec_label(given(true).spec, kTaskLoadLabel).has_value());
  teach(10'000'000);  // All of the GPU's memory, and half of its time: 0.85 of it.
  for (const bool is_default : {true, false})
    EXPECT_EQ(spec_label(given(is_default).spec, kTaskLoadLabel), "900") << is_default;
}

TEST_F(TaskUsesTest, OtherJobsStayAsTheyAre) {
  teach(8'000);
  v1::JobSpec plain;
  plain.set_name("train");
  JobRequest job{.spec = plain.SerializeAsString(), .gpu_memory_mb = 1'024, .memory_is_default = true};
  uses.give(kDefaultTenant, job);
  EXPECT_EQ(job.spec, plain.SerializeAsString());
  EXPECT_EQ(job.gpu_memory_mb, 1'024);
}

TEST_F(TaskUsesTest, NobodyGetsMoreThanTheLargestGpuHas) {
  teach(10'000'000);
  const int64_t gpu_mb = engine.state().nodes.front().devices.front().memory_mb;
  EXPECT_EQ(given(true).gpu_memory_mb, gpu_mb);
}

TEST_F(TaskUsesTest, ScoresNameTheirTenants) {
  teach(8'000);
  const std::vector<QualityView::MemoryScore> scores = uses.scores();
  ASSERT_EQ(scores.size(), 1u);
  EXPECT_EQ(scores.front().tenant, "");
  EXPECT_EQ(scores.front().count, 0);
}

}  // namespace
}  // namespace gpusched::api
