// Reports of agents, and the end of a silent node's lease.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/limits.h"
#include "base/queue_limits.h"
#include "host/testing/test_hub.h"

namespace gpusched {
namespace {

using testing::Agent;
using testing::Hub;
using Body = v1::SchedulerMessage;

struct ReportingCluster {
  Hub hub;
  Agent agent{hub};

  ReportingCluster() {
    hub.propose(Configure{.config = {.feature_level = kFeatureLevel}});
    agent.connect();
  }
  JobState state_of(JobId job) const { return hub.state.jobs.find(job)->state; }
  bool acknowledged(uint64_t report) const { return agent.peer->acknowledged().contains(report); }
};

/// A second node's agent, which answers and reports as if it were the first one's.
struct TwoNodes : ReportingCluster {
  Agent other{hub};
  TwoNodes() {
    other.hello().set_node_name("n2");
    other.hello().set_instance("folder-2");
    for (int i = 0; i < other.hello().devices_size(); ++i)
      other.hello().mutable_devices(i)->set_uuid("GPU-other-" + std::to_string(i));
    other.connect();
  }
};

TEST(Answers, OutputIsTakenFromTheNodeAloneThatWasAsked) {
  TwoNodes cluster;
  std::string got;
  cluster.hub.hub.read_log(cluster.hub.node().id, {}, [&](const Result<v1::LogChunk>& chunk) {
    got = chunk.ok() ? chunk->data() : "error";
  });
  v1::AgentMessage answer;
  answer.mutable_log_chunk()->set_data("forged");
  for (uint64_t request = 0; request < 8; ++request) {
    answer.mutable_log_chunk()->set_request(request);
    cluster.other.send(answer);
  }
  EXPECT_EQ(got, "");
  answer.mutable_log_chunk()->set_data("true");
  answer.mutable_log_chunk()->set_request(1);
  cluster.agent.send(answer);
  EXPECT_EQ(got, "true");
}

TEST(Answers, FilesAndSessionsAreTakenFromTheNodeAloneThatWasAsked) {
  TwoNodes cluster;
  std::string file;
  SessionRouter& sessions = cluster.hub.hub.sessions();
  sessions.read_file(cluster.hub.node().id, {}, [&](const Result<v1::FileChunk>& chunk) {
    file = chunk.ok() ? chunk->data() : "error";
  });
  struct Client final : SessionClient {
    void on_number(uint64_t) override {}
    void on_output(v1::SessionOutput output) override { text += output.data(); }
    std::string text;
  };
  const auto client = std::make_shared<Client>();
  sessions.open(cluster.hub.node().id, {}, client);
  v1::AgentMessage chunk;
  v1::AgentMessage output;
  for (uint64_t number = 0; number < 8; ++number) {
    chunk.mutable_file_chunk()->set_request(number);
    chunk.mutable_file_chunk()->set_data("forged");
    cluster.other.send(chunk);
    output.mutable_session_output()->set_session(number);
    output.mutable_session_output()->set_data("forged");
    cluster.other.send(output);
  }
  EXPECT_EQ(file, "");
  EXPECT_EQ(client->text, "");
}

TEST(Answers, ReportsAboutAnAttemptAreTakenFromTheNodeAloneThatHasIt) {
  TwoNodes cluster;
  const JobId job = cluster.hub.place(1);
  const uint32_t generation = cluster.hub.device(0).generation;
  cluster.other.report_started(job);
  EXPECT_EQ(cluster.state_of(job), JobState::kScheduled);
  cluster.other.report_ended(job);
  cluster.other.report_released(0, generation);
  EXPECT_EQ(cluster.state_of(job), JobState::kScheduled);
  EXPECT_EQ(cluster.hub.device(0).state, DeviceState::kHeld);
  cluster.agent.report_started(job);
  EXPECT_EQ(cluster.state_of(job), JobState::kRunning);
  v1::AgentMessage beat;
  v1::AttemptKey key;
  key.set_job(job.value);
  key.set_attempt(1);
  *beat.mutable_heartbeat()->add_saved()->mutable_key() = key;
  *beat.mutable_heartbeat()->add_progress()->mutable_key() = key;
  *beat.mutable_heartbeat()->add_endpoints()->mutable_key() = key;
  beat.mutable_heartbeat()->mutable_endpoints(0)->set_port(80);
  cluster.other.send(beat);
  cluster.hub.decide();
  EXPECT_FALSE(cluster.hub.state.jobs.find(job)->extras->saved_at.valid());
  const NodeTelemetry told = cluster.hub.hub.telemetry()->get(cluster.hub.state.find_node_named("n2")->id);
  EXPECT_TRUE(told.preparing.empty());
  EXPECT_TRUE(told.endpoints.empty());
  cluster.other.report_ended(job);
  EXPECT_EQ(cluster.state_of(job), JobState::kRunning);
  cluster.agent.report_ended(job);
  EXPECT_EQ(cluster.state_of(job), JobState::kCompleted);
}

struct RevokedNode : ReportingCluster {
  RevokedNode() {
    const Time end = hub.now + hours(1);
    const uint64_t ticket =
        hub.propose(CreateNodeTicket{.node = "n1",
                                     .prefix = "prefix01",
                                     .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
                                     .expires_at = end,
                                     .by = "admin"})
            .first_id;
    hub.propose(AdmitNode{.ticket = NodeTicketId{ticket},
                          .identity = {},
                          .node = "n1",
                          .key = Blob(std::string(limits::kPublicKeyHashBytes, 'k')),
                          .expires_at = end});
  }
  void revoke() { hub.propose(RevokeNode{.node = "n1", .by = "admin"}); }
};

TEST(Revocation, MakesTheNodeUnreachableAtOnceAndEndsItsStream) {
  RevokedNode cluster;
  ASSERT_EQ(cluster.hub.node().state, NodeState::kReady);
  cluster.revoke();
  EXPECT_TRUE(cluster.agent.peer->closed);
  EXPECT_EQ(cluster.agent.peer->sent.back().refused().code(), "node_revoked");
  cluster.hub.decide();
  EXPECT_EQ(cluster.hub.node().state, NodeState::kUnreachable);
  // A message that was on its way counts for nothing.
  cluster.agent.beat();
  cluster.hub.decide();
  EXPECT_EQ(cluster.hub.node().state, NodeState::kUnreachable);
}

TEST(Revocation, UndoesAHeartbeatAndARegistrationThatWereOnTheirWay) {
  RevokedNode cluster;
  cluster.hub.propose(NodeLeaseLost{.node = cluster.hub.node().id});
  cluster.agent.beat();  // Proposes that it has its lease back, and is not decided yet.
  cluster.hub.proposals.emplace_front(RevokeNode{.node = "n1", .by = "admin"}, nullptr);
  cluster.hub.decide();
  cluster.hub.decide();
  EXPECT_EQ(cluster.hub.node().state, NodeState::kUnreachable);
  cluster.agent.connect();
  cluster.hub.decide();
  EXPECT_TRUE(cluster.agent.peer->closed);
  EXPECT_EQ(cluster.hub.node().state, NodeState::kUnreachable);
}

TEST(Revocation, BeforeACrashMakesTheNodeUnreachableAtTheNextStart) {
  RevokedNode cluster;
  Hub again;
  again.state = cluster.hub.state.clone();
  again.now = cluster.hub.now;
  again.hub.begin();
  EXPECT_TRUE(again.proposals.empty());
  // The journal has the revocation as its last record.
  Events events;
  apply(again.state, RevokeNode{.node = "n1", .by = "admin"},
        Stamp{.sequence = again.state.last.sequence + 1, .at = again.now}, events);
  Hub third;
  third.state = again.state.clone();
  third.now = again.now;
  third.hub.begin();
  third.decide();
  EXPECT_EQ(third.node().state, NodeState::kUnreachable);
}

TEST(Revocation, GivesBackAPlanThatWasOnItsWay) {
  RevokedNode cluster;
  const JobId job{cluster.hub
                      .propose(SubmitJobs{.tenant = kDefaultTenant,
                                          .jobs = {gpusched::JobRequest{.parts = {{.cpu_milli = 1'000}}}}})
                      .first_id};
  const CommitPlan plan{.groups = {{.job = job, .attempt = 1, .members = {{.node = cluster.hub.node().id}}}}};
  cluster.hub.proposals.emplace_back(RevokeNode{.node = "n1", .by = "admin"}, nullptr);
  cluster.hub.proposals.emplace_back(plan, nullptr);
  cluster.hub.decide();
  ASSERT_NE(cluster.hub.state.find_attempt(job, 1), nullptr);
  cluster.hub.decide();
  EXPECT_EQ(cluster.hub.state.find_attempt(job, 1), nullptr);
  EXPECT_EQ(cluster.state_of(job), JobState::kPending);
}

TEST(Registration, ANodesNameIsAHostName) {
  for (const char* const name :
       {"a b", "a_b", "../n", "-n", "n.", "caf\xC3\xA9", "n\x1b[2J", "<n>", "n/1", "n\n1"}) {
    ReportingCluster cluster;
    Agent other{cluster.hub};
    other.hello().set_node_name(name);
    other.hello().set_instance("folder-2");
    other.hello().clear_devices();
    other.connect();
    ASSERT_TRUE(other.peer->closed) << name;
    EXPECT_NE(other.peer->sent.back().refused().message().find("a host name"), std::string::npos) << name;
    EXPECT_EQ(cluster.hub.state.node_count(), 1) << name;
  }
}

TEST(Reports, WordsOfWorkersMoveNoTerminal) {
  ReportingCluster cluster;
  cluster.agent.report([&](v1::Report& out) {
    out.mutable_condition()->set_condition(v1::DEVICE_CONDITION_UNHEALTHY);
    out.mutable_condition()->set_detail("red \x1b[31m\r\n\x7f");
  });
  EXPECT_EQ(cluster.hub.device(0).detail, "red \\x1b[31m\\r\\n\\x7f");
}

TEST(Reports, WordsAreCutBetweenCharacters) {
  ReportingCluster cluster;
  std::string words(limits::kLabelBytesMax - 1, 'x');
  words += "\xC3\xA4";
  cluster.agent.report([&](v1::Report& out) {
    out.mutable_condition()->set_condition(v1::DEVICE_CONDITION_UNHEALTHY);
    out.mutable_condition()->set_detail(words);
  });
  EXPECT_EQ(cluster.hub.device(0).detail, std::string(limits::kLabelBytesMax - 1, 'x'));
}

TEST(Reports, AConditionThatANewerOneOvertookIsSettledAndNotTaken) {
  ReportingCluster cluster;
  cluster.agent.report_condition(v1::DEVICE_CONDITION_UNHEALTHY, 8);
  ASSERT_EQ(cluster.hub.device(0).condition, DeviceCondition::kUnhealthy);
  const uint64_t late = cluster.agent.report_condition(v1::DEVICE_CONDITION_OK, 5);
  EXPECT_EQ(cluster.hub.device(0).condition, DeviceCondition::kUnhealthy) << "jobs would fail on it";
  EXPECT_TRUE(cluster.acknowledged(late));
  cluster.agent.report_condition(v1::DEVICE_CONDITION_OK, 9);
  EXPECT_EQ(cluster.hub.device(0).condition, DeviceCondition::kOk);
}

TEST(Reports, EachGpuHasItsOwnNewestCondition) {
  ReportingCluster cluster;
  cluster.agent.report_condition(v1::DEVICE_CONDITION_UNHEALTHY, 8);
  cluster.agent.report(
      [](v1::Report& out) {
        out.mutable_condition()->set_index(1);
        out.mutable_condition()->set_condition(v1::DEVICE_CONDITION_MISSING);
      },
      5);
  EXPECT_EQ(cluster.hub.device(1).condition, DeviceCondition::kMissing);
}

TEST(Reports, AVerdictOfChecksThatANewerOneOvertookIsSettledAndNotTaken) {
  ReportingCluster cluster;
  const auto report = [&](bool passed, uint64_t id) {
    return cluster.agent.report(
        [&](v1::Report& out) {
          out.mutable_validated()->set_ok(passed);
          out.mutable_validated()->set_detail(passed ? "" : "the disk is full");
        },
        id);
  };
  report(false, 8);
  ASSERT_FALSE(cluster.hub.node().in_service());
  const uint64_t late = report(true, 5);
  EXPECT_FALSE(cluster.hub.node().in_service());
  EXPECT_TRUE(cluster.acknowledged(late));
  report(true, 9);
  EXPECT_TRUE(cluster.hub.node().in_service());
}

TEST(Reports, AFaultThatANewerOneOvertookIsSettledAndNotTaken) {
  ReportingCluster cluster;
  const auto report = [&](FaultClass fault, int64_t number, uint64_t id) {
    return cluster.agent.report(
        [&](v1::Report& out) {
          out.mutable_device_fault()->set_fault(static_cast<v1::FaultClass>(fault));
          out.mutable_device_fault()->set_code("xid 79");
          out.mutable_device_fault()->set_id(number);
        },
        id);
  };
  report(FaultClass::kDrain, 2, 8);
  ASSERT_EQ(cluster.hub.device(0).fault, FaultClass::kDrain);
  const uint64_t late = report(FaultClass::kNone, 1, 5);
  EXPECT_EQ(cluster.hub.device(0).fault, FaultClass::kDrain);
  EXPECT_TRUE(cluster.acknowledged(late));
}

TEST(Reports, OfADeviceThatTheAgentDoesNotHaveAreSettledAndProposeNothing) {
  ReportingCluster cluster;
  const uint64_t report = cluster.agent.report([](v1::Report& out) {
    out.mutable_condition()->set_index(2);
    out.mutable_condition()->set_condition(v1::DEVICE_CONDITION_UNHEALTHY);
  });
  EXPECT_TRUE(cluster.acknowledged(report));
  EXPECT_EQ(cluster.hub.device(0).condition, DeviceCondition::kOk);
  EXPECT_EQ(cluster.hub.device(1).condition, DeviceCondition::kOk);
}

TEST(Reports, AreAcknowledgedWhenTheyAreDurableAndNotBefore) {
  ReportingCluster cluster;
  const JobId job = cluster.hub.place();
  v1::AgentMessage message;
  message.mutable_report()->set_id(3);
  message.mutable_report()->mutable_started()->mutable_key()->set_job(job.value);
  message.mutable_report()->mutable_started()->mutable_key()->set_attempt(1);
  cluster.agent.send(message);
  cluster.hub.hub.flush();
  EXPECT_FALSE(cluster.acknowledged(3));
  // The group's outcome is not known: nothing is acknowledged, and the report may be said again.
  std::exchange(cluster.hub.proposals, {}).front().second(Error{.code = ErrorCode::kOutcomeUnknown});
  cluster.hub.hub.flush();
  EXPECT_FALSE(cluster.acknowledged(3));
  cluster.agent.send(message);
  cluster.hub.decide();
  EXPECT_TRUE(cluster.acknowledged(3));
  EXPECT_EQ(cluster.hub.state.jobs.find(job)->state, JobState::kRunning);
}

TEST(Reports, AnOutcomeOfANewerAgentIsALostShimAndItsWordsAreCut) {
  ReportingCluster cluster;
  const JobId job = cluster.hub.place();
  cluster.agent.report([&](v1::Report& out) {
    out.mutable_ended()->mutable_key()->set_job(job.value);
    out.mutable_ended()->mutable_key()->set_attempt(1);
    out.mutable_ended()->mutable_outcome()->set_cause(
        static_cast<v1::Outcome::Cause>(static_cast<int>(kEndCauseLast) + 1));
    out.mutable_ended()->mutable_outcome()->set_detail(std::string(10'000, 'x'));
  });
  EXPECT_EQ(cluster.hub.state.jobs.find(job)->last_cause, EndCause::kShimLost);
  EXPECT_EQ(cluster.hub.state.jobs.find(job)->extras->last_detail.view().size(), limits::kLabelBytesMax);
}

TEST(Reports, AnExternalNodeGetsExternalJobsAloneAndGivesBackWhatItWouldNotStart) {
  ReportingCluster cluster;
  cluster.agent.hello().add_features("external");
  cluster.agent.connect();
  const Part ordinary{.gpu_count = 1, .cpu_milli = 1'000};
  const JobId process{
      cluster.hub.propose(SubmitJobs{.tenant = kDefaultTenant, .jobs = {JobRequest{.parts = {ordinary}}}})
          .first_id};
  const MemberPlacement there{.node = cluster.hub.node().id, .device_mask = 1, .generations = {0}};
  cluster.hub.propose(CommitPlan{.groups = {{.job = process, .attempt = 1, .members = {there}}}});
  EXPECT_EQ(cluster.hub.state.find_attempt(process, 1), nullptr) << "the plan is not to be obeyed";
  EXPECT_TRUE(cluster.agent.peer->all(Body::kStart).empty());

  const JobId job = cluster.hub.place(1, {.cpu_milli = 1'000, .features = kFeatureExternal});
  ASSERT_EQ(cluster.agent.peer->all(Body::kStart).size(), 1u);
  const v1::StartAttempt order = cluster.agent.peer->all(Body::kStart).front().start();
  EXPECT_EQ(order.key().job(), job.value);
  ASSERT_EQ(order.devices_size(), 1);
  EXPECT_EQ(order.devices(0).uuid(), "GPU-0");
  const uint64_t report = cluster.agent.report([&](v1::Report& out) {
    *out.mutable_ended()->mutable_key() = order.key();
    out.mutable_ended()->set_placed_at_ns(order.placed_at_ns());
    out.mutable_ended()->mutable_outcome()->set_cause(v1::Outcome::NOT_STARTED);
    out.mutable_ended()->mutable_outcome()->set_detail("the pod does not tolerate a taint");
  });
  EXPECT_TRUE(cluster.acknowledged(report));
  const Job& given_back = *cluster.hub.state.jobs.find(job);
  EXPECT_EQ(given_back.state, JobState::kPending);
  EXPECT_EQ(given_back.last_cause, EndCause::kNotStarted);
  EXPECT_EQ(given_back.system_failures, 0);
  EXPECT_EQ(given_back.extras->last_detail.view(), "the pod does not tolerate a taint");
  const std::vector<AvoidedNode> avoided =
      cluster.hub.state.class_of(given_back).parts.front().wishes()->avoided;
  ASSERT_EQ(avoided.size(), 1u);
  EXPECT_EQ(avoided.front().node, "n1");
}

TEST(Reports, OnlyWhatCanBeTheDigestOfAnImageIsKept) {
  const auto kept = [](const std::string& told) {
    ReportingCluster cluster;
    const JobId job = cluster.hub.place();
    cluster.agent.report([&](v1::Report& out) {
      out.mutable_started()->mutable_key()->set_job(job.value);
      out.mutable_started()->mutable_key()->set_attempt(1);
      out.mutable_started()->set_image_digest(told);
    });
    return std::string(cluster.hub.state.jobs.find(job)->extras->image_digest.view());
  };
  const std::string digest = "sha256:" + std::string(64, 'a');
  EXPECT_EQ(kept(digest), digest);
  EXPECT_EQ(kept(digest + "a"), "");
  EXPECT_EQ(kept("sha256:" + std::string(64, 'g')), "");
  EXPECT_EQ(kept(std::string(71, 'a')), "");
}

TEST(Leases, ANodeThatIsHeardKeepsItsLease) {
  ReportingCluster cluster;
  for (int i = 0; i < 10; ++i) {
    cluster.hub.pass(seconds(14));
    cluster.agent.beat();
  }
  EXPECT_EQ(cluster.hub.node().state, NodeState::kReady);
  cluster.hub.pass(seconds(17));
  EXPECT_EQ(cluster.hub.node().state, NodeState::kUnreachable);
}

TEST(Leases, AnyWordOfAnAgentKeepsTheLease) {
  ReportingCluster cluster;
  cluster.hub.pass(seconds(14));
  cluster.agent.report_condition(v1::DEVICE_CONDITION_OK);
  cluster.hub.pass(seconds(14));
  EXPECT_EQ(cluster.hub.node().state, NodeState::kReady);
}

TEST(Leases, ALossIsProposedOnceUntilItIsDecided) {
  ReportingCluster cluster;
  for (int i = 0; i < 5; ++i) {
    cluster.hub.now = cluster.hub.now + seconds(20);
    cluster.hub.hub.check_leases();
  }
  ASSERT_EQ(cluster.hub.proposals.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<NodeLeaseLost>(cluster.hub.proposals[0].first));
}

TEST(Leases, OfAllNodesBeginAnewWithTheScheduler) {
  ReportingCluster cluster;
  // Another hub on the same state: the scheduler was away for an hour.
  Hub again;
  again.state = cluster.hub.state.clone();
  again.now = cluster.hub.now + hours(1);
  again.hub.begin();
  again.pass(seconds(14));
  EXPECT_EQ(again.node().state, NodeState::kReady) << "its agent had no chance to be heard";
  again.pass(seconds(3));
  EXPECT_EQ(again.node().state, NodeState::kUnreachable);
}

TEST(Leases, AHeartbeatOfANodeThatWasConfirmedDeadIsRefused) {
  ReportingCluster cluster;
  cluster.hub.pass(seconds(20));
  ASSERT_EQ(cluster.hub.node().state, NodeState::kUnreachable);
  cluster.hub.propose(ConfirmNodeDead{.node = cluster.hub.node().id});
  cluster.agent.beat();
  ASSERT_TRUE(cluster.agent.peer->closed);
  EXPECT_EQ(cluster.agent.peer->sent.back().refused().code(), "stale");
  EXPECT_EQ(cluster.hub.node().state, NodeState::kDead) << "what it runs is settled by a registration only";
  cluster.agent.connect();
  EXPECT_EQ(cluster.hub.node().state, NodeState::kReady);
}

TEST(Streams, TheLateEndOfAnOldOneLeavesTheNewOneConnected) {
  ReportingCluster cluster;
  const SessionId old = cluster.agent.session;
  cluster.agent.connect();
  cluster.hub.hub.closed(old);
  EXPECT_EQ(cluster.hub.hub.connected_count(), 1u);
  EXPECT_TRUE(cluster.hub.hub.telemetry()->get(cluster.hub.node().id).connected);
  const JobId job = cluster.hub.place();
  ASSERT_EQ(cluster.agent.peer->all(Body::kStart).size(), 1u) << "its orders go nowhere";
  EXPECT_EQ(cluster.agent.peer->all(Body::kStart)[0].start().key().job(), job.value);
}

TEST(Streams, OfWhomNothingWasRegisteredNothingIsTaken) {
  ReportingCluster cluster;
  Agent stranger(cluster.hub);
  stranger.peer = std::make_shared<testing::Peer>();
  stranger.session = cluster.hub.hub.open(stranger.peer);
  stranger.report_condition(v1::DEVICE_CONDITION_UNHEALTHY);
  ASSERT_TRUE(stranger.peer->closed);
  EXPECT_EQ(stranger.peer->sent.back().refused().code(), "not_registered");
  EXPECT_EQ(cluster.hub.device(0).condition, DeviceCondition::kOk);
}

TEST(Streams, OfARemovedNodeIsClosed) {
  ReportingCluster cluster;
  cluster.hub.pass(seconds(20));
  cluster.hub.propose(ConfirmNodeDead{.node = cluster.hub.node().id});
  const Applied removed = cluster.hub.propose(RemoveNode{.node = cluster.hub.node().id});
  ASSERT_FALSE(removed.rejection.has_value()) << to_string(removed.rejection->code);
  EXPECT_TRUE(cluster.agent.peer->closed);
  EXPECT_EQ(cluster.agent.peer->sent.back().refused().code(), "stale");
  EXPECT_EQ(cluster.hub.hub.connected_count(), 0u);
}

TEST(Output, ThatANodeWasAskedForFailsWhenItsStreamEnds) {
  ReportingCluster cluster;
  const NodeId node = cluster.hub.node().id;
  std::vector<ErrorCode> failures;
  const auto done = [&](const Result<v1::LogChunk>& chunk) {
    failures.push_back(chunk.ok() ? ErrorCode::kIo : chunk.error().code);
  };
  for (std::size_t i = 0; i < limits::kLogReadsPerNodeMax; ++i) cluster.hub.hub.read_log(node, {}, done);
  EXPECT_TRUE(failures.empty());
  EXPECT_EQ(cluster.agent.peer->all(Body::kReadLog).size(), limits::kLogReadsPerNodeMax);
  cluster.hub.hub.read_log(node, {}, done);
  EXPECT_EQ(failures, std::vector<ErrorCode>{ErrorCode::kUnavailable}) << "one more is too much";
  cluster.hub.hub.closed(cluster.agent.session);
  EXPECT_EQ(failures, std::vector<ErrorCode>(limits::kLogReadsPerNodeMax + 1, ErrorCode::kUnavailable));
  cluster.hub.hub.read_log(node, {}, done);
  EXPECT_EQ(failures.size(), limits::kLogReadsPerNodeMax + 2) << "nobody is there to ask";
}

}  // namespace
}  // namespace gpusched
