#include "host/nodes/node_hub.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/limits.h"
#include "base/queue_limits.h"
#include "host/testing/test_hub.h"

namespace gpusched {
namespace {

using testing::Hub;
using testing::Peer;

TEST(NodeHub, ANodeWhoseStreamBreaksBeforeItsRegistrationIsDecidedLosesItsLease) {
  Hub hub;
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  hub.hub.receive(id, Hub::registration());
  hub.hub.closed(id);
  hub.decide();
  ASSERT_EQ(hub.state.nodes.size(), 1u);
  EXPECT_EQ(hub.node().state, NodeState::kReady);
  hub.pass(seconds(14));
  EXPECT_EQ(hub.node().state, NodeState::kReady);
  hub.pass(seconds(3));
  EXPECT_EQ(hub.node().state, NodeState::kUnreachable);
}

/// Registers an agent; its session and its peer.
std::pair<SessionId, std::shared_ptr<Peer>> connect(Hub& hub, uint64_t process,
                                                    const std::string& name = "n1") {
  auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  v1::AgentMessage message = Hub::registration();
  message.mutable_register_()->set_node_name(name);
  message.mutable_register_()->set_instance("folder-" + name);
  message.mutable_register_()->set_process(process);
  hub.hub.receive(id, message);
  hub.decide();
  return {id, peer};
}

TEST(NodeHub, OfTwoLivingAgentsOfOneNodeTheSecondIsRefused) {
  Hub hub;
  const auto [first, kept] = connect(hub, 1);
  const auto [second, refused] = connect(hub, 2);
  EXPECT_FALSE(kept->closed);
  EXPECT_TRUE(refused->closed);
  ASSERT_TRUE(refused->sent.back().has_refused());
  EXPECT_EQ(refused->sent.back().refused().code(), "node_still_heard");
}

TEST(NodeHub, ANewStreamOfTheSameAgentTakesThePlaceOfTheOld) {
  Hub hub;
  const auto [first, old] = connect(hub, 1);
  const auto [second, now] = connect(hub, 1);
  EXPECT_TRUE(old->closed);
  EXPECT_FALSE(now->closed);
}

TEST(NodeHub, ARestartedAgentIsLetInWhenTheOldStreamIsClosedOrSilent) {
  Hub hub;
  const auto [first, old] = connect(hub, 1);
  hub.hub.closed(first);
  const auto [second, next] = connect(hub, 2);
  EXPECT_FALSE(next->closed);
  hub.pass(seconds(11));  // Two heartbeats.
  const auto [third, last] = connect(hub, 3);
  EXPECT_FALSE(last->closed);
  EXPECT_TRUE(next->closed);
}

TEST(NodeHub, AnEndThatAnotherNodeIsAskedForIsNotAcknowledged) {
  Hub hub;
  const auto [first, owner] = connect(hub, 1, "n1");
  hub.proposals.emplace_back(
      SubmitJobs{.tenant = kDefaultTenant, .jobs = {JobRequest{.parts = {Part{.cpu_milli = 1'000}}}}},
      Decision{});
  hub.decide();
  const JobId job{hub.state.last.sequence};
  const std::vector<MemberPlacement> members = {{.node = hub.node().id}};
  hub.proposals.emplace_back(CommitPlan{.groups = {{.job = job, .attempt = 1, .members = members}}},
                             Decision{});
  hub.decide();
  const auto [second, other] = connect(hub, 2, "n2");
  v1::AgentMessage ended;
  ended.mutable_report()->set_id(77);
  v1::AttemptKey& key = *ended.mutable_report()->mutable_ended()->mutable_key();
  key.set_job(job.value);
  key.set_attempt(1);
  const auto acknowledged = [](const Peer& peer) {
    return std::any_of(peer.sent.begin(), peer.sent.end(), [](const auto& sent) { return sent.has_ack(); });
  };
  hub.hub.receive(second, ended);
  hub.decide();
  EXPECT_FALSE(acknowledged(*other)) << "the agent would forget an outcome that nobody took";
  hub.hub.receive(first, ended);
  hub.decide();
  EXPECT_TRUE(acknowledged(*owner));
  hub.hub.receive(second, ended);
  hub.decide();
  EXPECT_TRUE(acknowledged(*other)) << "it is over: nobody wants that word any more";
}

TEST(NodeHub, AnAgentOfAnotherClusterIsRefusedAndKeepsItsJobs) {
  Hub hub;
  hub.proposals.emplace_back(
      Configure{.config = {.feature_level = kFeatureLevel, .cluster = "ours", .cluster_since = hub.now}},
      Decision{});
  hub.decide();
  const auto peer = std::make_shared<Peer>();
  v1::AgentMessage message = Hub::registration();
  message.mutable_register_()->set_cluster("theirs");
  message.mutable_register_()->add_attempts()->mutable_key()->set_job(7);
  hub.hub.receive(hub.hub.open(peer), message);
  hub.decide();
  ASSERT_EQ(peer->sent.size(), 1u);
  EXPECT_EQ(peer->sent[0].refused().code(), "wrong_cluster");
  EXPECT_TRUE(hub.state.nodes.empty());
}

TEST(NodeHub, WhatWasPlacedBeforeThisJournalBeganIsLeftAloneUntilAnOperatorWantsItsDevice) {
  Hub hub;
  hub.proposals.emplace_back(Configure{.config = {.drain_limit = seconds(1),
                                                  .feature_level = kFeatureLevel,
                                                  .cluster = "ours",
                                                  .cluster_since = hub.now}},
                             Decision{});
  hub.decide();
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  v1::AgentMessage message = Hub::registration();
  v1::Register& offer = *message.mutable_register_();
  offer.add_devices()->set_uuid("GPU-0");
  for (const int64_t placed : {hub.now.ns - 1, hub.now.ns + 1}) {
    v1::AttemptOnNode& known = *offer.add_attempts();
    known.mutable_key()->set_job(placed < hub.now.ns ? 7 : 8);
    known.mutable_key()->set_attempt(1);
    known.set_placed_at_ns(placed);
    if (placed < hub.now.ns) known.add_devices()->set_uuid("GPU-0");
  }
  hub.hub.receive(id, message);
  hub.decide();
  std::vector<uint64_t> stopped;
  const auto take_stops = [&] {
    for (const v1::SchedulerMessage& sent : peer->sent) {
      if (sent.has_stop()) stopped.push_back(sent.stop().key().job());
    }
    peer->sent.clear();
  };
  take_stops();
  EXPECT_EQ(stopped, std::vector<uint64_t>{8}) << "only what this scheduler gave up is ended";
  EXPECT_EQ(hub.node().devices[0].state, DeviceState::kDraining);

  hub.now = hub.now + seconds(5);
  v1::AgentMessage busy;
  busy.mutable_report()->set_id(1);
  busy.mutable_report()->mutable_draining()->set_generation(hub.node().devices[0].generation);
  busy.mutable_report()->mutable_draining()->set_evidence("attempt 7-1-0 runs on it");
  hub.hub.receive(id, busy);
  hub.decide();
  EXPECT_EQ(hub.node().devices[0].state, DeviceState::kQuarantined);
  EXPECT_NE(hub.node().devices[0].detail.find("device release stops that job"), std::string::npos);
  hub.proposals.emplace_back(SetDeviceCondition{.node = hub.node().id,
                                                .device = 0,
                                                .condition = DeviceCondition::kOk,
                                                .by_operator = true,
                                                .lasting = true,
                                                .by = "somebody"},
                             Decision{});
  hub.decide();
  take_stops();
  EXPECT_EQ(stopped, (std::vector<uint64_t>{8, 7}));
}

TEST(NodeHub, AClusterIsNamedOnceAndKeepsItsName) {
  Hub hub;
  EngineConfig wanted{.feature_level = kFeatureLevel};
  name_cluster(State{}, hub.now, "first", wanted);  // A journal that begins.
  EXPECT_EQ(wanted.cluster, "first");
  EXPECT_EQ(wanted.cluster_since, hub.now);
  hub.proposals.emplace_back(Configure{.config = wanted}, Decision{});
  hub.decide();
  EngineConfig next{.feature_level = kFeatureLevel};
  name_cluster(hub.state, hub.now + hours(1), "second", next);
  EXPECT_EQ(next.cluster, "first");
  EXPECT_EQ(next.cluster_since, hub.now);
  // Nor does a configuration take it away that does not know of it.
  hub.proposals.emplace_back(Configure{.config = {.queue_size_max = 5, .feature_level = kFeatureLevel}},
                             Decision{});
  hub.decide();
  EXPECT_EQ(hub.state.config.cluster, "first");
  EXPECT_EQ(hub.state.config.queue_size_max, 5);
}

/// A gang of two on two nodes, placed.
class GangOfTwo {
 public:
  GangOfTwo() {
    hub.proposals.emplace_back(Configure{.config = {.feature_level = kFeatureLevel}}, Decision{});
    for (uint32_t i = 0; i < 2; ++i) connect(i);
    hub.proposals.emplace_back(
        SubmitJobs{.tenant = kDefaultTenant,
                   .jobs = {JobRequest{.parts = {Part{.member_count = 2, .cpu_milli = 8'000}}}}},
        Decision{});
    hub.decide();
    job = JobId{hub.state.last.sequence};
    const std::vector<MemberPlacement> members = {{.node = hub.state.nodes[0].id},
                                                  {.node = hub.state.nodes[1].id}};
    hub.proposals.emplace_back(CommitPlan{.groups = {{.job = job, .attempt = 1, .members = members}}},
                               Decision{});
    hub.decide();
  }
  void connect(uint32_t member) {
    peers[member] = std::make_shared<Peer>();
    sessions[member] = hub.hub.open(peers[member]);
    v1::AgentMessage message = Hub::registration();
    const std::string number = std::to_string(member + 1);
    message.mutable_register_()->set_node_name("n" + number);
    message.mutable_register_()->set_instance("folder-" + number);
    if (member == 1) message.mutable_register_()->set_address("10.0.0.2");
    hub.hub.receive(sessions[member], message);
    hub.decide();
  }
  void prepared(uint32_t member) {
    v1::AgentMessage message;
    message.mutable_report()->set_id(1);
    v1::AttemptKey& key = *message.mutable_report()->mutable_prepared()->mutable_key();
    key.set_job(job.value);
    key.set_attempt(1);
    key.set_member(member);
    hub.hub.receive(sessions[member], message);
    hub.decide();
  }
  std::size_t count(uint32_t member, v1::SchedulerMessage::BodyCase what) const {
    return static_cast<std::size_t>(
        std::count_if(peers[member]->sent.begin(), peers[member]->sent.end(),
                      [&](const v1::SchedulerMessage& one) { return one.body_case() == what; }));
  }
  std::size_t goes(uint32_t member) const { return count(member, v1::SchedulerMessage::kGo); }

  Hub hub;
  std::shared_ptr<Peer> peers[2];
  SessionId sessions[2] = {};
  JobId job;
};

TEST(NodeHub, AGangGoesWhenAllItsMembersArePrepared) {
  GangOfTwo gang;
  const auto start = std::find_if(gang.peers[0]->sent.begin(), gang.peers[0]->sent.end(),
                                  [](const v1::SchedulerMessage& message) { return message.has_start(); });
  ASSERT_NE(start, gang.peers[0]->sent.end());
  const v1::Gang& told = start->start().gang();
  ASSERT_EQ(told.members_size(), 2);
  EXPECT_EQ(told.members(0).address(), "n1") << "without an address its name";
  EXPECT_EQ(told.members(1).address(), "10.0.0.2");
  EXPECT_GE(told.master_port(), 20'000u);
  gang.prepared(0);
  EXPECT_EQ(gang.goes(0) + gang.goes(1), 0u);
  gang.prepared(1);
  EXPECT_EQ(gang.goes(0), 1u);
  EXPECT_EQ(gang.goes(1), 1u);
}

TEST(NodeHub, AMemberWhoseAgentWasAwayIsToldToGoWhenItIsBack) {
  GangOfTwo gang;
  gang.prepared(0);
  gang.hub.hub.closed(gang.sessions[0]);
  gang.prepared(1);
  EXPECT_EQ(gang.goes(0), 0u);
  EXPECT_EQ(gang.goes(1), 1u);
  gang.connect(0);
  EXPECT_EQ(gang.count(0, v1::SchedulerMessage::kStart), 1u) << "in case it forgot";
  EXPECT_EQ(gang.goes(0), 1u);
}

TEST(NodeHub, AnAgentThatWasAwayHearsThatItsDeviceWasReleased) {
  Hub hub;
  v1::AgentMessage hello = Hub::registration();
  hello.mutable_register_()->add_devices()->set_uuid("GPU-0");
  const SessionId before = hub.hub.open(std::make_shared<Peer>());
  hub.hub.receive(before, hello);
  hub.decide();
  const NodeId node = hub.node().id;
  hub.proposals.emplace_back(
      NoteDeviceFault{.node = node, .fault = FaultClass::kReset, .code = "xid 48", .id = 5}, Decision{});
  hub.decide();
  ASSERT_FALSE(hub.node().devices[0].sound());
  hub.hub.closed(before);
  hub.proposals.emplace_back(NoteDeviceFault{.node = node, .id = 6}, Decision{});
  hub.decide();
  const auto peer = std::make_shared<Peer>();
  hub.hub.receive(hub.hub.open(peer), hello);
  hub.decide();
  const auto told =
      std::find_if(peer->sent.begin(), peer->sent.end(),
                   [](const v1::SchedulerMessage& message) { return message.has_clear_fault(); });
  ASSERT_NE(told, peer->sent.end());
  EXPECT_EQ(told->clear_fault().id(), 6);
}

TEST(NodeHub, AGangThatIsBrokenNeverGoes) {
  GangOfTwo gang;
  gang.prepared(0);
  v1::AgentMessage message;
  message.mutable_report()->set_id(2);
  v1::Ended& ended = *message.mutable_report()->mutable_ended();
  ended.mutable_key()->set_job(gang.job.value);
  ended.mutable_key()->set_attempt(1);
  ended.mutable_key()->set_member(1);
  ended.mutable_outcome()->set_cause(v1::Outcome::START_FAILED);
  gang.hub.hub.receive(gang.sessions[1], message);
  gang.hub.decide();
  EXPECT_EQ(gang.count(0, v1::SchedulerMessage::kStop), 1u);
  EXPECT_EQ(gang.count(1, v1::SchedulerMessage::kStop), 0u) << "it is over";
  gang.prepared(0);
  EXPECT_EQ(gang.goes(0) + gang.goes(1), 0u);
}

TEST(NodeHub, AHeartbeatIsAnsweredOnlyWhileTheNodeHasItsLease) {
  Hub hub;
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  hub.hub.receive(id, Hub::registration());
  hub.decide();
  const auto answers = [&] {
    return std::count_if(peer->sent.begin(), peer->sent.end(),
                         [](const v1::SchedulerMessage& message) { return message.has_heartbeat_seen(); });
  };
  v1::AgentMessage beat;
  beat.mutable_heartbeat()->set_sequence(1);
  hub.hub.receive(id, beat);
  EXPECT_EQ(answers(), 1);

  // While the loss of its lease is on its way to the journal, and until its return is durable, there is none.
  hub.now = hub.now + seconds(20);
  hub.hub.check_leases();
  hub.hub.receive(id, beat);
  EXPECT_EQ(answers(), 1);
  hub.decide();
  EXPECT_EQ(hub.node().state, NodeState::kUnreachable);
  hub.hub.receive(id, beat);
  EXPECT_EQ(answers(), 1);
  hub.decide();
  EXPECT_EQ(hub.node().state, NodeState::kReady);
  EXPECT_EQ(answers(), 2);
}

TEST(NodeHub, AJobThatIsEndedForAnotherOneGetsWhatItAskedForWithinBounds) {
  Hub hub;
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  hub.hub.receive(id, Hub::registration());
  hub.decide();
  const auto place = [&](const v1::JobSpec& spec) {
    hub.proposals.emplace_back(
        SubmitJobs{.tenant = kDefaultTenant,
                   .jobs = {gpusched::JobRequest{.parts = {Part{.cpu_milli = 1000}},
                                                 .spec = Blob(spec.SerializeAsString())}}},
        Decision{});
    hub.decide();
    const JobId job{hub.state.last.sequence};
    hub.proposals.emplace_back(
        CommitPlan{.groups = {{.job = job, .attempt = 1, .members = {{.node = hub.node().id}}}}}, Decision{});
    hub.decide();
    return job;
  };
  const auto stop = [&](JobId job, StopReason reason) {
    Attempt* attempt = hub.state.find_attempt(job, 1);
    EXPECT_NE(attempt, nullptr);
    attempt->stop = reason;
    hub.hub.on_event(StopRequested{.job = job, .attempt = 1, .reason = reason});
    return peer->sent.back().stop();
  };
  v1::JobSpec spec;
  const v1::StopAttempt silent = stop(place(spec), StopReason::kPreempt);
  EXPECT_TRUE(silent.until_saved());
  EXPECT_EQ(silent.signal(), 0u);
  EXPECT_EQ(silent.grace_ms(), 10'000);
  spec.set_preempt_signal("USR1");
  spec.set_preempt_grace_ms(30'000);
  const v1::StopAttempt asking = stop(place(spec), StopReason::kPreempt);
  EXPECT_EQ(asking.signal(), 10u);
  EXPECT_EQ(asking.grace_ms(), 30'000);
  spec.set_preempt_grace_ms(3'600'000);
  EXPECT_EQ(stop(place(spec), StopReason::kPreempt).grace_ms(), 60'000);
  const v1::StopAttempt cancelled = stop(place(spec), StopReason::kCancel);
  EXPECT_FALSE(cancelled.until_saved());
  EXPECT_EQ(cancelled.signal(), 0u);
  EXPECT_EQ(cancelled.grace_ms(), 10'000);
}

TEST(NodeHub, WhatAJobSavedIsProposed) {
  Hub hub;
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  hub.hub.receive(id, Hub::registration());
  hub.decide();
  hub.proposals.emplace_back(
      SubmitJobs{.tenant = kDefaultTenant,
                 .jobs = {gpusched::JobRequest{.parts = {Part{.cpu_milli = 1000}}, .spec = Blob("spec")}}},
      Decision{});
  hub.decide();
  const JobId job{hub.state.last.sequence};
  hub.proposals.emplace_back(
      CommitPlan{.groups = {{.job = job, .attempt = 1, .members = {{.node = hub.node().id}}}}}, Decision{});
  hub.decide();
  ASSERT_NE(hub.state.find_attempt(job, 1), nullptr);
  hub.now = hub.now + seconds(10);
  v1::AgentMessage beat;
  beat.mutable_heartbeat()->set_sequence(1);
  for (const uint64_t named : {job.value, job.value + 1}) {
    v1::AttemptSaved& saved = *beat.mutable_heartbeat()->add_saved();
    saved.mutable_key()->set_job(named);
    saved.mutable_key()->set_attempt(1);
    saved.set_age_ms(4000);
  }
  hub.hub.receive(id, beat);
  EXPECT_EQ(hub.proposals.size(), 1u);
  hub.decide();
  EXPECT_EQ(hub.state.jobs.find(job)->extras->saved_at, hub.now - seconds(4));
}

v1::AgentMessage end_of(uint64_t report, uint64_t job) {
  v1::AgentMessage message;
  message.mutable_report()->set_id(report);
  message.mutable_report()->mutable_ended()->mutable_key()->set_job(job);
  return message;
}

TEST(NodeHub, ARegistrationThatNoRecordHoldsIsRefusedWithTheLimit) {
  const auto refusal = [](const std::function<void(v1::Register&)>& change) {
    Hub hub;
    const auto peer = std::make_shared<Peer>();
    v1::AgentMessage message = Hub::registration();
    change(*message.mutable_register_());
    hub.hub.receive(hub.hub.open(peer), message);
    hub.decide();
    if (peer->sent.empty() || !peer->sent.back().has_refused()) return std::string();
    EXPECT_TRUE(peer->closed);
    EXPECT_TRUE(hub.state.nodes.empty());
    return peer->sent.back().refused().message();
  };
  const std::string longest(limits::kLabelBytesMax, 'x');
  const auto fill = [](v1::Register& out, const std::string& text, uint32_t attempts) {
    out.set_version(text + text);
    out.set_instance(text);
    out.set_boot_id(text);
    for (uint32_t i = 0; i < limits::kDevicesPerNodeMax; ++i) {
      v1::Device& device = *out.add_devices();
      device.set_uuid(std::to_string(i + 100) + text.substr(3));
      device.set_model(text);
      device.set_detail(text + text);
      device.set_pci_bus_id(text + text);
    }
    for (uint32_t i = 0; i < attempts; ++i) out.add_attempts()->mutable_key()->set_job(i + 1);
    for (uint32_t i = 0; i < 200; ++i) {
      out.add_features(std::to_string(i) + text + text);
      (*out.mutable_labels())[std::to_string(i) + text] = text + text;
    }
  };
  EXPECT_EQ(refusal([&](v1::Register& out) { fill(out, longest, limits::kAttemptsPerRegistration); }), "");
  EXPECT_NE(refusal([&](v1::Register& out) {
              fill(out, longest, limits::kAttemptsPerRegistration + 1);
            }).find(std::to_string(limits::kAttemptsPerRegistration)),
            std::string::npos);
  EXPECT_NE(refusal([&](v1::Register& out) { out.set_instance(longest + "x"); }).find("253"),
            std::string::npos);
  EXPECT_NE(refusal([&](v1::Register& out) { out.set_boot_id(longest + "x"); }).find("253"),
            std::string::npos);
  EXPECT_NE(refusal([&](v1::Register& out) { out.add_devices()->set_uuid(longest + "x"); }).find("253"),
            std::string::npos);
}

TEST(NodeHub, WhatAnAgentRepeatsIsProposedOnceUntilItIsDecided) {
  Hub hub;
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  hub.hub.receive(id, Hub::registration());
  hub.decide();
  for (int i = 0; i < 5; ++i) hub.hub.receive(id, end_of(1, 7));
  EXPECT_EQ(hub.proposals.size(), 1u);
  hub.decide();
  hub.hub.receive(id, end_of(1, 7));  // The acknowledgement was lost.
  EXPECT_EQ(hub.proposals.size(), 1u);
}

TEST(NodeHub, UndecidedProposalsOfOneAgentAreBounded) {
  Hub hub;
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  hub.hub.receive(id, Hub::registration());
  hub.decide();
  constexpr uint64_t kReports = 10 * limits::kAgentAsksMax;
  for (uint64_t i = 1; i <= kReports; ++i) hub.hub.receive(id, end_of(i, i));
  EXPECT_EQ(hub.proposals.size(), limits::kAgentAsksMax);
  // Nothing is lost: what was not taken is not acknowledged, and said again.
  std::set<uint64_t> acknowledged;
  for (int round = 0; round < 10; ++round) {
    hub.decide();
    acknowledged.clear();
    for (const v1::SchedulerMessage& message : peer->sent)
      acknowledged.insert(message.ack().report_ids().begin(), message.ack().report_ids().end());
    for (uint64_t i = 1; i <= kReports; ++i) {
      if (!acknowledged.contains(i)) hub.hub.receive(id, end_of(i, i));
    }
  }
  EXPECT_EQ(acknowledged.size(), kReports);
  EXPECT_EQ(hub.proposals.size(), 0u);
}

TEST(NodeHub, HeartbeatsThatNothingDecidesProposeNothingTwice) {
  Hub hub;
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  v1::AgentMessage registration = Hub::registration();
  registration.mutable_register_()->add_devices()->set_uuid("GPU-0");
  hub.hub.receive(id, registration);
  hub.decide();
  hub.pass(seconds(20));
  ASSERT_EQ(hub.node().state, NodeState::kUnreachable);
  v1::AgentMessage beat;
  v1::DeviceTelemetry& device = *beat.mutable_heartbeat()->add_devices();
  for (int i = 0; i < 1'000; ++i) {
    device.set_temperature_celsius(150);
    hub.hub.receive(id, beat);
  }
  EXPECT_LE(hub.proposals.size(), 2u);  // Its lease is back; its device is hot.
}

/// A gang on nodes of eight devices each, all connected; what is sent is counted.
class CountingPeer final : public NodeSession {
 public:
  explicit CountingPeer(std::set<const std::string*>& shared) : shared_(shared) {}
  void send(const v1::SchedulerMessage& message) override { count(message, nullptr); }
  void send(const v1::SchedulerMessage& own, const SharedPart& shared) override { count(own, shared); }
  void close() override {}

  std::size_t messages = 0;
  std::size_t own_bytes = 0;
  std::size_t members = 0;  ///< Members that it is told to start.

  /// The last order, of one of its members, as the agent understands it.
  v1::StartAttempt start_of(int number) const {
    v1::SchedulerMessage whole;
    EXPECT_TRUE(whole.ParseFromString(last_own_ + (last_shared_ == nullptr ? "" : *last_shared_)));
    if (whole.has_start()) return whole.start();
    v1::StartAttempt start = whole.start_members().common();
    start.MergeFrom(whole.start_members().members(number));
    return start;
  }

 private:
  void count(const v1::SchedulerMessage& own, const SharedPart& shared) {
    if (!own.has_start() && !own.has_start_members()) return;
    messages += 1;
    own_bytes += own.ByteSizeLong();
    members += own.has_start() ? 1 : static_cast<std::size_t>(own.start_members().members_size());
    if (shared != nullptr) shared_.insert(shared.get());
    last_own_ = own.SerializeAsString();
    last_shared_ = shared;
  }
  std::string last_own_;
  SharedPart last_shared_;
  std::set<const std::string*>& shared_;
};

class LargeGang {
 public:
  LargeGang(uint32_t member_count, bool takes_members) : members_(member_count) {
    hub.proposals.emplace_back(Configure{.config = {.feature_level = kFeatureLevel}}, Decision{});
    for (uint32_t node = 0; node < member_count / kPerNode; ++node) connect(node, takes_members);
    hub.decide();
    hub.proposals.emplace_back(
        SubmitJobs{.tenant = kDefaultTenant,
                   .jobs = {JobRequest{.parts = {Part{.member_count = static_cast<int32_t>(member_count),
                                                      .cpu_milli = 1'000}},
                                       .spec = Blob(std::string(100'000, 's'))}}},
        Decision{});
    hub.decide();
    job = JobId{hub.state.last.sequence};
  }
  void place() {
    PlanGroup group{.job = job, .attempt = 1};
    for (uint32_t member = 0; member < members_; ++member)
      group.members.push_back({.node = hub.state.nodes[member / kPerNode].id});
    hub.proposals.emplace_back(CommitPlan{.groups = {group}}, Decision{});
    hub.decide();
  }
  std::size_t sum(std::size_t CountingPeer::* what) const {
    std::size_t all = 0;
    for (const auto& peer : peers) all += (*peer).*what;
    return all;
  }

  static constexpr uint32_t kPerNode = 8;
  Hub hub;
  std::vector<std::shared_ptr<CountingPeer>> peers;
  std::set<const std::string*> shared;
  JobId job;

 private:
  void connect(uint32_t node, bool takes_members) {
    peers.push_back(std::make_shared<CountingPeer>(shared));
    v1::AgentMessage message = Hub::registration();
    message.mutable_register_()->set_node_name("node-" + std::to_string(node));
    message.mutable_register_()->set_instance("folder-" + std::to_string(node));
    message.mutable_register_()->set_cpu_milli(64'000);
    message.mutable_register_()->set_takes_members(takes_members);
    hub.hub.receive(hub.hub.open(peers.back()), message);
  }
  uint32_t members_;
};

TEST(NodeHub, WhatAGangsMembersHaveInCommonIsMadeOnceAndSentByNode) {
  constexpr uint32_t kMembers = 10'000;
  LargeGang gang(kMembers, true);
  gang.place();
  std::size_t turns = 1;
  for (std::size_t before = 0; gang.hub.hub.starts_wait(); ++turns) {
    EXPECT_LE(gang.sum(&CountingPeer::messages) - before, limits::kStartsPerTurn);
    before = gang.sum(&CountingPeer::messages);
    gang.hub.hub.send_starts();
  }
  EXPECT_EQ(turns, (kMembers / LargeGang::kPerNode + limits::kStartsPerTurn - 1) / limits::kStartsPerTurn);
  EXPECT_EQ(gang.sum(&CountingPeer::members), kMembers);
  EXPECT_EQ(gang.sum(&CountingPeer::messages), kMembers / LargeGang::kPerNode);
  EXPECT_EQ(gang.shared.size(), 1u);
  // Without what is shared, so much for a member, however many there are.
  EXPECT_LE(gang.sum(&CountingPeer::own_bytes), kMembers * 64);
  const v1::StartAttempt start = gang.peers[7]->start_of(3);
  EXPECT_EQ(start.key().member(), 7 * LargeGang::kPerNode + 3);
  EXPECT_EQ(start.spec().size(), 100'000u);
  EXPECT_EQ(start.gang().members_size(), static_cast<int>(kMembers));
  EXPECT_EQ(start.gang().members(9'999).node(), "node-1249");
  EXPECT_EQ(start.cpu_milli(), 1'000);
}

TEST(NodeHub, OlderAgentsGetTheSameMemberByMember) {
  constexpr uint32_t kMembers = 400;
  LargeGang gang(kMembers, false);
  gang.place();
  while (gang.hub.hub.starts_wait()) gang.hub.hub.send_starts();
  EXPECT_EQ(gang.sum(&CountingPeer::messages), kMembers);
  EXPECT_EQ(gang.shared.size(), 1u);
  EXPECT_LE(gang.sum(&CountingPeer::own_bytes), kMembers * 64);
  const v1::StartAttempt start = gang.peers[1]->start_of(0);
  EXPECT_EQ(start.key().member(), 15u);
  EXPECT_EQ(start.spec().size(), 100'000u);
  EXPECT_EQ(start.gang().members_size(), static_cast<int>(kMembers));
}

TEST(NodeHub, AGangThatIsStoppedWhileItsAgentsAreToldIsNotStartedAtTheOthers) {
  LargeGang gang(8 * 2 * static_cast<uint32_t>(limits::kStartsPerTurn), true);
  gang.place();
  ASSERT_TRUE(gang.hub.hub.starts_wait());
  const std::size_t told = gang.sum(&CountingPeer::messages);
  gang.hub.proposals.emplace_back(CancelJob{.job = gang.job}, Decision{});
  gang.hub.decide();
  while (gang.hub.hub.starts_wait()) gang.hub.hub.send_starts();
  EXPECT_EQ(gang.sum(&CountingPeer::messages), told);
}

TEST(NodeHub, AgentsThatReconnectShareTheOrdersOfTheirGang) {
  LargeGang gang(64, true);
  gang.place();
  const std::set<const std::string*> before = gang.shared;
  ASSERT_EQ(before.size(), 1u);
  for (uint32_t node = 0; node < 8; ++node) {
    v1::AgentMessage message = Hub::registration();
    message.mutable_register_()->set_node_name("node-" + std::to_string(node));
    message.mutable_register_()->set_instance("folder-" + std::to_string(node));
    message.mutable_register_()->set_cpu_milli(64'000);
    message.mutable_register_()->set_takes_members(true);
    gang.hub.hub.receive(gang.hub.hub.open(gang.peers[node]), message);
    gang.hub.decide();
  }
  EXPECT_EQ(gang.shared, before);
  EXPECT_EQ(gang.sum(&CountingPeer::members), 2u * 64);
  // Where one of them is reached elsewhere now, the others hear of it.
  v1::AgentMessage message = Hub::registration();
  message.mutable_register_()->set_node_name("node-0");
  message.mutable_register_()->set_instance("folder-0");
  message.mutable_register_()->set_address("10.0.0.9");
  message.mutable_register_()->set_cpu_milli(64'000);
  gang.hub.hub.receive(gang.hub.hub.open(gang.peers[0]), message);
  gang.hub.decide();
  EXPECT_EQ(gang.peers[0]->start_of(0).gang().members(0).address(), "10.0.0.9");
}

TEST(NodeHub, AGpuThatStaysHotIsNotedOnceAndAgainWhenItHasCooled) {
  Hub hub(HeatLimits{.threshold_celsius = 75, .hysteresis_celsius = 5, .readings = 2});
  const auto peer = std::make_shared<Peer>();
  const SessionId id = hub.hub.open(peer);
  v1::AgentMessage registration = Hub::registration();
  for (const char* uuid : {"GPU-0", "GPU-1"}) {
    v1::Device& device = *registration.mutable_register_()->add_devices();
    device.set_uuid(uuid);
    device.set_model("NVIDIA A100");
  }
  hub.hub.receive(id, registration);
  hub.decide();
  const auto beat = [&](int32_t celsius) {
    v1::AgentMessage message;
    v1::DeviceTelemetry& device = *message.mutable_heartbeat()->add_devices();
    device.set_index(1);
    device.set_temperature_celsius(celsius);
    hub.hub.receive(id, message);
    hub.decide();
    return hub.node().devices[1].hot;
  };
  EXPECT_FALSE(beat(90));
  EXPECT_FALSE(beat(60));  // One value was a spike.
  EXPECT_FALSE(beat(80));
  EXPECT_TRUE(beat(82));
  EXPECT_EQ(hub.node().devices[1].hot_detail, "82 C, threshold 75 C, cools until 70 C");
  EXPECT_FALSE(hub.node().devices[0].hot);
  const uint64_t noted = hub.state.last.sequence;
  EXPECT_TRUE(beat(99));
  EXPECT_TRUE(beat(71));
  EXPECT_TRUE(beat(70));
  EXPECT_EQ(hub.state.last.sequence, noted);  // Telemetry is not journaled.
  EXPECT_FALSE(beat(70));
}

}  // namespace
}  // namespace gpusched
