#include "node/core/node_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "node/testing/attempt_key.h"
#include "node/testing/node_core_fakes.h"

namespace gpusched {
namespace {

using testing::Node;

TEST(NodeCore, AStartSeenTwiceStartsOnce) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.order_start(kKey);
  ASSERT_EQ(node.spawner.started.size(), 1u);
  EXPECT_EQ(node.spawner.started[0].arguments, std::vector<std::string>{"/bin/true"});
}

TEST(NodeCore, IntentIsWrittenBeforeTheShimStarts) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 1, .generation = 4}});
  ASSERT_TRUE(node.store.disk.attempts.contains(kKey));
  EXPECT_EQ(node.store.disk.attempts[kKey].devices, (std::vector<HeldDevice>{{.index = 1, .generation = 4}}));
}

TEST(NodeCore, OnAFullDiskNothingStartsAndTheRestGoesOn) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.store.full = true;
  const AttemptKey later{JobId{99}, 1, 0};
  node.order_start(later);
  node.end(kKey, 3);
  const std::size_t beats = node.link.sent.size();
  node.pass(seconds(5));
  EXPECT_EQ(node.spawner.started.size(), 1u);
  EXPECT_EQ(node.count(v1::Report::kEnded), 0u) << "an end was told that is on no disk";
  EXPECT_GT(node.link.sent.size(), beats) << "the node fell silent";
  ASSERT_GE(node.count(v1::Report::kValidated), 1u);
  EXPECT_FALSE(node.reports(v1::Report::kValidated).back().validated().ok());
  EXPECT_NE(node.reports(v1::Report::kValidated).back().validated().detail().find("full"), std::string::npos);

  node.store.full = false;
  node.pass(seconds(1));
  EXPECT_EQ(node.spawner.started.size(), 2u);
  node.sync();
  EXPECT_EQ(node.last_outcome().exit_code(), 3);
  EXPECT_TRUE(node.reports(v1::Report::kValidated).back().validated().ok());
}

TEST(NodeCore, APayloadIsKeptBeforeItsAttemptStartsAndOnce) {
  Node node;
  node.connect();
  v1::JobSpec spec;
  spec.add_command("/bin/cat");
  for (const char* const payload : {"the first", "again"}) node.order_start(kKey, spec, {}, payload);
  EXPECT_EQ(node.files.payloads, (std::map<AttemptKey, std::string>{{kKey, "the first"}}));
  ASSERT_EQ(node.spawner.started.size(), 1u);
  EXPECT_EQ(node.spawner.started[0].payload_bytes, 9U);
}

TEST(NodeCore, APayloadForWhichTheNodeHasNoRoomIsNoFaultOfTheTask) {
  Node node;
  node.connect();
  node.files.full = true;
  v1::JobSpec spec;
  spec.add_command("/bin/cat");
  node.order_start(kKey, spec, {}, "payload");
  EXPECT_TRUE(node.spawner.started.empty());
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::NODE_FAULT);
  EXPECT_EQ(node.last_outcome().detail(), "no space");
}

TEST(NodeCore, NothingStartsOnADeviceThatALivingAttemptHas) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 1, .generation = 4}});
  node.core->on_shim_started(kKey, 1, 1);
  const AttemptKey second{JobId{9}, 1, 0};
  node.order_start(second, {{.index = 0, .generation = 7}, {.index = 1, .generation = 5}});
  ASSERT_EQ(node.spawner.started.size(), 1u);
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::NODE_FAULT);
  EXPECT_NE(node.last_outcome().detail().find("GPU-1 is used by attempt 7-1-0"), std::string::npos);
  node.acknowledge_all();
  // The other granted device is free at once, and this one when the first attempt is over.
  ASSERT_EQ(node.count(v1::Report::kReleased), 1u);
  EXPECT_EQ(node.reports(v1::Report::kReleased)[0].released().index(), 0u);
  node.end(kKey);
  node.sync();
  const v1::Released last = node.reports(v1::Report::kReleased).back().released();
  EXPECT_EQ(last.index(), 1u);
  EXPECT_EQ(last.generation(), 5u);
}

TEST(NodeCore, SharesStandBesideEachOtherAndNotBesideAWholeDevice) {
  Node node;
  node.connect();
  const HeldDevice share{.index = 0, .generation = 1, .milli = 500, .memory_mb = 100};
  node.order_start(kKey, {share});
  node.order_start({JobId{8}, 1, 0}, {share});
  EXPECT_EQ(node.spawner.started.size(), 2u);
  node.order_start({JobId{9}, 1, 0}, {{.index = 0, .generation = 2}});
  EXPECT_EQ(node.spawner.started.size(), 2u);
}

TEST(NodeCore, AReleaseThatIsAskedForWhileAnAttemptRunsIsToldAtItsEnd) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 1, .generation = 4}});
  node.core->on_shim_started(kKey, 1, 1);
  // As after confirm-dead: the scheduler counts on, and asks.
  v1::SchedulerMessage check;
  v1::GrantedDevice& asked = *check.mutable_check_release()->add_devices();
  asked.set_index(1);
  asked.set_generation(6);
  node.receive(check);
  EXPECT_EQ(node.reports(v1::Report::kDraining).back().draining().evidence(), "attempt 7-1-0 runs on it");
  node.end(kKey);
  node.sync();
  ASSERT_GE(node.count(v1::Report::kReleased), 1u);
  EXPECT_EQ(node.reports(v1::Report::kReleased).back().released().generation(), 6u);
  node.acknowledge_all();
  EXPECT_TRUE(node.store.disk.attempts[kKey].closed);
}

TEST(NodeCore, AStartSeenAgainByTheNextAgentStartsNothing) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.begin("boot-1");
  node.connect();
  EXPECT_EQ(node.spawner.adopted, std::vector<AttemptKey>{kKey});
  node.order_start(kKey);
  EXPECT_EQ(node.spawner.started.size(), 1u);
}

TEST(NodeCore, EndIsReportedOnlyWhenItsOutcomeIsDurable) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.end(kKey, 3);
  EXPECT_EQ(node.count(v1::Report::kEnded), 0u);
  node.sync();
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.last_outcome().exit_code(), 3);
}

TEST(NodeCore, OneSyncReportsEveryEndBeforeIt) {
  Node node;
  node.connect();
  for (uint64_t job = 1; job <= 5; ++job) node.order_start({JobId{job}, 1, 0});
  for (uint64_t job = 1; job <= 4; ++job) node.end({JobId{job}, 1, 0});
  const uint64_t synced = node.store.sync_asked;
  node.end({JobId{5}, 1, 0});
  node.core->on_synced(synced);
  node.core->settle();
  EXPECT_EQ(node.count(v1::Report::kEnded), 4u);
}

TEST(NodeCore, UnacknowledgedReportsComeAgainWithTheirIdsAfterAReconnect) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.core->on_shim_started(kKey, 100, 1);
  node.end(kKey);
  node.sync();
  const std::vector<v1::Report> first = node.reports(v1::Report::kEnded);
  node.core->on_link_down();
  node.link.sent.clear();
  node.connect();
  ASSERT_EQ(node.count(v1::Report::kStarted), 1u);
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.reports(v1::Report::kEnded)[0].id(), first[0].id());
}

TEST(NodeCore, AcknowledgedReportsDoNotComeAgain) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.end(kKey);
  node.sync();
  node.acknowledge_all();
  node.core->on_link_down();
  node.link.sent.clear();
  node.connect();
  EXPECT_EQ(node.count(v1::Report::kEnded), 0u);
  EXPECT_EQ(node.core->unacknowledged_count(), 0u);
}

TEST(NodeCore, AReportLostOnALiveLinkComesAgain) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.end(kKey);
  node.sync();
  node.pass(seconds(12));
  EXPECT_GE(node.count(v1::Report::kEnded), 2u);
}

TEST(NodeCore, NothingIsReportedBeforeRegistered) {
  Node node;
  node.core->on_link_up();
  node.core->on_shim_found(kKey, 100, 1);
  node.core->settle();
  EXPECT_EQ(node.link.sent.size(), 1u);
  EXPECT_TRUE(node.link.sent[0].has_register_());
}

TEST(NodeCore, RegisterNamesDevicesAndAttemptsNotYetAcknowledged) {
  Node node;
  node.connect();
  const AttemptKey other{JobId{8}, 2, 1};
  node.order_start(kKey);
  node.order_start(other);
  node.end(other);
  node.sync();
  node.core->on_link_down();
  node.link.sent.clear();
  node.core->on_link_up();
  const v1::Register& out = node.link.sent.at(0).register_();
  EXPECT_EQ(out.boot_id(), "boot-1");
  ASSERT_EQ(out.devices_size(), 2);
  EXPECT_EQ(out.devices(1).uuid(), "GPU-1");
  ASSERT_EQ(out.attempts_size(), 2);
  EXPECT_FALSE(out.attempts(0).ended());
  EXPECT_EQ(from_wire(out.attempts(1).key()), other);
  EXPECT_TRUE(out.attempts(1).ended());
}

TEST(NodeCore, AStopOfAnUnknownAttemptEndsItAndItsStartNeverRuns) {
  Node node;
  node.connect();
  node.order_stop(kKey);
  node.sync();
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(node.last_outcome().detail(), "never started");
  node.order_start(kKey);
  node.begin("boot-1");
  node.connect();
  node.order_start(kKey);
  EXPECT_TRUE(node.spawner.started.empty());
}

TEST(NodeCore, AStopReachesTheShimWithItsGraceAfterTheStart) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.order_stop(kKey);
  ASSERT_EQ(node.spawner.stopped.size(), 1u);
  EXPECT_EQ(node.spawner.stopped[0], std::make_pair(kKey, seconds(3)));
  EXPECT_EQ(node.count(v1::Report::kEnded), 0u);  // Only the shim's word ends it.
}

TEST(NodeCore, WhatAVictimSavedIsToldBeforeItsEnd) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.order_stop(kKey, 10);
  EXPECT_EQ(std::make_pair(node.spawner.last_order.signal, node.spawner.last_order.until_saved),
            std::make_pair(10, true));
  node.core->on_shim_saved(kKey, node.clock.wall().ns);
  EXPECT_EQ(node.link.sent.back().heartbeat().saved_size(), 1);
  node.end(kKey, 0);
}

TEST(NodeCore, AStopOfAnEndedAttemptIsAnsweredWithItsEnd) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.end(kKey, 5);
  node.sync();
  node.acknowledge_all();
  node.link.sent.clear();
  node.order_stop(kKey);
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.last_outcome().exit_code(), 5);
  EXPECT_TRUE(node.spawner.stopped.empty());
}

TEST(NodeCore, AnImageCannotRunHere) {
  Node node;
  node.connect();
  v1::JobSpec spec;
  spec.set_image("docker.io/library/python:3");
  node.order_start(kKey, spec, {});
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::START_FAILED);
  EXPECT_NE(node.last_outcome().detail().find("docker.io/library/python:3"), std::string::npos);
  EXPECT_TRUE(node.spawner.started.empty());
}

TEST(NodeCore, ADeviceIsReleasedAfterTheEndAndWithItsGeneration) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 1, .generation = 9}});
  node.end(kKey);
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  node.sync();
  ASSERT_EQ(node.count(v1::Report::kReleased), 1u);
  EXPECT_EQ(node.reports(v1::Report::kReleased)[0].released().index(), 1u);
  EXPECT_EQ(node.reports(v1::Report::kReleased)[0].released().generation(), 9u);
  const uint64_t ended_id = node.reports(v1::Report::kEnded)[0].id();
  EXPECT_LT(ended_id, node.reports(v1::Report::kReleased)[0].id());
}

TEST(NodeCore, AProcessOnTheDeviceKeepsItDrainingUntilItIsGone) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 2}});
  node.devices.readings[0].processes = {4711};
  node.end(kKey);
  node.sync();
  node.pass(seconds(4));
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  ASSERT_EQ(node.count(v1::Report::kDraining), 1u);  // Repeated only when the evidence changes.
  EXPECT_NE(node.reports(v1::Report::kDraining)[0].draining().evidence().find("pid 4711"), std::string::npos);
  node.devices.readings[0].processes.clear();
  node.pass(seconds(2));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeCore, MemoryAboveWhatTheIdleDeviceHadKeepsItDraining) {
  Node node;
  node.devices.readings[0].memory_used_mb = 300;
  node.pass(seconds(10));  // Seen idle.
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 2}});
  node.devices.readings[0].memory_used_mb = 500;
  node.end(kKey);
  node.sync();
  node.pass(seconds(3));
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  node.devices.readings[0].memory_used_mb = 310;
  node.pass(seconds(3));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeCore, AnAttemptKeepsItsDeviceThoughTheDriverCountsThemOtherwise) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 1, .generation = 4}});
  node.core->on_shim_started(kKey, 17, 5);
  node.sync();
  node.swapped = true;
  node.begin("boot-1");
  node.connect();
  const v1::Register& told = node.link.sent.front().register_();
  ASSERT_EQ(told.attempts_size(), 1);
  EXPECT_EQ(told.attempts(0).devices(0).uuid(), "GPU-1");
  EXPECT_EQ(told.attempts(0).devices(0).index(), 0u);
  node.end(kKey);
  node.sync();
  ASSERT_EQ(node.count(v1::Report::kReleased), 1u);
  EXPECT_EQ(node.reports(v1::Report::kReleased)[0].released().index(), 0u);
}

/// How long the last heartbeat said that the attempt left its devices unused.
int64_t told_idle_ms(const Node& node) {
  for (auto at = node.link.sent.rbegin(); at != node.link.sent.rend(); ++at) {
    if (at->has_heartbeat() && at->heartbeat().activity_size() > 0)
      return at->heartbeat().activity(0).idle_ms();
  }
  return -1;
}

TEST(NodeCore, AReadingThatFailedOrIsOldDoesNotMakeAJobIdle) {
  Node node;
  node.devices.readings[0] = {.utilization_percent = 95};
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 2}});
  node.core->on_shim_started(kKey, 17, 5);
  node.core->settle();
  node.pass(seconds(20));
  EXPECT_EQ(told_idle_ms(node), 0);
  // Everything is zero, and the reading says why.
  node.devices.readings[0] = {.condition = v1::DEVICE_CONDITION_UNHEALTHY,
                              .detail = "Driver/library version mismatch"};
  node.pass(seconds(120));
  EXPECT_EQ(told_idle_ms(node), 0);
  node.devices.readings[0] = {};  // It does not tell how busy it is.
  node.pass(seconds(120));
  EXPECT_EQ(told_idle_ms(node), 0);
  node.devices.readings[0] = {.utilization_percent = 0};
  node.devices.slow = true;  // It hangs: what it said last grows old.
  node.pass(seconds(120));
  EXPECT_EQ(told_idle_ms(node), 0);
  node.devices.slow = false;
  node.core->on_reading(0, {.utilization_percent = 0});
  node.pass(seconds(60));
  EXPECT_GT(told_idle_ms(node), 30'000);
}

TEST(NodeCore, SharesAreToldWhereTheMultiProcessServiceIs) {
  Node node;
  node.devices.readings[0].daemons = {
      {.pid = 7, .program = "nvidia-cuda-mps-server", .mps_directory = "/run/mps"}};
  node.pass(seconds(5));
  node.connect();
  const v1::Register& told = node.link.sent.front().register_();
  EXPECT_NE(std::find(told.features().begin(), told.features().end(), "mps"), told.features().end());
  node.order_start(kKey, {{.index = 0, .generation = 1, .milli = 500, .memory_mb = 100}});
  const std::vector<std::string>& words = node.spawner.started[0].environment;
  EXPECT_NE(std::find(words.begin(), words.end(), "CUDA_MPS_PIPE_DIRECTORY=/run/mps"), words.end());
}

TEST(NodeCore, AShimThatDoesNotStopIsEnded) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.core->on_shim_started(kKey, 17, 5);
  node.order_stop(kKey);
  node.pass(seconds(30));
  EXPECT_TRUE(node.spawner.forced.empty());
  node.pass(seconds(60));
  EXPECT_EQ(node.spawner.forced, std::vector<AttemptKey>{kKey});
  node.core->on_shim_lost(kKey, "it was ended");
  node.core->settle();
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::STOPPED);
  node.pass(minutes(5));
  EXPECT_EQ(node.spawner.forced.size(), 1u);
}

TEST(NodeCore, AShimThatLetsItsLimitPassIsEndedThoughNoSchedulerIsHeard) {
  Node node;
  node.connect();
  v1::JobSpec spec;
  spec.add_command("/bin/true");
  v1::SchedulerMessage message;
  *message.mutable_start()->mutable_key() = to_wire(kKey);
  message.mutable_start()->set_spec(spec.SerializeAsString());
  message.mutable_start()->set_max_runtime_ms(600'000);
  node.receive(message);
  node.core->on_shim_started(kKey, 17, 5);
  node.core->settle();
  node.core->on_link_down();
  node.pass(minutes(10));
  EXPECT_TRUE(node.spawner.forced.empty());
  node.pass(minutes(2));
  EXPECT_EQ(node.spawner.forced, std::vector<AttemptKey>{kKey});
  node.core->on_shim_lost(kKey, "it was ended");
  node.core->settle();
  EXPECT_EQ(node.store.disk.attempts[kKey].outcome->cause(), v1::Outcome::TIMEOUT);
}

TEST(NodeCore, WhatStartsAttemptsIsReplacedWhenItDoesNotAnswer) {
  Node node;
  node.use_hooks = true;
  node.begin("boot-1");
  node.connect();
  node.core->on_checked("");
  node.order_start(kKey);
  node.pass(seconds(90));
  EXPECT_EQ(node.spawner.replaced, 1);
  EXPECT_FALSE(node.reports(v1::Report::kValidated).back().validated().ok());
  node.core->on_shim_lost(kKey, "no trace of it");
  node.core->settle();
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::NODE_FAULT);
  node.pass(minutes(5));
  EXPECT_EQ(node.spawner.replaced, 1);
}

TEST(NodeCore, AReadingFromBeforeTheEndReleasesNothing) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 2}});
  node.devices.slow = true;
  node.pass(seconds(5));  // A telemetry reading is under way.
  node.end(kKey);
  node.sync();
  node.core->on_reading(0, DeviceReading{});
  node.core->settle();
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  node.pass(milliseconds(1));
  node.core->on_reading(0, DeviceReading{});
  node.core->settle();
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeCore, CheckReleaseOfAnUnknownAttemptsDeviceIsAnswered) {
  Node node;
  node.connect();
  v1::SchedulerMessage message;
  v1::GrantedDevice& device = *message.mutable_check_release()->add_devices();
  device.set_index(1);
  device.set_generation(6);
  node.receive(message);
  ASSERT_EQ(node.count(v1::Report::kReleased), 1u);
  EXPECT_EQ(node.reports(v1::Report::kReleased)[0].released().generation(), 6u);
}

TEST(NodeCore, CheckReleaseOfADeviceInUseNamesWhoUsesIt) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 1, .generation = 6}});
  v1::SchedulerMessage message;
  v1::GrantedDevice& device = *message.mutable_check_release()->add_devices();
  device.set_index(1);
  device.set_generation(6);
  node.receive(message);
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  ASSERT_EQ(node.count(v1::Report::kDraining), 1u);
  EXPECT_NE(node.reports(v1::Report::kDraining)[0].draining().evidence().find("7-1-0"), std::string::npos);
}

TEST(NodeCore, AReleaseNotYetAcknowledgedIsCheckedAgainByTheNextAgent) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 2}});
  node.devices.readings[0].processes = {4711};
  node.end(kKey);
  node.sync();
  node.acknowledge_all();
  node.begin("boot-1");
  node.connect();
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  EXPECT_GE(node.count(v1::Report::kDraining), 1u);
  node.devices.readings[0].processes.clear();
  node.pass(seconds(2));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeCore, AnUnacknowledgedEndIsReportedByTheNextAgent) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.end(kKey, 42);
  node.begin("boot-1");
  EXPECT_EQ(node.spawner.adopted, std::vector<AttemptKey>{});
  node.sync();
  node.connect();
  ASSERT_EQ(node.count(v1::Report::kEnded), 1u);
  EXPECT_EQ(node.last_outcome().exit_code(), 42);
}

TEST(NodeCore, WhatAnUnreportedEndLeftOnItsDeviceIsNotTakenForIdle) {
  Node node;
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 2}});
  node.devices.readings[0].memory_used_mb = 3000;
  node.end(kKey);
  node.begin("boot-1");
  node.connect();  // Looks at every device while the end is not durable yet.
  node.pass(seconds(1));
  node.sync();
  node.pass(seconds(3));
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  EXPECT_GE(node.count(v1::Report::kDraining), 1u);
}

TEST(NodeCore, AnAttemptOfAnEarlierBootIsNodeLost) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.begin("boot-2");
  node.connect();
  node.core->on_shim_lost(kKey, "no process");
  node.core->settle();
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::NODE_LOST);
}

TEST(NodeCore, AShimThatDiedMakesItsAttemptShimLost) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.core->on_shim_lost(kKey, "its shim was killed by signal 9");
  node.core->settle();
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::SHIM_LOST);
  EXPECT_EQ(node.last_outcome().detail(), "its shim was killed by signal 9");
}

TEST(NodeCore, ReportIdsOfTheNextAgentAreNewOnes) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.end(kKey);
  node.sync();
  const uint64_t first = node.reports(v1::Report::kEnded)[0].id();
  node.begin("boot-1");
  node.sync();
  node.connect();
  EXPECT_NE(node.reports(v1::Report::kEnded)[0].id(), first);
}

TEST(NodeCore, HeartbeatsCarryTelemetryAndCountUp) {
  Node node;
  node.devices.readings[1].temperature_celsius = 66;
  node.connect();
  node.pass(milliseconds(3500));
  std::vector<v1::Heartbeat> beats;
  for (const v1::AgentMessage& message : node.link.sent) {
    if (message.has_heartbeat()) beats.push_back(message.heartbeat());
  }
  ASSERT_EQ(beats.size(), 4u);
  EXPECT_EQ(beats[0].sequence(), 1u);
  EXPECT_EQ(beats[3].sequence(), 4u);
  EXPECT_EQ(beats[3].devices(1).temperature_celsius(), 66);
  EXPECT_DOUBLE_EQ(beats[3].cpu_utilization(), 0.5);
}

TEST(NodeCore, AJobsWordThatItsWorkIsSavedIsToldOnceAndAgainToTheNextConnection) {
  Node node;
  node.connect();
  const AttemptKey key{.job = JobId{7}, .attempt = 1};
  node.order_start(key);
  node.core->on_shim_started(key, 100, 0);
  node.core->settle();
  node.spawner.said_saved = {{.key = key, .unix_ns = (node.clock.wall() - seconds(2)).ns}};
  const auto told = [&] {
    std::vector<int64_t> ages;
    for (const v1::AgentMessage& message : node.link.sent) {
      for (const v1::AttemptSaved& saved : message.heartbeat().saved()) ages.push_back(saved.age_ms());
    }
    return ages;
  };
  node.pass(milliseconds(3500));
  ASSERT_EQ(told().size(), 1u);
  EXPECT_GE(told()[0], 2000);
  EXPECT_LE(told()[0], 3000);
  node.core->on_link_down();
  node.connect();
  node.pass(milliseconds(1500));
  EXPECT_EQ(told().size(), 2u);
}

TEST(NodeCore, AChangedConditionIsReported) {
  Node node;
  node.connect();
  node.devices.readings[1].condition = v1::DEVICE_CONDITION_UNHEALTHY;
  node.devices.readings[1].detail = "XID 79";
  node.pass(seconds(3));
  ASSERT_EQ(node.count(v1::Report::kCondition), 1u);
  EXPECT_EQ(node.reports(v1::Report::kCondition)[0].condition().detail(), "XID 79");
}

TEST(NodeCore, ADriverThatDoesNotAnswerMakesItsDeviceUnhealthy) {
  Node node;
  node.devices.slow = true;
  node.connect();
  node.pass(seconds(60));
  const std::vector<v1::Report> reports = node.reports(v1::Report::kCondition);
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(reports[0].condition().condition(), v1::DEVICE_CONDITION_UNHEALTHY);
}

TEST(NodeCore, ANumberThatIsGivenAgainIsNotTakenForItsFirstAttempt) {
  Node node;
  node.connect();
  const auto order = [](int64_t placed_at_ns) {
    v1::JobSpec spec;
    spec.add_command("/bin/true");
    v1::SchedulerMessage message;
    *message.mutable_start()->mutable_key() = to_wire(kKey);
    message.mutable_start()->set_spec(spec.SerializeAsString());
    message.mutable_start()->set_placed_at_ns(placed_at_ns);
    return message;
  };
  node.receive(order(1'000));
  node.end(kKey, 3);
  node.sync();
  node.acknowledge_all();
  node.begin("boot-1");  // It remembers through its restart.
  node.connect();
  node.link.sent.clear();
  node.receive(order(1'000));
  node.receive(order(2'000));
  ASSERT_EQ(node.spawner.started.size(), 1u);
  const std::vector<v1::Report> reports = node.reports(v1::Report::kEnded);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].ended().outcome().exit_code(), 3);
  EXPECT_EQ(reports[0].ended().placed_at_ns(), 1'000);
  EXPECT_EQ(reports[1].ended().outcome().cause(), v1::Outcome::NODE_LOST);
  EXPECT_EQ(reports[1].ended().placed_at_ns(), 2'000);
}

TEST(NodeCore, ContactIsAsOldAsTheHeartbeatThatWasAnswered) {
  Node node;
  node.connect();
  EXPECT_EQ(node.spawner.contacts, 1);  // The registration was answered.
  EXPECT_EQ(node.spawner.contact_age, Duration{});
  node.pass(seconds(5));
  EXPECT_EQ(node.spawner.contacts, 1);
  v1::SchedulerMessage message;
  message.mutable_heartbeat_seen()->set_sequence(3);  // Sent two seconds after the first.
  node.receive(message);
  EXPECT_EQ(node.spawner.contacts, 2);
  EXPECT_EQ(node.spawner.contact_age, seconds(3));
  node.receive(message);
  EXPECT_EQ(node.spawner.contacts, 2);
}

TEST(NodeCore, AnOrderOlderThanTheJobsLimitOnSilenceIsNotCarriedOut) {
  Node node;
  node.connect();
  node.pass(seconds(20));
  v1::JobSpec spec;
  spec.add_command("/bin/true");
  v1::SchedulerMessage message;
  *message.mutable_start()->mutable_key() = to_wire(kKey);
  message.mutable_start()->set_spec(spec.SerializeAsString());
  message.mutable_start()->set_kill_after_lost_contact_ms(20'000);
  node.receive(message);
  node.sync();
  EXPECT_TRUE(node.spawner.started.empty());
  const std::vector<v1::Report> reports = node.reports(v1::Report::kEnded);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].ended().outcome().cause(), v1::Outcome::CONTACT_LOST);
}

TEST(NodeCore, TheOldestFinishedAttemptsAreForgotten) {
  Node node(2);
  node.connect();
  for (uint64_t job = 1; job <= 4; ++job) {
    const AttemptKey key{JobId{job}, 1, 0};
    node.order_start(key);
    node.end(key);
    node.sync();
    node.acknowledge_all();
  }
  EXPECT_EQ(node.files.removed, (std::vector<AttemptKey>{{JobId{1}, 1, 0}, {JobId{2}, 1, 0}}));
  EXPECT_EQ(node.core->known_count(), 2u);
  EXPECT_EQ(node.store.disk.attempts.size(), 2u);
}

v1::SchedulerMessage read_order() {
  v1::SchedulerMessage message;
  v1::ReadLog& order = *message.mutable_read_log();
  order.set_request(11);
  *order.mutable_key() = to_wire(kKey);
  return message;
}

TEST(NodeCore, AReadOfOutputSaysWhetherTheAttemptRuns) {
  Node node;
  node.connect();
  node.receive(read_order());
  node.order_start(kKey);
  node.receive(read_order());
  EXPECT_TRUE(node.files.running.contains(kKey));
  node.end(kKey);
  node.receive(read_order());
  ASSERT_EQ(node.files.reads.size(), 3u);
  EXPECT_EQ(node.files.reads[0].second, AttemptLife::kUnknown);
  EXPECT_EQ(node.files.reads[1].second, AttemptLife::kRunning);
  EXPECT_EQ(node.files.reads[2].second, AttemptLife::kEnded);
  EXPECT_EQ(node.files.over, std::vector<AttemptKey>{kKey});
}

TEST(NodeCore, OutputIsSentToWhoAskedWhileTheLinkStands) {
  Node node;
  node.connect();
  node.order_start(kKey);
  node.receive(read_order());
  node.link.sent.clear();
  v1::LogChunk chunk;
  chunk.set_request(11);
  chunk.set_data("more");
  node.core->on_output(chunk);
  ASSERT_EQ(node.link.sent.size(), 1u);
  EXPECT_EQ(node.link.sent[0].log_chunk().data(), "more");
  node.core->on_link_down();
  EXPECT_TRUE(node.files.reads.empty());
  node.core->on_output(chunk);
  EXPECT_EQ(node.link.sent.size(), 1u);
}

TEST(NodeCore, ACancelIsNotLostWhileTheStartWaitsForRoomOnTheDisk) {
  Node node;
  node.connect();
  node.store.full = true;
  node.order_start(kKey);
  node.order_stop(kKey);
  node.store.full = false;
  node.pass(seconds(2));
  node.sync();
  EXPECT_TRUE(node.spawner.started.empty()) << "a cancelled job runs";
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::STOPPED);
}

TEST(CleanText, ReplacesWhatIsNotUtf8AndCutsBetweenCharacters) {
  EXPECT_EQ(clean_text("a\xff"
                       "b",
                       10),
            "a?b");
  EXPECT_EQ(clean_text("\xc3\xa4\xc3\xb6", 3), "\xc3\xa4");
  EXPECT_EQ(clean_text("\xed\xa0\x80", 10), "???");
}

}  // namespace
}  // namespace gpusched
