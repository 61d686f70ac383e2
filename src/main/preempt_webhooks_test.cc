#include "main/preempt_webhooks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "client/json.h"
#include "client/test_server.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched {
namespace {

/// A state with one job that asks to be told at `url`.
class Told {
 public:
  explicit Told(const std::string& url) {
    v1::JobSpec spec;
    spec.set_name("train");
    spec.set_preempt_webhook(url);
    spec.set_preempt_grace_ms(90'000);
    spec.set_preempt_signal("USR1");
    Job job;
    job.id = JobId{7};
    job.tenant = kDefaultTenant;
    job.spec = Blob(spec.SerializeAsString());
    job.job_class = state_.acquire_class(kDefaultTenant, {Part{}});
    state_.add_job(std::move(job));
  }
  void happen(PreemptWebhooks& webhooks, StopReason reason = StopReason::kPreempt) {
    Changes changes;
    changes.events = {StopRequested{.job = JobId{7}, .attempt = 2, .reason = reason}};
    changes.last.at = Time{1'700'000'000'000'000'000};
    webhooks.on_changes({.state = state_, .reasons = reasons_}, changes);
  }

 private:
  State state_;
  std::vector<WaitReason> reasons_;
};

/// Waits until the server was asked so often. Gives up after a minute, as a hang.
void wait_for(const TestServer& server, std::size_t count) {
  for (int i = 0; i < 6'000 && server.requests().size() < count; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(server.requests().size(), count);
}

std::string listed(const TestServer& server) { return "127.0.0.1:" + std::to_string(server.port()); }

TEST(PreemptWebhooks, AJobsUrlIsToldWhatHappens) {
  const TestServer server([](const TestServer::Request&) { return TestServer::Reply{}; });
  Told told(server.url() + "/gone?x=1");
  PreemptWebhooks webhooks({.hosts = {listed(server)}, .grace_max = minutes(1)});
  told.happen(webhooks, StopReason::kCancel);  // Nobody's business.
  told.happen(webhooks);
  wait_for(server, 1);
  const TestServer::Request request = server.requests().front();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/gone?x=1");
  EXPECT_EQ(request.headers.at("idempotency-key"), "preemption-job-7-2");
  const Json note = *Json::parse(request.body);
  EXPECT_EQ(note["job_id"].text(), "job-7");
  EXPECT_EQ(note["name"].text(), "train");
  EXPECT_EQ(note["attempt"].integer(), 2);
  EXPECT_EQ(note["signal"].text(), "USR1");
  EXPECT_EQ(note["grace_seconds"].integer(), 60);  // As much as the scheduler gives.
  EXPECT_EQ(note["ends_at_latest"].text(), "2023-11-14T22:14:20Z");
}

TEST(PreemptWebhooks, AUrlWhoseHostIsNotListedAnyMoreIsNotTold) {
  const TestServer server([](const TestServer::Request&) { return TestServer::Reply{}; });
  const TestServer own([](const TestServer::Request&) { return TestServer::Reply{}; });
  Told told(server.url() + "/");
  PreemptWebhooks webhooks({.url = own.url() + "/all", .hosts = {"hooks.example.com"}});
  told.happen(webhooks);
  wait_for(own, 1);
  webhooks.stop();
  EXPECT_TRUE(server.requests().empty());
}

TEST(PreemptWebhooks, WhatStumblesIsTriedAgainAndThenGivenUp) {
  const TestServer server([](const TestServer::Request&) { return TestServer::Reply{.status = 500}; });
  Told told(server.url() + "/");
  PreemptWebhooks webhooks({.hosts = {"127.0.0.1"}, .pause = milliseconds(1)});
  told.happen(webhooks);
  wait_for(server, 3);
  told.happen(webhooks);
  wait_for(server, 6);  // No try of the first came in between.
}

TEST(PreemptWebhooks, AnAnswerThatSaysNoAndARedirectionAreAnswers) {
  const TestServer elsewhere([](const TestServer::Request&) { return TestServer::Reply{}; });
  const TestServer server([&](const TestServer::Request& request) {
    if (request.target == "/no") return TestServer::Reply{.status = 404};
    return TestServer::Reply{.status = 307, .headers = "Location: " + elsewhere.url() + "/\r\n"};
  });
  for (const char* path : {"/no", "/moved"}) {
    Told told(server.url() + path);
    PreemptWebhooks webhooks({.hosts = {"127.0.0.1"}, .pause = milliseconds(1)});
    told.happen(webhooks);
    wait_for(server, std::string(path) == "/no" ? 1 : 2);
    webhooks.stop();
  }
  EXPECT_EQ(server.requests().size(), 2u);
  EXPECT_TRUE(elsewhere.requests().empty());
}

}  // namespace
}  // namespace gpusched
