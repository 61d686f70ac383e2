// NodeCore: what stands against devices, and what becomes of attempts that failed on them.
#include <algorithm>
#include <utility>

#include "log/log.h"
#include "node/core/node_core.h"

namespace gpusched {
namespace {

/// So long an end may wait for the look at its devices.
constexpr Duration kExamineMax = seconds(2);
constexpr std::size_t kDetailBytesMax = 200;
constexpr int32_t kIdlePercent = 1;
constexpr int32_t kBusyPercent = 99;

/// It may be the device's doing: the job did not ask for it, and neither did we.
bool failed_by_itself(const v1::Outcome& outcome) {
  return outcome.cause() == v1::Outcome::SIGNALED ||
         (outcome.cause() == v1::Outcome::EXITED && outcome.exit_code() != 0);
}

std::string end_words(const v1::Outcome& outcome) {
  return outcome.cause() == v1::Outcome::SIGNALED ? "was ended by signal " + std::to_string(outcome.signal())
                                                  : "exited with " + std::to_string(outcome.exit_code());
}

}  // namespace

/// What was read of devices since the last call.
void NodeCore::take_faults() {
  const Time now = ports_.clock.monotonic();
  const Time wall = ports_.clock.wall();
  for (const uint32_t index : watch_.take_fresh()) {
    note_daemons(index);
    faults_.on_reading(index, watch_.last_reading(index), now, wall);
    watch_.forget_xids(index);
  }
}

void NodeCore::on_xid(const std::string& pci, uint32_t xid, const std::string& text) {
  for (uint32_t index = 0; index < options_.devices.size(); ++index) {
    if (options_.devices[index].pci_slot == pci)
      faults_.on_xid(index, xid, text, ports_.clock.monotonic(), ports_.clock.wall());
  }
}

void NodeCore::set_log_position(uint64_t position) { faults_.set_log_position(position); }

void NodeCore::report_faults() {
  take_faults();
  faults_.tick(ports_.clock.monotonic(), ports_.clock.wall());
  const std::vector<uint32_t> news = faults_.take_news();
  if (const std::optional<std::string> text = faults_.take_text(); text && ports_.memory != nullptr)
    ports_.memory->save(*text);
  for (const uint32_t index : news) {
    const FaultWatch::Standing& standing = faults_.standing(index);
    v1::Report report;
    report.mutable_device_fault()->set_index(index);
    report.mutable_device_fault()->set_fault(to_wire(standing.rule));
    report.mutable_device_fault()->set_code(clean_text(standing.code, kDetailBytesMax));
    report.mutable_device_fault()->set_detail(clean_text(standing.detail, kDetailBytesMax));
    report.mutable_device_fault()->set_id(standing.id);
    uint64_t& outstanding = fault_reports_[index];
    outbox_.withdraw(outstanding);
    outstanding = outbox_.add(std::move(report));
    log_event(standing.bars() ? LogLevel::kWarning : LogLevel::kInfo, "agent", "device_fault", {},
              {{"index", index},
               {"rule", to_string(standing.rule)},
               {"code", standing.code},
               {"detail", standing.detail}});
  }
  reset_devices();
}

/// The scheduler places nothing on it any more. What stands since then is still to be told.
void NodeCore::on_fault_acked(const v1::DeviceFault& fault) { faults_known_[fault.index()] = fault.id(); }

void NodeCore::on_clear_fault(const v1::ClearFault& order) {
  if (faults_.clear(order.index(), order.id()))
    log_event(LogLevel::kInfo, "agent", "device_released", {}, {{"index", order.index()}});
}

// Each word once: what a reset did not mend waits for an operator.
void NodeCore::reset_devices() {
  if (ports_.hooks == nullptr || !ports_.hooks->can_reset_devices()) return;
  for (uint32_t index = 0; index < options_.devices.size(); ++index) {
    const FaultWatch::Standing& standing = faults_.standing(index);
    if (standing.rule != FaultRule::kReset || faults_known_[index] != standing.id) continue;
    if (resets_[index].id == standing.id || resets_[index].running) continue;
    const auto release = releases_.lower_bound({index, AttemptKey{}});
    const bool draining = release != releases_.end() && release->first.first == index;
    if (holder_of(index) != nullptr || draining || !watch_.last_reading(index).processes.empty()) continue;
    resets_[index] = {.id = standing.id, .running = true};
    log_event(LogLevel::kWarning, "agent", "device_reset", {}, {{"index", index}, {"code", standing.code}});
    ports_.hooks->reset_device(index);
  }
}

void NodeCore::on_device_reset(uint32_t index, const std::string& problem) {
  if (index >= options_.devices.size()) return;
  resets_[index].running = false;
  if (faults_.standing(index).id != resets_[index].id) return;
  if (problem.empty()) return faults_.on_reset(index, ports_.clock.wall());
  faults_.amend(index, "; its reset failed: " + problem, ports_.clock.wall());
  resets_[index].id = faults_.standing(index).id;
}

/// True: the attempt ends when its devices were looked at.
bool NodeCore::examine(Row& attempt, const v1::Outcome& outcome) {
  if (attempt.devices.empty() || !failed_by_itself(outcome)) return false;
  if (attempt.state() == State::kExamined) return true;
  const Time now = ports_.clock.monotonic();
  attempts_.move(attempt, State::kExamined);
  attempts_.set_due(attempt, Deadline::kExamination, now + kExamineMax);
  attempt.examination = std::make_unique<Row::Examination>();
  attempt.examination->outcome = outcome;
  for (const HeldDevice& device : attempt.devices) {
    if (device.index < options_.devices.size())
      attempt.examination->looks[device.index] = watch_.look_after(device.index, now);
  }
  end_examined();
  return true;
}

void NodeCore::end_examined() {
  const agent::AttemptTable::Rows& examined = attempts_.in(State::kExamined);
  if (examined.empty()) return;
  const Time now = ports_.clock.monotonic();
  std::vector<Row*> done;
  for (Row* attempt : examined) {
    const auto& looks = attempt->examination->looks;
    const bool seen = std::all_of(looks.begin(), looks.end(),
                                  [&](const auto& look) { return watch_.looks(look.first) >= look.second; });
    if (seen || now >= attempt->due(Deadline::kExamination)) done.push_back(attempt);
  }
  for (Row* attempt : done) {
    const v1::Outcome outcome = std::move(attempt->examination->outcome);
    end_attempt(*attempt, blame_device(*attempt, outcome));
  }
}

// What stands against a device came up while the attempt had it: nothing is placed on it afterwards.
v1::Outcome NodeCore::blame_device(const Row& attempt, const v1::Outcome& outcome) {
  take_faults();
  for (const HeldDevice& device : attempt.devices) {
    if (device.index >= options_.devices.size()) continue;
    const FaultWatch::Standing& standing = faults_.standing(device.index);
    const DeviceReading& last = watch_.last_reading(device.index);
    std::string why;
    if (standing.bars()) {
      why = "has a fault, " + standing.code + (standing.detail.empty() ? "" : " (" + standing.detail + ")");
    } else if (last.condition == v1::DEVICE_CONDITION_MISSING) {
      why = "is gone" + (last.detail.empty() ? "" : " (" + last.detail + ")");
    } else {
      continue;
    }
    v1::Outcome blamed = outcome;
    blamed.set_cause(v1::Outcome::DEVICE_FAULT);
    blamed.set_detail("its GPU " + options_.devices[device.index].uuid + " " + why + "; the job " +
                      end_words(outcome));
    return blamed;
  }
  return outcome;
}

/// What the readings and its files show of it now.
ActivityMeter::Look NodeCore::look_of(const Row& attempt, Time now) {
  ActivityMeter::Look look{
      .idle = true, .busy = true, .mark = ports_.files.output_size(attempt.key), .over_mb = 0};
  look.mark += attempt.saved_unix_ns;
  for (const HeldDevice& device : attempt.devices) {
    if (device.index >= options_.devices.size()) continue;
    const DeviceReading& last = watch_.last_reading(device.index);
    // What could not be read, or was read long ago, proves nothing.
    if (!watch_.is_current(device.index, now)) {
      look.busy = look.idle = false;
      continue;
    }
    look.busy = look.busy && last.utilization_percent.value_or(0) >= kBusyPercent;
    if (device.is_slice()) {  // What it has is its own, and how busy it is nobody tells.
      look.busy = false;
      look.idle = look.idle && watch_.is_empty(device);
      continue;
    }
    int64_t own_mb = 0;
    bool own = false;
    for (std::size_t i = 0; device.is_share() && i < last.processes.size(); ++i) {
      if (!ports_.spawner.owns(attempt.key, last.processes[i])) continue;
      own = true;
      if (i < last.process_memory_mb.size()) own_mb += std::max<int64_t>(last.process_memory_mb[i], 0);
    }
    const bool unused = device.is_share() ? !own
                                          : last.utilization_percent.value_or(kBusyPercent) <= kIdlePercent &&
                                                watch_.memory_is_idle(device.index);
    look.idle = look.idle && unused;
    if (device.is_share()) look.over_mb += std::max<int64_t>(own_mb - device.memory_mb, 0);
  }
  return look;
}

void NodeCore::look_at_attempts(Time now) {
  for (const auto& [index, holders] : holders_) {
    for (Row* attempt : holders) {
      if (attempt->pid == 0 || attempt->over()) continue;
      if (attempt->devices.front().index != index) continue;  // Once, by its first device.
      attempt->activity = attempt->activity_meter.look(look_of(*attempt, now), now);
      end_over_share(*attempt);
    }
  }
}

void NodeCore::end_over_share(Row& attempt) {
  const ActivityMeter::Activity& activity = *attempt.activity;
  if (options_.share_memory_grace.ns == 0 || activity.over_mb == 0) return;
  if (activity.over < options_.share_memory_grace || !attempt.over_share.empty()) return;
  attempt.over_share = "it used " + std::to_string(activity.over_mb) +
                       " MB more of its GPU's memory than its share has, for " +
                       std::to_string(activity.over.ms() / 1'000) + " s; ask for more with --gpu-memory";
  to_stop_.push_back({.attempt = &attempt, .order = StopOrder(options_.launch.grace)});
}

void NodeCore::add_activity(v1::Heartbeat& out) const {
  for (const State state : {State::kRunning, State::kExamined}) {
    for (const Row* attempt : attempts_.in(state)) {
      if (!attempt->activity) continue;
      v1::AttemptActivity& told = *out.add_activity();
      *told.mutable_key() = to_wire(attempt->key);
      told.set_placed_at_ns(attempt->placed_at_ns);
      told.set_idle_ms(attempt->activity->idle.ms());
      told.set_busy_ms(attempt->activity->busy.ms());
      told.set_quiet_ms(attempt->activity->quiet.ms());
      told.set_over_share_mb(attempt->activity->over_mb);
      told.set_over_share_ms(attempt->activity->over.ms());
    }
  }
}

}  // namespace gpusched
