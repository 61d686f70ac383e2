#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/testing/test_engine.h"
#include "host/testing/test_core.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Submissions to a queue of 100 places.
class Places : public ::testing::Test {
 protected:
  Places() {
    EngineConfig config;
    config.queue_size_max = 100;
    config.feature_level = kFeatureLevel;
    EXPECT_TRUE(ask(Configure{.config = config}).ok());
    other_ = make("other");
  }
  Result<Decided> ask(const Command& command) {
    std::optional<Result<Decided>> answer;
    core_.core.propose(command, [&answer](Result<Decided> result) { answer = std::move(result); });
    while (!answer) core_.commit();
    return *answer;
  }
  TenantId make(const std::string& name, bool anonymous = false, TenantId parent = {}) {
    const Result<Decided> made = ask(
        CreateTenant{.name = name, .parent = parent, .anonymous = anonymous, .name_may_repeat = anonymous});
    EXPECT_TRUE(made.ok() && !made->applied.rejection);
    return TenantId{made->applied.first_id};
  }
  static SubmitJobs jobs(TenantId tenant, int count, const std::string& key = "") {
    SubmitJobs command{.tenant = tenant, .request_key = key, .jobs = {}};
    for (int i = 0; i < count; ++i) command.jobs.push_back(request_of({.gpus = 1}));
    return command;
  }
  bool fits(TenantId tenant, int count = 1) {
    const Result<Decided> decided = ask(jobs(tenant, count));
    EXPECT_TRUE(decided.ok());
    if (decided->applied.rejection) {
      EXPECT_EQ(decided->applied.rejection->code, RejectionCode::kQueueFull);
    }
    return !decided->applied.rejection.has_value();
  }
  int accepted(TenantId tenant, int asked) {
    int count = 0;
    for (int i = 0; i < asked; ++i) count += fits(tenant) ? 1 : 0;
    return count;
  }
  const State& state() const { return core_.core.state(); }

  Core core_;
  TenantId other_;
};

TEST_F(Places, OneHolderGetsNoMoreThanIsLeftFreeAndOthersFindRoom) {
  EXPECT_EQ(accepted(kDefaultTenant, 80), 50);
  EXPECT_EQ(accepted(other_, 80), 25);
  EXPECT_EQ(accepted(make("third"), 80), 12);
  EXPECT_FALSE(fits(kDefaultTenant));
  // A holder that has nothing always finds a place for one job.
  int found = 0;
  for (int i = 0; i < 20; ++i) found += fits(make("late" + std::to_string(i))) ? 1 : 0;
  EXPECT_EQ(found, 13);
  EXPECT_EQ(state().waiting_count(), 100);
}

TEST_F(Places, SubmissionsThatWaitAtTheSameTimeAreCountedTogether) {
  int accepted = 0, refused = 0;
  for (int i = 0; i < 80; ++i) {
    core_.core.propose(jobs(kDefaultTenant, 1), [&](const Result<Decided>& decided) {
      ASSERT_TRUE(decided.ok());
      ++(decided->applied.rejection ? refused : accepted);
    });
  }
  while (accepted + refused < 80) core_.commit();
  EXPECT_EQ(accepted, 50);
}

TEST_F(Places, AnArrayTakesAPlaceForEachElementAndABatchForEachJob) {
  SubmitJobs array = jobs(kDefaultTenant, 1);
  array.jobs[0].flow.push_back(JobFlow{.array = {{.first = 0, .last = 50, .step = 1}}});
  const Result<Decided> refused = ask(array);
  ASSERT_TRUE(refused.ok() && refused->applied.rejection);
  EXPECT_EQ(refused->applied.rejection->code, RejectionCode::kQueueFull);
  EXPECT_EQ(refused->applied.rejection->retry_after, Duration{});  // It will never fit.
  EXPECT_EQ(
      describe(*refused->applied.rejection),
      "of the 100 places for waiting jobs nobody may have more than are left free for others, and 51 jobs "
      "more would be too many; wait until some of your tenant's jobs start, cancel some, or submit fewer "
      "at once");
  array.jobs[0].flow[0].array = {{.first = 0, .last = 49, .step = 1}};
  EXPECT_FALSE(ask(array)->applied.rejection);
  EXPECT_FALSE(fits(kDefaultTenant));
  EXPECT_FALSE(fits(other_, 26));
  EXPECT_TRUE(fits(other_, 25));
  EXPECT_FALSE(fits(other_, 200));  // By the engine: more than there are.
}

TEST_F(Places, AllTenantsOfCallersWithoutACredentialAreOneHolder) {
  std::vector<TenantId> open;
  for (int i = 0; i < 8; ++i) open.push_back(make("open", true));
  open.push_back(make("below", true, other_));
  int found = 0;
  for (int i = 0; i < 90; ++i) found += fits(open[static_cast<std::size_t>(i) % open.size()]) ? 1 : 0;
  EXPECT_EQ(found, 50);
  EXPECT_FALSE(fits(make("one more", true)));
  // Those below another's tenant take nothing of its places.
  EXPECT_EQ(accepted(other_, 80), 25);
  // One that is open no more is a holder of its own, and counts as one from the start.
  EXPECT_TRUE(ask(UpdateTenant{.tenant = open[0], .given = kTenantAnonymous, .anonymous = false}).ok());
  EXPECT_FALSE(fits(open[1], 25));
  EXPECT_TRUE(fits(open[0]));
}

TEST_F(Places, ATenantAndItsChildrenAreOneHolder) {
  const TenantId first = make("first", false, other_), second = make("second", false, other_);
  EXPECT_TRUE(fits(first, 20));
  EXPECT_TRUE(fits(second, 20));
  EXPECT_TRUE(fits(other_, 10));
  EXPECT_FALSE(fits(first));
  EXPECT_TRUE(fits(kDefaultTenant, 25));
}

TEST_F(Places, WhatWasAcceptedIsAnsweredAgainAndARestartCountsTheSame) {
  const TenantId open = make("open", true);
  const Result<Decided> first = ask(jobs(open, 50, "key"));
  ASSERT_FALSE(first->applied.rejection);
  const Result<Decided> again = ask(jobs(open, 50, "key"));
  ASSERT_FALSE(again->applied.rejection);
  EXPECT_TRUE(again->applied.repeated);
  FakeWriter writer(limits::kGroupBytesMax);
  HostCore later(state().clone(), core_.core.position(), {}, core_.clock, writer, core_.sink,
                 [](const Error&) {});
  std::optional<Result<Decided>> answer;
  later.propose(jobs(open, 1), [&answer](Result<Decided> result) { answer = std::move(result); });
  while (!answer) {
    later.turn();
    if (later.in_flight()) later.on_durable(Unit{});
  }
  ASSERT_TRUE((*answer)->applied.rejection.has_value());
  EXPECT_EQ((*answer)->applied.rejection->code, RejectionCode::kQueueFull);
}

TEST_F(Places, ASmallQueueTakesWhatItHasRoomFor) {
  EngineConfig config = state().config;
  config.queue_size_max = 1;
  EXPECT_TRUE(ask(Configure{.config = config}).ok());
  EXPECT_TRUE(fits(kDefaultTenant));
  EXPECT_FALSE(fits(other_));
}

}  // namespace
}  // namespace gpusched
