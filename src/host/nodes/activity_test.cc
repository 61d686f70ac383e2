#include "host/nodes/activity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>

#include "host/testing/test_hub.h"

namespace gpusched {
namespace {

using testing::Agent;
using testing::Hub;

/// A job that wants to be warned when its GPU is unused for a minute, running on the agent's only GPU.
struct Watched {
  Watched() {
    agent.connect();
    v1::JobSpec spec;
    spec.set_idle_after_ms(60'000);
    const JobRequest request{.parts = {Part{.gpu_count = 1, .cpu_milli = 1'000}},
                             .spec = Blob(spec.SerializeAsString())};
    job = JobId{hub.propose(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request}}).first_id};
    hub.propose(CommitPlan{.groups = {{.job = job,
                                       .attempt = 1,
                                       .members = {{.node = hub.node().id,
                                                    .device_mask = 1,
                                                    .generations = {hub.device(0).generation}}}}}});
    agent.report_started(job);
  }
  v1::AgentMessage idle_for(int64_t ms) const {
    v1::AgentMessage message;
    v1::AttemptActivity& told = *message.mutable_heartbeat()->add_activity();
    told.mutable_key()->set_job(job.value);
    told.mutable_key()->set_attempt(1);
    told.set_idle_ms(ms);
    return message;
  }
  std::size_t findings() const {
    return static_cast<std::size_t>(std::count_if(
        hub.proposals.begin(), hub.proposals.end(),
        [](const auto& proposal) { return std::holds_alternative<ReportWatchdogFinding>(proposal.first); }));
  }

  Hub hub;
  Agent agent{hub, 1};
  JobId job;
};

TEST(HubActivity, AFindingIsProposedOnceUntilItIsDecided) {
  Watched world;
  world.agent.send(world.idle_for(59'000));
  EXPECT_EQ(world.findings(), 0u);
  world.agent.send(world.idle_for(61'000));
  world.agent.send(world.idle_for(66'000));
  EXPECT_EQ(world.findings(), 1u);
  world.hub.decide();
  EXPECT_EQ(world.hub.state.jobs.find(world.job)->extras->watch, WatchdogFinding::kIdle);
  world.agent.send(world.idle_for(71'000));  // It is known.
  EXPECT_EQ(world.findings(), 0u);
  world.agent.send(world.idle_for(0));  // It is over, which is found like it.
  EXPECT_EQ(world.findings(), 1u);
}

/// An agent of another node, with a GPU of its own.
void connect(Agent& agent, int number) {
  agent.hello().set_node_name("n" + std::to_string(number));
  agent.hello().set_instance("folder-" + std::to_string(number));
  agent.hello().set_boot_id("boot-" + std::to_string(number));
  agent.hello().mutable_devices(0)->set_uuid("GPU-of-n" + std::to_string(number));
  agent.connect();
}

v1::AgentMessage idle_member(JobId job, uint32_t member, int64_t ms) {
  v1::AgentMessage message;
  v1::AttemptActivity& told = *message.mutable_heartbeat()->add_activity();
  told.mutable_key()->set_job(job.value);
  told.mutable_key()->set_attempt(1);
  told.mutable_key()->set_member(member);
  told.set_idle_ms(ms);
  return message;
}

TEST(HubActivity, ANodeSpeaksForItsOwnMembersOnly) {
  Hub hub;
  hub.propose(Configure{.config = {.feature_level = kFeatureLevel}});
  Agent first(hub, 1), second(hub, 1), stranger(hub, 1);
  first.connect();
  connect(second, 2);
  connect(stranger, 3);
  v1::JobSpec spec;
  spec.set_idle_after_ms(60'000);
  const JobRequest request{.parts = {Part{.member_count = 2, .gpu_count = 1, .cpu_milli = 1'000}},
                           .spec = Blob(spec.SerializeAsString())};
  const JobId job{hub.propose(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request}}).first_id};
  ASSERT_EQ(hub.state.nodes.size(), 3u);
  PlanGroup group{.job = job, .attempt = 1};
  for (int node = 0; node < 2; ++node) {
    const Node& on = hub.state.nodes[static_cast<std::size_t>(node)];
    group.members.push_back({.node = on.id, .device_mask = 1, .generations = {on.devices[0].generation}});
  }
  hub.propose(CommitPlan{.groups = {group}});
  first.report_started(job);
  second.report([&](v1::Report& out) {
    out.mutable_started()->mutable_key()->set_job(job.value);
    out.mutable_started()->mutable_key()->set_attempt(1);
    out.mutable_started()->mutable_key()->set_member(1);
  });
  ASSERT_NE(hub.state.jobs.find(job), nullptr);
  ASSERT_EQ(hub.state.jobs.find(job)->state, JobState::kRunning);
  second.send(idle_member(job, 1, 61'000));
  stranger.send(idle_member(job, 1, 0));
  first.send(idle_member(job, 0, 61'000));
  ASSERT_EQ(hub.proposals.size(), 1u) << "a stranger keeps the watchdog from the gang";
  EXPECT_TRUE(std::holds_alternative<ReportWatchdogFinding>(hub.proposals.front().first));
}

TEST(HubActivity, WhatAnEarlierHeartbeatToldOfAMemberCountsNoMore) {
  Watched world;
  world.agent.send(world.idle_for(61'000));
  world.hub.decide();
  ASSERT_EQ(world.hub.state.jobs.find(world.job)->extras->watch, WatchdogFinding::kIdle);
  world.agent.beat(2);  // Its attempt has just been found again, say: nothing is told of it.
  EXPECT_EQ(world.findings(), 0u);
}

TEST(HubActivity, TheHolderOfALeaseIsToldOnceUntilItIsRenewed) {
  Hub hub;
  Agent agent(hub, 1);
  agent.connect();
  v1::JobSpec spec;
  (*spec.mutable_labels())["gpusched.lease"] = "1";
  const JobRequest request{.parts = {Part{.gpu_count = 1, .cpu_milli = 1'000}},
                           .max_runtime = minutes(60),
                           .spec = Blob(spec.SerializeAsString())};
  const JobId job{hub.propose(SubmitJobs{.tenant = kDefaultTenant, .jobs = {request}}).first_id};
  hub.propose(CommitPlan{.groups = {{.job = job,
                                     .attempt = 1,
                                     .members = {{.node = hub.node().id,
                                                  .device_mask = 1,
                                                  .generations = {hub.device(0).generation}}}}}});
  agent.report_started(job);
  hub.now = hub.now + minutes(54);
  agent.send(idle_member(job, 0, 0));
  EXPECT_TRUE(hub.proposals.empty());
  hub.now = hub.now + minutes(2);
  agent.send(idle_member(job, 0, 0));
  ASSERT_EQ(hub.proposals.size(), 1u);
  hub.decide();
  EXPECT_EQ(hub.state.jobs.find(job)->extras->watch, WatchdogFinding::kEnding);
  agent.send(idle_member(job, 0, 0));
  EXPECT_TRUE(hub.proposals.empty());
  hub.propose(UpdateJob{.job = job, .given = kJobMaxRuntime, .max_runtime = hours(3)});
  agent.send(idle_member(job, 0, 0));
  ASSERT_EQ(hub.proposals.size(), 1u);
  hub.decide();
  EXPECT_EQ(hub.state.jobs.find(job)->extras->watch, WatchdogFinding::kNone);
}

}  // namespace
}  // namespace gpusched
