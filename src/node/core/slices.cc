#include "node/core/slices.h"

#include <memory>

#include "log/log.h"

namespace gpusched::agent {
namespace {

/// A driver that makes a slice for so long, and does nothing else meanwhile, hangs.
constexpr Duration kMakePatience = seconds(60);
/// Time that nothing new is placed on a device on which a slice could not be made.
constexpr Duration kBarred = seconds(60);

std::string words_of(const std::string& profile, int32_t start, const std::string& uuid) {
  return "the MIG slice " + profile + " at slot " + std::to_string(start) + " of " + uuid;
}

}  // namespace

Slices::Slices(const NodePorts& ports, AttemptTable& attempts, DeviceWatch& watch, ReleaseFence& fence,
               Time orphans_from)
    : ports_(ports),
      attempts_(attempts),
      watch_(watch),
      fence_(fence),
      looks_for_orphans_(watch.facts().size()),
      orphans_from_(orphans_from) {}

void Slices::begin(AttemptRow& attempt, const v1::StartAttempt& order) {
  attempts_.move(attempt, AttemptState::kSlicing);
  attempt.slicing = std::make_unique<AttemptRow::Slicing>();
  attempt.slicing->order = order;
  attempt.slicing->made.resize(static_cast<std::size_t>(order.devices_size()));
}

void Slices::make() {
  for (AttemptRow* attempt : attempts_.in(AttemptState::kSlicing)) {
    AttemptRow::Slicing& slicing = *attempt->slicing;
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
void Slices::note_driver_works() {
  const Time now = ports_.clock.monotonic();
  watch_.note_sign_of_life(now);
  for (AttemptRow* attempt : attempts_.in(AttemptState::kSlicing)) {
    if (attempt->slicing->asked) attempts_.set_due(*attempt, Deadline::kSlices, now + kMakePatience);
  }
}

AttemptRow* Slices::on_made(uint32_t index, const std::string& profile, int32_t start, const MadeSlice& made,
                            const std::string& problem) {
  note_driver_works();
  for (AttemptRow* attempt : attempts_.in(AttemptState::kSlicing)) {
    AttemptRow::Slicing& slicing = *attempt->slicing;
    for (int at = 0; at < slicing.order.devices_size() && slicing.asked; ++at) {
      const v1::GrantedDevice& device = slicing.order.devices(at);
      if (device.index() != index || device.mig_start() != start || device.mig_profile() != profile) continue;
      slicing.made[static_cast<std::size_t>(at)] = made;
      slicing.open -= 1;
      if (!problem.empty()) {
        slicing.problem = words_of(profile, start, device.uuid()) + " cannot be created: " + problem;
        log_event(LogLevel::kWarning, "agent", "slice_failed", {.id = attempt->key.job},
                  {{"attempt", attempt->key.attempt}, {"problem", slicing.problem}});
        const Time now = ports_.clock.monotonic();
        watch_.bar(index, slicing.problem, now + kBarred, now);
      }
      return slicing.open == 0 ? attempt : nullptr;
    }
  }
  return nullptr;  // Nobody waits for it any more: its release or the look for orphans takes it away.
}

std::vector<AttemptRow*> Slices::give_up_late(Time now) {
  std::vector<AttemptRow*> late = attempts_.late(Deadline::kSlices, now);
  for (AttemptRow* attempt : late) {
    AttemptRow::Slicing& slicing = *attempt->slicing;
    slicing.problem = "the driver did not create its MIG slice within " +
                      std::to_string(kMakePatience.ms() / 1'000) + " s; see nvidia-smi and dmesg";
    for (const v1::GrantedDevice& device : slicing.order.devices())
      watch_.bar(device.index(), slicing.problem, now + kBarred, now);
  }
  return late;
}

void Slices::destroy(const HeldDevice& slice) {
  if (!destroying_.insert({slice.index, slice.mig_start}).second) return;
  ports_.slices->destroy_slice(slice.index, slice.mig_profile, slice.mig_start);
}

void Slices::on_destroyed(uint32_t index, const std::string& profile, int32_t start,
                          const std::string& problem) {
  destroying_.erase({index, start});
  note_driver_works();
  const bool waited_for = fence_.on_slice_destroyed(index, profile, start, problem);
  if (!waited_for && !problem.empty() && index < watch_.facts().size()) {
    log_event(LogLevel::kWarning, "agent", "slice_stays", {},
              {{"slice", words_of(profile, start, watch_.facts()[index].uuid)}, {"problem", problem}});
  }
}

void Slices::destroy_orphans(Time now) {
  if (ports_.slices == nullptr || now < orphans_from_ || attempts_.found_count() > 0) return;
  for (uint32_t index = 0; index < looks_for_orphans_.size(); ++index) {
    if (std::exchange(looks_for_orphans_[index], watch_.looks(index)) == watch_.looks(index)) continue;
    const DeviceReading& reading = watch_.last_reading(index);
    if (reading.condition != v1::DEVICE_CONDITION_OK) continue;
    for (const SliceReading& slice : reading.slices) {
      if (!slice.ours || !slice.processes.empty() || fence_.is_wanted(index, slice)) continue;
      destroy({.index = index, .mig_profile = slice.profile, .mig_start = slice.start});
    }
  }
}

void Slices::add_progress(v1::Heartbeat& out) const {
  for (const AttemptRow* attempt : attempts_.in(AttemptState::kSlicing)) {
    v1::AttemptProgress& progress = *out.add_progress();
    *progress.mutable_key() = to_wire(attempt->key);
    progress.set_message("creating its MIG slice");
  }
}

}  // namespace gpusched::agent
