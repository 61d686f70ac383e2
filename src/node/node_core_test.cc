#include "node/node_core.h"

#include <gtest/gtest.h>

#include <set>

#include "node/node_core_fakes.h"

namespace gpusched {
namespace {

const AttemptKey kKey{JobId{7}, 1, 0};

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
  node.core->on_shim_lost(kKey, "its shim was ended by signal 9");
  node.core->settle();
  node.sync();
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::SHIM_LOST);
  EXPECT_EQ(node.last_outcome().detail(), "its shim was ended by signal 9");
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

/// A node whose hooks answer when the test says so.
class HookedNode : public Node {
 public:
  explicit HookedNode(bool prolog = false, bool epilog = false) {
    hooks.with_prolog = prolog;
    hooks.with_epilog = epilog;
    use_hooks = true;
    begin("boot-1");
  }
  void checked(const std::string& problem) {
    core->on_checked(problem);
    core->settle();
  }
  v1::Validated last_verdict() const { return reports(v1::Report::kValidated).back().validated(); }
};

TEST(NodeLife, ANodeWithHooksSaysThatItValidatesAndThenHow) {
  HookedNode node;
  node.connect();
  EXPECT_TRUE(node.link.sent.front().register_().validates());
  EXPECT_EQ(node.count(v1::Report::kValidated), 0u);
  EXPECT_EQ(node.hooks.checks, 1);
  node.checked("");
  EXPECT_TRUE(node.last_verdict().ok());
}

TEST(NodeLife, AFailedCheckIsReportedAndSoonRepeated) {
  HookedNode node;
  node.connect();
  node.checked("the disk has 3 MB left");
  EXPECT_FALSE(node.last_verdict().ok());
  EXPECT_EQ(node.last_verdict().detail(), "the disk has 3 MB left");
  node.pass(seconds(11));
  EXPECT_EQ(node.hooks.checks, 2);
  node.checked("");
  EXPECT_TRUE(node.last_verdict().ok());
}

TEST(NodeLife, AVerdictThatDoesNotChangeIsSaidOnceAConnection) {
  HookedNode node;
  node.connect();
  node.checked("");
  node.acknowledge_all();
  node.pass(minutes(6));
  EXPECT_EQ(node.hooks.checks, 2);
  node.checked("");
  EXPECT_EQ(node.count(v1::Report::kValidated), 1u);
  node.core->on_link_down();
  node.connect();
  EXPECT_EQ(node.count(v1::Report::kValidated), 2u);
}

TEST(NodeLife, TheSchedulerMayAskForAnotherCheck) {
  HookedNode node;
  node.connect();
  node.checked("");
  v1::SchedulerMessage ask;
  ask.mutable_validate();
  node.receive(ask);
  node.receive(ask);
  EXPECT_EQ(node.hooks.checks, 2);
}

TEST(NodeLife, AClockFarFromTheSchedulersFailsTheChecks) {
  HookedNode node;
  node.core->on_link_up();
  v1::SchedulerMessage registered;
  registered.mutable_registered()->set_heartbeat_ms(1000);
  registered.mutable_registered()->set_unix_ms((node.clock.wall() - seconds(3'600)).ms());
  node.receive(registered);
  node.checked("");
  EXPECT_FALSE(node.last_verdict().ok());
  EXPECT_NE(node.last_verdict().detail().find("3600 s ahead"), std::string::npos);
}

TEST(NodeLife, AnAttemptStartsAfterItsProlog) {
  HookedNode node(true);
  node.connect();
  node.order_start(kKey);
  EXPECT_TRUE(node.spawner.started.empty());
  ASSERT_EQ(node.hooks.prologs, std::vector<AttemptKey>{kKey});
  node.core->on_prolog_done(kKey, "");
  node.core->settle();
  EXPECT_EQ(node.spawner.started.size(), 1u);
}

TEST(NodeLife, AFailedPrologIsTheNodesFaultAndHoldsIt) {
  HookedNode node(true);
  node.connect();
  node.checked("");
  node.order_start(kKey, {{.index = 0, .generation = 1}});
  node.core->on_prolog_done(kKey, "the prolog exited with 1: no scratch");
  node.core->settle();
  node.sync();
  EXPECT_TRUE(node.spawner.started.empty());
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::NODE_FAULT);
  EXPECT_FALSE(node.last_verdict().ok());
  node.pass(seconds(1));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeLife, AFaultStandsForAWhileThoughChecksPass) {
  HookedNode node(true);
  node.connect();
  node.order_start(kKey);
  node.core->on_prolog_done(kKey, "the prolog exited with 1");
  node.checked("");
  EXPECT_FALSE(node.last_verdict().ok());
  node.pass(seconds(61));
  node.checked("");
  EXPECT_TRUE(node.last_verdict().ok());
}

TEST(NodeLife, StoppedDuringItsPrologAnAttemptNeverStarts) {
  HookedNode node(true);
  node.connect();
  node.order_start(kKey);
  node.order_stop(kKey);
  EXPECT_EQ(node.count(v1::Report::kEnded), 0u);
  node.core->on_prolog_done(kKey, "");
  node.core->settle();
  node.sync();
  EXPECT_TRUE(node.spawner.started.empty());
  EXPECT_EQ(node.last_outcome().cause(), v1::Outcome::STOPPED);
}

TEST(NodeLife, DevicesAreReleasedAfterTheEpilog) {
  HookedNode node(false, true);
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 1}});
  node.core->on_shim_started(kKey, 99, 1);
  node.end(kKey);
  node.sync();
  EXPECT_EQ(node.count(v1::Report::kEnded), 1u);
  node.pass(minutes(1));
  EXPECT_EQ(node.count(v1::Report::kReleased), 0u);
  ASSERT_EQ(node.hooks.epilogs, std::vector<AttemptKey>{kKey});
  node.core->on_epilog_done(kKey, "");
  node.core->settle();
  node.pass(seconds(1));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeLife, AnEpilogThatTheLastAgentDidNotFinishRunsAgain) {
  HookedNode node(false, true);
  node.connect();
  node.order_start(kKey, {{.index = 0, .generation = 1}});
  node.core->on_shim_started(kKey, 99, 1);
  node.end(kKey);
  node.sync();
  node.acknowledge_all();
  node.begin("boot-1");
  node.connect();
  EXPECT_EQ(node.hooks.epilogs.size(), 2u);
  node.core->on_epilog_done(kKey, "");
  node.core->settle();
  node.pass(seconds(1));
  EXPECT_EQ(node.count(v1::Report::kReleased), 1u);
}

TEST(NodeLife, ANewTimeLimitReachesTheShimOrWhatIsYetToStart) {
  HookedNode node(true);
  node.connect();
  node.order_start(kKey);
  v1::SchedulerMessage change;
  *change.mutable_change()->mutable_key() = to_wire(kKey);
  change.mutable_change()->set_max_runtime_ms(5'000);
  node.receive(change);
  node.core->on_prolog_done(kKey, "");
  node.core->settle();
  ASSERT_EQ(node.spawner.started.size(), 1u);
  EXPECT_EQ(node.spawner.started[0].max_runtime, seconds(5));
  change.mutable_change()->set_max_runtime_ms(9'000);
  node.receive(change);
  EXPECT_EQ(node.spawner.new_limits.back(), (std::pair{kKey, Duration{seconds(9)}}));
}

TEST(NodeLife, ARebootIsHandedToTheHooks) {
  HookedNode node;
  node.connect();
  v1::SchedulerMessage order;
  order.mutable_reboot()->set_reason("kernel update");
  node.receive(order);
  EXPECT_EQ(node.hooks.reboots, std::vector<std::string>{"kernel update"});
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
