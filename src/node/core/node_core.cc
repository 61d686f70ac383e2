#include "node/core/node_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "log/log.h"

namespace gpusched {
namespace {

using agent::AttemptRow;
using agent::AttemptState;

constexpr Duration kLookPause = seconds(5);
/// By then every attempt of an earlier agent was found.
constexpr Duration kOrphansAfter = seconds(10);
constexpr int kEpochShift = 32;
/// Behind all numbers that devices can have.
constexpr int64_t kGoneDevice = 1'000'000;

LogSubject subject_of(const AttemptKey& key) { return {.id = key.job}; }

std::vector<std::string> uuids_of(const std::vector<DeviceFacts>& devices) {
  std::vector<std::string> uuids;
  for (const DeviceFacts& device : devices) uuids.push_back(device.uuid);
  return uuids;
}

/// An earlier agent's attempt, by its record.
AttemptState state_of(const StoredAttempt& stored) {
  if (stored.outcome) return stored.closed ? AttemptState::kClosed : AttemptState::kEnded;
  return stored.pid != 0 ? AttemptState::kRunning : AttemptState::kAdopted;
}

}  // namespace

NodeCore::NodeCore(NodeOptions options, NodePorts ports, const StoreImage& image)
    : options_(std::move(options)),
      ports_(ports),
      records_(ports_.store),
      reports_(ports_.spawner, ((image.epoch + 1) << kEpochShift) + 1),
      endings_(ports_, attempts_, records_, options_.finished_kept),
      watch_(
          options_.devices, ports_.devices,
          [this](uint32_t index, int64_t pid) { return fence_.is_accounted(index, pid); },
          [this](int64_t pid) { return ports_.spawner.keeps(pid); }),
      leases_(ports_),
      checks_(ports_, reports_,
              {.every = options_.check_every,
               .patience = options_.check_patience,
               .clock_skew_max = options_.clock_skew_max}),
      fence_(
          ports_, attempts_, watch_, reports_, endings_, ports_.clock.monotonic() + kOrphansAfter,
          ports_.slices == nullptr ? agent::ReleaseFence::DestroySlice()
                                   : [this](const HeldDevice& slice) { slices_.destroy(slice); }),
      slices_(ports_, attempts_, watch_, fence_, ports_.clock.monotonic() + kOrphansAfter),
      faults_(ports_, attempts_, watch_, reports_, fence_, endings_, options_.faults,
              image.boot_id != options_.boot_id),
      orders_(
          {.ports = ports_,
           .attempts = attempts_,
           .records = records_,
           .reports = reports_,
           .endings = endings_,
           .watch = watch_,
           .fence = fence_,
           .slices = slices_,
           .checks = checks_,
           .leases = leases_},
          [this, uuids = uuids_of(options_.devices)](const v1::StartAttempt& order, BoxMaker* boxes,
                                                     const std::vector<MadeSlice>& slices) {
            return plan_launch(order, uuids, options_.launch, boxes, slices);
          },
          options_.launch.grace, options_.order_patience),
      activity_(ports_, attempts_, watch_, fence_, orders_, options_.share_memory_grace,
                options_.launch.grace),
      telemetry_(ports_, attempts_, watch_, slices_, activity_),
      output_(ports_, attempts_),
      sessions_(ports_, attempts_) {
  options_.launch.instance = options_.mark.empty() ? options_.instance : options_.mark;
  records_.append({.kind = StoreRecord::Kind::kBoot, .boot_id = options_.boot_id, .epoch = image.epoch + 1});
  records_.want_sync();
  next_look_ = ports_.clock.monotonic();
  restore(image);
}

void NodeCore::restore(const StoreImage& image) {
  endings_.restore_closed(image.closed);
  const bool booted = image.boot_id != options_.boot_id;
  for (const auto& [key, stored] : image.attempts) {
    AttemptRow& attempt = attempts_.add(key, state_of(stored));
    attempt.devices = devices_now(stored);
    attempt.user = stored.user;
    attempt.identity = stored.identity;
    attempt.shim = stored.shim;
    attempt.placed_at_ns = stored.placed_at_ns;
    attempt.prolog = stored.prolog;
    attempt.pid = stored.pid;
    attempt.started_unix_ns = stored.started_unix_ns;
    attempt.acked = stored.acked;
    attempt.of_earlier_boot = booted || stored.of_earlier_boot;
    attempt.of_earlier_agent = true;
    attempt.outcome = stored.outcome;
    if (attempt.over()) continue;
    fence_.hold(attempt);
    if (ports_.boxes != nullptr) ports_.boxes->keep(key, stored.cores);
    to_adopt_.push_back(key);
  }
  for (const auto& [key, stored] : image.attempts) {
    AttemptRow* const attempt = attempts_.find(key);
    CHECK(attempt != nullptr);
    if (attempt->state() != AttemptState::kEnded) continue;
    if (attempt->acked) {
      release_after_epilog(*attempt);
      endings_.close_if_done(*attempt);
      continue;
    }
    // Whether the record was durable when the last agent ended is unknown: said again, it will be. Until then
    // no look at its devices shows them idle.
    fence_.hold(*attempt);
    endings_.record_again(*attempt);
  }
}

std::vector<HeldDevice> NodeCore::devices_now(const StoredAttempt& stored) const {
  std::vector<HeldDevice> devices = stored.devices;
  for (std::size_t i = 0; i < devices.size() && i < stored.device_uuids.size(); ++i) {
    if (stored.device_uuids[i].empty()) continue;
    const std::vector<DeviceFacts>& known = options_.devices;
    const auto found = std::find_if(known.begin(), known.end(), [&](const DeviceFacts& device) {
      return device.uuid == stored.device_uuids[i];
    });
    devices[i].index = static_cast<uint32_t>(found == known.end() ? kGoneDevice + static_cast<int64_t>(i)
                                                                  : found - known.begin());
  }
  return devices;
}

// The connection.

void NodeCore::on_link_up() {
  link_up_ = true;
  leases_.on_link_up();
  send_register();
}

void NodeCore::on_link_down() {
  link_up_ = false;
  leases_.on_link_down();
  ports_.files.forget_reads();  // Clients ask again.
  sessions_.end_all();
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
    if (const auto numa = options_.devices[index].numa_node) device.set_numa_plus_one(*numa + 1);
    device.set_pci_bus_id(options_.devices[index].pci_bus_id);
    device.set_mig(options_.devices[index].mig && ports_.slices != nullptr);
    device.set_condition(watch_.told(index).condition);
    device.set_detail(watch_.told(index).detail);
  }
  for (const int64_t link : options_.topology.links) out.add_links(link);
  out.set_topology_note(options_.topology.note);
  add_attempts(out);
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

void NodeCore::add_attempts(v1::Register& out) {
  std::vector<agent::AttemptRow*> told;
  attempts_.for_each([&](agent::AttemptRow& attempt) {
    attempt.saved_unix_ns = 0;
    if (!attempt.acked) told.push_back(&attempt);
  });
  std::sort(told.begin(), told.end(), agent::AttemptTable::ByKey{});
  for (const agent::AttemptRow* attempt : told) {
    v1::AttemptOnNode& known = *out.add_attempts();
    *known.mutable_key() = to_wire(attempt->key);
    // Of an earlier boot nothing runs, though what became of it may still be looked for.
    known.set_ended(attempt->over() || attempt->of_earlier_boot ||
                    attempt->state() == agent::AttemptState::kExamined);
    known.set_placed_at_ns(attempt->placed_at_ns);
    for (const HeldDevice& device : attempt->devices) {
      if (device.index >= options_.devices.size()) continue;  // A device of an earlier life of this node.
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
}

bool NodeCore::serves_mps() const {
  for (uint32_t index = 0; index < options_.devices.size(); ++index) {
    if (find_mps(watch_.last_reading(index)) != nullptr) return true;
  }
  return false;
}

void NodeCore::on_message(const v1::SchedulerMessage& message) {
  switch (message.body_case()) {
    case v1::SchedulerMessage::kRegistered:
      checks_.note_orders({});
      return on_registered(message.registered());
    case v1::SchedulerMessage::kStart:
      return orders_.on_start(message.start());
    case v1::SchedulerMessage::kStartMembers:
      for (const v1::StartAttempt& own : message.start_members().members()) {
        v1::StartAttempt whole = message.start_members().common();
        whole.MergeFrom(own);
        orders_.on_start(whole);
      }
      return;
    case v1::SchedulerMessage::kGo:
      return orders_.on_gang_release(message.go());
    case v1::SchedulerMessage::kStop:
      return orders_.on_stop(message.stop());
    case v1::SchedulerMessage::kCheckRelease:
      return fence_.on_check_release(message.check_release());
    case v1::SchedulerMessage::kAck:
      return on_ack(message.ack());
    case v1::SchedulerMessage::kReadLog:
      return output_.on_read_log(message.read_log());
    case v1::SchedulerMessage::kHeartbeatSeen:
      return leases_.on_heartbeat_seen(message.heartbeat_seen().sequence());
    case v1::SchedulerMessage::kChange:
      return orders_.on_change(message.change());
    case v1::SchedulerMessage::kReboot:
      if (ports_.hooks != nullptr) ports_.hooks->reboot(message.reboot().reason());
      return;
    case v1::SchedulerMessage::kValidate:
      return checks_.begin();
    case v1::SchedulerMessage::kClearFault:
      return faults_.on_clear(message.clear_fault());
    case v1::SchedulerMessage::kRefused:
      return leases_.on_refused();
    case v1::SchedulerMessage::kReadFile:
      return sessions_.on_read_file(message.read_file());
    case v1::SchedulerMessage::kOpenSession:
      return sessions_.on_open(message.open_session());
    case v1::SchedulerMessage::kSessionInput:
      return sessions_.on_input(message.session_input());
    case v1::SchedulerMessage::kChallenge:
    case v1::SchedulerMessage::kProven:
    case v1::SchedulerMessage::kEnrolled:
    case v1::SchedulerMessage::kRenewed:
    case v1::SchedulerMessage::kNotRenewed:
    case v1::SchedulerMessage::kSignedOrder:
    case v1::SchedulerMessage::BODY_NOT_SET:
      return;  // The link's business, and a newer scheduler's.
  }
}

void NodeCore::on_not_obeyed(const v1::SchedulerMessage& message, const std::string& why) {
  const google::protobuf::FieldDescriptor* const order =
      v1::SchedulerMessage::descriptor()->FindFieldByNumber(message.body_case());
  const std::string name = order == nullptr ? "unknown" : order->name();
  log_event(LogLevel::kError, "agent", "order_not_obeyed", {}, {{"order", name}, {"why", why}});
  const std::string problem = "this node does not obey the scheduler's order (" + name + "): " + why;
  if (message.has_registered()) {
    // Running work goes on, and is reported on. No work is taken until a registration is signed properly.
    checks_.note_orders(problem);
    return on_registered(message.registered());
  }
  checks_.note_fault(problem);
  if (message.has_start()) orders_.not_obeyed(message.start(), problem);
  if (message.has_start_members()) {
    for (const v1::StartAttempt& own : message.start_members().members()) {
      v1::StartAttempt whole;
      *whole.mutable_key() = own.key();
      whole.set_placed_at_ns(message.start_members().common().placed_at_ns());
      orders_.not_obeyed(whole, problem);
    }
  }
  if (message.has_open_session()) sessions_.not_obeyed(message.open_session(), problem);
  if (message.has_read_file()) sessions_.not_obeyed(message.read_file(), problem);
  if (message.has_read_log()) output_.not_obeyed(message.read_log(), problem);
}

void NodeCore::on_registered(const v1::Registered& registered) {
  leases_.on_registered(registered.heartbeat_ms(), registered.lease_ms());
  next_look_ = leases_.next_beat();
  reports_.forget_sendings();
  if (options_.cluster.empty()) options_.cluster = registered.cluster();
  checks_.on_registered(registered.unix_ms(), leases_.registration_age());
  log_event(LogLevel::kInfo, "agent", "registered", {},
            {{"node", options_.node_name},
             {"running", running_count()},
             {"unacknowledged", unacknowledged_count()}});
}

void NodeCore::on_ack(const v1::Ack& ack) {
  for (const uint64_t id : ack.report_ids()) {
    if (const std::optional<v1::Report> report = reports_.acknowledge(id)) on_report_acked(*report);
  }
}

void NodeCore::on_report_acked(const v1::Report& report) {
  switch (report.what_case()) {
    case v1::Report::kPrepared: {
      AttemptRow* const attempt = attempts_.find(from_wire(report.prepared().key()));
      if (attempt != nullptr) attempt->prepared_report = 0;
      return;
    }
    case v1::Report::kStarted: {
      AttemptRow* const attempt = attempts_.find(from_wire(report.started().key()));
      if (attempt != nullptr) attempt->started_report = 0;
      return;
    }
    case v1::Report::kEnded:
      return endings_.on_acked(report.ended());
    case v1::Report::kReleased:
      return fence_.on_released_acked(report.released(), report.id());
    case v1::Report::kDraining:
      return fence_.on_draining_acked(report.draining(), report.id());
    case v1::Report::kDeviceFault:
      return faults_.on_acked(report.device_fault());
    case v1::Report::kCondition:
    case v1::Report::kValidated:
    case v1::Report::WHAT_NOT_SET:
      return;
  }
}

// Outcomes of attempts.

bool NodeCore::take_word(AttemptRow& attempt, AttemptState to) {
  const AttemptState from = attempt.state();
  if (attempts_.advance(attempt, to)) return true;
  log_event(LogLevel::kWarning, "agent", "word_refused", subject_of(attempt.key),
            {{"attempt", attempt.key.attempt}, {"state", to_string(from)}, {"told", to_string(to)}});
  return false;
}

/// An attempt without a record, which a shim speaks for.
AttemptRow& NodeCore::add_found(const AttemptKey& key) {
  AttemptRow& attempt = attempts_.add(key, AttemptState::kAdopted);
  records_.append({.kind = StoreRecord::Kind::kIntent, .key = key});
  ports_.files.began(key);
  return attempt;
}

void NodeCore::on_shim_prepared(const AttemptKey& key) {
  AttemptRow* attempt = attempts_.find(key);
  if (attempt == nullptr) attempt = &add_found(key);
  if (attempt->over() || attempt->pid != 0) return;
  if (attempt->state() != AttemptState::kGated && !take_word(*attempt, AttemptState::kGated)) return;
  if (attempt->may_go) return ports_.spawner.go(key);
  reports_.prepared(*attempt);
}

void NodeCore::on_shim_started(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) {
  AttemptRow* const attempt = attempts_.find(key);
  if (attempt == nullptr) return on_shim_found(key, pid, started_unix_ns);
  if (attempt->over()) return;
  if (attempt->pid == 0) {
    if (!take_word(*attempt, AttemptState::kRunning)) return;
    attempt->pid = pid;
    attempt->started_unix_ns = started_unix_ns;
    attempt->shim = ports_.spawner.shim_of(key);
    records_.append({.kind = StoreRecord::Kind::kStarted,
                     .key = key,
                     .pid = pid,
                     .started_unix_ns = started_unix_ns,
                     .identity = attempt->identity,
                     .shim = attempt->shim});
    checks_.note_start();
    orders_.on_begun(*attempt);
    log_event(LogLevel::kInfo, "agent", "task_started", subject_of(key),
              {{"attempt", key.attempt}, {"pid", pid}});
  }
  if (ports_.endpoints != nullptr) ports_.endpoints->began(key);
  reports_.started(*attempt);
}

void NodeCore::on_shim_found(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) {
  if (attempts_.find(key) == nullptr) {
    log_event(LogLevel::kWarning, "agent", "attempt_found", subject_of(key),
              {{"attempt", key.attempt}, {"pid", pid}});
    attempts_.note_found(add_found(key));
  }
  on_shim_started(key, pid, started_unix_ns);
}

void NodeCore::on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) {
  AttemptRow* const attempt = attempts_.find(key);
  if (attempt == nullptr || attempt->over()) return;
  if (outcome.cause() == v1::Outcome::NODE_FAULT)
    checks_.note_fault("an attempt could not be started: " + outcome.detail());
  if (!faults_.examine(*attempt, outcome)) endings_.end(*attempt, outcome);
}

// Before its end is told, which the scheduler hears nothing about it after.
void NodeCore::on_shim_saved(const AttemptKey& key, int64_t unix_ns) {
  if (!registered()) return;
  telemetry_.note_saved(key, unix_ns);
  beat(ports_.clock.monotonic());
}

void NodeCore::on_shim_lost(const AttemptKey& key, const std::string& detail) {
  AttemptRow* const attempt = attempts_.find(key);
  if (attempt != nullptr && !attempt->over())
    endings_.end(*attempt, orders_.outcome_of_lost(*attempt, detail));
}

void NodeCore::on_prolog_done(const AttemptKey& key, const std::string& problem) {
  orders_.on_prolog_done(key, problem);
}

void NodeCore::release_after_epilog(AttemptRow& attempt) {
  const bool never_ran = attempt.pid == 0 && !attempt.prolog;
  if (never_ran || ports_.hooks == nullptr || !ports_.hooks->has_epilog()) return fence_.release(attempt);
  attempts_.move(attempt, AttemptState::kCleaning);
  if (!attempt.holds) fence_.hold(attempt);  // An earlier agent's: nobody is told that they are idle.
  ports_.hooks->epilog(attempt.key, attempt.devices, *attempt.outcome);
}

void NodeCore::on_epilog_done(const AttemptKey& key, const std::string& problem) {
  AttemptRow* const attempt = attempts_.find(key);
  if (attempt == nullptr || attempt->state() != AttemptState::kCleaning) return;
  if (!problem.empty()) checks_.note_fault(problem);
  fence_.release(*attempt);
  endings_.close_if_done(*attempt);
}

void NodeCore::on_checked(const std::string& problem) { checks_.on_checked(problem); }

void NodeCore::on_device_reset(uint32_t index, const std::string& problem) {
  faults_.on_device_reset(index, problem);
}

void NodeCore::on_slice_made(uint32_t index, const std::string& profile, int32_t start, const MadeSlice& made,
                             const std::string& problem) {
  if (AttemptRow* const done = slices_.on_made(index, profile, start, made, problem); done != nullptr)
    orders_.on_slices_done(*done);
}

void NodeCore::on_slice_destroyed(uint32_t index, const std::string& profile, int32_t start,
                                  const std::string& problem) {
  slices_.on_destroyed(index, profile, start, problem);
}

void NodeCore::on_xid(const std::string& pci, uint32_t xid, const std::string& text) {
  faults_.on_xid(pci, xid, text);
}

void NodeCore::on_synced(uint64_t position) {
  records_.on_synced(position);
  endings_.take_durable([this](AttemptRow& attempt) {
    reports_.ended(attempt);
    release_after_epilog(attempt);
  });
}

void NodeCore::on_reading(uint32_t index, DeviceReading reading) {
  watch_.on_reading(index, std::move(reading), ports_.clock.monotonic());
}

void NodeCore::on_output(v1::LogChunk chunk) {
  if (link_up_) output_.send(std::move(chunk));
}

// Time.

void NodeCore::on_tick() {
  const Time now = ports_.clock.monotonic();
  if (now >= next_look_) {
    watch_.look_at_all(now);
    activity_.look(now);
    next_look_ = now + std::min(kLookPause, leases_.heartbeat_every());
  }
  watch_.tick(now);
  for (AttemptRow* attempt : slices_.give_up_late(now)) orders_.on_slices_done(*attempt);
  orders_.look(now);
  checks_.tick(now);
  if (leases_.beat_is_due(now)) beat(now);
  if (registered()) reports_.send_late(now, ports_.link);
}

void NodeCore::beat(Time now) { telemetry_.send(leases_.beat(now)); }

Time NodeCore::next_deadline() const {
  Time next = std::min({next_look_, watch_.next_due(), leases_.next_beat(), checks_.next_due(),
                        records_.next_flush(), attempts_.next_due()});
  if (registered()) next = std::min(next, reports_.next_late());
  return next;
}

/// False while the disk is full: what is to happen only once it is on record waits, everything else goes on.
bool NodeCore::flush_records() {
  switch (records_.flush(ports_.clock.monotonic())) {
    case agent::Records::Flushed::kDone:
      return true;
    case agent::Records::Flushed::kDiskFull:
      return false;
    case agent::Records::Flushed::kDiskFilledUp:
      log_event(LogLevel::kError, "agent", "disk_full", {}, {{"node", options_.node_name}});
      checks_.note_disk_full();
      return false;
    case agent::Records::Flushed::kDiskHasRoom:
      log_event(LogLevel::kInfo, "agent", "disk_has_room", {}, {{"node", options_.node_name}});
      checks_.note_disk_has_room();
      return true;
  }
  UNREACHABLE();
}

void NodeCore::settle() {
  faults_.end_examined();  // Before records are flushed, which its ends are among.
  const bool recorded = flush_records();
  if (!std::exchange(adopted_, true)) ports_.spawner.adopt(std::exchange(to_adopt_, {}));
  if (recorded) {
    slices_.make();
    orders_.start_queued();
  }
  orders_.stop_queued();
  faults_.report_news();
  if (recorded) records_.sync_if_wanted();
  fence_.report_news();
  slices_.destroy_orphans(ports_.clock.monotonic());
  endings_.forget_oldest();
  if (recorded) flush_records();
  if (registered()) reports_.send_new(ports_.clock.monotonic(), ports_.link);
}

}  // namespace gpusched
