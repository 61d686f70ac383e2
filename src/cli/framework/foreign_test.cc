#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"
#include "grammar/job_name.h"

/// Tests of the words that people type who are used to other schedulers.
namespace gpusched::cli::testing {
namespace {

TEST(JobNames, AreUnderstoodAsPeopleWriteThem) {
  EXPECT_EQ(full_job_id("5"), "job-5");
  EXPECT_EQ(full_job_id("5_3"), "job-5[3]");
  EXPECT_EQ(full_job_id("5[3]"), "job-5[3]");
  EXPECT_EQ(full_job_id("job-5_3"), "job-5[3]");
  EXPECT_EQ(full_job_id("5_[1-3]"), "job-5[1-3]");
  EXPECT_EQ(full_job_id("job-5[1-3,7]"), "job-5[1-3,7]");
  for (const char* const text : {"job-5", "job-5[3]", "n1", "", "5x", "5_", "5_x", "job-", "[3]", "5["})
    EXPECT_EQ(full_job_id(text), text);
}

TEST(JobNames, AreCompletedEverywhere) {
  std::vector<Request> seen;
  const TestServer::Handler any = [](const Request&) { return Reply{.body = R"({"state":"cancelled"})"}; };
  run_against(any, {"get", "5"}, &seen);
  EXPECT_EQ(seen.at(0).target, "/api/v1/jobs/job-5");
  run_against(any, {"cancel", "5_3"}, &seen);
  EXPECT_EQ(seen.at(0).target, "/v1/jobs/job-5%5B3%5D/cancel");
  run_against(any, {"hold", "7"}, &seen);
  EXPECT_EQ(seen.at(0).target, "/v1/jobs/job-7/hold");
  run_against(any, {"explain", "7"}, &seen);
  EXPECT_EQ(seen.at(0).target, "/api/v1/jobs/job-7/explain");
  run_against(any, {"submit", "--after", "12", "--after", "any:13_4", "--", "true"}, &seen);
  EXPECT_NE(seen.at(0).body.find(R"("dependencies":["after_ok:job-12","after_any:job-13[4]"])"),
            std::string::npos)
      << seen.at(0).body;
}

TEST(ForeignVerbs, AreAnsweredWithOurs) {
  EXPECT_EQ(refusal({"squeue"}), "gpu-cli: there is no command squeue; write: gpu-cli list (usage)\n");
  EXPECT_EQ(refusal({"squeue", "-u", "ada"}),
            "gpu-cli: there is no command squeue; write: gpu-cli list --user ada (usage)\n");
  EXPECT_EQ(refusal({"scancel", "5"}),
            "gpu-cli: there is no command scancel; write: gpu-cli cancel 5 (usage)\n");
  EXPECT_NE(refusal({"srun", "hostname", "-f"}).find(" -- hostname -f "), std::string::npos);
  EXPECT_NE(refusal({"srun", "--pty", "bash"}).find(" [options] -- COMMAND "), std::string::npos);
  for (const char* const verb : {"ps", "kill", "sacct", "sinfo", "sbatch", "srun", "scontrol"})
    EXPECT_NE(refusal({verb}).find("; write: gpu-cli "), std::string::npos) << verb;
  EXPECT_EQ(refusal({"resubmit", "job-5"}),
            "gpu-cli: there is no command resubmit; write: gpu-cli rerun job-5 (usage)\n");
  EXPECT_NE(refusal({"lst"}).find("did you mean list?"), std::string::npos);
}

TEST(ForeignOptions, AreTakenOrAnsweredWithOurs) {
  std::vector<Request> seen;
  run_against(
      [](const Request&) { return Reply{.body = R"({"job_id":"job-1"})"}; },
      {"submit", "-J", "train", "-N", "2", "-c", "8", "-t", "1-00:00:00", "--mem", "8Gi", "--", "true"},
      &seen);
  const Result<Json> body = Json::parse(seen.at(0).body);
  EXPECT_EQ((*body)["name"].text(), "train");
  EXPECT_EQ((*body)["nodes"].integer(), 2);
  EXPECT_EQ((*body)["cpu_cores"].integer(), 8);
  EXPECT_EQ((*body)["max_runtime_seconds"].integer(), 86'400);
  EXPECT_EQ((*body)["memory_mb"].integer(), 8'192);
  EXPECT_EQ(refusal({"submit", "--gres=gpu:2", "--", "true"}),
            "gpu-cli: there is no option --gres; write: --gpus 2 (usage)\n");
  EXPECT_EQ(refusal({"submit", "-p", "gpu", "--", "true"}),
            "gpu-cli: there is no option -p; write: --node-label partition=gpu (usage)\n");
  EXPECT_EQ(refusal({"submit", "--dependency", "afterok:5", "--", "true"}),
            "gpu-cli: there is no option --dependency; write: --after ok:job-5 (usage)\n");
  EXPECT_EQ(refusal({"submit", "--gpu", "2", "--", "true"}),
            "gpu-cli: there is no option --gpu; did you mean --gpus? (usage)\n");
}

}  // namespace
}  // namespace gpusched::cli::testing
