#include "main/demo/demo_jobs.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched {
namespace {

DemoJob& job_named(std::vector<DemoJob>& jobs, const std::string& name) {
  for (DemoJob& job : jobs) {
    if (job.name == name) return job;
  }
  ADD_FAILURE() << name;
  return jobs.front();
}

void update(DemoJob& job, const std::string& answer, std::string_view output = {}) {
  const Result<Json> json = Json::parse(answer);
  ASSERT_TRUE(json.ok());
  update_job(job, *json, output);
}

TEST(DemoJobs, RequestsNameTheirGpus) {
  for (const DemoJob& job : demo_jobs()) {
    const Result<Json> request = Json::parse(job.request);
    ASSERT_TRUE(request.ok()) << job.request;
    EXPECT_EQ((*request)["gpu_count"].integer(), job.gpus);
    EXPECT_EQ((*request)["name"].text(), job.name);
  }
}

TEST(DemoJobs, OnlyTwoDifferentDevicesAreAPair) {
  for (const auto& [output, verdict] : {std::pair{"CUDA_VISIBLE_DEVICES=0,1\n", DemoVerdict::kRight},
                                        std::pair{"CUDA_VISIBLE_DEVICES=1,1\n", DemoVerdict::kWrong},
                                        std::pair{"CUDA_VISIBLE_DEVICES=0\n", DemoVerdict::kWrong},
                                        std::pair{"CUDA_VISIBLE_DEVICES=\n", DemoVerdict::kWrong}}) {
    std::vector<DemoJob> jobs = demo_jobs();
    DemoJob& pair = job_named(jobs, "pair");
    update(pair, R"({"state":"completed","exit_code":0})", output);
    EXPECT_EQ(pair.verdict, verdict) << output;
  }
}

TEST(DemoJobs, AJobThatShouldHaveWaitedAndDidNotIsWrong) {
  std::vector<DemoJob> jobs = demo_jobs();
  DemoJob& patient = job_named(jobs, "patient");
  update(patient, R"({"state":"completed","exit_code":0})", "it was worth the wait\n");
  EXPECT_EQ(patient.verdict, DemoVerdict::kWrong);
  EXPECT_NE(describe_wrong(patient).find("after a wait for GPUs"), std::string::npos);

  std::vector<DemoJob> again = demo_jobs();
  DemoJob& waited = job_named(again, "patient");
  update(waited, R"({"state":"pending","message":"no GPU is free"})");
  EXPECT_EQ(waited.note, "waits: no GPU is free");
  update(waited, R"({"state":"completed","exit_code":0})", "it was worth the wait\n");
  EXPECT_EQ(waited.verdict, DemoVerdict::kRight);
}

TEST(DemoJobs, AWrongExitCodeIsTold) {
  std::vector<DemoJob> jobs = demo_jobs();
  DemoJob& broken = job_named(jobs, "broken");
  update(broken, R"({"state":"failed","exit_code":127})", "sh: not found\n");
  EXPECT_EQ(broken.verdict, DemoVerdict::kWrong);
  EXPECT_EQ(describe_wrong(broken),
            "broken (fails with exit code 3) ended failed with exit code 127, and should have ended failed "
            "with exit code 3; its last line: exit code 127: sh: not found");
}

}  // namespace
}  // namespace gpusched
