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
void NodeCore::begin_slice_creation(const AttemptKey& key, const v1::StartAttempt& order) {
  Cut& cut = cutting_[key];
  cut.order = order;
  cut.made.resize(static_cast<std::size_t>(order.devices_size()));
}

void NodeCore::make_slices() {
  for (auto& [key, cut] : cutting_) {
    if (std::exchange(cut.asked, true)) continue;
    cut.due = ports_.clock.monotonic() + kMakePatience;
    for (const v1::GrantedDevice& device : cut.order.devices()) {
      if (device.mig_profile().empty()) continue;
      cut.open += 1;
      ports_.slices->make_slice(device.index(), device.mig_profile(), device.mig_start());
    }
  }
}

/// One after the other: those that wait for their turn do not wait for a driver that hangs.
void NodeCore::note_driver_works() {
  const Time now = ports_.clock.monotonic();
  watch_.note_sign_of_life(now);
  for (auto& [key, cut] : cutting_) {
    if (cut.asked) cut.due = now + kMakePatience;
  }
}

void NodeCore::on_slice_made(uint32_t index, const std::string& profile, int32_t start, const MadeSlice& made,
                             const std::string& problem) {
  note_driver_works();
  for (auto& [key, cut] : cutting_) {
    for (int at = 0; at < cut.order.devices_size() && cut.asked; ++at) {
      const v1::GrantedDevice& device = cut.order.devices(at);
      if (device.index() != index || device.mig_start() != start || device.mig_profile() != profile) continue;
      cut.made[static_cast<std::size_t>(at)] = made;
      cut.open -= 1;
      if (!problem.empty()) {
        cut.problem = words_of(profile, start, device.uuid()) + " cannot be made: " + problem;
        log_event(LogLevel::kWarning, "agent", "slice_failed", {.id = key.job},
                  {{"attempt", key.attempt}, {"problem", cut.problem}});
        const Time now = ports_.clock.monotonic();
        watch_.bar(index, cut.problem, now + kBarred, now);
      }
      if (cut.open == 0) finish_cut(AttemptKey(key));
      return;
    }
  }
  // Nobody waits for it any more: its release or the look for orphans takes it away.
}

void NodeCore::finish_cut(const AttemptKey& key) {
  auto found = cutting_.extract(key);
  const Cut& cut = found.mapped();
  const auto known = attempts_.find(key);
  if (known == attempts_.end() || known->second.outcome) return;
  Attempt& attempt = known->second;
  if (!cut.problem.empty())
    return end_attempt(key, attempt, make_outcome(v1::Outcome::DEVICE_FAULT, cut.problem));
  if (cut.stopped)
    return end_attempt(key, attempt, make_outcome(v1::Outcome::STOPPED, "stopped before it began"));
  queue_start(key, attempt, plan_launch(cut.order, device_uuids_, options_.launch, ports_.boxes, cut.made));
}

void NodeCore::end_late_cuts(Time now) {
  std::vector<AttemptKey> late;
  for (auto& [key, cut] : cutting_) {
    if (now < cut.due) continue;
    late.push_back(key);
    cut.problem = "the driver did not make its MIG slice within " +
                  std::to_string(kMakePatience.ms() / 1'000) + " s; see nvidia-smi and dmesg";
    for (const v1::GrantedDevice& device : cut.order.devices())
      watch_.bar(device.index(), cut.problem, now + kBarred, now);
  }
  for (const AttemptKey& key : late) finish_cut(key);
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
  return std::any_of(holders->second.begin(), holders->second.end(), [&](const AttemptKey& key) {
    const std::vector<HeldDevice>& devices = attempts_.at(key).devices;
    return key != slice.share_of && std::any_of(devices.begin(), devices.end(), [&](const HeldDevice& held) {
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
    for (const AttemptKey& key : holders->second) {
      const std::vector<HeldDevice>& devices = attempts_.at(key).devices;
      if (std::any_of(devices.begin(), devices.end(), is_it)) return true;
    }
  }
  return std::any_of(releases_.begin(), releases_.end(),
                     [&](const auto& release) { return is_it(release.second.device); });
}

/// What we made and nobody has: of an attempt whose end this node could not watch.
void NodeCore::destroy_orphans(Time now) {
  if (ports_.slices == nullptr || now < orphans_from_ || !found_.empty()) return;
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

void NodeCore::add_cuts(v1::Heartbeat& out) const {
  for (const auto& [key, cut] : cutting_) {
    v1::AttemptProgress& progress = *out.add_progress();
    *progress.mutable_key() = to_wire(key);
    progress.set_message("making its MIG slice");
  }
}

}  // namespace gpusched
