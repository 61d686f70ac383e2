// Reuse of slots of things that are gone for good: devices, nodes, kinds of device, tenants.
#include <gtest/gtest.h>

#include <string>

#include "base/limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::expect_rejected;
using testing::registration_of;
using testing::Shape;
using testing::TestEngine;

class Removal : public ::testing::Test {
 protected:
  Removal() { engine_.apply(Configure{.config = {.feature_level = kFeatureLevel}}); }

  /// A machine of this name with other devices than the last one.
  RegisterNode made_anew(const std::string& name, int gpus) {
    RegisterNode offer = registration_of(name, {.gpus = gpus}, "boot-" + std::to_string(++made_));
    for (DeviceOffer& device : offer.devices) device.uuid += "-" + std::to_string(made_);
    return offer;
  }

  /// Registers it, as another machine that takes the place of one that is gone for certain.
  Applied make_anew(const RegisterNode& offer) {
    if (const Node* node = engine_.state().find_node_named(offer.name); node != nullptr) {
      engine_.apply(NodeLeaseLost{.node = node->id});
      engine_.apply(ConfirmNodeDead{.node = node->id, .boot_id = node->boot_id});
    }
    return engine_.apply(offer);
  }

  TestEngine engine_;
  int made_ = 0;
};

TEST_F(Removal, ANodeMayBeMadeAnewForEverUnderItsName) {
  for (int round = 0; round < 20; ++round) {
    const Applied applied = make_anew(made_anew("n1", 8));
    ASSERT_FALSE(applied.rejection.has_value()) << round;
    const JobId job = engine_.run({.gpus = 8});
    engine_.finish(job);
  }
  EXPECT_LE(engine_.state().nodes[0].devices.size(), std::size_t{limits::kDevicesPerNodeMax});
}

TEST_F(Removal, ASlotThatAnotherDeviceGetsIsInAnotherGeneration) {
  const NodeId node{make_anew(made_anew("n1", 64)).first_id};
  const uint32_t before = engine_.device(node, 0).generation;
  make_anew(made_anew("n1", 64));
  EXPECT_EQ(engine_.node(node).devices.size(), 64u);
  EXPECT_GT(engine_.device(node, 0).generation, before);
  EXPECT_EQ(engine_.device(node, 0).condition, DeviceCondition::kOk);
}

TEST_F(Removal, WhatWasGoneForLongIsReplacedFirst) {
  const NodeId node{make_anew(made_anew("n1", 2)).first_id};
  make_anew(made_anew("n1", 2));
  EXPECT_EQ(engine_.node(node).devices.size(), 4u);
  engine_.advance(limits::kMissingDeviceKept);
  make_anew(made_anew("n1", 2));
  EXPECT_EQ(engine_.node(node).devices.size(), 4u);
  EXPECT_EQ(engine_.device(node, 0).condition, DeviceCondition::kOk);
  EXPECT_EQ(engine_.device(node, 2).condition, DeviceCondition::kMissing);
}

TEST_F(Removal, AnOperatorsWordKeepsADevicesSlot) {
  const NodeId node{make_anew(made_anew("n1", 64)).first_id};
  engine_.apply(SetDeviceCondition{.node = node,
                                   .device = 5,
                                   .condition = DeviceCondition::kUnhealthy,
                                   .detail = "smells",
                                   .by_operator = true,
                                   .lasting = true,
                                   .by = "op"});
  expect_rejected(make_anew(made_anew("n1", 64)), RejectionCode::kNodeLimit);
  EXPECT_FALSE(make_anew(made_anew("n1", 63)).rejection.has_value());
  EXPECT_TRUE(engine_.device(node, 5).barred);
}

TEST_F(Removal, WhatAnAttemptStillHoldsIsNobodyElses) {
  const NodeId node{engine_.apply(made_anew("n1", 64)).first_id};
  const JobId job = engine_.run({.gpus = 1});
  RegisterNode offer = made_anew("n1", 64);
  offer.boot_id = engine_.node(node).boot_id;
  offer.attempts = {{.job = job, .attempt = 1}};
  expect_rejected(engine_.apply(offer), RejectionCode::kNodeLimit);
}

TEST_F(Removal, KindsOfDeviceThatNoneIsOfMakeRoomForOthers) {
  for (uint32_t kind = 0; kind < 3 * limits::kDeviceClassesMax; ++kind) {
    RegisterNode offer = made_anew("n1", 2);
    for (DeviceOffer& device : offer.devices) device.memory_mb = 1'000 + kind;
    // The old devices' slots are given back, and their kinds with them.
    engine_.advance(limits::kMissingDeviceKept);
    const Applied applied = make_anew(offer);
    ASSERT_FALSE(applied.rejection.has_value()) << kind;
    const JobId job = engine_.run({.gpus = 2, .gpu_memory_mb = 1'000 + kind});
    engine_.finish(job);
  }
  EXPECT_LE(engine_.state().device_classes.size(), std::size_t{limits::kDeviceClassesMax});
}

TEST_F(Removal, ANodeThatIsDeadAndEmptyIsForgottenAndItsNameFree) {
  const NodeId node = engine_.add_node("n1", {.gpus = 2});
  expect_rejected(engine_.apply(RemoveNode{.node = node}), RejectionCode::kNodeConnected);
  engine_.apply(NodeLeaseLost{.node = node});
  EXPECT_FALSE(engine_.apply(RemoveNode{.node = node, .by = "op"}).rejection.has_value());
  EXPECT_EQ(engine_.state().find_node(node), nullptr);
  EXPECT_EQ(engine_.state().find_node_named("n1"), nullptr);
  EXPECT_EQ(engine_.state().node_count(), 0);
  EXPECT_TRUE(engine_.state().timers.empty());
  const NodeId again = engine_.add_node("n1", {.gpus = 1});
  EXPECT_NE(again, node);
  EXPECT_EQ(engine_.state().nodes.size(), 1u);  // In the same slot.
  engine_.run({.gpus = 1});
}

TEST_F(Removal, ANodeThatHoldsWorkIsKeptUntilItIsConfirmedDead) {
  const NodeId node = engine_.add_node("n1", {.gpus = 2});
  const JobId job = engine_.run({.gpus = 1});
  engine_.apply(NodeLeaseLost{.node = node});
  const Applied busy = engine_.apply(RemoveNode{.node = node});
  expect_rejected(busy, RejectionCode::kNodeBusy);
  EXPECT_EQ(busy.rejection->current, 1);
  engine_.apply(ConfirmNodeDead{.node = node});
  EXPECT_FALSE(engine_.apply(RemoveNode{.node = node}).rejection.has_value());
  EXPECT_EQ(engine_.state_of(job), JobState::kPending);
  engine_.add_node("n2", {.gpus = 1});
  engine_.advance(minutes(1));
  engine_.cycle();
  EXPECT_EQ(engine_.state_of(job), JobState::kScheduled);
}

TEST_F(Removal, ANodeWhoseGpusWereNotSeenEmptyIsKept) {
  const NodeId node = engine_.add_node("n1", {.gpus = 2});
  const JobId job = engine_.run({.gpus = 1});
  engine_.ended(job);
  engine_.apply(NodeLeaseLost{.node = node});
  const Applied draining = engine_.apply(RemoveNode{.node = node});
  expect_rejected(draining, RejectionCode::kNodeBusy);
  EXPECT_EQ(draining.rejection->requested, 1);
  EXPECT_EQ(draining.rejection->current, 0);
  engine_.release_all();
  EXPECT_FALSE(engine_.apply(RemoveNode{.node = node}).rejection.has_value());
}

TEST_F(Removal, ANodeThatAGangLostIsKeptWhileTheGangGoesOn) {
  engine_.add_node("n1", {.gpus = 1});
  const NodeId lost = engine_.add_node("n2", {.gpus = 1});
  const JobId job =
      engine_.run({.gpus = 1, .retry = {.tolerates_node_loss = true}, .members = 1, .members_max = 2});
  engine_.apply(NodeLeaseLost{.node = lost});
  engine_.apply(ConfirmNodeDead{.node = lost});
  ASSERT_EQ(engine_.state_of(job), JobState::kRunning);
  const Applied kept = engine_.apply(RemoveNode{.node = lost});
  expect_rejected(kept, RejectionCode::kNodeBusy);
  EXPECT_EQ(kept.rejection->current, 1);
  engine_.finish(job);
  EXPECT_FALSE(engine_.apply(RemoveNode{.node = lost}).rejection.has_value());
}

TEST_F(Removal, AReservedNodeIsKept) {
  const NodeId node = engine_.add_node("n1", {});
  const Applied booked =
      engine_.apply(MakeBooking{.name = "b", .nodes = {node}, .begin_after = hours(1), .length = hours(1)});
  engine_.apply(NodeLeaseLost{.node = node});
  expect_rejected(engine_.apply(RemoveNode{.node = node}), RejectionCode::kNodeReserved);
  engine_.apply(CancelBooking{.booking = BookingId{booked.first_id}});
  EXPECT_FALSE(engine_.apply(RemoveNode{.node = node}).rejection.has_value());
}

TEST_F(Removal, OfAnotherBootItIsStale) {
  const NodeId node = engine_.add_node("n1", {});
  engine_.apply(NodeLeaseLost{.node = node});
  expect_rejected(engine_.apply(RemoveNode{.node = node, .boot_id = "other"}), RejectionCode::kStale);
}

TEST_F(Removal, DeletedTenantsMakeRoomForNewOnes) {
  State state;
  Events events;
  const auto apply_one = [&](const Command& command) {
    events.clear();
    return apply(state, command, {.sequence = state.last.sequence + 1, .at = Time{1'000'000}}, events);
  };
  apply_one(Configure{.config = {.feature_level = kFeatureLevel}});
  const TenantId busy{apply_one(CreateTenant{.name = "busy"}).first_id};
  const Applied submitted = apply_one(SubmitJobs{.tenant = busy, .jobs = {{.parts = {Part{}}}}});
  apply_one(CancelJob{.job = JobId{submitted.first_id}});
  apply_one(DeleteTenant{.tenant = busy});
  while (state.tenants.size() < limits::kTenantsMax) {
    ++state.last.sequence;
    state.add_tenant(Tenant{.id = TenantId{state.last.sequence}, .name = "gone", .deleted = true});
  }
  EXPECT_FALSE(apply_one(CreateTenant{.name = "new"}).rejection.has_value());
  EXPECT_LT(state.tenants.size(), std::size_t{limits::kTenantsMax});
  EXPECT_NE(state.find_tenant(busy), nullptr);  // One of its jobs is still known.
}

}  // namespace
}  // namespace gpusched
