// Several addresses of schedulers that are one: which of them a command speaks to, and what it repeats.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "cli/framework/context.h"
#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

Reply empty_list(const Request&) { return {.body = R"({"jobs":[],"total":0})"}; }
Reply hung_up(const Request&) { return {.hang_up = true}; }
Reply no_leader(const Request&) {
  return {.status = 503, .body = R"({"error":"no scheduler is the leader","code":"no_leader"})"};
}

/// A URL that nobody listens at.
std::string closed_url() {
  const TestServer gone(empty_list);
  return gone.url();
}

TEST(SeveralUrls, AreTriedUntilOneServes) {
  TestServer closing(hung_up), following(no_leader), leading(empty_list);
  const std::string urls = closed_url() + "," + closing.url() + "," + following.url() + "," + leading.url();
  const Ran ran = run({"--api-url", urls, "list"});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_EQ(ran.err, "");
  EXPECT_FALSE(leading.requests().empty());
  EXPECT_EQ(run({"list"}, {.environment = {{"GPU_SCHEDULER_URL", urls}}}).exit_code, kExitOk);
}

TEST(SeveralUrls, AreAskedAgainUntilThereIsALeader) {
  std::atomic<int> refusals = 0;
  const TestServer::Handler electing = [&](const Request& request) {
    return ++refusals <= 9 ? no_leader(request) : empty_list(request);
  };
  TestServer first(electing), second(electing);
  const Ran ran = run({"--api-url", first.url() + "," + second.url(), "list"});
  EXPECT_EQ(ran.exit_code, kExitOk) << ran.err;
  EXPECT_GE(first.requests().size(), 4u);
  EXPECT_GE(second.requests().size(), 4u);
}

TEST(SeveralUrls, WithoutALeaderAreGivenUp) {
  TestServer first(no_leader), second(no_leader);
  const Ran ran = run({"--api-url", first.url() + "," + second.url(), "list"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_EQ(ran.err, "gpu-cli: no scheduler is the leader (no_leader)\n");
  const Ran nobody = run({"--api-url", closed_url() + "," + closed_url(), "list"});
  EXPECT_EQ(nobody.exit_code, kExitUnreachable);
  EXPECT_NE(nobody.err.find("no scheduler answers at http://127.0.0.1:"), std::string::npos) << nobody.err;
}

TEST(SeveralUrls, GetAWriteThatDidNothingAgainAndNoOther) {
  const auto cancelled = [](const Request&) { return Reply{.body = R"({"state":"cancelled"})"}; };
  const auto writes_refused = [&](const Request& request) {
    return request.method == "POST" ? no_leader(request) : cancelled(request);
  };
  TestServer following(writes_refused), leading(cancelled);
  EXPECT_EQ(run({"--api-url", following.url() + "," + leading.url(), "cancel", "job-7"}).exit_code, kExitOk);
  ASSERT_EQ(posts(leading.requests()).size(), 1u);
  ASSERT_EQ(posts(following.requests()).size(), 1u);
  EXPECT_EQ(posts(leading.requests())[0].headers.at("idempotency-key"),
            posts(following.requests())[0].headers.at("idempotency-key"));
  const auto writes_broken = [&](const Request& request) {
    return request.method == "POST" ? hung_up(request) : cancelled(request);
  };
  TestServer closing(writes_broken), other(cancelled);
  const Ran ran = run({"--api-url", closing.url() + "," + other.url(), "cancel", "job-7"});
  EXPECT_EQ(ran.exit_code, kExitUnexpected);
  EXPECT_NE(ran.err.find("(outcome_unknown)"), std::string::npos) << ran.err;
  EXPECT_TRUE(posts(other.requests()).empty());
}

TEST(SeveralUrls, GetASubmissionUnderOneKey) {
  TestServer closing(hung_up),
      leading([](const Request&) { return Reply{.status = 201, .body = R"({"job_id":"job-7"})"}; });
  const Ran ran = run({"--api-url", closing.url() + "," + leading.url(), "submit", "--", "true"});
  EXPECT_EQ(ran.out, "job-7\n");
  ASSERT_EQ(posts(leading.requests()).size(), 1u);
  EXPECT_EQ(posts(leading.requests())[0].headers.at("idempotency-key"),
            posts(closing.requests())[0].headers.at("idempotency-key"));
}

TEST(SeveralUrls, ASingleOneIsTriedOnce) {
  TestServer following(no_leader);
  EXPECT_EQ(run({"--api-url", following.url(), "list"}).exit_code, kExitRefused);
  EXPECT_EQ(following.requests().size(), 1u);
}

TEST(SeveralUrls, AreChecked) {
  EXPECT_NE(refusal({"--api-url", "http://a,ftp://b", "list"}).find("\"ftp://b\" is not the URL"),
            std::string::npos);
  EXPECT_EQ(refusal({"--api-url", "https://a,http://b", "--ca-file", "a.pem", "list"}),
            "gpu-cli: --ca-file needs a URL that begins with https://, and not http://b (usage)\n");
  EXPECT_EQ(plain_url("http://h/, unix:///a/b/"), "http://h,unix:///a/b");
}

TEST(SeveralUrls, MakeAContext) {
  TestServer leading(empty_list);
  const std::string home = ::testing::TempDir() + "several" + std::to_string(::getpid());
  const World world{.environment = {{"HOME", home}}};
  const std::string urls = closed_url() + "," + leading.url();
  EXPECT_EQ(run({"context", "set", "lab", "--api-url", urls + "/"}, world).out,
            "lab is " + urls + ", in use\n");
  EXPECT_EQ(run({"list"}, world).exit_code, kExitOk);
  EXPECT_NE(refusal({"context", "set", "lab", "--api-url", "http://a,"}, world).find("is not the URL"),
            std::string::npos);
}

}  // namespace
}  // namespace gpusched::cli::testing
