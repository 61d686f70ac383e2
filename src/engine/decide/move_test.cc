#include <gtest/gtest.h>

#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::expect_rejected;
using testing::TestEngine;
using testing::Want;

TenantId movable_tenant(TestEngine& engine, std::string_view name = "batch") {
  return TenantId{engine.apply(CreateTenant{.name = std::string(name), .allow_preemption = true}).first_id};
}

/// Two nodes of two GPUs with a job of one on each, and a job of two that waits.
struct Scattered {
  TestEngine engine;
  TenantId batch = movable_tenant(engine);
  NodeId a = engine.add_node("a", {.gpus = 2});
  JobId first;
  JobId filler = engine.run({.gpus = 1});
  NodeId b;
  JobId second;
  JobId waits;

  explicit Scattered(const Want& moved = {.gpus = 1}) {
    Want want = moved;
    want.tenant = want.tenant == kDefaultTenant ? batch : want.tenant;
    first = engine.run(want);
    b = engine.add_node("b", {.gpus = 2});
    second = engine.run({.gpus = 1});
    engine.advance(minutes(2));
    engine.finish(filler);
    waits = engine.submit({.gpus = 2});
    engine.cycle();
    EXPECT_EQ(engine.state_of(waits), JobState::kPending);
  }
  MemberPlacement at(NodeId node, uint64_t mask) const {
    MemberPlacement placement{.node = node, .device_mask = mask, .generations = {}};
    for (uint32_t i = 0; i < 2; ++i) {
      if (((mask >> i) & 1) != 0) placement.generations.push_back(engine.device(node, i).generation);
    }
    return placement;
  }
  uint64_t free_of_b() const { return engine.node(b).free_mask; }
  MoveJobs command() const {
    return {.groups = {{.job = waits,
                        .attempt = 1,
                        .members = {at(a, 0b11)},
                        .preemptions = {{.job = first, .attempt = 1}}},
                       {.job = first, .attempt = 2, .members = {at(b, free_of_b())}, .preemptions = {}}},
            .by = "ana",
            .why = "the big one is urgent"};
  }
};

TEST(MoveJobs, TheMovedJobGoesOnWhereItWasToldAndTheWaitingOneStarts) {
  Scattered world;
  world.engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  ASSERT_FALSE(world.engine.apply(world.command()).rejection.has_value());
  EXPECT_EQ(world.engine.count_events<StopRequested>(), 1);
  EXPECT_EQ(world.engine.count_events<DevicesPromised>(), 2);
  EXPECT_EQ(world.engine.state_of(world.first), JobState::kPreempted);
  EXPECT_EQ(world.engine.job(world.first).move_record(), (MoveRecord{.moved = true,
                                                                     .from = "a",
                                                                     .to = "b",
                                                                     .others = {world.waits},
                                                                     .by = "ana",
                                                                     .why = "the big one is urgent"}));
  EXPECT_EQ(world.engine.job(world.waits).move_record(), (MoveRecord{.moved = false,
                                                                     .from = {},
                                                                     .to = "a",
                                                                     .others = {world.first},
                                                                     .by = "ana",
                                                                     .why = "the big one is urgent"}));
  // Nobody else gets what is kept.
  const JobId other = world.engine.submit({.gpus = 1});
  world.engine.cycle();
  EXPECT_EQ(world.engine.state_of(other), JobState::kPending);
  world.engine.ended(world.first, {.cause = EndCause::kStopped, .detail = {}});
  world.engine.release_all();
  world.engine.cycle();
  EXPECT_EQ(world.engine.state_of(world.waits), JobState::kScheduled);
  EXPECT_EQ(world.engine.job(world.waits).node, world.a);
  EXPECT_EQ(world.engine.state_of(world.first), JobState::kPending);
  world.engine.advance(limits::kBackoffFirst);
  world.engine.cycle();
  EXPECT_EQ(world.engine.state_of(world.first), JobState::kScheduled);
  EXPECT_EQ(world.engine.job(world.first).node, world.b);
  EXPECT_EQ(world.engine.job(world.first).attempt_count, 2U);
  EXPECT_EQ(world.engine.job(world.first).extras->preempt_count, 1U);
  EXPECT_TRUE(world.engine.state().promises.empty());
}

TEST(MoveJobs, UnderOlderRulesAMoveIsKeptAsItsSentence) {
  Scattered world;
  world.engine.apply(Configure{.config = {.feature_level = 6}});
  ASSERT_FALSE(world.engine.apply(world.command()).rejection.has_value());
  EXPECT_EQ(world.engine.job(world.first).extras->move_detail.view(),
            "moved from node a to node b so that job-" + std::to_string(world.waits.value) +
                " can start, by ana: the big one is urgent");
  EXPECT_EQ(world.engine.job(world.first).move_record(), std::nullopt);
}

TEST(MoveRecord, WhatIsNotWholeIsNone) {
  Job job;
  const MoveRecord record{
      .moved = true, .from = "a", .to = "b", .others = {JobId{7}, JobId{300}}, .by = "ana", .why = "w"};
  job.set_move_record(record);
  EXPECT_EQ(job.move_record(), record);
  const std::string packed(job.extras->move_detail.view());
  for (std::size_t size = 0; size < packed.size(); ++size) {
    job.extras.set(&JobExtras::move_detail, Blob(packed.substr(0, size)));
    EXPECT_EQ(job.move_record(), std::nullopt) << size;
  }
  job.extras.set(&JobExtras::move_detail, Blob(packed + "x"));
  EXPECT_EQ(job.move_record(), std::nullopt);
}

TEST(MoveJobs, WhatIsKeptForAMoveCountsForNobodysQuota) {
  Scattered world;
  const int64_t before = world.engine.tenant(world.batch).usage.gpus;
  world.engine.apply(world.command());
  EXPECT_EQ(world.engine.tenant(world.batch).usage.gpus, before);
  world.engine.apply(CancelJob{.job = world.first});
  world.engine.ended(world.first, {.cause = EndCause::kStopped, .detail = {}});
  EXPECT_EQ(world.engine.state().find_promise(world.first), nullptr);
  EXPECT_EQ(world.engine.tenant(world.batch).usage.gpus, 0);
  EXPECT_EQ(world.engine.node(world.b).promised_count, 0U);
}

TEST(MoveJobs, AMoveThatNoLongerHoldsIsRefusedWhole) {
  const auto refused = [](auto&& change) {
    Scattered world;
    MoveJobs command = world.command();
    change(world, command);
    expect_rejected(world.engine.apply(command), RejectionCode::kMoveStale);
  };
  refused([](Scattered& world, MoveJobs&) { world.engine.ended(world.first); });
  refused([](Scattered& world, MoveJobs&) { world.engine.run({.gpus = 1, .priority = 1}); });
  refused([](Scattered& world, MoveJobs&) { world.engine.apply(CancelJob{.job = world.waits}); });
  refused([](Scattered& world, MoveJobs&) { world.engine.apply(HoldJob{.job = world.waits, .held = true}); });
  refused([](Scattered& world, MoveJobs&) {
    world.engine.apply(
        UpdateTenant{.tenant = world.batch, .given = kTenantAllowPreemption, .allow_preemption = false});
  });
  refused([](Scattered& world, MoveJobs&) {
    world.engine.apply(
        SetNodeAvailability{.node = world.b, .to = Availability::kDraining, .by = "op", .reason = "r"});
  });
  refused([](Scattered&, MoveJobs& command) { command.groups.pop_back(); });
  refused([](Scattered&, MoveJobs& command) { command.groups[1].members[0].generations[0] += 1; });
  refused(
      [](Scattered& world, MoveJobs& command) { command.groups[1].members[0] = world.at(world.a, 0b01); });
  refused([](Scattered& world, MoveJobs& command) { command.groups[1].job = world.second; });
  refused([](Scattered&, MoveJobs& command) { command.by.clear(); });
}

TEST(MoveJobs, WhileStartsArePausedNobodyIsMoved) {
  Scattered world;
  world.engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  world.engine.apply(PauseStarts{.paused = true, .by = "ops", .why = "a switch is replaced"});
  expect_rejected(world.engine.apply(world.command()), RejectionCode::kMoveStale);
  world.engine.apply(PauseStarts{.paused = false, .by = "ops"});
  EXPECT_FALSE(world.engine.apply(world.command()).rejection.has_value());
}

TEST(MoveJobs, AJobThatWouldEndForGoodIsNotMoved) {
  Scattered world({.gpus = 1, .preemption_mode = PreemptionMode::kCancel});
  expect_rejected(world.engine.apply(world.command()), RejectionCode::kMoveStale);
}

TEST(MoveJobs, WhenItsPlaceIsGoneTheMovedJobWaitsAsAnyOther) {
  Scattered world;
  world.engine.apply(world.command());
  world.engine.apply(
      SetNodeAvailability{.node = world.b, .to = Availability::kDraining, .by = "op", .reason = "r"});
  EXPECT_EQ(world.engine.state().find_promise(world.first), nullptr);
  EXPECT_NE(world.engine.state().find_promise(world.waits), nullptr);
  world.engine.ended(world.first, {.cause = EndCause::kStopped, .detail = {}});
  world.engine.release_all();
  world.engine.advance(limits::kBackoffFirst);
  world.engine.cycle();
  EXPECT_EQ(world.engine.state_of(world.waits), JobState::kScheduled);
  EXPECT_EQ(world.engine.state_of(world.first), JobState::kPending);
}

TEST(MoveJobs, AMovedJobThatEndsByItselfGivesItsPlaceBack) {
  Scattered world;
  world.engine.apply(world.command());
  world.engine.finish(world.first);
  EXPECT_EQ(world.engine.state_of(world.first), JobState::kCompleted);
  EXPECT_EQ(world.engine.state().find_promise(world.first), nullptr);
  world.engine.cycle();
  EXPECT_EQ(world.engine.state_of(world.waits), JobState::kScheduled);
}

TEST(MoveJobs, WhileItsPlaceIsKeptNobodyIsEndedOrMovedForTheMovedJob) {
  Scattered world;
  world.engine.apply(
      UpdateTenant{.tenant = kDefaultTenant, .given = kTenantAllowPreemption, .allow_preemption = true});
  world.engine.apply(world.command());
  world.engine.ended(world.first, {.cause = EndCause::kStopped, .detail = {}});
  world.engine.advance(limits::kBackoffFirst);
  ASSERT_TRUE(world.engine.job(world.first).is_queued());
  const PlanGroup ends{.job = world.first,
                       .attempt = 2,
                       .members = {world.at(world.b, world.engine.job(world.second).device_mask)},
                       .preemptions = {{.job = world.second, .attempt = 1}}};
  world.engine.apply(CommitPlan{.groups = {ends}});
  EXPECT_TRUE(world.engine.events().empty());
  MoveJobs again{.groups = {ends, ends}, .by = "ana", .why = {}};
  again.groups[1].job = world.second;
  again.groups[1].preemptions.clear();
  expect_rejected(world.engine.apply(again), RejectionCode::kMoveStale);
}

TEST(MoveJobs, AQuotaThatIsFullByThenLetsItWait) {
  Scattered world;
  world.engine.apply(world.command());
  world.engine.ended(world.first, {.cause = EndCause::kStopped, .detail = {}});
  world.engine.release_all();
  Limits limits;
  limits.set(Resource::kGpus, 0);
  world.engine.apply(UpdateTenant{.tenant = world.batch, .given = kTenantMaxGpus, .limits = limits});
  world.engine.advance(limits::kBackoffFirst);
  world.engine.cycle();
  EXPECT_EQ(world.engine.state_of(world.first), JobState::kPending);
}

}  // namespace
}  // namespace gpusched
