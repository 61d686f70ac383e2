#include "node/core/faults.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "log/log.h"

namespace gpusched::agent {
namespace {

/// Time that an end may wait for the look at its devices.
constexpr Duration kExamineMax = seconds(2);
constexpr std::size_t kDetailBytesMax = 200;

/// It may be the device's doing: the job did not ask for it, and neither did we.
bool failed_by_itself(const v1::Outcome& outcome) {
  return outcome.cause() == v1::Outcome::SIGNALED ||
         (outcome.cause() == v1::Outcome::EXITED && outcome.exit_code() != 0);
}

std::string end_words(const v1::Outcome& outcome) {
  return outcome.cause() == v1::Outcome::SIGNALED ? "was ended by signal " + std::to_string(outcome.signal())
                                                  : "exited with " + std::to_string(outcome.exit_code());
}

std::vector<std::string> uuids_of(const std::vector<DeviceFacts>& devices) {
  std::vector<std::string> uuids;
  for (const DeviceFacts& device : devices) uuids.push_back(device.uuid);
  return uuids;
}

}  // namespace

Faults::Faults(const NodePorts& ports, AttemptTable& attempts, DeviceWatch& watch, Reports& reports,
               ReleaseFence& fence, Endings& endings, FaultTable table, bool rebooted)
    : ports_(ports),
      attempts_(attempts),
      watch_(watch),
      reports_(reports),
      fence_(fence),
      endings_(endings),
      faults_(uuids_of(watch.facts()), std::move(table),
              ports.memory == nullptr ? std::string() : ports.memory->load(), rebooted, ports.clock.wall()) {}

/// Takes the readings since the last call.
void Faults::take_readings() {
  const Time now = ports_.clock.monotonic();
  const Time wall = ports_.clock.wall();
  for (const uint32_t index : watch_.take_fresh()) {
    note_daemons(index);
    faults_.on_reading(index, watch_.last_reading(index), now, wall);
    watch_.forget_xids(index);
  }
}

void Faults::note_daemons(uint32_t index) {
  std::string programs;
  for (const DaemonReading& daemon : watch_.last_reading(index).daemons)
    programs += (programs.empty() ? "" : ", ") + daemon.program;
  if (std::exchange(daemons_told_[index], programs) == programs) return;
  log_event(LogLevel::kInfo, "agent", "gpu_daemons", {},
            {{"uuid", watch_.facts()[index].uuid},
             {"programs", programs},
             {"mps", find_mps(watch_.last_reading(index)) != nullptr}});
}

void Faults::on_xid(const std::string& pci, uint32_t xid, const std::string& text) {
  for (uint32_t index = 0; index < watch_.facts().size(); ++index) {
    if (watch_.facts()[index].pci_slot == pci)
      faults_.on_xid(index, xid, text, ports_.clock.monotonic(), ports_.clock.wall());
  }
}

void Faults::report_news() {
  take_readings();
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
    reports_.replace(fault_reports_[index], std::move(report));
    log_event(standing.bars() ? LogLevel::kWarning : LogLevel::kInfo, "agent", "device_fault", {},
              {{"index", index},
               {"rule", to_string(standing.rule)},
               {"code", standing.code},
               {"detail", standing.detail}});
  }
  reset_devices();
}

void Faults::on_clear(const v1::ClearFault& order) {
  if (faults_.clear(order.index(), order.id()))
    log_event(LogLevel::kInfo, "agent", "device_released", {}, {{"index", order.index()}});
}

// Each word once: a fault that a reset did not repair waits for an operator.
void Faults::reset_devices() {
  if (ports_.hooks == nullptr || !ports_.hooks->can_reset_devices()) return;
  for (uint32_t index = 0; index < watch_.facts().size(); ++index) {
    const FaultWatch::Standing& standing = faults_.standing(index);
    if (standing.rule != FaultRule::kReset || known_[index] != standing.id) continue;
    if (resets_[index].id == standing.id || resets_[index].running) continue;
    if (fence_.holder_of(index) != nullptr || fence_.is_draining(index)) continue;
    if (!watch_.last_reading(index).processes.empty()) continue;
    resets_[index] = {.id = standing.id, .running = true};
    log_event(LogLevel::kWarning, "agent", "device_reset", {}, {{"index", index}, {"code", standing.code}});
    ports_.hooks->reset_device(index);
  }
}

void Faults::on_device_reset(uint32_t index, const std::string& problem) {
  if (index >= watch_.facts().size()) return;
  resets_[index].running = false;
  if (faults_.standing(index).id != resets_[index].id) return;
  if (problem.empty()) return faults_.on_reset(index, ports_.clock.wall());
  faults_.amend(index, "; its reset failed: " + problem, ports_.clock.wall());
  resets_[index].id = faults_.standing(index).id;
}

/// True: the attempt ends when its devices were looked at.
bool Faults::examine(AttemptRow& attempt, const v1::Outcome& outcome) {
  if (attempt.devices.empty() || !failed_by_itself(outcome)) return false;
  if (attempt.state() == AttemptState::kExamined) return true;
  const Time now = ports_.clock.monotonic();
  attempts_.move(attempt, AttemptState::kExamined);
  attempts_.set_due(attempt, Deadline::kExamination, now + kExamineMax);
  attempt.examination = std::make_unique<AttemptRow::Examination>();
  attempt.examination->outcome = outcome;
  for (const HeldDevice& device : attempt.devices) {
    if (device.index < watch_.facts().size())
      attempt.examination->looks[device.index] = watch_.look_after(device.index, now);
  }
  end_examined();
  return true;
}

void Faults::end_examined() {
  const AttemptTable::Rows& examined = attempts_.in(AttemptState::kExamined);
  if (examined.empty()) return;
  const Time now = ports_.clock.monotonic();
  std::vector<AttemptRow*> done;
  for (AttemptRow* attempt : examined) {
    const auto& looks = attempt->examination->looks;
    const bool seen = std::all_of(looks.begin(), looks.end(),
                                  [&](const auto& look) { return watch_.looks(look.first) >= look.second; });
    if (seen || now >= attempt->due(Deadline::kExamination)) done.push_back(attempt);
  }
  for (AttemptRow* attempt : done) {
    const v1::Outcome outcome = std::move(attempt->examination->outcome);
    endings_.end(*attempt, blame_device(*attempt, outcome));
  }
}

// The fault came up while the attempt had the device: nothing is placed on it afterwards.
v1::Outcome Faults::blame_device(const AttemptRow& attempt, const v1::Outcome& outcome) {
  take_readings();
  for (const HeldDevice& device : attempt.devices) {
    if (device.index >= watch_.facts().size()) continue;
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
    blamed.set_detail("its GPU " + watch_.facts()[device.index].uuid + " " + why + "; the job " +
                      end_words(outcome));
    return blamed;
  }
  return outcome;
}

}  // namespace gpusched::agent
