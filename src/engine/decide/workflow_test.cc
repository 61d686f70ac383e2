#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::expect_rejected;
using testing::TestEngine;
using testing::Want;

Want array_of(int64_t count, int64_t at_once) {
  return {.cpu_milli = 1'000,
          .flow = {JobFlow{.array = {{.first = 0, .last = count - 1}}, .array_at_once = at_once}}};
}

TEST(Arrays, TakeANumberForEachElementAndOneForThemselves) {
  TestEngine engine;
  const JobId array = engine.submit(array_of(100'000, 50));
  const JobId next = engine.submit({});
  EXPECT_EQ(next.value, array.value + 100'001);
}

TEST(Arrays, AreFewRecordsHoweverManyElements) {
  TestEngine engine;
  const JobId array = engine.submit(array_of(100'000, 50));
  engine.settle();
  EXPECT_EQ(engine.state().jobs.size(), 51u);
  EXPECT_EQ(engine.state().waiting_count(), 100'000);
  EXPECT_EQ(engine.tenant(kDefaultTenant).waiting, 100'000);
  const JobId open = engine.submit(array_of(100'000, 0));
  engine.settle();
  EXPECT_EQ(engine.state().find_array(open)->records, limits::kArrayAhead);
  engine.apply(CancelJob{.job = array});
  engine.apply(CancelJob{.job = open});
  EXPECT_LT(engine.events().size(), 300u);  // The rest is one event.
  engine.settle();
  EXPECT_EQ(engine.state_of(array), JobState::kCancelled);
  EXPECT_EQ(engine.state().waiting_count(), 0);
  EXPECT_EQ(engine.tenant(kDefaultTenant).waiting, 0);
}

TEST(Arrays, CountTheirElementsInTheirTenantsTotals) {
  TestEngine engine;
  engine.add_node("n1", {});
  const JobId array = engine.submit(array_of(3, 0));
  engine.settle();
  engine.cycle();
  for (int64_t i = 0; i < 3; ++i) engine.ended(engine.state().find_array(array)->element(i));
  engine.settle();
  EXPECT_EQ(engine.state_of(array), JobState::kCompleted);
  EXPECT_EQ(engine.tenant(kDefaultTenant).jobs_total, 3);
  EXPECT_EQ(engine.tenant(kDefaultTenant).jobs_successful, 3);
  EXPECT_EQ(engine.tenant(kDefaultTenant).unfinished, 0);
}

TEST(Dependencies, OfManyChildrenAreToldInBoundedCommands) {
  TestEngine engine;
  const JobId parent = engine.submit({});
  for (int i = 0; i < 1'000; ++i) {
    engine.submit(
        {.flow = {JobFlow{.dependencies = {{.parent = parent, .kind = DependencyKind::kAfterAny}}}}});
  }
  engine.apply(CancelJob{.job = parent});
  EXPECT_EQ(engine.events().size(), 1u);
  int commands = 0;
  for (; !engine.state().settling.empty(); ++commands) {
    engine.apply(AdvanceTime{});
    EXPECT_LE(engine.events().size(), limits::kForgottenPerCommand);
  }
  EXPECT_EQ(commands, 4);
  EXPECT_EQ(engine.state().line.size(), 1'000u);
  EXPECT_TRUE(engine.state().dependents.empty());
}

TEST(Dependencies, OfABatchWithArraysNameTheRightJobs) {
  TestEngine engine;
  SubmitJobs command{.tenant = kDefaultTenant};
  command.jobs.push_back(testing::request_of(array_of(10, 1)));
  command.jobs.push_back(testing::request_of({}));
  command.jobs.push_back(testing::request_of({.flow = {JobFlow{.dependencies = {{.index = 1}}}}}));
  const Applied applied = engine.apply(command);
  ASSERT_FALSE(applied.rejection.has_value());
  const Job& last = engine.job(JobId{applied.first_id + 12});
  ASSERT_EQ(last.dependency_list().size(), 1u);
  EXPECT_EQ(last.dependency_list().front().parent.value, applied.first_id + 11);
}

TEST(Dependencies, OfACancelledChildAreForgotten) {
  TestEngine engine;
  const JobId parent = engine.submit({});
  const JobId child = engine.submit({.flow = {JobFlow{.dependencies = {{.parent = parent}}}}});
  EXPECT_EQ(engine.state().dependents.size(), 1u);
  engine.apply(CancelJob{.job = child});
  EXPECT_TRUE(engine.state().dependents.empty());
  engine.apply(CancelJob{.job = parent});
  EXPECT_TRUE(engine.state().settling.empty());
}

TEST(Workflow, WhatNoDoorLetsPassIsNotWellFormed) {
  const auto good = [](JobFlow flow) {
    return well_formed(
        SubmitJobs{.tenant = kDefaultTenant, .jobs = {testing::request_of({.flow = {std::move(flow)}})}});
  };
  EXPECT_TRUE(good({}));
  EXPECT_FALSE(good({.begin_after = seconds(-1)}));
  EXPECT_FALSE(good({.dependencies = {{}}}));
  EXPECT_FALSE(good({.dependencies = {{.parent = JobId{3}, .index = 0}}}));
  EXPECT_FALSE(good({.dependencies = {{.parent = JobId{3}, .met = true}}}));
  EXPECT_FALSE(good({.array = {{.first = 5, .last = 3}}}));
  EXPECT_FALSE(good({.array = {{.first = 0, .last = 3}}, .array_at_once = -1}));
}

}  // namespace
}  // namespace gpusched
