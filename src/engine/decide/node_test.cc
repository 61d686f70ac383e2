#include <gtest/gtest.h>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

const Shape kFour{.gpus = 4};

KnownAttempt known(JobId job, uint32_t attempt, uint64_t device_mask) {
  return {.job = job, .attempt = attempt, .device_mask = device_mask};
}

TEST(RegisterNode, ANewNodeIsReadyWithItsDevicesFree) {
  TestEngine engine;
  const uint64_t next = engine.state().last.sequence + 1;
  const NodeId id = engine.add_node("n1", kFour);
  EXPECT_EQ(id.value, next);
  EXPECT_EQ(engine.node(id).state, NodeState::kReady);
  EXPECT_EQ(engine.node(id).free_mask, 0b1111u);
  EXPECT_EQ(engine.node(id).cpu_milli, 64'000);
  EXPECT_EQ(engine.device(id, 2).uuid, "GPU-n1-2");
  EXPECT_EQ(engine.state().find_node_named("n1")->id, id);
}

TEST(RegisterNode, AgainWithTheSameBootKeepsItsWork) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 2});
  RegisterNode again = registration_of("n1", kFour);
  again.attempts = {known(job, 1, engine.job(job).device_mask)};
  EXPECT_EQ(engine.apply(again).first_id, id.value);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  EXPECT_EQ(engine.node(id).free_mask, 0b1100u);
  EXPECT_EQ(engine.state().nodes.size(), 1u);
}

TEST(RegisterNode, ANewBootEndsItsAttemptsAndFreesItsDevices) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId running = engine.run({.gpus = 1});
  const JobId drained = engine.run({.gpus = 1});
  engine.ended(drained);
  ASSERT_EQ(engine.device(id, 1).state, DeviceState::kDraining);
  engine.apply(registration_of("n1", kFour, "boot-2"));
  EXPECT_EQ(engine.state_of(running), JobState::kPending);
  EXPECT_EQ(engine.job(running).last_cause, EndCause::kNodeLost);
  EXPECT_EQ(engine.node(id).free_mask, 0b1111u);
  EXPECT_EQ(engine.device(id, 0).generation, 1u);
  EXPECT_TRUE(engine.state().attempts.empty());
}

TEST(RegisterNode, ANewBootKeepsOutcomesThatTheAgentHas) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  RegisterNode again = registration_of("n1", kFour, "boot-2");
  again.attempts = {known(job, 1, 1)};
  again.attempts.front().ended = true;
  engine.apply(again);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.apply(AttemptEnded{.job = job, .attempt = 1, .member = 0, .node = id, .outcome = exited(0)});
  EXPECT_EQ(engine.state_of(job), JobState::kCompleted);
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kDraining);
}

TEST(RegisterNode, ANewBootEndsAQuarantine) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  engine.ended(engine.run({.gpus = 1}));
  engine.advance(engine.state().config.drain_limit);
  engine.apply(DeviceStillBusy{.node = id, .evidence = "pid 7"});
  ASSERT_EQ(engine.device(id, 0).state, DeviceState::kQuarantined);
  engine.apply(registration_of("n1", {.gpus = 1}, "boot-2"));
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kFree);
  EXPECT_EQ(engine.device(id, 0).detail, "");
}

TEST(RegisterNode, ARunningAttemptThatTheAgentForgotIsLost) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(registration_of("n1", kFour));
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).last_cause, EndCause::kShimLost);
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kDraining);
}

TEST(RegisterNode, AnAttemptWhoseOrderMayNotHaveArrivedStaysPlaced) {
  TestEngine engine;
  engine.add_node("n1", kFour);
  const JobId job = engine.submit_gpus(1);
  engine.cycle();
  engine.apply(registration_of("n1", kFour));
  EXPECT_EQ(engine.state_of(job), JobState::kScheduled);
}

TEST(RegisterNode, AnAttemptThatEndedThereWaitsForItsOutcome) {
  TestEngine engine;
  engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  RegisterNode again = registration_of("n1", kFour);
  again.attempts = {known(job, 1, 1)};
  again.attempts[0].ended = true;
  engine.apply(again);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.ended(job, exited(4));
  EXPECT_EQ(engine.job(job).exit_code, 4);
}

TEST(RegisterNode, UnknownAttemptsOccupyTheirDevicesUntilSeenEmpty) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", kFour);
  offer.attempts = {known(JobId{404}, 1, 0b0110)};
  const NodeId id{engine.apply(offer).first_id};
  EXPECT_EQ(engine.node(id).free_mask, 0b1001u);
  EXPECT_EQ(engine.device(id, 1).state, DeviceState::kDraining);
  engine.released(id, 1);
  EXPECT_EQ(engine.node(id).free_mask, 0b1011u);
}

TEST(RegisterNode, UnknownAttemptsThatEndedOccupyNothing) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", kFour);
  offer.attempts = {known(JobId{404}, 1, 0b0110)};
  offer.attempts[0].ended = true;
  const NodeId id{engine.apply(offer).first_id};
  EXPECT_EQ(engine.node(id).free_mask, 0b1111u);
}

TEST(RegisterNode, TwoUnknownAttemptsOnOneDeviceOccupyItOnce) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", kFour);
  offer.attempts = {known(JobId{404}, 1, 0b0011), known(JobId{405}, 1, 0b0110)};
  const NodeId id{engine.apply(offer).first_id};
  EXPECT_EQ(engine.node(id).free_mask, 0b1000u);
  EXPECT_EQ(engine.count_events<DeviceOccupied>(), 3);
}

TEST(RegisterNode, AnUnknownAttemptOnADeviceThatIsNotThereOccupiesNothing) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", {.gpus = 2});
  offer.devices[1].uuid = offer.devices[0].uuid;  // One device, named twice.
  offer.attempts = {known(JobId{404}, 1, ~uint64_t{0})};
  const NodeId id{engine.apply(offer).first_id};
  EXPECT_EQ(engine.node(id).devices.size(), 1u);
  EXPECT_EQ(engine.node(id).free_mask, 0u);
}

TEST(RegisterNode, ADeviceThatIsGoneIsMissingAndKeepsItsSlot) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  RegisterNode again = registration_of("n1", kFour);
  again.devices.erase(again.devices.begin() + 1);
  engine.apply(again);
  EXPECT_EQ(engine.node(id).devices.size(), 4u);
  EXPECT_EQ(engine.device(id, 1).condition, DeviceCondition::kMissing);
  EXPECT_EQ(engine.node(id).free_mask, 0b1101u);
  engine.apply(registration_of("n1", kFour));
  EXPECT_EQ(engine.node(id).free_mask, 0b1111u);
}

TEST(RegisterNode, ANewDeviceGetsASlotBehindTheOthers) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  RegisterNode again = registration_of("n1", {.gpus = 2});
  std::swap(again.devices[0], again.devices[1]);
  engine.apply(again);
  EXPECT_EQ(engine.device(id, 0).uuid, "GPU-n1-0");
  EXPECT_EQ(engine.device(id, 1).uuid, "GPU-n1-1");
}

TEST(RegisterNode, AnotherDataFolderMayNotTakeALivingNodesName) {
  TestEngine engine;
  engine.add_node("n1", kFour);
  RegisterNode other = registration_of("n1", kFour);
  other.instance = "elsewhere";
  expect_rejected(engine.apply(other), RejectionCode::kNodeNameTaken);
}

TEST(RegisterNode, AnotherDataFolderMayNotTakeTheNameWhileTheSilentNodeHoldsSomething) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(NodeLeaseLost{.node = id});
  RegisterNode other = registration_of("n1", kFour);
  other.instance = "elsewhere";
  expect_rejected(engine.apply(other), RejectionCode::kNodeNameTaken);
  engine.apply(ConfirmNodeDead{.node = id});
  EXPECT_EQ(engine.apply(other).first_id, id.value);
  EXPECT_EQ(engine.node(id).state, NodeState::kReady);
  EXPECT_EQ(engine.node(id).instance, "elsewhere");
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
}

TEST(RegisterNode, AnotherDataFolderMayTakeTheNameOfASilentIdleNode) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  engine.apply(NodeLeaseLost{.node = id});
  RegisterNode other = registration_of("n1", kFour);
  other.instance = "elsewhere";
  EXPECT_EQ(engine.apply(other).first_id, id.value);
}

/// An engine on which one machine is one node.
void take_newest_rules(TestEngine& engine) {
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
}

TEST(RegisterNode, AnotherBootIsRefusedWhileTheNodeHasItsLease) {
  TestEngine engine;
  take_newest_rules(engine);
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  expect_rejected(engine.apply(registration_of("n1", kFour, "boot-2")), RejectionCode::kNodeStillHeard);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.apply(NodeLeaseLost{.node = id});
  EXPECT_EQ(engine.apply(registration_of("n1", kFour, "boot-2")).first_id, id.value);
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
}

TEST(RegisterNode, AnotherMachineWithTheSameFolderIsNoRestartOfTheNode) {
  TestEngine engine;
  take_newest_rules(engine);
  RegisterNode first = registration_of("n1", kFour);
  first.machine = "one";
  const NodeId id{engine.apply(first).first_id};
  const JobId job = engine.run({.gpus = 1});
  RegisterNode copy = registration_of("n1", kFour, "boot-2");
  copy.machine = "two";
  engine.apply(NodeLeaseLost{.node = id});
  expect_rejected(engine.apply(copy), RejectionCode::kNodeNameTaken);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
}

TEST(RegisterNode, AMachineWithOtherDevicesOnlyIsNoRestartOfTheNode) {
  TestEngine engine;
  take_newest_rules(engine);
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  RegisterNode copy = registration_of("n1", kFour, "boot-2");
  for (DeviceOffer& offer : copy.devices) offer.uuid += "-of-the-copy";
  engine.apply(NodeLeaseLost{.node = id});
  expect_rejected(engine.apply(copy), RejectionCode::kNodeNameTaken);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
}

TEST(RegisterNode, ADataFolderIsOneNodesUntilThatIsDead) {
  TestEngine engine;
  take_newest_rules(engine);
  const NodeId id = engine.add_node("n1", {});
  RegisterNode renamed = registration_of("n1.example", {});
  renamed.instance = engine.node(id).instance;
  const Applied refused = engine.apply(renamed);
  expect_rejected(refused, RejectionCode::kNodeOverlap);
  EXPECT_NE(describe(*refused.rejection).find("data folder belongs to node 'n1'"), std::string::npos);
  engine.apply(NodeLeaseLost{.node = id});
  expect_rejected(engine.apply(renamed), RejectionCode::kNodeOverlap);
  engine.apply(ConfirmNodeDead{.node = id});
  EXPECT_FALSE(engine.apply(renamed).rejection.has_value());
  expect_rejected(engine.apply(registration_of("n1", {})), RejectionCode::kNodeOverlap);
}

TEST(RegisterNode, ADeviceIsOneNodesUntilThatIsDeadOrNoLongerHasIt) {
  TestEngine engine;
  take_newest_rules(engine);
  const NodeId id = engine.add_node("n1", kFour);
  RegisterNode other = registration_of("n2", {.gpus = 1});
  other.devices[0].uuid = engine.node(id).devices[3].uuid;
  const Applied refused = engine.apply(other);
  expect_rejected(refused, RejectionCode::kNodeOverlap);
  EXPECT_NE(describe(*refused.rejection).find(other.devices[0].uuid + " belongs to node 'n1'"),
            std::string::npos);
  EXPECT_FALSE(engine.apply(registration_of("n1", {.gpus = 3})).rejection.has_value());
  EXPECT_FALSE(engine.apply(other).rejection.has_value());
  // It cannot come back as long as the other one has it.
  expect_rejected(engine.apply(registration_of("n1", kFour)), RejectionCode::kNodeOverlap);
}

TEST(RegisterNode, WhatAnotherBootCannotTellToBeOverKeepsItsDevices) {
  TestEngine engine;
  take_newest_rules(engine);
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(NodeLeaseLost{.node = id});
  RegisterNode again = registration_of("n1", kFour, "boot-2");
  again.attempts = {{.job = job, .attempt = 1, .device_mask = 1}, {.job = JobId{4711}, .device_mask = 2}};
  EXPECT_EQ(engine.apply(again).first_id, id.value);
  EXPECT_EQ(engine.node(id).devices[0].state, DeviceState::kDraining);
  EXPECT_EQ(engine.node(id).devices[1].state, DeviceState::kDraining);
  EXPECT_EQ(engine.node(id).free_mask, 0b1100u);
}

TEST(RegisterNode, OlderJournalsReplayByTheirOwnRules) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = 5}});
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  EXPECT_EQ(engine.apply(registration_of("n1", kFour, "boot-2")).first_id, id.value);
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  RegisterNode renamed = registration_of("n2", kFour);
  renamed.devices = registration_of("n1", kFour).devices;
  EXPECT_FALSE(engine.apply(renamed).rejection.has_value());
}

TEST(RegisterNode, TooManyDevicesAreRefused) {
  TestEngine engine;
  expect_rejected(engine.apply(registration_of("n1", {.gpus = 65})), RejectionCode::kNodeLimit);
  const NodeId id = engine.add_node("n1", {.gpus = 64});
  RegisterNode others = registration_of("n1", {.gpus = 1});
  others.devices[0].uuid = "GPU-new";
  expect_rejected(engine.apply(others), RejectionCode::kNodeLimit);
  EXPECT_EQ(engine.node(id).free_mask, ~uint64_t{0});
}

TEST(RegisterNode, TooManyKindsOfDeviceAreRefused) {
  TestEngine engine;
  RegisterNode offer = registration_of("n1", {.gpus = 64});
  for (int i = 0; i < 64; ++i) offer.devices[static_cast<std::size_t>(i)].memory_mb = 1000 + i;
  EXPECT_FALSE(engine.apply(offer).rejection.has_value());
  expect_rejected(engine.apply(registration_of("n2", {.gpus = 1})), RejectionCode::kNodeLimit);
}

TEST(NodeLease, ASilentNodeTakesNothingNewAndKeepsItsWork) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(NodeLeaseLost{.node = id});
  EXPECT_EQ(engine.node(id).state, NodeState::kUnreachable);
  EXPECT_EQ(engine.node(id).free_mask, 0u);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  const Digest before = engine.digest();
  EXPECT_FALSE(engine.apply(NodeLeaseLost{.node = id}).rejection.has_value());
  EXPECT_EQ(engine.digest(), before);
}

TEST(NodeLease, BackInTimeNothingIsLost) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(NodeLeaseLost{.node = id});
  engine.advance(minutes(1));
  engine.apply(NodeLeaseBack{.node = id});
  EXPECT_EQ(engine.node(id).state, NodeState::kReady);
  EXPECT_EQ(engine.node(id).free_mask, 0b1110u);
  EXPECT_FALSE(engine.node(id).silent_since.valid());
  EXPECT_TRUE(engine.state().timers.empty());
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
}

TEST(NodeLease, AfterLongSilenceTheNodeIsLostAndStillHoldsItsWork) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(NodeLeaseLost{.node = id});
  const Time silent = engine.now();
  engine.advance(engine.state().config.lost_after - milliseconds(1));
  EXPECT_EQ(engine.node(id).state, NodeState::kUnreachable);
  engine.advance(milliseconds(1));
  EXPECT_EQ(engine.node(id).state, NodeState::kLost);
  EXPECT_EQ(engine.node(id).silent_since, silent);
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.apply(NodeLeaseBack{.node = id});
  EXPECT_EQ(engine.node(id).state, NodeState::kReady);
}

TEST(NodeLease, ASecondSilenceCountsFromItsOwnBeginning) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  engine.apply(NodeLeaseLost{.node = id});
  engine.advance(minutes(4));
  engine.apply(NodeLeaseBack{.node = id});
  engine.apply(NodeLeaseLost{.node = id});
  engine.advance(minutes(4));
  EXPECT_EQ(engine.node(id).state, NodeState::kUnreachable);
}

TEST(NodeLease, UnknownNodesAreNotFound) {
  TestEngine engine;
  expect_rejected(engine.apply(NodeLeaseLost{.node = NodeId{404}}), RejectionCode::kNodeNotFound);
  expect_rejected(engine.apply(NodeLeaseBack{.node = NodeId{404}}), RejectionCode::kNodeNotFound);
  expect_rejected(engine.apply(ConfirmNodeDead{.node = NodeId{404}}), RejectionCode::kNodeNotFound);
}

TEST(ConfirmNodeDead, AReportingNodeIsAlive) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  expect_rejected(engine.apply(ConfirmNodeDead{.node = id}), RejectionCode::kNodeAlive);
}

TEST(ConfirmNodeDead, EndsItsAttemptsAndOnlyARegistrationBringsItBack) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(NodeLeaseLost{.node = id});
  engine.apply(ConfirmNodeDead{.node = id});
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).last_cause, EndCause::kNodeLost);
  EXPECT_EQ(engine.node(id).state, NodeState::kDead);
  EXPECT_TRUE(engine.state().timers.size() == 1);  // The job's back-off alone.
  expect_rejected(engine.apply(NodeLeaseBack{.node = id}), RejectionCode::kStale);
  const Digest before = engine.digest();
  EXPECT_FALSE(engine.apply(ConfirmNodeDead{.node = id}).rejection.has_value());
  EXPECT_EQ(engine.digest(), before);
  engine.apply(registration_of("n1", kFour));
  EXPECT_EQ(engine.node(id).free_mask, 0b1111u);
}

TEST(ConfirmNodeDead, WhatRunsThereAfterAllOccupiesItsDevices) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", kFour);
  const JobId job = engine.run({.gpus = 1});
  engine.apply(NodeLeaseLost{.node = id});
  engine.apply(ConfirmNodeDead{.node = id});
  RegisterNode again = registration_of("n1", kFour);
  again.attempts = {known(job, 1, 0b0001)};
  engine.apply(again);
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kDraining);
  EXPECT_EQ(engine.node(id).free_mask, 0b1110u);
}

TEST(Overlap, AJobThatAllowsItGoesOnElsewhereWhenItsNodeIsLost) {
  TestEngine engine;
  const NodeId first = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .retry = {.overlap_allowed = true}});
  const NodeId second = engine.add_node("n2", {.gpus = 1});
  engine.apply(NodeLeaseLost{.node = first});
  engine.advance(engine.state().config.lost_after);
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_TRUE(engine.state().find_attempt(job, 1)->abandoned);
  EXPECT_EQ(engine.device(first, 0).state, DeviceState::kHeld);
  EXPECT_EQ(engine.tenant(kDefaultTenant).usage, Amount{});
  engine.advance(limits::kBackoffFirst);
  engine.cycle();
  EXPECT_EQ(engine.job(job).node, second);
  EXPECT_EQ(engine.job(job).attempt_count, 2u);
}

TEST(Overlap, AnAbandonedAttemptsWordsDoNotTouchItsJob) {
  TestEngine engine;
  const NodeId first = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.submit({.gpus = 1, .retry = {.overlap_allowed = true}});
  engine.cycle();
  engine.add_node("n2", {.gpus = 1});
  engine.apply(NodeLeaseLost{.node = first});
  engine.advance(engine.state().config.lost_after);
  engine.advance(limits::kBackoffFirst);
  engine.cycle();
  engine.started(job);
  engine.apply(NodeLeaseBack{.node = first});
  engine.apply(AttemptStarted{.job = job, .attempt = 1, .node = first});
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.apply(AttemptEnded{.job = job, .attempt = 1, .node = first, .outcome = exited(0)});
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  EXPECT_EQ(engine.device(first, 0).state, DeviceState::kDraining);
  EXPECT_EQ(engine.tenant(kDefaultTenant).usage.gpus, 1);
  engine.ended(job);
  EXPECT_EQ(engine.state_of(job), JobState::kCompleted);
}

TEST(Overlap, AnAbandonedAttemptMayOutliveItsForgottenJob) {
  TestEngine engine;
  EngineConfig config;
  config.finished_jobs_max = 0;
  engine.apply(Configure{.config = config});
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .retry = {.system_retries = -1, .overlap_allowed = true}});
  engine.apply(NodeLeaseLost{.node = node});
  engine.advance(engine.state().config.lost_after);
  EXPECT_EQ(engine.state().jobs.find(job), nullptr);
  EXPECT_NE(engine.state().find_attempt(job, 1), nullptr);
  engine.apply(NodeLeaseBack{.node = node});
  engine.apply(NodeLeaseLost{.node = node});
  engine.apply(NodeLeaseBack{.node = node});
  engine.apply(AttemptEnded{.job = job, .attempt = 1, .node = node, .outcome = exited(0)});
  engine.release_all();
  EXPECT_EQ(engine.node(node).free_mask, 1u);
  engine.submit_gpus(1);
  EXPECT_EQ(engine.cycle().size(), 1u);
}

TEST(KillAfterLostContact, TheJobGoesOnWhenItsShimHasCertainlyEndedIt) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .retry = {.kill_after_lost_contact = seconds(30)}});
  engine.apply(NodeLeaseLost{.node = id});
  engine.advance(seconds(30) + limits::kContactSlack - milliseconds(1));
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.advance(milliseconds(1));
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
  EXPECT_EQ(engine.job(job).last_cause, EndCause::kContactLost);
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kDraining);
}

TEST(KillAfterLostContact, ContactInBetweenStartsTheTimeAnew) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .retry = {.kill_after_lost_contact = seconds(30)}});
  engine.apply(NodeLeaseLost{.node = id});
  engine.advance(seconds(60));
  engine.apply(NodeLeaseBack{.node = id});
  engine.apply(NodeLeaseLost{.node = id});
  engine.advance(seconds(60));
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.advance(seconds(30));
  EXPECT_EQ(engine.state_of(job), JobState::kPending);
}

TEST(KillAfterLostContact, AJobThatDoesNotAskRunsOn) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  engine.apply(NodeLeaseLost{.node = id});
  engine.advance(hours(48));
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
}

TEST(Device, AReleaseFreesItInANewGeneration) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  engine.ended(engine.run({.gpus = 1}));
  engine.released(id, 0);
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kFree);
  EXPECT_EQ(engine.device(id, 0).generation, 1u);
  EXPECT_FALSE(engine.device(id, 0).held_by.job.valid());
  EXPECT_EQ(engine.node(id).free_mask, 1u);
}

TEST(Device, AReleaseSaidAgainOrOfAnotherGenerationIsStale) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  engine.ended(engine.run({.gpus = 1}));
  expect_rejected(engine.apply(DeviceReleased{.node = id, .generation = 1}), RejectionCode::kStale);
  engine.apply(DeviceReleased{.node = id, .generation = 0});
  expect_rejected(engine.apply(DeviceReleased{.node = id, .generation = 0}), RejectionCode::kStale);
  expect_rejected(engine.apply(DeviceReleased{.node = id, .generation = 1}), RejectionCode::kStale);
}

TEST(Device, AHeldDeviceIsNotReleased) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  engine.run({.gpus = 1});
  expect_rejected(engine.released(id, 0), RejectionCode::kStale);
}

TEST(Device, UnknownOnesAreNotFound) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  expect_rejected(engine.apply(DeviceReleased{.node = id, .device = 1}), RejectionCode::kDeviceNotFound);
  expect_rejected(engine.apply(DeviceReleased{.node = NodeId{404}}), RejectionCode::kNodeNotFound);
  expect_rejected(engine.apply(DeviceStillBusy{.node = id, .device = 1}), RejectionCode::kDeviceNotFound);
  expect_rejected(engine.apply(DeviceStillBusy{.node = NodeId{404}}), RejectionCode::kNodeNotFound);
  expect_rejected(engine.apply(SetDeviceCondition{.node = id, .device = 1}), RejectionCode::kDeviceNotFound);
  expect_rejected(engine.apply(SetDeviceCondition{.node = NodeId{404}}), RejectionCode::kNodeNotFound);
}

TEST(Device, PastTheDrainLimitItIsQuarantinedWithTheEvidence) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 2});
  engine.ended(engine.run({.gpus = 1}));
  engine.advance(engine.state().config.drain_limit - milliseconds(1));
  engine.apply(DeviceStillBusy{.node = id, .evidence = "pid 7 is on it"});
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kDraining);
  engine.advance(milliseconds(1));
  engine.apply(DeviceStillBusy{.node = id, .evidence = "pid 7 is on it"});
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kQuarantined);
  EXPECT_EQ(engine.device(id, 0).detail, "pid 7 is on it");
  EXPECT_EQ(engine.node(id).state, NodeState::kReady);
  EXPECT_EQ(engine.node(id).free_mask, 0b10u);
  expect_rejected(engine.apply(DeviceStillBusy{.node = id, .generation = 9}), RejectionCode::kStale);
}

TEST(Device, AConditionDoesNotReplaceTheEvidenceOfAQuarantine) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  engine.ended(engine.run({.gpus = 1}));
  engine.advance(engine.state().config.drain_limit);
  engine.apply(DeviceStillBusy{.node = id, .evidence = "pid 7"});
  engine.apply(SetDeviceCondition{.node = id, .condition = DeviceCondition::kUnhealthy, .detail = "Xid 79"});
  EXPECT_EQ(engine.device(id, 0).condition, DeviceCondition::kUnhealthy);
  EXPECT_EQ(engine.device(id, 0).detail, "pid 7");
}

TEST(Device, AQuarantinedOneComesBackWhenSeenEmpty) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  engine.ended(engine.run({.gpus = 1}));
  engine.advance(engine.state().config.drain_limit);
  engine.apply(DeviceStillBusy{.node = id, .evidence = "busy"});
  engine.released(id, 0);
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kFree);
  EXPECT_EQ(engine.device(id, 0).detail, "");
}

TEST(Device, OnlyAnOperatorLiftsAQuarantineByWord) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  engine.ended(engine.run({.gpus = 1}));
  engine.advance(engine.state().config.drain_limit);
  engine.apply(DeviceStillBusy{.node = id, .evidence = "busy"});
  engine.apply(SetDeviceCondition{.node = id, .condition = DeviceCondition::kOk});
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kQuarantined);
  engine.apply(SetDeviceCondition{.node = id, .condition = DeviceCondition::kOk, .by_operator = true});
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kFree);
}

TEST(Device, AfterAnOperatorsWordAQuarantinedOneStillHasToBeSeenEmpty) {
  for (const bool lasting : {false, true}) {
    TestEngine engine;
    EngineConfig config = engine.state().config;
    config.feature_level = 2;
    engine.apply(Configure{.config = config});
    const NodeId id = engine.add_node("n1", {.gpus = 1});
    engine.ended(engine.run({.gpus = 1}));
    engine.advance(config.drain_limit);
    engine.apply(DeviceStillBusy{.node = id, .evidence = "busy"});
    const SetDeviceCondition well{
        .node = id, .condition = DeviceCondition::kOk, .by_operator = true, .lasting = lasting};
    engine.apply(well);
    EXPECT_EQ(engine.device(id, 0).state, DeviceState::kDraining);
    EXPECT_EQ(engine.device(id, 0).detail, "");
    EXPECT_EQ(engine.node(id).free_mask, 0u);
    // Its time begins again, and what is still on it is told again.
    engine.advance(config.drain_limit - milliseconds(1));
    engine.apply(DeviceStillBusy{.node = id, .evidence = "busy still"});
    EXPECT_EQ(engine.device(id, 0).state, DeviceState::kDraining);
    engine.advance(milliseconds(1));
    engine.apply(DeviceStillBusy{.node = id, .evidence = "busy still"});
    EXPECT_EQ(engine.device(id, 0).state, DeviceState::kQuarantined);
    EXPECT_EQ(engine.device(id, 0).detail, "busy still");
    engine.apply(well);
    engine.released(id, 0);
    EXPECT_EQ(engine.device(id, 0).state, DeviceState::kFree);
    EXPECT_EQ(engine.node(id).free_mask, 1u);
  }
}

TEST(Device, AnUnhealthyOneIsOutOfThePoolUntilItIsOk) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 2});
  engine.apply(SetDeviceCondition{
      .node = id, .device = 1, .condition = DeviceCondition::kUnhealthy, .detail = "XID 79"});
  EXPECT_EQ(engine.node(id).free_mask, 0b01u);
  EXPECT_EQ(engine.device(id, 1).detail, "XID 79");
  const Digest before = engine.digest();
  engine.apply(SetDeviceCondition{
      .node = id, .device = 1, .condition = DeviceCondition::kUnhealthy, .detail = "XID 79"});
  EXPECT_EQ(engine.digest(), before);
  engine.apply(SetDeviceCondition{.node = id, .device = 1, .condition = DeviceCondition::kOk});
  EXPECT_EQ(engine.node(id).free_mask, 0b11u);
}

TEST(Device, AnUnhealthyOneUnderAJobStaysHeld) {
  TestEngine engine;
  const NodeId id = engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  engine.apply(SetDeviceCondition{.node = id, .condition = DeviceCondition::kUnhealthy});
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  engine.finish(job);
  EXPECT_EQ(engine.device(id, 0).state, DeviceState::kFree);
  EXPECT_EQ(engine.node(id).free_mask, 0u);
}

// Words that are about something else by now.

TEST(AttemptEnded, OfAnotherAttemptOfTheSameNumberIsRejected) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1});
  const Attempt& attempt = *engine.state().find_attempt(job, 1);
  AttemptEnded ended{.job = job,
                     .attempt = 1,
                     .node = attempt.members.front().node,
                     .outcome = {.cause = EndCause::kExited},
                     .placed_at = attempt.placed_at + seconds(-1)};
  EXPECT_TRUE(engine.apply(ended).rejection.has_value());
  ended.placed_at = attempt.placed_at;
  EXPECT_FALSE(engine.apply(ended).rejection.has_value());
  EXPECT_EQ(engine.job(job).state, JobState::kCompleted);
}

TEST(AttemptEnded, LeavesWhatWasSaidOfItInTheJob) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId job = engine.run({.gpus = 1, .retry = {.system_retries = -1}});
  engine.apply(AttemptEnded{
      .job = job,
      .attempt = 1,
      .node = engine.job(job).node,
      .outcome = {.cause = EndCause::kStartFailed, .detail = "no such file", .keep_detail = true}});
  EXPECT_EQ(engine.job(job).state, JobState::kFailed);
  EXPECT_EQ(engine.job(job).extras->last_detail.view(), "no such file");
}

TEST(ConfirmNodeDead, OfAnotherBootIsRejected) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  engine.apply(NodeLeaseLost{.node = node});
  EXPECT_TRUE(engine.apply(ConfirmNodeDead{.node = node, .boot_id = "an earlier one"}).rejection.has_value());
  EXPECT_EQ(engine.node(node).state, NodeState::kUnreachable);
  EXPECT_FALSE(engine.apply(ConfirmNodeDead{.node = node, .boot_id = engine.node(node).boot_id}).rejection);
  EXPECT_EQ(engine.node(node).state, NodeState::kDead);
}

TEST(SetDeviceCondition, AnOperatorsWordLastsThroughTheDrivers) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  SetDeviceCondition word{.node = node,
                          .device = 0,
                          .condition = DeviceCondition::kUnhealthy,
                          .detail = "makes noises",
                          .by_operator = true,
                          .lasting = true};
  engine.apply(word);
  engine.apply(SetDeviceCondition{.node = node, .device = 0});
  engine.add_node("n1", {.gpus = 1});  // Its agent registers again.
  EXPECT_TRUE(engine.device(node, 0).barred);
  EXPECT_EQ(engine.node(node).free_mask, 0u);
  word.condition = DeviceCondition::kOk;
  word.generation = engine.device(node, 0).generation + 1;
  EXPECT_TRUE(engine.apply(word).rejection.has_value());
  word.generation = engine.device(node, 0).generation;
  EXPECT_FALSE(engine.apply(word).rejection.has_value());
  EXPECT_EQ(engine.node(node).free_mask, 1u);
}

TEST(SetDeviceCondition, WhoQuarantinedADeviceAndWhyIsKept) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  SetDeviceCondition word{.node = node,
                          .condition = DeviceCondition::kUnhealthy,
                          .detail = "makes noises",
                          .by_operator = true,
                          .lasting = true,
                          .by = "ada"};
  engine.apply(word);
  EXPECT_EQ(engine.device(node, 0).barred_by, "ada");
  word.by = "bob";  // The same reason, of somebody else.
  engine.apply(word);
  EXPECT_EQ(engine.device(node, 0).barred_by, "bob");
  engine.apply(word);
  EXPECT_TRUE(engine.events().empty());
  word.condition = DeviceCondition::kOk;
  engine.apply(word);
  EXPECT_EQ(engine.device(node, 0).barred_by, "");
  EXPECT_EQ(engine.device(node, 0).barred_detail, "");
}

TEST(NoteDeviceHeat, AHotDeviceTakesNothingAndKeepsWhatItHas) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 2});
  const JobId job = engine.run({.gpus = 1});
  for (const uint32_t device : {0u, 1u})
    engine.apply(NoteDeviceHeat{.node = node, .device = device, .hot = true, .detail = "82 C"});
  EXPECT_EQ(engine.state_of(job), JobState::kRunning);
  EXPECT_EQ(engine.node(node).free_mask, 0u);
  EXPECT_EQ(engine.device(node, 0).hot_detail, "82 C");
  engine.apply(NoteDeviceHeat{.node = node, .device = 0, .hot = true, .detail = "82 C"});
  EXPECT_TRUE(engine.events().empty());
  engine.apply(NoteDeviceHeat{.node = node, .device = 0});
  engine.apply(NoteDeviceHeat{.node = node, .device = 1});
  EXPECT_NE(engine.node(node).free_mask, 0u);
  EXPECT_EQ(engine.device(node, 0).hot_detail, "");
}

TEST(NoteDeviceHeat, OfWhatDoesNotExistIsRejected) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  expect_rejected(engine.apply(NoteDeviceHeat{.node = node, .device = 1, .hot = true}),
                  RejectionCode::kDeviceNotFound);
  expect_rejected(engine.apply(NoteDeviceHeat{.node = NodeId{404}, .hot = true}),
                  RejectionCode::kNodeNotFound);
}

TEST(NoteDeviceHeat, OutlivesARegistrationAndTheDriversWord) {
  TestEngine engine;
  const NodeId node = engine.add_node("n1", {.gpus = 1});
  engine.apply(NoteDeviceHeat{.node = node, .hot = true, .detail = "82 C"});
  engine.apply(SetDeviceCondition{.node = node, .condition = DeviceCondition::kOk});
  engine.add_node("n1", {.gpus = 1});
  EXPECT_TRUE(engine.device(node, 0).hot);
  EXPECT_EQ(engine.node(node).free_mask, 0u);
}

}  // namespace
}  // namespace gpusched
