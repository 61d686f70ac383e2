#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/nodes/node_hub.h"

/// For tests only: a hub on a state that a test looks at, and agents that are messages.
namespace gpusched::testing {

class Peer final : public NodeSession {
 public:
  void send(const v1::SchedulerMessage& message) override { sent.push_back(message); }
  void send(const v1::SchedulerMessage& own, const SharedPart& shared) override {
    ASSERT_TRUE(sent.emplace_back().ParseFromString(own.SerializeAsString() + *shared));
  }
  void close() override { closed = true; }

  /// The messages of one kind that were sent, oldest first.
  std::vector<v1::SchedulerMessage> all(v1::SchedulerMessage::BodyCase what) const {
    std::vector<v1::SchedulerMessage> found;
    for (const v1::SchedulerMessage& message : sent) {
      if (message.body_case() == what) found.push_back(message);
    }
    return found;
  }
  /// The ids of the reports that were acknowledged.
  std::set<uint64_t> acknowledged() const {
    std::set<uint64_t> ids;
    for (const v1::SchedulerMessage& message : sent)
      ids.insert(message.ack().report_ids().begin(), message.ack().report_ids().end());
    return ids;
  }
  std::vector<v1::SchedulerMessage> sent;
  bool closed = false;
};

/// A hub with a state; what it proposes waits until `decide`.
class Hub {
 public:
  explicit Hub(HeatLimits heat = {})
      : hub({.propose = [this](Command command,
                               Decision decision) { proposals.emplace_back(std::move(command), decision); },
             .state = [this]() -> const State& { return state; },
             .now = [this] { return now; },
             .monotonic = [this] { return now; }},
            seconds(15), seconds(5), seconds(10), minutes(1), heat) {
    hub.begin();
  }

  /// Applies everything that was proposed, as one group.
  void decide() {
    std::deque<std::pair<Command, Decision>> group = std::exchange(proposals, {});
    for (auto& [command, decision] : group) {
      Events events;
      const Applied applied =
          apply(state, command, Stamp{.sequence = state.last.sequence + 1, .at = now}, events);
      for (const Event& event : events) hub.on_event(event);
      if (decision) decision(Decided{.applied = applied, .sequence = state.last.sequence});
    }
    hub.flush();
  }
  void pass(Duration span) {
    for (const Time end = now + span; now < end;) {
      now = now + milliseconds(500);
      if (now >= hub.next_check()) hub.check_leases();
      decide();
    }
  }
  static v1::AgentMessage registration() {
    v1::AgentMessage message;
    v1::Register& out = *message.mutable_register_();
    out.set_node_name("n1");
    out.set_instance("folder-1");
    out.set_boot_id("boot-1");
    out.set_cpu_milli(8'000);
    return message;
  }
  const Node& node() const { return state.nodes.front(); }
  const Device& device(uint32_t index) const { return node().devices[index]; }
  /// Proposes and decides at once; what it was answered.
  Applied propose(const Command& command) {
    Applied answer;
    proposals.emplace_back(command, [&](const Result<Decided>& decided) { answer = decided->applied; });
    decide();
    return answer;
  }
  /// A job on the first node with the devices of `mask`, placed and told to its agent.
  JobId place(uint64_t mask = 0, Part part = {.cpu_milli = 1'000}) {
    MemberPlacement member{.node = node().id, .device_mask = mask};
    for (uint32_t index = 0; index < node().devices.size(); ++index) {
      if (((mask >> index) & 1) != 0) member.generations.push_back(device(index).generation);
    }
    part.gpu_count = static_cast<int32_t>(member.generations.size());
    const JobId job{
        propose(SubmitJobs{.tenant = kDefaultTenant, .jobs = {JobRequest{.parts = {part}}}}).first_id};
    propose(CommitPlan{.groups = {{.job = job, .attempt = attempt_count(job) + 1, .members = {member}}}});
    EXPECT_NE(state.find_attempt(job, 1), nullptr);
    return job;
  }
  uint32_t attempt_count(JobId job) const { return state.jobs.find(job)->attempt_count; }

  Time now{1'000'000'000'000};
  State state;
  std::deque<std::pair<Command, Decision>> proposals;
  NodeHub hub;
};

/// An agent of the node n1 and its stream; its reports have ascending ids.
class Agent {
 public:
  explicit Agent(Hub& hub, int gpus = 2) : hub_(hub), hello_(Hub::registration()) {
    for (int i = 0; i < gpus; ++i) {
      v1::Device& device = *hello().add_devices();
      device.set_uuid("GPU-" + std::to_string(i));
      device.set_model("NVIDIA A100");
    }
  }
  /// Registration that it sends when it connects next.
  v1::Register& hello() { return *hello_.mutable_register_(); }
  v1::AttemptOnNode& knows(JobId job, uint32_t attempt, Time placed_at, bool ended = false) {
    v1::AttemptOnNode& known = *hello().add_attempts();
    known.mutable_key()->set_job(job.value);
    known.mutable_key()->set_attempt(attempt);
    known.set_placed_at_ns(placed_at.ns);
    known.set_ended(ended);
    return known;
  }
  /// On a new stream; the old one is left as it is.
  void connect() {
    peer = std::make_shared<Peer>();
    session = hub_.hub.open(peer);
    hub_.hub.receive(session, hello_);
    hub_.decide();
  }
  void send(const v1::AgentMessage& message) { hub_.hub.receive(session, message); }
  /// Sends a report as the next one, or as the one with `id`, and lets it be decided. Returns its id.
  template <typename Fill>
  uint64_t report(Fill&& fill, uint64_t id = 0) {
    v1::AgentMessage message;
    message.mutable_report()->set_id(id != 0 ? id : ++reports_);
    fill(*message.mutable_report());
    send(message);
    hub_.decide();
    return message.report().id();
  }
  uint64_t report_condition(v1::DeviceCondition condition, uint64_t id = 0) {
    return report([&](v1::Report& out) { out.mutable_condition()->set_condition(condition); }, id);
  }
  uint64_t report_started(JobId job) {
    return report([&](v1::Report& out) { fill_key(*out.mutable_started()->mutable_key(), job); });
  }
  uint64_t report_ended(JobId job) {
    return report([&](v1::Report& out) {
      fill_key(*out.mutable_ended()->mutable_key(), job);
      out.mutable_ended()->mutable_outcome()->set_cause(v1::Outcome::EXITED);
    });
  }
  uint64_t report_released(uint32_t index, uint32_t generation, uint64_t id = 0) {
    return report(
        [&](v1::Report& out) {
          out.mutable_released()->set_index(index);
          out.mutable_released()->set_generation(generation);
        },
        id);
  }
  void beat(uint64_t sequence = 1) {
    v1::AgentMessage message;
    message.mutable_heartbeat()->set_sequence(sequence);
    send(message);
  }

  std::shared_ptr<Peer> peer;
  SessionId session = {};

 private:
  static void fill_key(v1::AttemptKey& key, JobId job) {
    key.set_job(job.value);
    key.set_attempt(1);
  }
  Hub& hub_;
  v1::AgentMessage hello_;
  uint64_t reports_ = 0;
};

}  // namespace gpusched::testing
