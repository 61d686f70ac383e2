#include "host/nodes/activity.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  EXPECT_EQ(world.hub.state.jobs.find(world.job)->watch, WatchdogFinding::kIdle);
  world.agent.send(world.idle_for(71'000));  // It is known.
  EXPECT_EQ(world.findings(), 0u);
  world.agent.send(world.idle_for(0));  // It is over, which is found like it.
  EXPECT_EQ(world.findings(), 1u);
}

TEST(HubActivity, ANodeSpeaksForItsOwnMembersOnly) {
  Watched world;
  Agent other(world.hub, 0);
  other.hello().set_node_name("n2");
  other.hello().set_instance("folder-2");
  other.connect();
  other.send(world.idle_for(61'000));
  EXPECT_EQ(world.findings(), 0u);
  world.agent.send(world.idle_for(61'000));
  EXPECT_EQ(world.findings(), 1u);
}

TEST(HubActivity, WhatAnEarlierHeartbeatToldOfAMemberCountsNoMore) {
  Watched world;
  world.agent.send(world.idle_for(61'000));
  world.hub.decide();
  ASSERT_EQ(world.hub.state.jobs.find(world.job)->watch, WatchdogFinding::kIdle);
  world.agent.beat(2);  // Its attempt has just been found again, say: nothing is told of it.
  EXPECT_EQ(world.findings(), 0u);
}

}  // namespace
}  // namespace gpusched
