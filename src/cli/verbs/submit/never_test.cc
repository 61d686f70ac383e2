#include <gtest/gtest.h>

#include <atomic>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

Reply submitted(const Request&) {
  return {.status = 201, .body = R"({"job_id":"job-7","status":"submitted"})"};
}

TEST(Submitting, WarnsOfAJobThatNoNodeCouldRun) {
  for (const char* const reason : {"no_matching_gpu", "held"}) {
    std::vector<Request> seen;
    const Ran ran = run_against(
        [&](const Request& request) {
          if (request.target == "/api/v1/jobs") return submitted(request);
          if (request.target == "/api/v1/jobs:plan") {
            return Reply{.status = 422,
                         .body = R"({"error":"no registered node can ever run this job; lower the request",)"
                                 R"("code":"infeasible"})"};
          }
          return Reply{.body =
                           std::string(R"({"state":"pending","message":"no","reason":")") + reason + "\"}"};
        },
        {"submit", "--gpus", "99", "--", "true"}, &seen);
    EXPECT_EQ(ran.exit_code, kExitOk);
    EXPECT_EQ(ran.out, "job-7\n");
    EXPECT_EQ(ran.err,
              "gpu-cli: warning: job-7: no registered node can ever run this job; it waits until one can; to "
              "end it: gpu-cli cancel job-7\n");
    const Json asked = *Json::parse(posts(seen).at(1).body);
    EXPECT_TRUE(asked["require_feasible"].boolean());
    EXPECT_EQ(asked["gpu_count"].integer(), 99);
  }
}

TEST(Submitting, AsksAgainUntilThePlannerHasLookedAndNoPlanWhereItHas) {
  std::atomic<int> looks = 0;
  std::vector<Request> seen;
  const Ran ran = run_against(
      [&](const Request& request) {
        if (request.method == "POST") return submitted(request);
        const char* const reason = ++looks < 3 ? "queued" : "gpus_busy";
        return Reply{.body = std::string(R"({"state":"pending","reason":")") + reason + "\"}"};
      },
      {"submit", "--", "true"}, &seen);
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(looks.load(), 3);
  EXPECT_EQ(posts(seen).size(), 1u);
}

}  // namespace
}  // namespace gpusched::cli::testing
