// Submissions while the scheduler is away, and the commands that stand behind an argument without dashes.
#include <gtest/gtest.h>

#include <atomic>

#include "cli/framework/run_test_support.h"
#include "grammar/grammar.h"

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
  ASSERT_EQ(posts(seen).size(), 8u);
  for (const Request& request : posts(seen))
    EXPECT_EQ(request.headers.at("idempotency-key"), seen[0].headers.at("idempotency-key"));
}

TEST(Submitting, LooksForTheTokenOfASchedulerThatCameUpJustBehindTheFirstLook) {
  int looks = 0;
  std::vector<Request> seen;
  const Ran ran =
      run_against([](const Request&) { return Reply{.status = 201, .body = R"({"job_id":"job-7"})"}; },
                  {"submit", "--", "true"}, &seen,
                  {.find_token = [&] { return std::string(looks++ == 0 ? "" : "the-token"); }});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  ASSERT_EQ(posts(seen).size(), 1u);
  EXPECT_EQ(posts(seen)[0].headers.count("authorization"), 1u);
}

TEST(Submitting, IsNotDoneWithoutTheTokenOfASchedulerThatWentAwayWhileItWasLookedFor) {
  int looks = 0;
  std::vector<Request> seen;
  const Ran ran = run_against(
      [](const Request&) { return Reply{.status = 201, .body = R"({"job_id":"job-7"})"}; },
      {"submit", "--", "true"}, &seen,
      {.find_token = [&] { return looks++ < 3 ? std::nullopt : std::optional<std::string>("the-token"); }});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_EQ(ran.err, kSaid);
  ASSERT_EQ(posts(seen).size(), 1u);
  EXPECT_EQ(posts(seen)[0].headers.count("authorization"), 1u);
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

TEST(BareCommand, BeginsBehindTheArgumentsAndTakesAllThatFollows) {
  const auto parsed = [](const std::vector<std::string>& words) {
    Grammar grammar;
    std::string job;
    bool tty = false;
    std::vector<std::string> command;
    grammar.argument("JOB", &job, "Job id");
    grammar.flag("-t,--tty", tty, "Terminal");
    grammar.takes_bare_command(command, "Command");
    EXPECT_TRUE(grammar.parse(words).ok());
    std::string out = job + (tty ? " -t" : "") + ":";
    for (const std::string& word : command) out += " " + word;
    return out;
  };
  EXPECT_EQ(parsed({"job-1", "ls", "-t", "--", "x"}), "job-1: ls -t -- x");
  EXPECT_EQ(parsed({"-t", "job-1", "ls"}), "job-1 -t: ls");
  EXPECT_EQ(parsed({"job-1", "-t", "--", "ls", "-t"}), "job-1 -t: ls -t");
}

}  // namespace
}  // namespace gpusched::cli::testing
