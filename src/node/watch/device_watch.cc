#include "node/watch/device_watch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpusched {
namespace {

constexpr Duration kCheckPauseFirst = milliseconds(50);
constexpr Duration kCheckPauseMax = seconds(1);
constexpr Duration kDriverSilenceMax = seconds(30);
constexpr int64_t kMemoryToleranceMb = 64;  ///< Drivers' own bookkeeping comes and goes.
/// Most that is believed to be idle when the device was never seen idle.
constexpr int64_t kIdleMemoryMaxMb = 1'024;
/// Readings are asked for each five seconds.
constexpr Duration kReadingCurrent = seconds(15);
constexpr std::size_t kEvidencePidsMax = 8;

}  // namespace

DeviceWatch::DeviceWatch(std::vector<DeviceFacts> facts, DeviceReader& reader, IsAccounted is_accounted,
                         IsKept is_kept)
    : facts_(std::move(facts)),
      reader_(reader),
      is_accounted_(std::move(is_accounted)),
      is_kept_(std::move(is_kept)),
      slots_(facts_.size()) {
  for (uint32_t index = 0; index < slots_.size(); ++index) slots_[index].told.index = index;
}

// A share does not end the checks of others beside it.
void DeviceWatch::hold(HeldDevice device) {
  if (device.index >= slots_.size()) return;
  Slot& slot = slots_[device.index];
  slot.holders += 1;
  std::erase_if(slot.checks, [&](const Check& check) {
    const bool beside = device.is_share() && check.device.is_share() &&
                        check.device.generation >= device.generation &&
                        check.device.share_of != device.share_of;
    return !beside;
  });
}

void DeviceWatch::let_go(HeldDevice device) {
  if (device.index >= slots_.size()) return;
  CHECK(slots_[device.index].holders > 0);
  slots_[device.index].holders -= 1;
}

DeviceWatch::Check* DeviceWatch::check_of(const HeldDevice& device) {
  std::vector<Check>& checks = slots_[device.index].checks;
  const auto found = std::find_if(checks.begin(), checks.end(), [&](const Check& check) {
    return check.device.share_of == device.share_of;
  });
  return found == checks.end() ? nullptr : &*found;
}

void DeviceWatch::begin_release(HeldDevice device, Time now) {
  if (device.index >= slots_.size()) {
    // The device was there in an earlier life of this node: nothing here can hold it.
    verdicts_.push_back(
        {.device = device, .released = false, .evidence = "this node no longer has this device"});
    return;
  }
  Slot& slot = slots_[device.index];
  CHECK(slot.holders == 0 || device.is_share());
  Check* check = check_of(device);
  if (check == nullptr) check = &slot.checks.emplace_back();
  const bool again = check->since.valid() && check->device.generation == device.generation;
  *check =
      Check{.device = device, .pause = kCheckPauseFirst, .due = now, .since = again ? check->since : now};
  if (!slot.asked_at.valid()) ask(device.index, now);
}

void DeviceWatch::resume_release(HeldDevice device, Time now, Duration pause) {
  if (device.index >= slots_.size()) return;
  Check* check = check_of(device);
  if (check == nullptr) check = &slots_[device.index].checks.emplace_back();
  const Time since = check->since.valid() ? check->since : now;
  *check = Check{.device = device, .pause = pause, .due = now + pause, .since = since};
}

bool DeviceWatch::releasing(HeldDevice device) const {
  if (device.index >= slots_.size()) return false;
  const std::vector<Check>& checks = slots_[device.index].checks;
  return std::any_of(checks.begin(), checks.end(), [&](const Check& check) {
    return check.device.generation == device.generation && check.device.share_of == device.share_of;
  });
}

void DeviceWatch::look_at_all(Time now) {
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    if (!slots_[index].asked_at.valid()) ask(index, now);
  }
}

uint64_t DeviceWatch::look_after(uint32_t index, Time now) {
  Slot& slot = slots_[index];
  const bool outstanding = slot.asked_at.valid();
  const uint64_t wanted = slot.looks + (outstanding ? 2 : 1);
  if (outstanding) {
    slot.again = true;
  } else {
    ask(index, now);
  }
  return wanted;
}

std::vector<uint32_t> DeviceWatch::take_fresh() {
  std::vector<uint32_t> fresh;
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    if (std::exchange(slots_[index].fresh, false)) fresh.push_back(index);
  }
  return fresh;
}

void DeviceWatch::ask(uint32_t index, Time now) {
  Slot& slot = slots_[index];
  slot.asked_at = now;
  for (Check& check : slot.checks) {
    check.asked = true;
    check.due = kNever;
  }
  std::optional<DeviceReading> reading = reader_.read(index);
  if (reading) on_reading(index, std::move(*reading), now);
}

void DeviceWatch::on_reading(uint32_t index, DeviceReading reading, Time now) {
  if (index >= slots_.size()) return;
  Slot& slot = slots_[index];
  slot.asked_at = {};
  slot.read_at = now;
  slot.silence_told = false;
  if (slot.fresh) reading.xids.insert(reading.xids.begin(), slot.last.xids.begin(), slot.last.xids.end());
  slot.last = std::move(reading);
  slot.fresh = true;
  tell_condition(index, now);
  slot.looks += 1;
  settle_reading(index, now);
  if (std::exchange(slot.again, false)) ask(index, now);
}

void DeviceWatch::settle_reading(uint32_t index, Time now) {
  Slot& slot = slots_[index];
  if (!slot.checks.empty()) {
    judge(index, now);
    return;
  }
  const bool idle = slot.holders == 0 && slot.last.processes.empty();
  if (idle && slot.last.condition == v1::DEVICE_CONDITION_OK && used_mb(index) <= kIdleMemoryMaxMb)
    slot.idle_memory_mb = used_mb(index);
}

void DeviceWatch::judge(uint32_t index, Time now) {
  Slot& slot = slots_[index];
  std::vector<Check> open;
  for (Check& check : std::exchange(slot.checks, {})) {
    if (!check.asked) {  // This reading may be older than the attempt's end.
      check.due = now;
      open.push_back(check);
      continue;
    }
    const std::optional<std::string> evidence = evidence_against_release(index, check);
    if (!evidence) {
      const bool slice_there = check.device.is_slice() && slice_of(check.device) != nullptr;
      verdicts_.push_back({.device = check.device, .released = true, .slice_there = slice_there});
      continue;
    }
    verdicts_.push_back(
        {.device = check.device, .released = false, .evidence = *evidence, .checked = now - check.since});
    check.asked = false;
    check.due = now + check.pause;
    check.pause = std::min(check.pause * 2, kCheckPauseMax);
    open.push_back(check);
  }
  slot.checks = std::move(open);
}

namespace {

/// "on it still: pid 17, pid 18"; nothing when there is none.
std::string words_of(const char* where, const std::vector<int64_t>& pids, int64_t memory_mb) {
  if (pids.empty()) return {};
  std::string text = where + std::string(" still:");
  for (std::size_t i = 0; i < std::min(pids.size(), kEvidencePidsMax); ++i)
    text += (i == 0 ? " pid " : ", pid ") + std::to_string(pids[i]);
  return text + "; memory used " + std::to_string(memory_mb) + " MB";
}

}  // namespace

const SliceReading* DeviceWatch::slice_of(const HeldDevice& device) const {
  for (const SliceReading& slice : slots_[device.index].last.slices) {
    if (slice.start == device.mig_start && slice.profile == device.mig_profile) return &slice;
  }
  return nullptr;
}

// A share's memory cannot be told apart beside others, so the processes alone decide. A slice has memory of
// its own.
std::optional<std::string> DeviceWatch::evidence_against_release(uint32_t index, const Check& check) const {
  const Slot& slot = slots_[index];
  const DeviceFacts& facts = facts_[index];
  if (slot.last.condition != v1::DEVICE_CONDITION_OK) {
    return "the driver cannot report on " + facts.uuid + ": " + slot.last.detail;
  }
  if (check.device.is_slice()) {
    const SliceReading* const slice = slice_of(check.device);
    if (slice == nullptr || slice->processes.empty()) return std::nullopt;
    return words_of("in its MIG slice", slice->processes, slice->memory_used_mb);
  }
  const bool beside = check.device.is_share() && slot.holders > 0;
  std::vector<int64_t> strangers;
  bool kept = false;
  for (const int64_t pid : slot.last.processes) {
    if (beside && is_accounted_(index, pid)) continue;
    if (is_kept_ && is_kept_(pid)) {
      kept = true;
    } else {
      strangers.push_back(pid);
    }
  }
  if (!strangers.empty()) return words_of("on it", strangers, slot.last.memory_used_mb);
  if (beside || kept) return std::nullopt;
  if (memory_is_idle(index)) return std::nullopt;
  return "no process, but " + std::to_string(used_mb(index)) +
         " MB of its memory are in use, more than the " + std::to_string(idle_mb(index)) +
         " MB of an idle GPU";
}

int64_t DeviceWatch::idle_mb(uint32_t index) const {
  const Slot& slot = slots_[index];
  return slot.idle_memory_mb ? *slot.idle_memory_mb + kMemoryToleranceMb : kIdleMemoryMaxMb;
}

int64_t DeviceWatch::used_mb(uint32_t index) const {
  const DeviceReading& last = slots_[index].last;
  int64_t used = last.memory_used_mb;
  for (const DaemonReading& daemon : last.daemons) used -= std::max<int64_t>(daemon.memory_mb, 0);
  return std::max<int64_t>(used, 0);
}

bool DeviceWatch::is_current(uint32_t index, Time now) const {
  const Slot& slot = slots_[index];
  return slot.read_at.valid() && now - slot.read_at <= kReadingCurrent &&
         slot.last.condition == v1::DEVICE_CONDITION_OK;
}

std::string DeviceWatch::reason_against(uint32_t index, Time now) const {
  const Slot& slot = slots_[index];
  if (!slot.last.mig_problem.empty()) return slot.last.mig_problem;
  if (slot.barred_until.valid() && now < slot.barred_until) return slot.barred;
  if (slot.holders > 0 || !slot.checks.empty() || used_mb(index) <= kIdleMemoryMaxMb) return {};
  if (is_kept_ && std::any_of(slot.last.processes.begin(), slot.last.processes.end(), is_kept_)) return {};
  // In whole gigabytes: a new word is journaled.
  const std::string used =
      std::to_string(used_mb(index) / 1'024) + " GB of its memory are in use although no job has it";
  if (slot.last.processes.empty())
    return used + ", by no process that the driver shows; see fuser -v /dev/nvidia*";
  return used + ", by pid " + std::to_string(slot.last.processes.front());
}

void DeviceWatch::note_sign_of_life(Time now) {
  for (Slot& slot : slots_) {
    if (slot.asked_at.valid() && !slot.silence_told) slot.asked_at = now;
  }
}

void DeviceWatch::bar(uint32_t index, std::string reason, Time until, Time now) {
  if (index >= slots_.size()) return;
  slots_[index].barred = std::move(reason);
  slots_[index].barred_until = until;
  tell_condition(index, now);
}

void DeviceWatch::tell_condition(uint32_t index, Time now) {
  Slot& slot = slots_[index];
  ConditionNews news{.index = index, .condition = slot.last.condition, .detail = slot.last.detail};
  if (news.condition == v1::DEVICE_CONDITION_OK) {
    std::string reason = reason_against(index, now);
    if (!reason.empty()) {
      news.condition = v1::DEVICE_CONDITION_UNHEALTHY;
      news.detail = std::move(reason);
    }
  }
  if (news.condition == slot.told.condition && news.detail == slot.told.detail) return;
  slot.told = news;
  conditions_.push_back(std::move(news));
}

void DeviceWatch::tick(Time now) {
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    Slot& slot = slots_[index];
    if (slot.asked_at.valid() && !slot.silence_told && now - slot.asked_at >= kDriverSilenceMax) {
      slot.silence_told = true;
      const std::string detail = "the driver has not responded for 30 s";
      slot.last.condition = v1::DEVICE_CONDITION_UNHEALTHY;
      slot.last.detail = detail;
      tell_condition(index, now);
    }
    const bool due = std::any_of(slot.checks.begin(), slot.checks.end(),
                                 [&](const Check& check) { return check.due <= now; });
    if (due && !slot.asked_at.valid()) ask(index, now);
  }
}

Time DeviceWatch::next_due() const {
  Time due = kNever;
  for (const Slot& slot : slots_) {
    if (slot.asked_at.valid()) {
      if (!slot.silence_told) due = std::min(due, slot.asked_at + kDriverSilenceMax);
      continue;
    }
    for (const Check& check : slot.checks) due = std::min(due, check.due);
  }
  return due;
}

std::vector<ReleaseVerdict> DeviceWatch::take_verdicts() { return std::exchange(verdicts_, {}); }
std::vector<ConditionNews> DeviceWatch::take_conditions() { return std::exchange(conditions_, {}); }

}  // namespace gpusched
