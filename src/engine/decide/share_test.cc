// Shares of devices: several jobs on one, never more than all of it, and each share back by itself.
#include <gtest/gtest.h>

#include <bit>

#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::exited;
using testing::TestEngine;
using testing::Want;

AttemptKey key_of(const Job& job) { return {.job = job.id, .attempt = job.attempt_count, .member = 0}; }

uint32_t device_of(const TestEngine& engine, JobId id) {
  return static_cast<uint32_t>(std::countr_zero(engine.job(id).device_mask));
}

Applied share_released(TestEngine& engine, NodeId node, JobId id) {
  const uint32_t index = device_of(engine, id);
  return engine.apply(DeviceReleased{.node = node,
                                     .device = index,
                                     .generation = engine.device(node, index).generation,
                                     .share_of = key_of(engine.job(id))});
}

TEST(Share, SeveralJobsHaveOneDeviceUpToAllOfIt) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const JobId half = engine.run({.gpus = 1, .gpu_milli = 500});
  const JobId third = engine.run({.gpus = 1, .gpu_milli = 300});
  EXPECT_EQ(engine.job(half).device_mask, engine.job(third).device_mask);
  const Device& shared = engine.device(node, device_of(engine, half));
  EXPECT_EQ(shared.state, DeviceState::kShared);
  EXPECT_EQ(shared.milli_left(), 200);
  const JobId next = engine.run({.gpus = 1, .gpu_milli = 300});
  EXPECT_NE(engine.job(next).device_mask, engine.job(half).device_mask);
}

TEST(Share, TakesTheTightestDeviceThatHasRoom) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.add_node("n2", {.gpus = 1});
  engine.run({.gpus = 1, .gpu_milli = 300});
  const JobId large = engine.run({.gpus = 1, .gpu_milli = 800});
  const JobId small = engine.run({.gpus = 1, .gpu_milli = 200});
  EXPECT_EQ(engine.job(small).node, engine.job(large).node);
}

TEST(Share, OfMemoryCountsToo) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1, .gpu_memory_mb = 80'000});
  const JobId first = engine.run({.gpus = 1, .gpu_milli = 100, .gpu_share_mb = 60'000});
  const JobId waits = engine.submit({.gpus = 1, .gpu_milli = 100, .gpu_share_mb = 30'000});
  const JobId fits = engine.submit({.gpus = 1, .gpu_milli = 100, .gpu_share_mb = 20'000});
  engine.cycle();
  EXPECT_EQ(engine.state_of(waits), JobState::kPending);
  EXPECT_EQ(engine.wait_code(waits), WaitCode::kGpusBusy);
  EXPECT_EQ(engine.state_of(fits), JobState::kScheduled);
  engine.ended(first);
  share_released(engine, node, first);
  engine.cycle();
  EXPECT_EQ(engine.state_of(waits), JobState::kScheduled);
}

TEST(Share, WithoutAnAmountOfMemoryHasAsMuchAsOfTheRest) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1, .gpu_memory_mb = 80'000});
  engine.run({.gpus = 1, .gpu_milli = 250});
  EXPECT_EQ(engine.device(node, 0).memory_mb_left(), 60'000);
}

TEST(Share, AWholeDeviceIsNotTakenFromThoseThatShareIt) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId share = engine.run({.gpus = 1, .gpu_milli = 100});
  const JobId whole = engine.submit_gpus(1);
  engine.cycle();
  EXPECT_EQ(engine.state_of(whole), JobState::kPending);
  engine.ended(share);
  engine.cycle();
  EXPECT_EQ(engine.state_of(whole), JobState::kPending);  // Nobody has seen the share gone yet.
  const uint32_t before = engine.device(node, 0).generation;
  share_released(engine, node, share);
  EXPECT_EQ(engine.device(node, 0).state, DeviceState::kFree);
  EXPECT_EQ(engine.device(node, 0).generation, before + 1);
  engine.cycle();
  EXPECT_EQ(engine.state_of(whole), JobState::kScheduled);
}

TEST(Share, IsGivenAgainOnlyWhenItIsSeenGone) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId first = engine.run({.gpus = 1, .gpu_milli = 600});
  const JobId stays = engine.run({.gpus = 1, .gpu_milli = 400});
  const JobId next = engine.submit({.gpus = 1, .gpu_milli = 600});
  engine.ended(first);
  engine.cycle();
  EXPECT_EQ(engine.state_of(next), JobState::kPending);
  EXPECT_TRUE(share_released(engine, node, stays).rejection.has_value());  // It runs.
  EXPECT_FALSE(share_released(engine, node, first).rejection.has_value());
  EXPECT_TRUE(share_released(engine, node, first).rejection.has_value());
  engine.cycle();
  EXPECT_EQ(engine.state_of(next), JobState::kScheduled);
  EXPECT_EQ(engine.device(node, 0).shares.size(), 2u);
}

TEST(Share, WhatWillNotGoTakesTheDeviceOutOfThePoolAndNobodyElseDown) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId stuck = engine.run({.gpus = 1, .gpu_milli = 500});
  const JobId beside = engine.run({.gpus = 1, .gpu_milli = 200});
  engine.ended(stuck);
  engine.advance(engine.state().config.drain_limit);
  engine.apply(DeviceStillBusy{.node = node,
                               .device = 0,
                               .generation = engine.device(node, 0).generation,
                               .evidence = "on it still: pid 7",
                               .share_of = key_of(engine.job(stuck))});
  EXPECT_EQ(engine.device(node, 0).state, DeviceState::kQuarantined);
  EXPECT_EQ(engine.state_of(beside), JobState::kRunning);
  const JobId next = engine.submit({.gpus = 1, .gpu_milli = 100});
  engine.cycle();
  EXPECT_EQ(engine.state_of(next), JobState::kPending);
  share_released(engine, node, stuck);
  EXPECT_EQ(engine.device(node, 0).state, DeviceState::kShared);
  engine.cycle();
  EXPECT_EQ(engine.state_of(next), JobState::kScheduled);
}

TEST(Share, ARebootFreesThemAll) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId ended = engine.run({.gpus = 1, .gpu_milli = 500});
  engine.run({.gpus = 1, .gpu_milli = 200});
  engine.ended(ended);
  engine.apply(testing::registration_of("n1", {.gpus = 1}, "boot-2"));
  EXPECT_EQ(engine.device(node, 0).state, DeviceState::kFree);
  EXPECT_TRUE(engine.device(node, 0).shares.empty());
}

TEST(Share, CountsInQuotasAsWhatItIs) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 8});
  Limits limits;
  limits.set(Resource::kGpus, 1);
  const TenantId tenant = engine.add_tenant("t", {}, limits);
  engine.run({.gpus = 1, .tenant = tenant, .gpu_milli = 700});
  const JobId fits = engine.submit({.gpus = 1, .tenant = tenant, .gpu_milli = 300});
  const JobId over = engine.submit({.gpus = 1, .tenant = tenant, .gpu_milli = 100});
  engine.cycle();
  EXPECT_EQ(engine.state_of(fits), JobState::kScheduled);
  EXPECT_EQ(engine.wait_code(over), WaitCode::kQuota);
  EXPECT_EQ(engine.tenant(tenant).usage.gpu_milli, 1000);
}

TEST(Share, UsesOnlyItsPartOfTheTime) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .gpu_milli = 250});
  engine.advance(seconds(100));
  engine.ended(job);
  EXPECT_EQ(engine.job(job).attained_gpu_ms, 25'000);
}

TEST(Share, OfSeveralDevicesOrOfMoreThanOneIsRefused) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 2});
  EXPECT_TRUE(engine.try_submit({.gpus = 2, .gpu_milli = 500}).rejection.has_value());
  EXPECT_TRUE(engine.try_submit({.gpus = 1, .gpu_milli = 1000}).rejection.has_value());
  EXPECT_TRUE(engine.try_submit({.gpus = 0, .gpu_milli = 500}).rejection.has_value());
  EXPECT_TRUE(engine.try_submit({.gpus = 1, .gpu_share_mb = 500}).rejection.has_value());
}

TEST(Share, LargerThanAnyDevicesMemoryNeverFits) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1, .gpu_memory_mb = 40'000});
  const JobId job = engine.submit({.gpus = 1, .gpu_milli = 500, .gpu_share_mb = 50'000});
  engine.cycle();
  EXPECT_EQ(engine.wait_code(job), WaitCode::kNoMatchingGpu);
}

TEST(Share, NobodyIsEndedForOneYet) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1, .gpu_milli = 600});
  const JobId stale = engine.submit({.gpus = 1, .gpu_milli = 600});
  // A plan that saw the device free.
  const PlanGroup group{.job = stale,
                        .attempt = 1,
                        .members = {{.node = engine.state().nodes[0].id,
                                     .part = 0,
                                     .device_mask = 1,
                                     .generations = {engine.state().nodes[0].devices[0].generation}}},
                        .preemptions = {}};
  engine.apply(CommitPlan{.based_on = engine.state().last.sequence, .groups = {group}});
  EXPECT_EQ(engine.state_of(stale), JobState::kPending);
}

}  // namespace
}  // namespace gpusched
