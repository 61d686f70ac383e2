#include "host/nodes/node_hub.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/job_signals.h"
#include "base/limits.h"
#include "base/queue_limits.h"
#include "model/topology.h"

namespace gpusched {
namespace {

/// What an agent says of an image, if it can be one: it is kept for as long as its job.
std::string image_digest_of(const v1::Started& started) {
  constexpr std::string_view kPrefix = "sha256:";
  constexpr std::size_t kDigits = 64;
  const std::string& digest = started.image_digest();
  const bool good = digest.starts_with(kPrefix) && digest.size() == kPrefix.size() + kDigits &&
                    digest.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string::npos;
  return good ? digest : std::string();
}

/// How often leases are looked at.
constexpr Duration kCheckInterval = seconds(1);
constexpr std::size_t kProgressBytesMax = 1'024;

AttemptKey from_wire(const v1::AttemptKey& key) {
  return {.job = JobId{key.job()}, .attempt = key.attempt(), .member = key.member()};
}

v1::AttemptKey to_wire(const AttemptKey& key) {
  v1::AttemptKey wire;
  wire.set_job(key.job.value);
  wire.set_attempt(key.attempt);
  wire.set_member(key.member);
  return wire;
}

Outcome from_wire(const v1::Outcome& wire) {
  Outcome outcome{.cause = EndCause::kShimLost,
                  .exit_code = wire.exit_code(),
                  .signal = wire.signal(),
                  .detail = wire.detail().substr(0, limits::kLabelBytesMax),
                  .keep_detail = true};
  const int cause = wire.cause();
  if (cause > 0 && cause <= static_cast<int>(kEndCauseLast)) outcome.cause = static_cast<EndCause>(cause);
  return outcome;
}

DeviceCondition from_wire(v1::DeviceCondition wire) {
  switch (wire) {
    case v1::DEVICE_CONDITION_UNHEALTHY:
      return DeviceCondition::kUnhealthy;
    case v1::DEVICE_CONDITION_MISSING:
      return DeviceCondition::kMissing;
    default:
      return DeviceCondition::kOk;
  }
}

/// The slot that each offered device has, or will have once the offer is applied.
std::vector<uint32_t> slots_of_offer(const State& state, const v1::Register& offer) {
  const Node* node = state.find_node_named(offer.node_name());
  std::vector<uint32_t> slots;
  uint32_t next = node == nullptr ? 0 : static_cast<uint32_t>(node->devices.size());
  for (const v1::Device& device : offer.devices()) {
    std::optional<uint32_t> known;
    for (uint32_t i = 0; node != nullptr && i < node->devices.size(); ++i) {
      if (node->devices[i].uuid == device.uuid()) known = i;
    }
    slots.push_back(known ? *known : next++);
  }
  return slots;
}

/// What does not fit the devices is not known, and said so.
void take_topology(const v1::Register& message, RegisterNode& command) {
  command.topology_note = message.topology_note().substr(0, limits::kLabelBytesMax);
  command.links.assign(message.links().begin(), message.links().end());
  const bool sound =
      command.links.empty() || (command.links.size() == pair_count(command.devices.size()) &&
                                std::all_of(command.links.begin(), command.links.end(),
                                            [](int64_t code) { return Link::is_sound(code); }));
  if (sound) return;
  command.links.clear();
  command.topology_note = "how the GPUs are linked is not known: the agent's words do not fit its GPUs";
}

RegisterNode command_of(const State& state, const v1::Register& message) {
  RegisterNode command{
      .name = message.node_name(),
      .instance = message.instance(),
      .boot_id = message.boot_id(),
      .version = message.version().substr(0, limits::kLabelBytesMax),
      .cpu_milli = std::clamp<int64_t>(message.cpu_milli(), 0, int64_t{limits::kCpuCoresMax} * 1000),
      .memory_mb = std::clamp<int64_t>(message.memory_mb(), 0, limits::kMegabytesMax),
      .devices = {},
      .attempts = {}};
  for (const v1::Device& device : message.devices()) {
    command.devices.push_back(
        DeviceOffer{.uuid = device.uuid(),
                    .model = device.model(),
                    .memory_mb = std::clamp<int64_t>(device.memory_mb(), 0, limits::kMegabytesMax),
                    .condition = from_wire(device.condition()),
                    .detail = device.detail().substr(0, limits::kLabelBytesMax),
                    .numa_plus_one = std::max(device.numa_plus_one(), 0),
                    .pci_bus_id = device.pci_bus_id().substr(0, limits::kLabelBytesMax),
                    .mig = device.mig()});
  }
  take_topology(message, command);
  const std::vector<uint32_t> slots = slots_of_offer(state, message);
  for (const v1::AttemptOnNode& attempt : message.attempts()) {
    KnownAttempt known{.job = JobId{attempt.key().job()},
                       .attempt = attempt.key().attempt(),
                       .member = attempt.key().member(),
                       .ended = attempt.ended(),
                       .device_mask = 0,
                       .placed_at = Time{attempt.placed_at_ns()}};
    for (const v1::GrantedDevice& granted : attempt.devices()) {
      for (int i = 0; i < message.devices_size(); ++i) {
        const uint32_t slot = slots[static_cast<std::size_t>(i)];
        if (message.devices(i).uuid() != granted.uuid() || slot >= limits::kDevicesPerNodeMax) continue;
        known.device_mask |= uint64_t{1} << slot;
      }
    }
    command.attempts.push_back(known);
  }
  command.machine = message.machine().substr(0, limits::kLabelBytesMax);
  command.validates = message.validates();
  command.address = message.address();
  for (const std::string& feature : message.features()) {
    if (command.features.size() == limits::kNodeFeaturesMax) break;
    command.features.push_back(feature.substr(0, limits::kLabelBytesMax));
  }
  std::sort(command.features.begin(), command.features.end());
  const std::map<std::string, std::string> labels(message.labels().begin(), message.labels().end());
  for (const auto& [name, value] : labels) {
    if (command.labels.size() == limits::kNodeLabelsMax) break;
    command.labels.push_back(
        {.name = name.substr(0, limits::kLabelBytesMax), .value = value.substr(0, limits::kLabelBytesMax)});
  }
  return command;
}

/// What a job that is ended for another one asked for: its own signal, its own time.
void ask_to_save(const Job& job, Duration grace_max, v1::StopAttempt& stop) {
  stop.set_until_saved(true);
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size()))) return;
  if (const auto signal = parse_job_signal(spec.preempt_signal()))
    stop.set_signal(static_cast<uint32_t>(signal->number));
  const Duration asked = milliseconds(std::clamp<int64_t>(spec.preempt_grace_ms(), 0, grace_max.ms()));
  if (asked.ns > 0) stop.set_grace_ms(asked.ms());
}

/// What is wrong with a registration, or nothing.
std::string problem_of(const v1::Register& message) {
  if (message.node_name().empty() || message.node_name().size() > limits::kNameBytesMax) {
    return "the node's name must have 1 to 253 bytes";
  }
  if (message.instance().empty() || message.boot_id().empty()) return "instance and boot_id must be given";
  if (message.instance().size() > limits::kNameBytesMax || message.boot_id().size() > limits::kNameBytesMax)
    return "instance and boot_id must have at most 253 bytes";
  if (message.attempts_size() > static_cast<int>(limits::kAttemptsPerRegistration)) {
    return "the agent knows " + std::to_string(message.attempts_size()) + " attempts, and at most " +
           std::to_string(limits::kAttemptsPerRegistration) +
           " can be registered; remove those that have ended from its data folder";
  }
  // It becomes a word in files and variables of jobs.
  const bool plain = std::all_of(message.address().begin(), message.address().end(),
                                 [](unsigned char byte) { return byte > ' ' && byte < 0x7F; });
  if (!plain || message.address().size() > limits::kNameBytesMax)
    return "the node's address must have at most 253 visible characters";
  if (message.devices_size() > static_cast<int>(limits::kDevicesPerNodeMax))
    return "a node has at most 64 devices";
  const bool short_names =
      std::all_of(message.devices().begin(), message.devices().end(), [](const v1::Device& device) {
        return device.uuid().size() <= limits::kLabelBytesMax &&
               device.model().size() <= limits::kLabelBytesMax;
      });
  if (!short_names) return "a device's uuid and model must have at most 253 bytes";
  std::vector<std::string> uuids;
  for (const v1::Device& device : message.devices()) uuids.push_back(device.uuid());
  std::sort(uuids.begin(), uuids.end());
  if (std::adjacent_find(uuids.begin(), uuids.end()) != uuids.end()) return "two devices have the same uuid";
  if (std::find(uuids.begin(), uuids.end(), "") != uuids.end()) return "a device has no uuid";
  return {};
}

}  // namespace

NodeHub::NodeHub(Hooks hooks, Duration lease, Duration heartbeat, Duration grace, Duration preempt_grace_max,
                 HeatLimits heat, WatchLimits watch)
    : hooks_(std::move(hooks)),
      lease_(lease),
      heartbeat_(std::min(heartbeat, Duration{lease.ns / 3})),
      grace_(grace),
      preempt_grace_max_(preempt_grace_max),
      heat_(heat),
      watch_(watch),
      session_router_(
          [this](NodeId node, const v1::SchedulerMessage& message) {
            Session* session = session_of(node);
            if (session != nullptr) session->peer->send(message);
            return session != nullptr;
          },
          hooks_.monotonic) {
  CHECK(heartbeat_.ns > 0);
  CHECK(lease_.ns > 0);
}

void NodeHub::begin() {
  const Time now = hooks_.monotonic();
  for (const Node& node : hooks_.state().nodes) {
    if (node.state == NodeState::kReady) heard_at_[node.id] = now;
  }
  if (!heard_at_.empty()) next_check_ = now + kCheckInterval;
}

NodeHub::Session* NodeHub::find(SessionId id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

NodeHub::Session* NodeHub::session_of(NodeId node) {
  const auto it = by_node_.find(node);
  return it == by_node_.end() ? nullptr : find(it->second);
}

SessionId NodeHub::open(std::shared_ptr<NodeSession> session) {
  const SessionId id = next_session_++;
  sessions_[id].peer = std::move(session);
  return id;
}

void NodeHub::closed(SessionId id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  const NodeId node = it->second.node;
  sessions_.erase(it);
  const auto current = by_node_.find(node);
  if (current == by_node_.end() || current->second != id) return;
  by_node_.erase(current);
  telemetry_->set_connected(node, false);
  session_router_.node_gone(node);
  for (auto log = logs_.begin(); log != logs_.end();) {
    if (log->second.node != node) {
      ++log;
      continue;
    }
    log->second.done(
        Error{.code = ErrorCode::kUnavailable, .message = "the node's agent went away; try again"});
    log = logs_.erase(log);
  }
}

// A stream that it still had is of a node that nobody knows: its agent begins anew.
void NodeHub::forget(NodeId node) {
  heard_at_.erase(node);
  const auto stream = by_node_.find(node);
  if (stream != by_node_.end()) {
    const SessionId id = stream->second;
    Session* session = find(id);
    if (session != nullptr) refuse(*session, "stale", "the node was removed; register again");
    closed(id);
  }
  telemetry_->forget(node);
}

void NodeHub::refuse(Session& session, const std::string& code, const std::string& message) {
  v1::SchedulerMessage reply;
  reply.mutable_refused()->set_code(code);
  reply.mutable_refused()->set_message(message);
  session.peer->send(reply);
  session.peer->close();
}

void NodeHub::receive(SessionId id, const v1::AgentMessage& message) {
  Session* session = find(id);
  if (session == nullptr) return;
  if (message.has_register_()) return on_register(id, message.register_());
  if (!session->node.valid()) {
    if (!session->registering) refuse(*session, "not_registered", "the first message must be Register");
    return;
  }
  heard_at_[session->node] = hooks_.monotonic();
  if (message.has_heartbeat()) return on_heartbeat(id, message.heartbeat());
  if (message.has_report()) return on_report(id, message.report());
  if (message.has_log_chunk()) return on_log_chunk(message.log_chunk());
  if (message.has_session_output()) return session_router_.on_output(session->node, message.session_output());
  if (message.has_file_chunk()) return session_router_.on_chunk(session->node, message.file_chunk());
}

void NodeHub::on_register(SessionId id, const v1::Register& message) {
  Session& session = sessions_[id];
  if (session.registering || session.node.valid()) return;
  const std::string problem = problem_of(message);
  if (!problem.empty()) return refuse(session, "invalid_argument", problem);
  if (const std::string other = problem_of_cluster(message); !other.empty())
    return refuse(session, "wrong_cluster", other);
  if (has_rival(message)) {
    return refuse(
        session, std::string(to_string(RejectionCode::kNodeStillHeard)),
        "another agent of this node is connected; give each agent its own --data-dir and --node, or "
        "stop the other one");
  }
  session.registering = true;
  hooks_.propose(command_of(hooks_.state(), message), [this, id, message](const Result<Decided>& result) {
    Session* waiting = find(id);
    if (waiting == nullptr) return;
    if (!result.ok())
      return refuse(*waiting, std::string(to_string(result.error().code)), result.error().message);
    const std::optional<Rejection>& rejection = result->applied.rejection;
    if (rejection) return refuse(*waiting, std::string(to_string(rejection->code)), describe(*rejection));
    registered(id, message, *result);
  });
}

void NodeHub::registered(SessionId id, const v1::Register& message, const Decided& decided) {
  const NodeId node{decided.applied.first_id};
  const auto before = by_node_.find(node);
  if (before != by_node_.end() && before->second != id) {
    // The same agent on a new stream: the old one is a ghost.
    const SessionId ghost = before->second;
    Session* old = find(ghost);
    if (old != nullptr) old->peer->close();
    closed(ghost);
  }
  Session& session = sessions_[id];
  session.node = node;
  session.boot_id = message.boot_id();
  session.takes_members = message.takes_members();
  session.process = message.process();
  session.registering = false;
  session.slots = slots_of_offer(hooks_.state(), message);
  session.heat.clear();
  for (const v1::Device& device : message.devices()) session.heat.emplace_back(device.slowdown_celsius());
  by_node_[node] = id;
  heard_at_[node] = hooks_.monotonic();
  telemetry_->set_connected(node, true);
  v1::SchedulerMessage reply;
  reply.mutable_registered()->set_node(node.value);
  reply.mutable_registered()->set_heartbeat_ms(std::max<int64_t>(heartbeat_.ms(), 1));
  reply.mutable_registered()->set_lease_ms(lease_.ms());
  reply.mutable_registered()->set_unix_ms(hooks_.now().ms());
  reply.mutable_registered()->set_cluster(hooks_.state().config.cluster);
  session.peer->send(reply);
  reconcile(session, message);
}

// Says again everything that the agent may have missed.
void NodeHub::reconcile(Session& session, const v1::Register& message) {
  const State& state = hooks_.state();
  const Node* node = state.find_node(session.node);
  CHECK(node != nullptr);
  std::map<AttemptKey, std::vector<uint32_t>> to_start;
  for (const AttemptKey& key : node->attempts) {
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    CHECK(attempt != nullptr);
    // A stop comes first: an attempt that never started then never will.
    if (attempt->stop != StopReason::kNone) {
      order_stop(session, key, attempt->placed_at, attempt->stop);
    } else if (!has_begun(attempt->members[key.member].state)) {
      to_start[attempt->key()].push_back(key.member);
    } else {
      const Job* job = state.jobs.find(key.job);
      if (job != nullptr && job->runtime_changed) order_change(key.job);
    }
  }
  for (const auto& [key, members] : to_start) {
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    order_start(session, *attempt, members);
    if (!attempt->may_go()) continue;
    for (const uint32_t member : members) release_gang(session, *attempt, member);
  }
  for (const v1::AttemptOnNode& known : message.attempts()) {
    const AttemptKey key{
        .job = JobId{known.key().job()}, .attempt = known.key().attempt(), .member = known.key().member()};
    const Time placed_at{known.placed_at_ns()};
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    const bool ours = attempt != nullptr && attempt->was_placed(placed_at);
    if (!ours && is_foreign(known)) {
      Session::Foreign& foreign =
          session.foreign.emplace_back(Session::Foreign{.key = key, .placed_at = placed_at});
      for (const v1::GrantedDevice& device : known.devices()) {
        if (const auto slot = slot_of(session, device.index())) foreign.slots |= uint64_t{1} << *slot;
      }
      continue;
    }
    if (!known.ended() && !ours) order_stop(session, key, placed_at, StopReason::kAbandoned);
  }
  v1::SchedulerMessage check;
  for (uint32_t slot = 0; slot < node->devices.size(); ++slot) {
    const Device& device = node->devices[slot];
    if (device.fault_id != 0) order_clear(session, slot);  // It may have been released meanwhile.
    for (const Share& share : device.shares) {
      if (share.draining()) ask_release(session, slot, share.held_by, check);
    }
    if (device.state != DeviceState::kDraining && device.state != DeviceState::kQuarantined) continue;
    if (device.shares.empty()) ask_release(session, slot, {}, check);
  }
  if (check.has_check_release()) session.peer->send(check);
}

// An answer promises that the node has its lease, and so that its silence counts from now at the earliest: it
// is given when that is durable.
void NodeHub::answer_heartbeat(SessionId id, NodeId node, uint64_t sequence) {
  Session* session = find(id);
  const Node* known = hooks_.state().find_node(node);
  if (known == nullptr) return;  // It was removed meanwhile.
  if (session == nullptr || known->state != NodeState::kReady || losing_.contains(node)) return;
  v1::SchedulerMessage seen;
  seen.mutable_heartbeat_seen()->set_sequence(sequence);
  session->peer->send(seen);
}

void NodeHub::on_heartbeat(SessionId id, const v1::Heartbeat& message) {
  Session& session = sessions_[id];
  answer_heartbeat(id, session.node, message.sequence());
  NodeTelemetry telemetry{.devices = {},
                          .cpu_utilization = message.cpu_utilization(),
                          .memory_utilization = message.memory_utilization(),
                          .connected = true};
  for (const v1::DeviceTelemetry& device : message.devices()) {
    const std::optional<uint32_t> slot = slot_of(session, device.index());
    if (!slot) continue;
    if (*slot >= telemetry.devices.size()) telemetry.devices.resize(*slot + 1);
    telemetry.devices[*slot].utilization_percent = device.utilization_percent();
    telemetry.devices[*slot].memory_used_mb = device.memory_used_mb();
    telemetry.devices[*slot].temperature_celsius = device.temperature_celsius();
    telemetry.devices[*slot].power_watts = device.power_watts();
  }
  for (const v1::AttemptProgress& progress : message.progress()) {
    if (telemetry.preparing.size() >= limits::kAttemptsPerNodeMax) break;
    const AttemptKey key{.job = JobId{progress.key().job()},
                         .attempt = progress.key().attempt(),
                         .member = progress.key().member()};
    telemetry.preparing.emplace(key, progress.message().substr(0, kProgressBytesMax));
  }
  telemetry_->set(session.node, std::move(telemetry));
  note_heat(id, message);
  watch(id, message);
  note_saved(id, message);
  const Node* node = hooks_.state().find_node(session.node);
  CHECK(node != nullptr);
  if (node->state == NodeState::kUnreachable || node->state == NodeState::kLost) {
    propose_once(id, {Ask::kBack, session.node.value, 0, 0}, NodeLeaseBack{.node = session.node},
                 [this, id, number = session.node, sequence = message.sequence()](const Result<Decided>&) {
                   answer_heartbeat(id, number, sequence);
                 });
  } else if (node->state == NodeState::kDead) {
    // Declared dead while it was silent: what it runs must be settled by a registration.
    refuse(session, "stale", "the node was confirmed dead; register again");
  }
}

void NodeHub::note_saved(SessionId id, const v1::Heartbeat& message) {
  const NodeId node = sessions_[id].node;
  for (const v1::AttemptSaved& saved : message.saved()) {
    const JobId job{saved.key().job()};
    if (hooks_.state().find_attempt(job, saved.key().attempt()) == nullptr) continue;
    const int64_t bound = limits::kRuntimeMax.ms();
    propose_once(id, {Ask::kSaved, node.value, job.value, saved.key().attempt()},
                 CheckpointSaved{.job = job,
                                 .attempt = saved.key().attempt(),
                                 .node = node,
                                 .age = milliseconds(std::clamp(saved.age_ms(), -bound, bound)),
                                 .placed_at = Time{saved.placed_at_ns()}});
  }
}

void NodeHub::note_heat(SessionId id, const v1::Heartbeat& message) {
  Session& session = sessions_[id];
  const Node* node = hooks_.state().find_node(session.node);
  CHECK(node != nullptr);
  for (const v1::DeviceTelemetry& device : message.devices()) {
    const std::optional<uint32_t> slot = slot_of(session, device.index());
    if (!slot || *slot >= node->devices.size() || device.temperature_celsius() == 0) continue;  // Not told.
    HeatMeter& meter = session.heat[device.index()];
    std::optional<HeatChange> change =
        meter.look(heat_, device.temperature_celsius(), node->devices[*slot].hot);
    if (!change) continue;
    propose_once(
        id, {Ask::kHeat, session.node.value, *slot, change->hot ? 1 : 0},
        NoteDeviceHeat{
            .node = session.node, .device = *slot, .hot = change->hot, .detail = std::move(change->detail)});
  }
}

void NodeHub::watch(SessionId id, const v1::Heartbeat& message) {
  Session& session = sessions_[id];
  session.beats += 1;
  const int64_t longest = limits::kRuntimeMax.ms();
  const auto span_of = [longest](int64_t ms) { return milliseconds(std::clamp<int64_t>(ms, 0, longest)); };
  std::set<std::pair<JobId, uint32_t>> attempts;
  std::size_t taken = 0;
  for (const v1::AttemptActivity& told : message.activity()) {
    if (taken >= limits::kAttemptsPerNodeMax) break;
    const AttemptKey key = from_wire(told.key());
    const Attempt* attempt = hooks_.state().find_attempt(key.job, key.attempt);
    if (attempt == nullptr || !attempt->was_placed(Time{told.placed_at_ns()})) continue;
    if (key.member >= attempt->members.size() || attempt->members[key.member].node != session.node) continue;
    std::vector<hub::AttemptRow::Told>& members = attempts_.row_of(*attempt).told;
    if (members.size() <= key.member) members.resize(attempt->members.size());
    members[key.member] = {.connection = id,
                           .beat = session.beats,
                           .activity = {.idle = span_of(told.idle_ms()),
                                        .busy = span_of(told.busy_ms()),
                                        .quiet = span_of(told.quiet_ms()),
                                        .over_mb = told.over_share_mb(),
                                        .over = span_of(told.over_share_ms())}};
    taken += 1;
    attempts.emplace(key.job, key.attempt);
  }
  for (const auto& [job, number] : attempts) {
    const Attempt* attempt = hooks_.state().find_attempt(job, number);
    hub::AttemptRow* row = attempts_.find(job, number);
    if (attempt == nullptr || row == nullptr) continue;
    // A gang is looked at once a round, when the node of its first member with devices speaks.
    const auto first = std::find_if(attempt->members.begin(), attempt->members.end(),
                                    [](const Member& member) { return member.device_mask != 0; });
    if (first != attempt->members.end() && first->node == session.node) watch_attempt(*attempt, *row);
  }
}

/// Read once for each attempt: heartbeats come often, and specifications may be large.
const WatchPolicy& NodeHub::watch_policy(const Job& job, hub::AttemptRow& row) const {
  if (row.watch_policy) return *row.watch_policy;
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size()))) spec.Clear();
  return row.watch_policy.emplace(policy_of(watch_, spec));
}

void NodeHub::watch_attempt(const Attempt& attempt, hub::AttemptRow& row) {
  const Job* job = hooks_.state().jobs.find(attempt.job);
  if (job == nullptr || job->state != JobState::kRunning || attempt.abandoned ||
      attempt.stop != StopReason::kNone || row.finding_proposed) {
    return;
  }
  std::vector<MemberActivity> members;
  for (uint32_t member = 0; member < attempt.members.size(); ++member) {
    const auto connected = by_node_.find(attempt.members[member].node);
    if (connected == by_node_.end()) return;  // Whoever is silent may be at work.
    if (attempt.members[member].device_mask == 0) continue;
    if (member >= row.told.size()) return;
    const hub::AttemptRow::Told& told = row.told[member];
    // Only what its node's newest heartbeat told.
    if (told.connection != connected->second || told.beat != sessions_[connected->second].beats) return;
    members.push_back(told.activity);
  }
  WatchFinding found = judge(watch_policy(*job, row), members);
  if (found.kind == job->watch && found.action == WatchAction::kWarn) return;
  row.finding_proposed = true;
  hooks_.propose(ReportWatchdogFinding{.job = attempt.job,
                                       .attempt = attempt.number,
                                       .kind = found.kind,
                                       .detail = std::move(found.detail),
                                       .age = found.age,
                                       .action = found.action},
                 [this, id = attempt.job, number = attempt.number](const Result<Decided>&) {
                   hub::AttemptRow* judged = attempts_.find(id, number);
                   if (judged != nullptr) judged->finding_proposed = false;
                 });
}

std::optional<uint32_t> NodeHub::slot_of(const Session& session, uint32_t index) const {
  if (index >= session.slots.size()) return std::nullopt;
  return session.slots[index];
}

std::optional<uint32_t> NodeHub::agent_index(const Session& session, uint32_t slot) const {
  const auto it = std::find(session.slots.begin(), session.slots.end(), slot);
  if (it == session.slots.end()) return std::nullopt;
  return static_cast<uint32_t>(it - session.slots.begin());
}

std::optional<Command> NodeHub::command_of_report(Session& session, const v1::Report& report) {
  switch (report.what_case()) {
    case v1::Report::kPrepared:
      return AttemptPrepared{.job = JobId{report.prepared().key().job()},
                             .attempt = report.prepared().key().attempt(),
                             .member = report.prepared().key().member(),
                             .node = session.node,
                             .placed_at = Time{report.prepared().placed_at_ns()}};
    case v1::Report::kStarted:
      return AttemptStarted{.job = JobId{report.started().key().job()},
                            .attempt = report.started().key().attempt(),
                            .member = report.started().key().member(),
                            .node = session.node,
                            .placed_at = Time{report.started().placed_at_ns()},
                            .image_digest = image_digest_of(report.started())};
    case v1::Report::kEnded:
      return AttemptEnded{.job = JobId{report.ended().key().job()},
                          .attempt = report.ended().key().attempt(),
                          .member = report.ended().key().member(),
                          .node = session.node,
                          .outcome = from_wire(report.ended().outcome()),
                          .placed_at = Time{report.ended().placed_at_ns()}};
    case v1::Report::kReleased: {
      const std::optional<uint32_t> slot = slot_of(session, report.released().index());
      if (!slot) return std::nullopt;
      telemetry_->set_evidence(session.node, *slot, {});
      return DeviceReleased{.node = session.node,
                            .device = *slot,
                            .generation = report.released().generation(),
                            .share_of = from_wire(report.released().share_of())};
    }
    case v1::Report::kCondition: {
      const std::optional<uint32_t> slot = slot_of(session, report.condition().index());
      if (!slot) return std::nullopt;
      // A condition is the device's last word: one that was overtaken by a newer says nothing any more.
      uint64_t& newest = session.conditions[report.condition().index()];
      if (report.id() < newest) return std::nullopt;
      newest = report.id();
      return SetDeviceCondition{.node = session.node,
                                .device = *slot,
                                .condition = from_wire(report.condition().condition()),
                                .detail = report.condition().detail().substr(0, limits::kLabelBytesMax)};
    }
    case v1::Report::kValidated:
      // As for conditions, only the last word counts.
      if (report.id() < session.validation) return std::nullopt;
      session.validation = report.id();
      return NodeValidated{.node = session.node,
                           .boot_id = session.boot_id,
                           .passed = report.validated().ok(),
                           .detail = report.validated().detail().substr(0, limits::kReasonBytesMax)};
    case v1::Report::kDeviceFault:
      return command_of_fault(session, report);
    case v1::Report::kDraining:
    case v1::Report::WHAT_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Command> NodeHub::command_of_fault(Session& session, const v1::Report& report) {
  const v1::DeviceFault& fault = report.device_fault();
  const std::optional<uint32_t> slot = slot_of(session, fault.index());
  if (!slot) return std::nullopt;
  // As for conditions, only the last word counts.
  uint64_t& newest = session.faults[fault.index()];
  if (report.id() < newest) return std::nullopt;
  newest = report.id();
  const int known = std::clamp<int>(fault.fault(), 0, static_cast<int>(kFaultClassLast));
  return NoteDeviceFault{.node = session.node,
                         .device = *slot,
                         .fault = static_cast<FaultClass>(known),
                         .code = fault.code().substr(0, limits::kLabelBytesMax),
                         .detail = fault.detail().substr(0, limits::kLabelBytesMax),
                         .id = fault.id()};
}

// The node goes by what it found until it hears of the release.
void NodeHub::order_clear(Session& session, uint32_t slot) {
  const Node* node = hooks_.state().find_node(session.node);
  const std::optional<uint32_t> index = agent_index(session, slot);
  if (node == nullptr || slot >= node->devices.size() || !index) return;
  const Device& device = node->devices[slot];
  if (device.fault != FaultClass::kNone) return;
  v1::SchedulerMessage message;
  message.mutable_clear_fault()->set_index(*index);
  message.mutable_clear_fault()->set_id(device.fault_id);
  session.peer->send(message);
}

void NodeHub::on_report(SessionId id, const v1::Report& report) {
  Session& session = sessions_[id];
  if (report.has_draining()) return on_draining(session, report.draining(), id, report.id());
  std::optional<Command> command = command_of_report(session, report);
  if (!command)
    return acknowledge(id, report.id());  // Said of nothing that we know: repeating it would not help.
  std::optional<DeviceReleased> release;
  if (const auto* released = std::get_if<DeviceReleased>(&*command)) release = *released;
  std::optional<AttemptEnded> ended;
  if (const auto* told = std::get_if<AttemptEnded>(&*command)) ended = *told;
  std::optional<uint32_t> fault;
  if (const auto* noted = std::get_if<NoteDeviceFault>(&*command)) fault = noted->device;
  propose_once(id, {Ask::kReport, id, report.id(), 0}, std::move(*command),
               [this, id, number = report.id(), release, ended, fault](const Result<Decided>& result) {
                 if (Session* speaker = find(id); fault && speaker != nullptr && result.ok())
                   order_clear(*speaker, *fault);
                 // A rejection is an answer too: the report is settled. Without a durable answer it is
                 // repeated, and so is a release that came before its attempt's end.
                 const bool settled =
                     !(release && is_held(*release)) && !(ended && is_of_another_node(*ended));
                 if (result.ok() && settled) acknowledge(id, number);
               });
}

void NodeHub::propose_once(SessionId id, const AskKey& key, Command command, Decision decision) {
  Session& session = sessions_[id];
  if (session.asked >= limits::kAgentAsksMax || !asked_.insert(key).second) return;
  session.asked += 1;
  hooks_.propose(std::move(command),
                 [this, id, key, decision = std::move(decision)](const Result<Decided>& decided) {
                   asked_.erase(key);
                   if (Session* asking = find(id); asking != nullptr) asking->asked -= 1;
                   if (decision) decision(decided);
                 });
}

bool NodeHub::is_held(const DeviceReleased& release) const {
  const Node* node = hooks_.state().find_node(release.node);
  if (node == nullptr || release.device >= node->devices.size()) return false;
  const Device& device = node->devices[release.device];
  if (device.generation != release.generation) return false;
  if (!release.share_of.job.valid()) return device.state == DeviceState::kHeld;
  const Share* share = device.share_of(release.share_of);
  return share != nullptr && !share->draining();
}

// Only what quarantines is journaled.
void NodeHub::on_draining(Session& session, const v1::Draining& draining, SessionId id, uint64_t report) {
  acknowledge(id, report);
  const std::optional<uint32_t> slot = slot_of(session, draining.index());
  if (!slot) return;
  std::string evidence = draining.evidence().substr(0, limits::kLabelBytesMax);
  for (const Session::Foreign& foreign : session.foreign) {
    if (((foreign.slots >> *slot) & 1) != 0)
      evidence = "a job of another scheduler runs on it; gpu-cli device release ends that job";
  }
  telemetry_->set_evidence(session.node, *slot, evidence);
  const State& state = hooks_.state();
  const Node* node = state.find_node(session.node);
  CHECK(node != nullptr);
  if (*slot >= node->devices.size()) return;
  const Device& device = node->devices[*slot];
  const AttemptKey share_of = from_wire(draining.share_of());
  const Share* share = device.share_of(share_of);
  const bool drains = share_of.job.valid()
                          ? share != nullptr && share->draining() && device.state == DeviceState::kShared
                          : device.state == DeviceState::kDraining;
  if (!drains || device.generation != draining.generation()) return;
  const Time since = share != nullptr ? share->draining_since : device.draining_since;
  if (hooks_.now() - since < state.config.drain_limit) return;
  // Healthy GPUs are not to suffer for a job's epilog, which has its own time limit.
  const bool looked_at =
      !draining.in_epilog() &&
      (draining.checked_ms() == 0 || milliseconds(draining.checked_ms()) >= state.config.drain_limit);
  if (!looked_at) return;
  propose_once(id, {Ask::kBusy, session.node.value, *slot, share_of.job.value},
               DeviceStillBusy{.node = session.node,
                               .device = *slot,
                               .generation = draining.generation(),
                               .evidence = evidence,
                               .share_of = share_of});
}

void NodeHub::acknowledge(SessionId id, uint64_t report) {
  Session* session = find(id);
  if (session == nullptr) return;
  if (session->acks.empty()) to_acknowledge_.push_back(id);
  session->acks.push_back(report);
}

void NodeHub::send_starts() {
  const auto tell = [this](const AttemptKey& key, Time placed_at, NodeId node,
                           const std::vector<uint32_t>& members) {
    const Attempt* attempt = hooks_.state().find_attempt(key.job, key.attempt);
    if (attempt == nullptr || attempt->placed_at != placed_at || attempt->stop != StopReason::kNone)
      return false;  // It is over before it began.
    Session* session = session_of(node);
    if (session != nullptr) order_start(*session, *attempt, members);
    return true;
  };
  pending_starts_.tell(limits::kStartsPerTurn, tell);
}

void NodeHub::order_start(Session& session, const Attempt& attempt, const std::vector<uint32_t>& members) {
  const State& state = hooks_.state();
  const auto index_of = [&](uint32_t slot) { return agent_index(session, slot); };
  const auto common = [&] { return common_start(state, attempt, grace_, lease_); };
  v1::SchedulerMessage whole;
  for (const uint32_t member : members) {
    std::optional<v1::StartAttempt> own = member_start(state, attempt, member, index_of);
    if (!own) continue;
    if (!attempt.is_gang()) {
      *whole.mutable_start() = common();
      whole.mutable_start()->MergeFrom(*own);
      return session.peer->send(whole);
    }
    if (session.takes_members) {
      *whole.mutable_start_members()->add_members() = std::move(*own);
      continue;
    }
    v1::SchedulerMessage one;
    *one.mutable_start() = std::move(*own);
    session.peer->send(one, shared_starts_.part_of(attempt.key(), attempt.placed_at, false, common));
  }
  if (whole.has_start_members())
    session.peer->send(whole, shared_starts_.part_of(attempt.key(), attempt.placed_at, true, common));
}

void NodeHub::flush() {
  send_starts();
  for (const SessionId id : to_acknowledge_) {
    Session* session = find(id);
    if (session == nullptr) continue;
    v1::SchedulerMessage message;
    for (const uint64_t report : session->acks) message.mutable_ack()->add_report_ids(report);
    session->acks.clear();
    session->peer->send(message);
  }
  to_acknowledge_.clear();
}

void NodeHub::on_event(const Event& event) {
  const State& state = hooks_.state();
  if (const auto* ended = std::get_if<MemberEnded>(&event); ended != nullptr && ended->last)
    attempts_.erase(ended->job, ended->attempt);
  if (const auto* ready = std::get_if<NodeRegistered>(&event)) {
    const Node* node = state.find_node(ready->node);
    CHECK(node != nullptr);
    shared_starts_.node_registered(node->id, node->reached_at());
    // From here on it has a lease to lose, also when its stream broke before it was answered.
    const Time now = hooks_.monotonic();
    heard_at_[ready->node] = now;
    next_check_ = std::min(next_check_, now + kCheckInterval);
    return;
  }
  if (const auto* removed = std::get_if<NodeRemoved>(&event)) return forget(removed->node);
  if (const auto* placed = std::get_if<AttemptPlaced>(&event)) {
    const Attempt* attempt = state.find_attempt(placed->job, placed->attempt);
    // Cancelled or lost within the same group: there is nothing left to start.
    if (attempt == nullptr || attempt->stop != StopReason::kNone) return;
    attempts_.row_of(*attempt);
    return pending_starts_.add(*attempt);
  }
  if (const auto* prepared = std::get_if<MemberPrepared>(&event)) {
    const Attempt* attempt = state.find_attempt(prepared->job, prepared->attempt);
    if (attempt == nullptr || attempt->stop != StopReason::kNone || !attempt->may_go()) return;
    // It may have been released by another of its events.
    if (!hub::AttemptTable::advance(attempts_.row_of(*attempt), hub::AttemptState::kReleased)) return;
    for (uint32_t member = 0; member < attempt->members.size(); ++member) {
      Session* session = session_of(attempt->members[member].node);
      if (session != nullptr) release_gang(*session, *attempt, member);
    }
    return;
  }
  if (const auto* abandoned = std::get_if<AttemptAbandoned>(&event)) {
    return stop_everywhere(abandoned->job, abandoned->attempt);  // Members on nodes that still report.
  }
  if (const auto* updated = std::get_if<JobUpdated>(&event)) {
    shared_starts_.forget(updated->change->job);
    if ((updated->change->given & kJobMaxRuntime) != 0) order_change(updated->change->job);
    return;
  }
  if (const auto* occupied = std::get_if<DeviceOccupied>(&event))
    return take_back(occupied->node, occupied->device);
  if (const auto* fault = std::get_if<DeviceFaultChanged>(&event)) {
    Session* session = session_of(fault->node);
    if (session != nullptr && !fault->by.empty()) order_clear(*session, fault->device);
    return;
  }
  if (const auto* stop = std::get_if<StopRequested>(&event)) stop_everywhere(stop->job, stop->attempt);
}

void NodeHub::stop_everywhere(JobId job, uint32_t number) {
  const Attempt* attempt = hooks_.state().find_attempt(job, number);
  if (attempt == nullptr) return;
  CHECK(hub::AttemptTable::advance(attempts_.row_of(*attempt), hub::AttemptState::kStopping));
  v1::SchedulerMessage message = stop_order(attempt->key(), attempt->placed_at, attempt->stop);
  for (uint32_t member = 0; member < attempt->members.size(); ++member) {
    if (attempt->members[member].state == MemberState::kEnded) continue;
    Session* session = session_of(attempt->members[member].node);
    if (session == nullptr) continue;
    message.mutable_stop()->mutable_key()->set_member(member);
    session->peer->send(message);
  }
}

void NodeHub::release_gang(Session& session, const Attempt& attempt, uint32_t member) {
  v1::SchedulerMessage message;
  *message.mutable_go()->mutable_key() = to_wire(attempt.key(member));
  message.mutable_go()->set_placed_at_ns(attempt.placed_at.ns);
  session.peer->send(message);
}

// What a running attempt may take longer or shorter for now.
void NodeHub::order_change(JobId id) {
  const Job* job = hooks_.state().jobs.find(id);
  if (job == nullptr) return;
  const Attempt* attempt = hooks_.state().find_attempt(id, job->attempt_count);
  if (attempt == nullptr || attempt->abandoned) return;
  for (uint32_t member = 0; member < attempt->members.size(); ++member) {
    Session* session = session_of(attempt->members[member].node);
    if (session == nullptr) continue;
    v1::SchedulerMessage message;
    *message.mutable_change()->mutable_key() = to_wire(attempt->key(member));
    message.mutable_change()->set_max_runtime_ms(job->max_runtime.ms());
    session->peer->send(message);
  }
}

bool NodeHub::reboot(NodeId node, const std::string& reason) {
  Session* session = session_of(node);
  if (session == nullptr) return false;
  v1::SchedulerMessage message;
  message.mutable_reboot()->set_reason(reason);
  session->peer->send(message);
  return true;
}

bool NodeHub::validate(NodeId node) {
  Session* session = session_of(node);
  if (session == nullptr) return false;
  v1::SchedulerMessage message;
  message.mutable_validate();
  session->peer->send(message);
  return true;
}

void NodeHub::order_stop(Session& session, const AttemptKey& key, Time placed_at, StopReason reason) {
  session.peer->send(stop_order(key, placed_at, reason));
}

v1::SchedulerMessage NodeHub::stop_order(const AttemptKey& key, Time placed_at, StopReason reason) const {
  v1::SchedulerMessage message;
  *message.mutable_stop()->mutable_key() = to_wire(key);
  message.mutable_stop()->set_grace_ms(grace_.ms());
  message.mutable_stop()->set_placed_at_ns(placed_at.ns);
  const Job* job = hooks_.state().jobs.find(key.job);
  if (reason == StopReason::kPreempt && job != nullptr)
    ask_to_save(*job, preempt_grace_max_, *message.mutable_stop());
  return message;
}

void NodeHub::check_leases() {
  const Time now = hooks_.monotonic();
  next_check_ = now + kCheckInterval;
  for (const Node& node : hooks_.state().nodes) {
    if (node.state != NodeState::kReady) continue;
    const auto [heard, fresh] = heard_at_.try_emplace(node.id, now);
    if (fresh || now - heard->second < lease_ || losing_.contains(node.id)) continue;
    losing_.insert(node.id);
    hooks_.propose(NodeLeaseLost{.node = node.id},
                   [this, number = node.id](const Result<Decided>&) { losing_.erase(number); });
    heard->second = now;  // Not again before this proposal was decided.
  }
  for (const auto& [node, session] : by_node_) check_releases(sessions_[session]);
  session_router_.tick();
  flush();
}

// An agent says once why a device is not empty. Past the limit it is asked again: its answer quarantines.
void NodeHub::check_releases(Session& session) {
  const State& state = hooks_.state();
  const Node* node = state.find_node(session.node);
  CHECK(node != nullptr);
  v1::SchedulerMessage check;
  for (uint32_t slot = 0; slot < node->devices.size(); ++slot) {
    const Device& device = node->devices[slot];
    const auto late = [&](Time since) { return hooks_.now() - since >= state.config.drain_limit; };
    for (const Share& share : device.shares) {
      if (device.state == DeviceState::kShared && share.draining() && late(share.draining_since))
        ask_release(session, slot, share.held_by, check);
    }
    if (device.state == DeviceState::kDraining && late(device.draining_since))
      ask_release(session, slot, {}, check);
  }
  if (check.has_check_release()) session.peer->send(check);
}

void NodeHub::ask_release(const Session& session, uint32_t slot, const AttemptKey& share_of,
                          v1::SchedulerMessage& check) {
  const std::optional<uint32_t> index = agent_index(session, slot);
  if (!index) return;
  const Device& device = hooks_.state().find_node(session.node)->devices[slot];
  v1::GrantedDevice* asked = check.mutable_check_release()->add_devices();
  asked->set_index(*index);
  asked->set_generation(device.generation);
  asked->set_uuid(device.uuid);
  if (share_of.job.valid()) *asked->mutable_share_of() = to_wire(share_of);
}

void NodeHub::read_log(NodeId node, v1::ReadLog request, std::function<void(Result<v1::LogChunk>)> done) {
  Session* session = session_of(node);
  if (session == nullptr) {
    done(Error{.code = ErrorCode::kUnavailable,
               .message = "the node that holds the output is not connected; try again when it is back"});
    return;
  }
  if (session->log_reads >= limits::kLogReadsPerNodeMax) {
    done(Error{.code = ErrorCode::kUnavailable,
               .message = "the node has not answered many requests for output yet; try again soon"});
    return;
  }
  session->log_reads += 1;
  const uint64_t number = next_log_request_++;
  logs_[number] = PendingLog{.node = node, .done = std::move(done)};
  request.set_request(number);
  v1::SchedulerMessage message;
  *message.mutable_read_log() = std::move(request);
  session->peer->send(message);
}

void NodeHub::on_log_chunk(const v1::LogChunk& chunk) {
  const auto it = logs_.find(chunk.request());
  if (it == logs_.end()) return;
  const std::function<void(Result<v1::LogChunk>)> done = std::move(it->second.done);
  if (Session* asked = session_of(it->second.node); asked != nullptr && asked->log_reads > 0)
    asked->log_reads -= 1;
  logs_.erase(it);
  done(chunk);
}

}  // namespace gpusched
