#include "node/core/node_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/job_signals.h"
#include "base/limits.h"
#include "log/log.h"

namespace gpusched {
namespace {

constexpr Duration kHeartbeatDefault = seconds(5);
constexpr Duration kHeartbeatMin = milliseconds(50);
constexpr Duration kHeartbeatMax = minutes(5);
constexpr Duration kContactMarkPause = milliseconds(250);
constexpr std::size_t kHeartbeatsRemembered = 64;
constexpr Duration kLookPause = seconds(5);
constexpr Duration kFullDiskPause = milliseconds(200);
/// By then every attempt of an earlier agent was found.
constexpr Duration kOrphansAfter = seconds(10);
constexpr const char* kFullDiskProblem =
    "the disk of the agent's data folder is full; make room there, running jobs go on";
constexpr int kForgottenAtOnce = 64;
constexpr std::size_t kDetailBytesMax = 4'096;
constexpr int kEpochShift = 32;
/// Behind all numbers that devices can have.
constexpr int64_t kGoneDevice = 1'000'000;

std::vector<std::string> uuids_of(const std::vector<DeviceFacts>& devices) {
  std::vector<std::string> uuids;
  for (const DeviceFacts& device : devices) uuids.push_back(device.uuid);
  return uuids;
}

LogSubject subject_of(const AttemptKey& key) { return {.id = key.job}; }

}  // namespace

NodeCore::NodeCore(NodeOptions options, NodePorts ports, const StoreImage& image)
    : options_(std::move(options)),
      ports_(ports),
      watch_(options_.devices, ports_.devices,
             [this](uint32_t index, int64_t pid) { return is_accounted(index, pid); }),
      outbox_(((image.epoch + 1) << kEpochShift) + 1),
      faults_(uuids_of(options_.devices), options_.faults,
              ports_.memory == nullptr ? std::string() : ports_.memory->load(),
              image.boot_id != options_.boot_id, ports_.clock.wall()),
      heartbeat_every_(kHeartbeatDefault) {
  options_.launch.instance = options_.mark.empty() ? options_.instance : options_.mark;
  for (const DeviceFacts& device : options_.devices) device_uuids_.push_back(device.uuid);
  record({.kind = StoreRecord::Kind::kBoot, .boot_id = options_.boot_id, .epoch = image.epoch + 1});
  sync_wanted_ = true;
  next_look_ = ports_.clock.monotonic();
  orphans_from_ = next_look_ + kOrphansAfter;
  looks_for_orphans_.resize(options_.devices.size());
  restore(image);
}

void NodeCore::restore(const StoreImage& image) {
  closed_ = image.closed;
  const bool earlier_boot = image.boot_id != options_.boot_id;
  for (const auto& [key, stored] : image.attempts) {
    const State state = stored.outcome    ? (stored.closed ? State::kClosed : State::kEnded)
                        : stored.pid != 0 ? State::kRunning
                                          : State::kAdopted;
    Row& attempt = attempts_.add(key, state);
    attempt.devices = devices_now(stored);
    attempt.user = stored.user;
    attempt.identity = stored.identity;
    attempt.shim = stored.shim;
    attempt.placed_at_ns = stored.placed_at_ns;
    attempt.prolog = stored.prolog;
    attempt.pid = stored.pid;
    attempt.started_unix_ns = stored.started_unix_ns;
    attempt.acked = stored.acked;
    attempt.of_earlier_boot = earlier_boot;
    attempt.of_earlier_agent = true;
    attempt.outcome = stored.outcome;
    if (attempt.over()) continue;
    hold_devices(attempt);
    if (ports_.boxes != nullptr) ports_.boxes->keep(key, stored.cores);
    to_adopt_.push_back(key);
  }
  const Time now = ports_.clock.monotonic();
  for (const auto& [key, stored] : image.attempts) {
    Row& attempt = *attempts_.find(key);
    if (attempt.state() != State::kEnded) continue;
    if (attempt.acked) {
      release_after_epilog(attempt, now);
      close_if_done(attempt);
      continue;
    }
    // Whether the record was durable when the last agent ended is unknown: said again, it will be. Until then
    // no look at its devices shows them idle.
    hold_devices(attempt);
    record({.kind = StoreRecord::Kind::kEnded, .key = key, .outcome = *attempt.outcome});
    attempt.ended_position = last_position_;
    unsynced_ends_.push_back(&attempt);
  }
}

bool NodeCore::take_word(Row& attempt, State to) {
  const State from = attempt.state();
  if (attempts_.advance(attempt, to)) return true;
  log_event(LogLevel::kWarning, "agent", "word_refused", subject_of(attempt.key),
            {{"attempt", attempt.key.attempt}, {"state", to_string(from)}, {"told", to_string(to)}});
  return false;
}

// Numbers of devices are of one start of the agent. One that is gone for good has none.
std::vector<HeldDevice> NodeCore::devices_now(const StoredAttempt& stored) const {
  std::vector<HeldDevice> devices = stored.devices;
  for (std::size_t i = 0; i < devices.size() && i < stored.device_uuids.size(); ++i) {
    if (stored.device_uuids[i].empty()) continue;
    const auto found = std::find(device_uuids_.begin(), device_uuids_.end(), stored.device_uuids[i]);
    devices[i].index = static_cast<uint32_t>(
        found == device_uuids_.end() ? kGoneDevice + static_cast<int64_t>(i) : found - device_uuids_.begin());
  }
  return devices;
}

// The link.

void NodeCore::on_link_up() {
  link_up_ = true;
  registered_ = false;
  heartbeat_sequence_ = 0;
  heartbeats_sent_at_.clear();
  registration_sent_at_ = ports_.clock.monotonic();
  send_register();
}

void NodeCore::on_link_down() {
  link_up_ = false;
  registered_ = false;
  next_beat_ = kNever;
  ports_.files.forget_reads();  // Whoever asked asks again.
  if (ports_.sessions != nullptr) ports_.sessions->end_all();
}

void NodeCore::send_register() {
  v1::AgentMessage message;
  v1::Register& out = *message.mutable_register_();
  out.set_node_name(options_.node_name);
  out.set_instance(options_.instance);
  out.set_boot_id(options_.boot_id);
  out.set_version(options_.version);
  out.set_machine(options_.machine);
  out.set_process(options_.process);
  out.set_cluster(options_.cluster);
  out.set_cpu_milli(options_.cpu_milli);
  out.set_memory_mb(options_.memory_mb);
  out.set_address(options_.address);
  for (uint32_t index = 0; index < options_.devices.size(); ++index) {
    v1::Device& device = *out.add_devices();
    device.set_uuid(options_.devices[index].uuid);
    device.set_model(options_.devices[index].model);
    device.set_memory_mb(options_.devices[index].memory_mb);
    device.set_slowdown_celsius(options_.devices[index].slowdown_celsius);
    device.set_numa_plus_one(options_.devices[index].numa_plus_one);
    device.set_pci_bus_id(options_.devices[index].pci_bus_id);
    device.set_mig(options_.devices[index].mig && ports_.slices != nullptr);
    device.set_condition(watch_.told(index).condition);
    device.set_detail(watch_.told(index).detail);
  }
  for (const int64_t link : options_.topology.links) out.add_links(link);
  out.set_topology_note(options_.topology.note);
  std::vector<Row*> told;
  attempts_.for_each([&](Row& attempt) {
    attempt.saved_unix_ns = 0;
    if (!attempt.acked) told.push_back(&attempt);
  });
  std::sort(told.begin(), told.end(), agent::AttemptTable::ByKey{});
  for (const Row* attempt : told) {
    v1::AttemptOnNode& known = *out.add_attempts();
    *known.mutable_key() = to_wire(attempt->key);
    known.set_ended(attempt->over() || attempt->state() == State::kExamined);
    known.set_placed_at_ns(attempt->placed_at_ns);
    for (const HeldDevice& device : attempt->devices) {
      if (device.index >= options_.devices.size()) continue;  // Of an earlier life of this node.
      v1::GrantedDevice& held = *known.add_devices();
      held.set_index(device.index);
      held.set_generation(device.generation);
      held.set_uuid(options_.devices[device.index].uuid);
      held.set_share_milli(device.milli);
      held.set_share_memory_mb(device.memory_mb);
      held.set_mig_profile(device.mig_profile);
      held.set_mig_start(device.mig_start);
    }
  }
  for (const std::string& feature : options_.features) out.add_features(feature);
  if (serves_mps()) out.add_features("mps");
  out.set_validates(ports_.hooks != nullptr);
  out.set_takes_members(true);
  if (ports_.boxes != nullptr) {
    for (const std::string& feature : ports_.boxes->features()) out.add_features(feature);
  }
  out.mutable_labels()->insert(options_.labels.begin(), options_.labels.end());
  ports_.link.send(message);
}

void NodeCore::on_message(const v1::SchedulerMessage& message) {
  switch (message.body_case()) {
    case v1::SchedulerMessage::kRegistered:
      return on_registered(message.registered());
    case v1::SchedulerMessage::kStart:
      return on_start(message.start());
    case v1::SchedulerMessage::kStartMembers:
      for (const v1::StartAttempt& own : message.start_members().members()) {
        v1::StartAttempt whole = message.start_members().common();
        whole.MergeFrom(own);
        on_start(whole);
      }
      return;
    case v1::SchedulerMessage::kGo:
      return on_gang_release(message.go());
    case v1::SchedulerMessage::kStop:
      return on_stop(message.stop());
    case v1::SchedulerMessage::kCheckRelease:
      return on_check_release(message.check_release());
    case v1::SchedulerMessage::kAck:
      return on_ack(message.ack());
    case v1::SchedulerMessage::kReadLog:
      return on_read_log(message.read_log());
    case v1::SchedulerMessage::kHeartbeatSeen:
      return on_heartbeat_seen(message.heartbeat_seen().sequence());
    case v1::SchedulerMessage::kChange:
      return on_change(message.change());
    case v1::SchedulerMessage::kReboot:
      if (ports_.hooks != nullptr) ports_.hooks->reboot(message.reboot().reason());
      return;
    case v1::SchedulerMessage::kValidate:
      return begin_check();
    case v1::SchedulerMessage::kClearFault:
      return on_clear_fault(message.clear_fault());
    case v1::SchedulerMessage::kRefused:
      registered_ = false;
      return;
    case v1::SchedulerMessage::kReadFile:
      return on_read_file(message.read_file());
    case v1::SchedulerMessage::kOpenSession:
      return on_open_session(message.open_session());
    case v1::SchedulerMessage::kSessionInput:
      if (ports_.sessions != nullptr) ports_.sessions->input(message.session_input());
      return;
    case v1::SchedulerMessage::kChallenge:
    case v1::SchedulerMessage::kProven:
    case v1::SchedulerMessage::BODY_NOT_SET:
      return;  // The link's business, and a newer scheduler's.
  }
}

void NodeCore::on_registered(const v1::Registered& registered) {
  const Duration wanted =
      registered.heartbeat_ms() > 0 ? milliseconds(registered.heartbeat_ms()) : kHeartbeatDefault;
  heartbeat_every_ = std::clamp(wanted, kHeartbeatMin, kHeartbeatMax);
  registered_ = true;
  note_contact(registration_sent_at_);
  next_beat_ = ports_.clock.monotonic();
  next_look_ = next_beat_;
  outbox_.forget_sendings();
  if (options_.cluster.empty()) options_.cluster = registered.cluster();
  note_clock(registered);
  if (clock_problem_.empty()) ports_.files.note_time(ports_.clock.wall());
  if (verdict_) {
    report_verdict();
  } else {
    begin_check();
  }
  log_event(LogLevel::kInfo, "agent", "registered", {},
            {{"node", options_.node_name}, {"running", running_count()}, {"unacknowledged", outbox_.size()}});
}

// Orders.

void NodeCore::on_start(const v1::StartAttempt& order) {
  const AttemptKey key = from_wire(order.key());
  if (Row* known = attempts_.find(key); known != nullptr) {
    if (known->was_placed(order.placed_at_ns())) return report_again(*known);
    refuse_number(order.key(), order.placed_at_ns(), v1::Outcome::NODE_LOST);
    return release_unheld(order);
  }
  log_event(LogLevel::kInfo, "agent", "task_received", subject_of(key),
            {{"attempt", key.attempt}, {"gpus", order.devices_size()}});
  std::vector<HeldDevice> devices = held_devices_of(order);
  if (const std::optional<std::string> conflict = conflict_of(devices)) return refuse_start(order, *conflict);

  Row& attempt = attempts_.add(key, State::kOrdered);
  attempt.devices = std::move(devices);
  const bool sliced = std::any_of(attempt.devices.begin(), attempt.devices.end(),
                                  [](const HeldDevice& device) { return device.is_slice(); });
  // With slices it gets its box when they are made; what is refused anyway is refused before.
  Result<SpawnRequest> plan =
      plan_launch(order, device_uuids_, options_.launch, sliced ? nullptr : ports_.boxes);
  if (plan.ok() && running_count() > limits::kAttemptsPerNodeMax) {
    plan =
        Error{.code = ErrorCode::kUnavailable, .message = "this node runs its maximum of attempts already"};
  }
  if (plan.ok() && sliced && ports_.slices == nullptr)
    plan = Error{.code = ErrorCode::kUnavailable, .message = "this node makes no MIG slices"};
  attempt.placed_at_ns = order.placed_at_ns();
  hold_devices(attempt);
  if (plan.ok() && plan->lost_contact.ns > 0 &&
      ports_.clock.monotonic() - contact_at_ >= plan->lost_contact) {
    // The order lay about for so long that the scheduler may take its attempt for over.
    record_intent(attempt, {});
    return end_attempt(attempt, make_outcome(v1::Outcome::CONTACT_LOST, "its order came too late"));
  }
  if (!plan || !sliced) return queue_start(attempt, std::move(plan));
  record_intent(attempt, {});
  begin_slice_creation(attempt, order);
}

/// Whoever gave the order believes that what the device is taken by is over: as long as it is not, nothing
/// else runs there.
void NodeCore::refuse_start(const v1::StartAttempt& order, const std::string& why) {
  const AttemptKey key = from_wire(order.key());
  Row& attempt = attempts_.add(key, State::kOrdered);
  attempt.placed_at_ns = order.placed_at_ns();
  record_intent(attempt, {});
  end_attempt(attempt, make_outcome(v1::Outcome::NODE_FAULT, why));
  release_unheld(order);
}

void NodeCore::record_intent(const Row& attempt, std::vector<uint32_t> cores) {
  record({.kind = StoreRecord::Kind::kIntent,
          .key = attempt.key,
          .devices = attempt.devices,
          .user = attempt.user,
          .cores = std::move(cores),
          .placed_at_ns = attempt.placed_at_ns});
  if (attempt.devices.empty()) return;
  StoreRecord named{.kind = StoreRecord::Kind::kDevices, .key = attempt.key};
  for (const HeldDevice& device : attempt.devices) {
    const bool known = device.index < device_uuids_.size();
    named.device_uuids.push_back(known ? device_uuids_[device.index] : std::string());
  }
  record(std::move(named));
}

/// It is started when its intent is on record.
void NodeCore::queue_start(Row& attempt, Result<SpawnRequest> plan) {
  if (plan) {
    attempt.user = plan->user;
    attempt.identity = plan->identity;
  }
  record_intent(attempt, plan ? plan->box.cpus : std::vector<uint32_t>{});
  if (!plan) return end_attempt(attempt, make_outcome(v1::Outcome::START_FAILED, plan.error().message));
  ports_.files.began(attempt.key);
  if (ports_.hooks != nullptr && ports_.hooks->has_prolog()) {
    attempt.prolog = true;
    record({.kind = StoreRecord::Kind::kProlog, .key = attempt.key});
  }
  add_mps(attempt, *plan);
  attempt.request = std::make_unique<SpawnRequest>(std::move(*plan));
  to_start_.push_back(&attempt);
}

// Said before the attempt is prepared, as after a restart of this agent, it counts when it is.
void NodeCore::on_gang_release(const v1::GoAttempt& order) {
  const AttemptKey key = from_wire(order.key());
  Row* const attempt = attempts_.find(key);
  if (attempt == nullptr || !attempt->was_placed(order.placed_at_ns())) return;
  if (attempt->over() || attempt->pid != 0) return report_again(*attempt);
  attempt->may_go = true;
  if (attempt->state() == State::kGated) ports_.spawner.go(key);
}

void NodeCore::on_stop(const v1::StopAttempt& order) {
  const AttemptKey key = from_wire(order.key());
  Row* const known = attempts_.find(key);
  if (known == nullptr) {
    // Recorded as ended, it is refused should its start still arrive.
    Row& never = attempts_.add(key, State::kOrdered);
    never.placed_at_ns = order.placed_at_ns();
    return end_attempt(never, make_outcome(v1::Outcome::STOPPED, "never started"));
  }
  if (!known->was_placed(order.placed_at_ns())) {
    return refuse_number(order.key(), order.placed_at_ns(), v1::Outcome::STOPPED);
  }
  if (known->over()) return report_again(*known);
  if (known->state() == State::kOrdered) return take_back_start(*known);
  if (known->state() == State::kPreparing || known->state() == State::kSlicing) {
    known->stopped_early = true;
    return;
  }
  const Duration grace = order.grace_ms() > 0 ? milliseconds(order.grace_ms()) : options_.launch.grace;
  StopOrder stop(std::min(grace, limits::kRuntimeMax));
  const auto signal = parse_job_signal(std::to_string(order.signal()));
  if (signal) stop.signal = signal->number;
  stop.until_saved = order.until_saved();
  to_stop_.push_back({.attempt = known, .order = stop});
}

/// A start that waits until its intent is on record, as it does while the disk is full, is not carried out
/// any more: a shim that is not there could not be told to stop.
void NodeCore::take_back_start(Row& attempt) {
  std::erase(to_start_, &attempt);
  attempt.prolog = false;
  end_attempt(attempt, make_outcome(v1::Outcome::STOPPED, "stopped before it began"));
}

// The number is taken, by an attempt from before the scheduler's data was restored: its folder and its
// records are that one's. The scheduler tries again under the next number.
void NodeCore::refuse_number(const v1::AttemptKey& key, int64_t placed_at_ns, v1::Outcome::Cause cause) {
  v1::Report report;
  *report.mutable_ended()->mutable_key() = key;
  *report.mutable_ended()->mutable_outcome() =
      make_outcome(cause,
                   "this node knows another attempt of that number, from before the scheduler's data was "
                   "restored from an older copy");
  report.mutable_ended()->set_placed_at_ns(placed_at_ns);
  outbox_.add(std::move(report));
}

void NodeCore::on_ack(const v1::Ack& ack) {
  for (const uint64_t id : ack.report_ids()) {
    if (const std::optional<v1::Report> report = outbox_.acknowledge(id)) on_report_acked(*report);
  }
}

void NodeCore::on_report_acked(const v1::Report& report) {
  switch (report.what_case()) {
    case v1::Report::kPrepared: {
      Row* const attempt = attempts_.find(from_wire(report.prepared().key()));
      if (attempt != nullptr) attempt->prepared_report = 0;
      return;
    }
    case v1::Report::kStarted: {
      Row* const attempt = attempts_.find(from_wire(report.started().key()));
      if (attempt != nullptr) attempt->started_report = 0;
      return;
    }
    case v1::Report::kEnded:
      return on_end_acked(report.ended());
    case v1::Report::kReleased:
      return on_released_acked(report.released(), report.id());
    case v1::Report::kDraining: {
      const auto found = releases_.find({report.draining().index(), from_wire(report.draining().share_of())});
      if (found != releases_.end() && found->second.report == report.id()) found->second.report = 0;
      return;
    }
    case v1::Report::kDeviceFault:
      return on_fault_acked(report.device_fault());
    case v1::Report::kCondition:
    case v1::Report::kValidated:
    case v1::Report::WHAT_NOT_SET:
      return;
  }
}

void NodeCore::on_end_acked(const v1::Ended& ended) {
  Row* const attempt = attempts_.find(from_wire(ended.key()));
  if (attempt == nullptr || !attempt->was_placed(ended.placed_at_ns())) return;
  if (!attempt->over()) {
    log_event(LogLevel::kWarning, "agent", "word_refused", subject_of(attempt->key),
              {{"attempt", attempt->key.attempt},
               {"state", to_string(attempt->state())},
               {"told", "its end is acknowledged"}});
    return;
  }
  attempt->ended_report = 0;
  if (attempt->acked) return;
  attempt->acked = true;
  record({.kind = StoreRecord::Kind::kAcked, .key = attempt->key});
  close_if_done(*attempt);
}

// What becomes of attempts.

void NodeCore::on_shim_prepared(const AttemptKey& key) {
  Row* attempt = attempts_.find(key);
  if (attempt == nullptr) {  // As one that is found running.
    attempt = &attempts_.add(key, State::kAdopted);
    record({.kind = StoreRecord::Kind::kIntent, .key = key});
    ports_.files.began(key);
  }
  if (attempt->over() || attempt->pid != 0) return;
  if (attempt->state() != State::kGated && !take_word(*attempt, State::kGated)) return;
  if (attempt->may_go) return ports_.spawner.go(key);
  report_prepared(*attempt);
}

void NodeCore::on_shim_started(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) {
  Row* const attempt = attempts_.find(key);
  if (attempt == nullptr) return on_shim_found(key, pid, started_unix_ns);
  if (attempt->over()) return;
  if (attempt->pid == 0) {
    if (!take_word(*attempt, State::kRunning)) return;
    attempt->pid = pid;
    attempt->started_unix_ns = started_unix_ns;
    attempt->shim = ports_.spawner.shim_of(key);
    record({.kind = StoreRecord::Kind::kStarted,
            .key = key,
            .pid = pid,
            .started_unix_ns = started_unix_ns,
            .identity = attempt->identity,
            .shim = attempt->shim});
    faults_in_a_row_ = 0;
    if (attempt->run_limit) attempt->run_limit->since = ports_.clock.monotonic();
    expect_end_of_run(*attempt);
    log_event(LogLevel::kInfo, "agent", "task_started", subject_of(key),
              {{"attempt", key.attempt}, {"pid", pid}});
  }
  report_started(*attempt);
}

void NodeCore::on_shim_found(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) {
  if (attempts_.find(key) != nullptr) return on_shim_started(key, pid, started_unix_ns);
  attempts_.note_found(attempts_.add(key, State::kAdopted));
  log_event(LogLevel::kWarning, "agent", "attempt_found", subject_of(key),
            {{"attempt", key.attempt}, {"pid", pid}});
  record({.kind = StoreRecord::Kind::kIntent, .key = key});
  ports_.files.began(key);
  on_shim_started(key, pid, started_unix_ns);
}

void NodeCore::on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) {
  Row* const attempt = attempts_.find(key);
  if (attempt == nullptr || attempt->over()) return;
  if (outcome.cause() == v1::Outcome::NODE_FAULT)
    note_fault("an attempt could not begin: " + outcome.detail());
  if (!examine(*attempt, outcome)) end_attempt(*attempt, outcome);
}

void NodeCore::on_shim_lost(const AttemptKey& key, const std::string& detail) {
  Row* const attempt = attempts_.find(key);
  if (attempt == nullptr || attempt->over()) return;
  if (attempt->of_earlier_boot) {
    return end_attempt(*attempt, make_outcome(v1::Outcome::NODE_LOST, "the node was restarted"));
  }
  end_attempt(*attempt, outcome_of_lost(*attempt, detail));
}

v1::Outcome NodeCore::make_outcome(v1::Outcome::Cause cause, const std::string& detail) const {
  v1::Outcome outcome;
  outcome.set_cause(cause);
  outcome.set_detail(clean_text(detail, kDetailBytesMax));
  outcome.set_ended_unix_ns(ports_.clock.wall().ns);
  return outcome;
}

void NodeCore::end_attempt(Row& attempt, v1::Outcome outcome) {
  const AttemptKey& key = attempt.key;
  attempts_.move(attempt, State::kEnded);
  outcome.set_detail(clean_text(outcome.detail(), kDetailBytesMax));
  if (!attempt.over_share.empty() && outcome.cause() == v1::Outcome::STOPPED) {
    outcome.set_cause(v1::Outcome::OVER_LIMIT);
    outcome.set_detail(attempt.over_share);
  }
  if (outcome.started_unix_ns() == 0) outcome.set_started_unix_ns(attempt.started_unix_ns);
  attempt.outcome = std::move(outcome);
  if (ports_.boxes != nullptr) ports_.boxes->release(key);
  if (ports_.sessions != nullptr) ports_.sessions->attempt_ended(key);
  record({.kind = StoreRecord::Kind::kEnded, .key = key, .outcome = *attempt.outcome});
  attempt.ended_position = last_position_;
  unsynced_ends_.push_back(&attempt);
  sync_wanted_ = true;
  ports_.files.ended(key);
  log_event(LogLevel::kInfo, "agent", "task_completed", subject_of(key),
            {{"attempt", key.attempt},
             {"cause", v1::Outcome::Cause_Name(attempt.outcome->cause())},
             {"exit_code", attempt.outcome->exit_code()},
             {"detail", attempt.outcome->detail()}});
}

void NodeCore::record(StoreRecord record) {
  last_position_ = ports_.store.append(record);
  flush_wanted_ = true;
}

void NodeCore::on_synced(uint64_t position) {
  synced_position_ = std::max(synced_position_, position);
  report_synced_ends();
}

void NodeCore::report_synced_ends() {
  const Time now = ports_.clock.monotonic();
  while (!unsynced_ends_.empty()) {
    Row& attempt = *unsynced_ends_.front();
    if (attempt.ended_position > synced_position_) return;
    unsynced_ends_.pop_front();
    report_ended(attempt);
    release_after_epilog(attempt, now);
  }
}

void NodeCore::report_prepared(Row& attempt) {
  if (attempt.prepared_report != 0) return;
  v1::Report report;
  *report.mutable_prepared()->mutable_key() = to_wire(attempt.key);
  report.mutable_prepared()->set_placed_at_ns(attempt.placed_at_ns);
  attempt.prepared_report = outbox_.add(std::move(report));
}

void NodeCore::report_started(Row& attempt) {
  if (attempt.started_report != 0) return;
  v1::Report report;
  *report.mutable_started()->mutable_key() = to_wire(attempt.key);
  report.mutable_started()->set_started_unix_ns(attempt.started_unix_ns);
  report.mutable_started()->set_pid(attempt.pid);
  report.mutable_started()->set_placed_at_ns(attempt.placed_at_ns);
  report.mutable_started()->set_image_digest(ports_.spawner.image_digest(attempt.key));
  attempt.started_report = outbox_.add(std::move(report));
}

void NodeCore::report_ended(Row& attempt) {
  if (attempt.ended_report != 0) return;
  v1::Report report;
  *report.mutable_ended()->mutable_key() = to_wire(attempt.key);
  *report.mutable_ended()->mutable_outcome() = *attempt.outcome;
  report.mutable_ended()->set_placed_at_ns(attempt.placed_at_ns);
  attempt.ended_report = outbox_.add(std::move(report));
}

/// A repeated order is answered with where the attempt stands.
void NodeCore::report_again(Row& attempt) {
  if (attempt.over()) {
    if (attempt.state() != State::kEnded) report_ended(attempt);
    return;
  }
  if (attempt.pid != 0) return report_started(attempt);
  if (attempt.state() == State::kGated) report_prepared(attempt);
}

void NodeCore::close_if_done(Row& attempt) {
  if (!attempt.acked || attempt.unreleased > 0 || attempt.state() != State::kReleasing) return;
  attempts_.move(attempt, State::kClosed);
  closed_.push_back(attempt.key);
  record({.kind = StoreRecord::Kind::kClosed, .key = attempt.key});
}

void NodeCore::forget_oldest() {
  for (int count = 0; closed_.size() > options_.finished_kept && count < kForgottenAtOnce; ++count) {
    const AttemptKey key = closed_.front();
    closed_.pop_front();
    Row* const attempt = attempts_.find(key);
    if (attempt == nullptr) continue;
    attempts_.erase(*attempt);
    record({.kind = StoreRecord::Kind::kForgotten, .key = key});
    ports_.files.remove(key);
  }
}

// Time.

void NodeCore::on_reading(uint32_t index, DeviceReading reading) {
  watch_.on_reading(index, std::move(reading), ports_.clock.monotonic());
}

void NodeCore::on_tick() {
  const Time now = ports_.clock.monotonic();
  if (now >= next_look_) {
    watch_.look_at_all(now);
    look_at_attempts(now);
    next_look_ = now + std::min(kLookPause, heartbeat_every_);
  }
  watch_.tick(now);
  end_late_slices(now);
  look_at_orders(now);
  if (now >= next_check_) begin_check();
  if (now >= check_due_) give_up_check();
  beat(now);
  if (registered_) {
    outbox_.send_late(now, [this](const v1::Report& report) {
      v1::AgentMessage message;
      *message.mutable_report() = report;
      ports_.link.send(message);
    });
  }
}

void NodeCore::add_saved(const SavedWork& work, v1::Heartbeat& out) {
  Row* const attempt = attempts_.find(work.key);
  if (attempt == nullptr || attempt->over() || attempt->saved_unix_ns == work.unix_ns) return;
  attempt->saved_unix_ns = work.unix_ns;
  v1::AttemptSaved& saved = *out.add_saved();
  *saved.mutable_key() = to_wire(work.key);
  saved.set_age_ms((ports_.clock.wall().ns - work.unix_ns) / 1'000'000);
  saved.set_placed_at_ns(attempt->placed_at_ns);
}

// What running jobs said of their work since the last heartbeat.
void NodeCore::add_saved(v1::Heartbeat& out) {
  for (const SavedWork& work : std::exchange(last_words_, {})) add_saved(work, out);
  for (const SavedWork& work : ports_.spawner.saved()) add_saved(work, out);
}

// Before its end is told, which the scheduler hears nothing about it after.
void NodeCore::on_shim_saved(const AttemptKey& key, int64_t unix_ns) {
  if (!registered_) return;
  last_words_.push_back({.key = key, .unix_ns = unix_ns});
  send_heartbeat(ports_.clock.monotonic());
}

void NodeCore::beat(Time now) {
  if (registered_ && now >= next_beat_) send_heartbeat(now);
}

void NodeCore::send_heartbeat(Time now) {
  next_beat_ = now + heartbeat_every_;
  v1::AgentMessage message;
  v1::Heartbeat& out = *message.mutable_heartbeat();
  out.set_sequence(++heartbeat_sequence_);
  for (uint32_t index = 0; index < options_.devices.size(); ++index) {
    const DeviceReading& reading = watch_.last_reading(index);
    v1::DeviceTelemetry& device = *out.add_devices();
    device.set_index(index);
    device.set_utilization_percent(reading.utilization_percent.value_or(0));
    device.set_memory_used_mb(reading.memory_used_mb);
    device.set_temperature_celsius(reading.temperature_celsius.value_or(0));
    device.set_power_watts(reading.power_watts);
  }
  for (const Preparation& attempt : ports_.spawner.preparing()) {
    v1::AttemptProgress& progress = *out.add_progress();
    *progress.mutable_key() = to_wire(attempt.key);
    progress.set_message(clean_text(attempt.message, kDetailBytesMax));
  }
  add_slicing(out);
  add_saved(out);
  add_activity(out);
  const HostLoad load = ports_.host.load();
  out.set_cpu_utilization(load.cpu);
  out.set_memory_utilization(load.memory);
  ports_.link.send(message);
  heartbeats_sent_at_.push_back(now);
  if (heartbeats_sent_at_.size() > kHeartbeatsRemembered) heartbeats_sent_at_.pop_front();
}

// An answer may have lain about, here or on its way. What it proves is that the scheduler heard the
// heartbeat, and so did not give the node up before that was sent.
void NodeCore::on_heartbeat_seen(uint64_t sequence) {
  const uint64_t first = heartbeat_sequence_ + 1 - heartbeats_sent_at_.size();
  if (sequence < first || sequence > heartbeat_sequence_) return;
  note_contact(heartbeats_sent_at_[sequence - first]);
}

void NodeCore::note_contact(Time sent_at) {
  if (contact_at_.valid() && sent_at <= contact_at_) return;
  contact_at_ = sent_at;
  if (contact_marked_at_.valid() && contact_at_ - contact_marked_at_ < kContactMarkPause) return;
  contact_marked_at_ = contact_at_;
  ports_.spawner.mark_contact(ports_.clock.monotonic() - contact_at_);
}

Time NodeCore::next_deadline() const {
  Time next = std::min({next_look_, watch_.next_due(), next_beat_, next_check_, check_due_, next_flush_,
                        attempts_.next_due()});
  if (registered_) next = std::min(next, outbox_.next_late());
  return next;
}

void NodeCore::start(Row& attempt) {
  attempts_.move(attempt, State::kStarting);
  const std::unique_ptr<SpawnRequest> request = std::move(attempt.request);
  attempt.run_limit = {.max_runtime = request->max_runtime, .grace = request->grace, .since = {}};
  attempts_.set_due(attempt, Deadline::kStart, ports_.clock.monotonic() + options_.order_patience);
  ports_.spawner.start(*request);
}

/// False while the disk is full: what is to happen only once it is on record waits, everything else goes on.
bool NodeCore::flush_records() {
  if (!flush_wanted_) return true;
  if (!ports_.store.flush()) {
    next_flush_ = ports_.clock.monotonic() + kFullDiskPause;
    if (!std::exchange(disk_full_, true)) {
      log_event(LogLevel::kError, "agent", "disk_full", {}, {{"node", options_.node_name}});
      take_verdict(kFullDiskProblem);
    }
    return false;
  }
  flush_wanted_ = false;
  next_flush_ = kNever;
  if (std::exchange(disk_full_, false)) {
    log_event(LogLevel::kInfo, "agent", "disk_has_room", {}, {{"node", options_.node_name}});
    // Its own checks find out whether anything else is wrong.
    if (ports_.hooks == nullptr) take_verdict({});
    next_check_ = ports_.clock.monotonic();
  }
  return true;
}

void NodeCore::settle() {
  end_examined();  // Before records are flushed, which its ends are among.
  const bool recorded = flush_records();
  if (!std::exchange(adopted_, true)) ports_.spawner.adopt(std::exchange(to_adopt_, {}));
  if (recorded) {
    make_slices();
    for (Row* attempt : std::exchange(to_start_, {})) {
      if (attempt->state() != State::kOrdered) continue;  // A shim that was found runs it.
      if (!begin_prolog(*attempt)) start(*attempt);
    }
  }
  for (const Stop& stop : to_stop_) {
    if (stop.attempt->over()) continue;
    ports_.spawner.stop(stop.attempt->key, stop.order);
    expect_end(*stop.attempt, stop.order);
  }
  to_stop_.clear();
  report_faults();
  if (recorded && std::exchange(sync_wanted_, false)) ports_.store.sync();
  report_devices();
  destroy_orphans(ports_.clock.monotonic());
  forget_oldest();
  if (recorded) flush_records();
  const Time now = ports_.clock.monotonic();
  if (!registered_) return;
  outbox_.send_new(now, [this](const v1::Report& report) {
    v1::AgentMessage message;
    *message.mutable_report() = report;
    ports_.link.send(message);
  });
}

}  // namespace gpusched
