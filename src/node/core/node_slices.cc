// NodeCore: MIG slices, which are made before an attempt starts and destroyed when nothing is in them any
// more.
#include <algorithm>
#include <utility>

#include "log/log.h"
#include "node/core/node_core.h"

namespace gpusched {
namespace {

/// A driver that makes a slice for so long, and does nothing else meanwhile, hangs.
constexpr Duration kMakePatience = seconds(60);
/// So long nothing new is placed on a device on which a slice could not be made.
constexpr Duration kBarred = seconds(60);
constexpr Duration kDestroyPauseFirst = milliseconds(250);
constexpr Duration kDestroyPauseMax = seconds(5);

std::string words_of(const std::string& profile, int32_t start, const std::string& uuid) {
  return "the MIG slice " + profile + " at slot " + std::to_string(start) + " of " + uuid;
}

}  // namespace

/// It is asked for when the intent is on record.
void NodeCore::begin_slice_creation(Row& attempt, const v1::StartAttempt& order) {
  attempts_.move(attempt, State::kSlicing);
  attempt.slicing = std::make_unique<Row::Slicing>();
  attempt.slicing->order = order;
  attempt.slicing->made.resize(static_cast<std::size_t>(order.devices_size()));
}

void NodeCore::make_slices() {
  for (Row* attempt : attempts_.in(State::kSlicing)) {
    Row::Slicing& slicing = *attempt->slicing;
    if (std::exchange(slicing.asked, true)) continue;
    attempts_.set_due(*attempt, Deadline::kSlices, ports_.clock.monotonic() + kMakePatience);
    for (const v1::GrantedDevice& device : slicing.order.devices()) {
      if (device.mig_profile().empty()) continue;
      slicing.open += 1;
      ports_.slices->make_slice(device.index(), device.mig_profile(), device.mig_start());
    }
  }
}

/// One after the other: those that wait for their turn do not wait for a driver that hangs.
void NodeCore::note_driver_works() {
  const Time now = ports_.clock.monotonic();
  watch_.note_sign_of_life(now);
  for (Row* attempt : attempts_.in(State::kSlicing)) {
    if (attempt->slicing->asked) attempts_.set_due(*attempt, Deadline::kSlices, now + kMakePatience);
  }
}

void NodeCore::on_slice_made(uint32_t index, const std::string& profile, int32_t start, const MadeSlice& made,
                             const std::string& problem) {
  note_driver_works();
  for (Row* attempt : attempts_.in(State::kSlicing)) {
    Row::Slicing& slicing = *attempt->slicing;
    for (int at = 0; at < slicing.order.devices_size() && slicing.asked; ++at) {
      const v1::GrantedDevice& device = slicing.order.devices(at);
      if (device.index() != index || device.mig_start() != start || device.mig_profile() != profile) continue;
      slicing.made[static_cast<std::size_t>(at)] = made;
      slicing.open -= 1;
      if (!problem.empty()) {
        slicing.problem = words_of(profile, start, device.uuid()) + " cannot be made: " + problem;
        log_event(LogLevel::kWarning, "agent", "slice_failed", {.id = attempt->key.job},
                  {{"attempt", attempt->key.attempt}, {"problem", slicing.problem}});
        const Time now = ports_.clock.monotonic();
        watch_.bar(index, slicing.problem, now + kBarred, now);
      }
      if (slicing.open == 0) finish_slices(*attempt);
      return;
    }
  }
  // Nobody waits for it any more: its release or the look for orphans takes it away.
}

void NodeCore::finish_slices(Row& attempt) {
  const std::unique_ptr<Row::Slicing> slicing = std::move(attempt.slicing);
  if (!slicing->problem.empty())
    return end_attempt(attempt, make_outcome(v1::Outcome::DEVICE_FAULT, slicing->problem));
  if (attempt.stopped_early)
    return end_attempt(attempt, make_outcome(v1::Outcome::STOPPED, "stopped before it began"));
  attempts_.move(attempt, State::kOrdered);
  queue_start(attempt,
              plan_launch(slicing->order, device_uuids_, options_.launch, ports_.boxes, slicing->made));
}

void NodeCore::end_late_slices(Time now) {
  for (Row* attempt : attempts_.late(Deadline::kSlices, now)) {
    Row::Slicing& slicing = *attempt->slicing;
    slicing.problem = "the driver did not make its MIG slice within " +
                      std::to_string(kMakePatience.ms() / 1'000) + " s; see nvidia-smi and dmesg";
    for (const v1::GrantedDevice& device : slicing.order.devices())
      watch_.bar(device.index(), slicing.problem, now + kBarred, now);
    finish_slices(*attempt);
  }
}

/// Nothing is in it; its release is told when it is gone.
void NodeCore::destroy_slice(const HeldDevice& device) {
  if (!destroying_.insert({device.index, device.mig_start}).second) return;
  ports_.slices->destroy_slice(device.index, device.mig_profile, device.mig_start);
}

void NodeCore::on_slice_destroyed(uint32_t index, const std::string& profile, int32_t start,
                                  const std::string& problem) {
  destroying_.erase({index, start});
  note_driver_works();
  const Time now = ports_.clock.monotonic();
  std::vector<HeldDevice> waiting;
  for (auto& [fence, release] : releases_) {
    const HeldDevice& device = release.device;
    if (device.index != index || device.mig_start != start || device.mig_profile != profile) continue;
    if (!problem.empty()) {
      release.pause = std::clamp(release.pause * 2, kDestroyPauseFirst, kDestroyPauseMax);
      watch_.resume_release(device, now, release.pause);
    }
    waiting.push_back(device);
  }
  for (const HeldDevice& device : waiting)
    report_release(device, problem.empty(), problem.empty() ? "" : "its MIG slice stays: " + problem);
  if (waiting.empty() && !problem.empty() && index < options_.devices.size()) {
    log_event(LogLevel::kWarning, "agent", "slice_stays", {},
              {{"slice", words_of(profile, start, options_.devices[index].uuid)}, {"problem", problem}});
  }
}

/// Another attempt has the place of this slice by now.
bool NodeCore::has_next_holder(const HeldDevice& slice) const {
  const auto holders = holders_.find(slice.index);
  if (holders == holders_.end()) return false;
  return std::any_of(holders->second.begin(), holders->second.end(), [&](const Row* attempt) {
    const std::vector<HeldDevice>& devices = attempt->devices;
    return attempt->key != slice.share_of &&
           std::any_of(devices.begin(), devices.end(), [&](const HeldDevice& held) {
             return held.index == slice.index && held.is_slice() && held.mig_start == slice.mig_start;
           });
  });
}

/// An attempt has it, or waits for its release.
bool NodeCore::is_wanted(uint32_t index, const SliceReading& slice) const {
  const auto is_it = [&](const HeldDevice& device) {
    return device.index == index && device.mig_start == slice.start && device.mig_profile == slice.profile;
  };
  const auto holders = holders_.find(index);
  if (holders != holders_.end()) {
    for (const Row* attempt : holders->second) {
      const std::vector<HeldDevice>& devices = attempt->devices;
      if (std::any_of(devices.begin(), devices.end(), is_it)) return true;
    }
  }
  return std::any_of(releases_.begin(), releases_.end(),
                     [&](const auto& release) { return is_it(release.second.device); });
}

/// What we made and nobody has: of an attempt whose end this node could not watch.
void NodeCore::destroy_orphans(Time now) {
  if (ports_.slices == nullptr || now < orphans_from_ || attempts_.found_count() > 0) return;
  for (uint32_t index = 0; index < options_.devices.size(); ++index) {
    if (std::exchange(looks_for_orphans_[index], watch_.looks(index)) == watch_.looks(index)) continue;
    const DeviceReading& reading = watch_.last_reading(index);
    if (reading.condition != v1::DEVICE_CONDITION_OK) continue;
    for (const SliceReading& slice : reading.slices) {
      if (!slice.ours || !slice.processes.empty() || is_wanted(index, slice)) continue;
      destroy_slice({.index = index, .mig_profile = slice.profile, .mig_start = slice.start});
    }
  }
}

void NodeCore::add_slicing(v1::Heartbeat& out) const {
  for (const Row* attempt : attempts_.in(State::kSlicing)) {
    v1::AttemptProgress& progress = *out.add_progress();
    *progress.mutable_key() = to_wire(attempt->key);
    progress.set_message("making its MIG slice");
  }
}

}  // namespace gpusched
