#include "node/device_watch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpusched {
namespace {

constexpr Duration kCheckPauseFirst = milliseconds(50);
constexpr Duration kCheckPauseMax = seconds(1);
constexpr Duration kDriverSilenceMax = seconds(30);
constexpr int64_t kMemoryToleranceMb = 64;       ///< Drivers' own bookkeeping comes and goes.
constexpr int64_t kUnknownIdleMemoryMb = 1'024;  ///< Believed idle when the device was never seen idle.
constexpr std::size_t kEvidencePidsMax = 8;

}  // namespace

DeviceWatch::DeviceWatch(std::vector<DeviceFacts> facts, DeviceReader& reader)
    : facts_(std::move(facts)), reader_(reader), slots_(facts_.size()) {}

void DeviceWatch::hold(HeldDevice device) {
  if (device.index >= slots_.size()) return;
  Slot& slot = slots_[device.index];
  slot.holders += 1;
  slot.check.reset();
}

void DeviceWatch::let_go(HeldDevice device) {
  if (device.index >= slots_.size()) return;
  CHECK(slots_[device.index].holders > 0);
  slots_[device.index].holders -= 1;
}

void DeviceWatch::begin_release(HeldDevice device, Time now) {
  if (device.index >= slots_.size()) {
    // The device was there in an earlier life of this node: nothing here can hold it.
    verdicts_.push_back(
        {.device = device, .released = false, .evidence = "this node has no such device any more"});
    return;
  }
  Slot& slot = slots_[device.index];
  CHECK(slot.holders == 0);
  slot.check = Check{.generation = device.generation, .pause = kCheckPauseFirst, .due = now};
  slot.check_asked = false;
  if (!slot.asked_at.valid()) ask(device.index, now);
}

bool DeviceWatch::releasing(HeldDevice device) const {
  if (device.index >= slots_.size()) return false;
  const std::optional<Check>& check = slots_[device.index].check;
  return check && check->generation == device.generation;
}

void DeviceWatch::look_at_all(Time now) {
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    if (!slots_[index].asked_at.valid()) ask(index, now);
  }
}

void DeviceWatch::ask(uint32_t index, Time now) {
  Slot& slot = slots_[index];
  slot.asked_at = now;
  slot.check_asked = slot.check.has_value();
  if (slot.check) slot.check->due = kNever;
  std::optional<DeviceReading> reading = reader_.read(index);
  if (reading) on_reading(index, std::move(*reading), now);
}

void DeviceWatch::on_reading(uint32_t index, DeviceReading reading, Time now) {
  if (index >= slots_.size()) return;
  Slot& slot = slots_[index];
  slot.asked_at = {};
  slot.silence_told = false;
  note_condition(index, reading.condition, reading.detail);
  slot.last = std::move(reading);
  if (slot.check) {
    judge(index, now);
    return;
  }
  const bool idle = slot.holders == 0 && slot.last.processes.empty();
  if (idle && slot.last.condition == v1::DEVICE_CONDITION_OK) slot.idle_memory_mb = slot.last.memory_used_mb;
}

void DeviceWatch::judge(uint32_t index, Time now) {
  Slot& slot = slots_[index];
  Check& check = *slot.check;
  if (!slot.check_asked) {  // This reading may be older than the attempt's end.
    check.due = now;
    return;
  }
  const HeldDevice device{.index = index, .generation = check.generation};
  const std::optional<std::string> evidence = evidence_against_release(slot, facts_[index]);
  if (!evidence) {
    slot.check.reset();
    verdicts_.push_back({.device = device, .released = true});
    return;
  }
  verdicts_.push_back({.device = device, .released = false, .evidence = *evidence});
  check.due = now + check.pause;
  check.pause = std::min(check.pause * 2, kCheckPauseMax);
}

std::optional<std::string> DeviceWatch::evidence_against_release(const Slot& slot,
                                                                 const DeviceFacts& facts) const {
  if (slot.last.condition != v1::DEVICE_CONDITION_OK) {
    return "the driver cannot vouch for " + facts.uuid + ": " + slot.last.detail;
  }
  if (!slot.last.processes.empty()) {
    std::string text = "on it still:";
    for (std::size_t i = 0; i < std::min(slot.last.processes.size(), kEvidencePidsMax); ++i) {
      text += (i == 0 ? " pid " : ", pid ") + std::to_string(slot.last.processes[i]);
    }
    return text + "; memory used " + std::to_string(slot.last.memory_used_mb) + " MB";
  }
  const int64_t idle_mb =
      slot.idle_memory_mb ? *slot.idle_memory_mb + kMemoryToleranceMb : kUnknownIdleMemoryMb;
  if (slot.last.memory_used_mb <= idle_mb) return std::nullopt;
  return "no process, but memory used " + std::to_string(slot.last.memory_used_mb) +
         " MB, and idle it is at most " + std::to_string(idle_mb) + " MB";
}

void DeviceWatch::note_condition(uint32_t index, v1::DeviceCondition condition, std::string detail) {
  const DeviceReading& last = slots_[index].last;
  if (last.condition == condition && last.detail == detail) return;
  conditions_.push_back({.index = index, .condition = condition, .detail = std::move(detail)});
}

void DeviceWatch::tick(Time now) {
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    Slot& slot = slots_[index];
    if (slot.asked_at.valid() && !slot.silence_told && now - slot.asked_at >= kDriverSilenceMax) {
      slot.silence_told = true;
      const std::string detail = "the driver has not answered for 30 s";
      note_condition(index, v1::DEVICE_CONDITION_UNHEALTHY, detail);
      slot.last.condition = v1::DEVICE_CONDITION_UNHEALTHY;
      slot.last.detail = detail;
    }
    if (slot.check && slot.check->due <= now && !slot.asked_at.valid()) ask(index, now);
  }
}

Time DeviceWatch::next_due() const {
  Time due = kNever;
  for (const Slot& slot : slots_) {
    if (slot.asked_at.valid()) {
      if (!slot.silence_told) due = std::min(due, slot.asked_at + kDriverSilenceMax);
      continue;
    }
    if (slot.check) due = std::min(due, slot.check->due);
  }
  return due;
}

std::vector<ReleaseVerdict> DeviceWatch::take_verdicts() { return std::exchange(verdicts_, {}); }
std::vector<ConditionNews> DeviceWatch::take_conditions() { return std::exchange(conditions_, {}); }

}  // namespace gpusched
