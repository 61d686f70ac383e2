// Submissions while the scheduler is away.
#include <gtest/gtest.h>

#include <atomic>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

const char* const kSaid =
    "gpu-cli: the scheduler does not answer; repeating the submission for up to 60 s, under one key: nothing "
    "is submitted twice\n";

/// Breaks so many requests off, and accepts what comes then.
TestServer::Handler away_for(std::atomic<int>& requests, int times) {
  return [&requests, times](const Request&) {
    if (++requests <= times) return Reply{.hang_up = true};
    return Reply{.status = 201, .body = R"({"job_id":"job-7","status":"submitted"})"};
  };
}

TEST(Submitting, IsRepeatedUnderOneKeyWhileTheSchedulerIsAway) {
  std::atomic<int> requests = 0;
  std::vector<Request> seen;
  const Ran ran = run_against(away_for(requests, 7), {"submit", "--", "true"}, &seen);
  EXPECT_EQ(ran.exit_code, kExitOk);
  EXPECT_EQ(ran.out, "job-7\n");
  EXPECT_EQ(ran.err, kSaid);
  ASSERT_EQ(seen.size(), 8u);
  for (const Request& request : seen)
    EXPECT_EQ(request.headers.at("idempotency-key"), seen[0].headers.at("idempotency-key"));
}

TEST(Submitting, IsNotRepeatedWithNoRetry) {
  std::atomic<int> requests = 0;
  const Ran ran = run_against(away_for(requests, 7), {"submit", "--no-retry", "--", "true"});
  EXPECT_EQ(ran.exit_code, kExitUnexpected);
  EXPECT_NE(ran.err.find("(outcome_unknown)"), std::string::npos) << ran.err;
}

TEST(Submitting, IsNotRepeatedForLackOfRoom) {
  for (const auto& [status, code] : {std::pair(429, "queue_full"), std::pair(503, "storage_full")}) {
    std::vector<Request> seen;
    const Ran ran = run_against(
        [&](const Request&) {
          return Reply{.status = status, .body = std::string(R"({"error":"no","code":")") + code + "\"}"};
        },
        {"submit", "--", "true"}, &seen);
    EXPECT_EQ(ran.exit_code, kExitRefused);
    EXPECT_EQ(seen.size(), 1u);
  }
}

}  // namespace
}  // namespace gpusched::cli::testing
