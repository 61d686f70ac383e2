// Words to an agent that connects, and the way back of a GPU: nothing is granted before it is empty.
#include <gtest/gtest.h>

#include <algorithm>

#include "host/testing/test_hub.h"

namespace gpusched {
namespace {

using testing::Agent;
using testing::Hub;
using Body = v1::SchedulerMessage;

/// A hub at the newest feature level, with one agent of two GPUs that is connected.
struct Cluster {
  Hub hub;
  Agent agent{hub};

  Cluster() {
    hub.propose(Configure{.config = {.drain_limit = seconds(60), .feature_level = kFeatureLevel}});
    agent.connect();
  }
  JobId run(uint64_t mask = 0b1) {
    const JobId job = hub.place(mask);
    agent.report_started(job);
    return job;
  }
  Time placed_at(JobId job) const { return hub.state.find_attempt(job, 1)->placed_at; }
  /// As the agent connects again, with `known` among what it runs.
  void reconnect() {
    hub.hub.closed(agent.session);
    agent.connect();
  }
};

/// The devices that the agent was asked about, as (index, generation).
std::vector<std::pair<uint32_t, uint32_t>> asked(const testing::Peer& peer) {
  std::vector<std::pair<uint32_t, uint32_t>> devices;
  for (const Body& message : peer.all(Body::kCheckRelease)) {
    for (const v1::GrantedDevice& device : message.check_release().devices())
      devices.emplace_back(device.index(), device.generation());
  }
  return devices;
}
using Asked = std::vector<std::pair<uint32_t, uint32_t>>;

TEST(Reconciliation, AnAttemptThatTheRecordDoesNotKnowIsStopped) {
  Cluster cluster;
  const Time placed{cluster.hub.now.ns + 5};
  cluster.agent.knows(JobId{77}, 3, placed).mutable_key()->set_member(2);
  cluster.reconnect();
  const std::vector<Body> stops = cluster.agent.peer->all(Body::kStop);
  ASSERT_EQ(stops.size(), 1u) << "nobody else would end it";
  EXPECT_EQ(stops[0].stop().key().job(), 77u);
  EXPECT_EQ(stops[0].stop().key().attempt(), 3u);
  EXPECT_EQ(stops[0].stop().key().member(), 2u);
  EXPECT_EQ(stops[0].stop().placed_at_ns(), placed.ns) << "it ends that attempt and no other of its number";
  EXPECT_EQ(stops[0].stop().grace_ms(), 10'000);
  EXPECT_FALSE(stops[0].stop().until_saved());
}

TEST(Reconciliation, AnAttemptOfTheSameNumberFromAnotherPlacementIsStopped) {
  Cluster cluster;
  const JobId job = cluster.run();
  const Time other = cluster.placed_at(job) - seconds(1);
  cluster.agent.knows(job, 1, cluster.placed_at(job));
  cluster.agent.knows(job, 1, other);
  cluster.reconnect();
  const std::vector<Body> stops = cluster.agent.peer->all(Body::kStop);
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].stop().placed_at_ns(), other.ns);
}

TEST(Reconciliation, WhatHasEndedAndWhatIsOnRecordAreNotStopped) {
  Cluster cluster;
  const JobId job = cluster.run();
  cluster.agent.knows(job, 1, cluster.placed_at(job));
  cluster.agent.knows(JobId{77}, 1, cluster.hub.now, /*ended=*/true);
  cluster.reconnect();
  EXPECT_TRUE(cluster.agent.peer->all(Body::kStop).empty());
  EXPECT_TRUE(cluster.agent.peer->all(Body::kStart).empty()) << "it runs";
}

TEST(Reconciliation, AnOrderToStartIsRepeatedUntilTheAttemptHasBegun) {
  Cluster cluster;
  const JobId job = cluster.hub.place(0b10);
  cluster.reconnect();
  const std::vector<Body> starts = cluster.agent.peer->all(Body::kStart);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].start().key().job(), job.value);
  ASSERT_EQ(starts[0].start().devices_size(), 1);
  EXPECT_EQ(starts[0].start().devices(0).index(), 1u);
  cluster.agent.report_started(job);
  cluster.agent.knows(job, 1, cluster.placed_at(job));
  cluster.reconnect();
  EXPECT_TRUE(cluster.agent.peer->all(Body::kStart).empty());
}

TEST(Reconciliation, AStopThatTheAgentMayHaveMissedIsRepeatedInsteadOfItsStart) {
  Cluster cluster;
  const JobId running = cluster.run();
  const JobId placed = cluster.hub.place();
  cluster.hub.hub.closed(cluster.agent.session);
  for (const JobId job : {running, placed}) cluster.hub.propose(CancelJob{.job = job});
  cluster.agent.knows(running, 1, cluster.placed_at(running));
  cluster.agent.connect();
  std::vector<uint64_t> stopped;
  for (const Body& message : cluster.agent.peer->all(Body::kStop))
    stopped.push_back(message.stop().key().job());
  EXPECT_EQ(stopped, (std::vector<uint64_t>{running.value, placed.value}));
  EXPECT_TRUE(cluster.agent.peer->all(Body::kStart).empty());
}

TEST(Reconciliation, AChangedRunTimeIsToldAgain) {
  Cluster cluster;
  const JobId job = cluster.run();
  cluster.hub.hub.closed(cluster.agent.session);
  cluster.hub.propose(UpdateJob{.job = job, .given = kJobMaxRuntime, .max_runtime = minutes(7)});
  cluster.agent.knows(job, 1, cluster.placed_at(job));
  cluster.agent.connect();
  const std::vector<Body> changes = cluster.agent.peer->all(Body::kChange);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].change().key().job(), job.value);
  EXPECT_EQ(changes[0].change().max_runtime_ms(), minutes(7).ms());
}

TEST(Reconciliation, AnAgentThatForgotAnAttemptLosesItAndIsAskedForItsDevice) {
  Cluster cluster;
  const JobId job = cluster.run();
  cluster.reconnect();
  EXPECT_EQ(cluster.hub.state.find_attempt(job, 1), nullptr);
  EXPECT_EQ(cluster.hub.device(0).state, DeviceState::kDraining);
  EXPECT_EQ(asked(*cluster.agent.peer), (Asked{{0, cluster.hub.device(0).generation}}));
}

TEST(Reconciliation, EachGpuThatIsNotEmptyByTheRecordIsAskedFor) {
  Cluster cluster;
  const JobId first = cluster.run(0b01);
  cluster.agent.report_ended(first);
  const JobId second = cluster.run(0b10);
  cluster.agent.report_ended(second);
  cluster.hub.now = cluster.hub.now + seconds(61);
  cluster.hub.propose(DeviceStillBusy{.node = cluster.hub.node().id,
                                      .device = 1,
                                      .generation = cluster.hub.device(1).generation,
                                      .evidence = "pid 7"});
  ASSERT_EQ(cluster.hub.device(0).state, DeviceState::kDraining);
  ASSERT_EQ(cluster.hub.device(1).state, DeviceState::kQuarantined);
  cluster.reconnect();
  EXPECT_EQ(asked(*cluster.agent.peer),
            (Asked{{0, cluster.hub.device(0).generation}, {1, cluster.hub.device(1).generation}}));
}

TEST(Reconciliation, NothingIsAskedOfAGpuThatIsFreeOrHeld) {
  Cluster cluster;
  const JobId job = cluster.run(0b01);
  cluster.agent.knows(job, 1, cluster.placed_at(job));
  cluster.reconnect();
  EXPECT_TRUE(asked(*cluster.agent.peer).empty());
}

TEST(Reconciliation, SlotsFollowTheGpusWhenTheAgentNumbersThemAnew) {
  Cluster cluster;
  const JobId job = cluster.run(0b01);
  cluster.agent.report_ended(job);
  cluster.agent.hello().mutable_devices()->SwapElements(0, 1);
  cluster.reconnect();
  EXPECT_EQ(asked(*cluster.agent.peer), (Asked{{1, cluster.hub.device(0).generation}}));
  cluster.agent.report_condition(v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_EQ(cluster.hub.device(1).condition, DeviceCondition::kUnhealthy) << "its index 0 is GPU-1 now";
  EXPECT_EQ(cluster.hub.device(0).condition, DeviceCondition::kOk);
}

TEST(ReleaseFence, AGpuIsFreeWhenItsAttemptHasEndedAndItsAgentHasSeenItEmpty) {
  Cluster cluster;
  const JobId job = cluster.run();
  const uint32_t generation = cluster.hub.device(0).generation;
  cluster.agent.report_ended(job);
  EXPECT_EQ(cluster.hub.device(0).state, DeviceState::kDraining);
  const uint64_t report = cluster.agent.report_released(0, generation);
  EXPECT_EQ(cluster.hub.device(0).state, DeviceState::kFree);
  EXPECT_EQ(cluster.hub.device(0).generation, generation + 1);
  EXPECT_TRUE(cluster.agent.peer->acknowledged().contains(report));
}

TEST(ReleaseFence, AReleaseBeforeTheEndIsNotAcknowledgedAndCountsWhenItIsRepeated) {
  Cluster cluster;
  const JobId job = cluster.run();
  const uint32_t generation = cluster.hub.device(0).generation;
  const uint64_t early = cluster.agent.report_released(0, generation);
  EXPECT_EQ(cluster.hub.device(0).state, DeviceState::kHeld);
  EXPECT_FALSE(cluster.agent.peer->acknowledged().contains(early)) << "its agent would never say it again";
  cluster.agent.report_ended(job);
  cluster.agent.report_released(0, generation, early);
  EXPECT_EQ(cluster.hub.device(0).state, DeviceState::kFree);
  EXPECT_TRUE(cluster.agent.peer->acknowledged().contains(early));
}

TEST(ReleaseFence, AReleaseOfAnEarlierHolderFreesNothing) {
  Cluster cluster;
  const uint32_t before = cluster.hub.device(0).generation;
  cluster.agent.report_ended(cluster.run());
  cluster.agent.report_released(0, before);
  const JobId job = cluster.run();
  const uint64_t late = cluster.agent.report_released(0, before);
  EXPECT_EQ(cluster.hub.device(0).state, DeviceState::kHeld);
  EXPECT_TRUE(cluster.agent.peer->acknowledged().contains(late))
      << "it is settled: repeating it helps nobody";
  cluster.agent.report_ended(job);
  cluster.agent.report_released(0, before);
  EXPECT_EQ(cluster.hub.device(0).state, DeviceState::kDraining);
}

TEST(ReleaseFence, WhoIsNoMemberOfTheRecordIsAcknowledged) {
  Cluster cluster;
  const uint64_t report = cluster.agent.report_released(9, 0);
  EXPECT_TRUE(cluster.hub.proposals.empty());
  EXPECT_TRUE(cluster.agent.peer->acknowledged().contains(report));
}

/// One whose GPU drains, and what the agent says of that.
struct Draining : Cluster {
  Draining() { agent.report_ended(run()); }
  void report(Duration checked, bool in_epilog = false, uint32_t generation_off = 0) {
    agent.report([&](v1::Report& out) {
      v1::Draining& draining = *out.mutable_draining();
      draining.set_generation(hub.device(0).generation + generation_off);
      draining.set_evidence("pid 4711 of user 1000 holds it");
      draining.set_checked_ms(checked.ms());
      draining.set_in_epilog(in_epilog);
    });
  }
  DeviceState state() const { return hub.device(0).state; }
};

TEST(ReleaseFence, AGpuThatStaysBusyPastTheLimitIsPutIntoQuarantineWithTheEvidence) {
  Draining cluster;
  cluster.report(seconds(60));
  EXPECT_EQ(cluster.state(), DeviceState::kDraining) << "its time is not over";
  EXPECT_EQ(cluster.hub.hub.telemetry()->get(cluster.hub.node().id).devices[0].draining_evidence,
            "pid 4711 of user 1000 holds it");
  cluster.hub.now = cluster.hub.now + seconds(60);
  cluster.report(seconds(60), false, 1);
  EXPECT_EQ(cluster.state(), DeviceState::kDraining) << "that is said of another holder's";
  cluster.report(seconds(60));
  EXPECT_EQ(cluster.state(), DeviceState::kQuarantined);
  EXPECT_EQ(cluster.hub.device(0).detail, "pid 4711 of user 1000 holds it");
}

TEST(ReleaseFence, AnEpilogOrAnAgentThatHasJustBegunToLookQuarantinesNothing) {
  Draining cluster;
  cluster.hub.now = cluster.hub.now + minutes(5);
  cluster.report(Duration{}, /*in_epilog=*/true);
  EXPECT_EQ(cluster.state(), DeviceState::kDraining) << "the epilog has a limit of its own";
  cluster.report(seconds(59));
  EXPECT_EQ(cluster.state(), DeviceState::kDraining) << "it was not looked at for long enough";
  cluster.report(Duration{});  // Older agents do not say.
  EXPECT_EQ(cluster.state(), DeviceState::kQuarantined);
}

TEST(ReleaseFence, PastTheLimitTheAgentIsAskedAgainAndBeforeItIsNot) {
  Draining cluster;
  const auto ask = [&] {
    cluster.agent.peer->sent.clear();
    cluster.hub.hub.check_leases();
    return asked(*cluster.agent.peer);
  };
  EXPECT_TRUE(ask().empty());
  cluster.hub.now = cluster.hub.now + seconds(59);
  cluster.agent.beat();
  EXPECT_TRUE(ask().empty());
  cluster.hub.now = cluster.hub.now + seconds(1);
  EXPECT_EQ(ask(), (Asked{{0, cluster.hub.device(0).generation}}));
}

TEST(ReleaseFence, AQuarantinedGpuThatIsSeenEmptyIsFree) {
  Draining cluster;
  cluster.hub.now = cluster.hub.now + minutes(5);
  cluster.report(Duration{});
  ASSERT_EQ(cluster.state(), DeviceState::kQuarantined);
  cluster.agent.report_released(0, cluster.hub.device(0).generation);
  EXPECT_EQ(cluster.state(), DeviceState::kFree);
  EXPECT_EQ(cluster.hub.device(0).detail, "");
}

}  // namespace
}  // namespace gpusched
