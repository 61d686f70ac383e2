#include "node/core/activity.h"

#include <algorithm>
#include <optional>
#include <string>

namespace gpusched::agent {
namespace {

constexpr int32_t kIdlePercent = 1;
constexpr int32_t kBusyPercent = 99;

}  // namespace

Activity::OwnProcesses Activity::own_processes(const AttemptRow& attempt,
                                               const DeviceReading& reading) const {
  OwnProcesses own;
  for (std::size_t i = 0; i < reading.processes.size(); ++i) {
    if (!ports_.spawner.owns(attempt.key, reading.processes[i])) continue;
    own.any = true;
    const int64_t memory_mb = i < reading.process_memory_mb.size() ? reading.process_memory_mb[i] : -1;
    own.all_told = own.all_told && memory_mb >= 0;
    own.memory_mb += std::max<int64_t>(memory_mb, 0);
  }
  return own;
}

/// The memory that it has of its GPUs together. Whole GPUs are its own, with what the driver keeps there. Of
/// a share its processes count; those of a persistent worker serve several attempts at once, whose memory
/// nobody can tell apart: each counts for an equal part of it, rounded up, and so the only one for all of it.
std::optional<int64_t> Activity::gpu_memory_mb(const AttemptRow& attempt, Time now) const {
  int64_t sum_mb = 0;
  for (const HeldDevice& device : attempt.devices) {
    const bool readable = device.index < watch_.facts().size() && watch_.is_current(device.index, now);
    if (!readable || device.is_slice()) return std::nullopt;
    const DeviceReading& last = watch_.last_reading(device.index);
    if (!device.is_share()) {
      sum_mb += last.memory_used_mb;
      continue;
    }
    const OwnProcesses own = own_processes(attempt, last);
    if (!own.all_told) return std::nullopt;
    // Where CUDA's service holds a worker to the share of one task, that one needs all of it.
    const bool is_held = find_mps(last) != nullptr;
    const auto beside = static_cast<int64_t>(is_held ? 1 : ports_.spawner.tasks_beside(attempt.key));
    sum_mb += (own.memory_mb + beside - 1) / std::max<int64_t>(beside, 1);
  }
  return sum_mb;
}

/// The attempt's use by the readings and by its files, now.
ActivityMeter::Look Activity::look_of(const AttemptRow& attempt, Time now) const {
  ActivityMeter::Look look{
      .idle = true, .busy = true, .mark = ports_.files.output_size(attempt.key), .over_mb = 0};
  look.mark += attempt.saved_unix_ns;
  for (const HeldDevice& device : attempt.devices) {
    if (device.index >= watch_.facts().size()) continue;
    const DeviceReading& last = watch_.last_reading(device.index);
    // A reading that failed or is old proves nothing.
    if (!watch_.is_current(device.index, now)) {
      look.busy = look.idle = false;
      continue;
    }
    look.busy = look.busy && last.utilization_percent.value_or(0) >= kBusyPercent;
    if (device.is_slice()) {  // Its processes are its own; its utilisation is not reported.
      look.busy = false;
      look.idle = look.idle && watch_.is_empty(device);
      continue;
    }
    const OwnProcesses own = device.is_share() ? own_processes(attempt, last) : OwnProcesses{};
    const bool unused = device.is_share() ? !own.any
                                          : last.utilization_percent.value_or(kBusyPercent) <= kIdlePercent &&
                                                watch_.memory_is_idle(device.index);
    look.idle = look.idle && unused;
    // Tasks that one worker has at once have shares of the same size.
    const auto beside = static_cast<int64_t>(ports_.spawner.tasks_beside(attempt.key));
    if (device.is_share()) look.over_mb += std::max<int64_t>(own.memory_mb - device.memory_mb * beside, 0);
  }
  return look;
}

bool Activity::is_alone_on(const AttemptRow& attempt, uint32_t index) const {
  const auto found = fence_.holders().find(index);
  return found != fence_.holders().end() &&
         std::all_of(found->second.begin(), found->second.end(),
                     [&attempt](const AttemptRow* holder) { return holder == &attempt; });
}

/// Utilisation of each of its GPUs: unknown for a slice, and for a share that is not alone there.
std::vector<int32_t> Activity::gpu_percents(const AttemptRow& attempt, Time now) const {
  std::vector<int32_t> percents;
  for (const HeldDevice& device : attempt.devices) {
    if (device.index >= watch_.facts().size() || device.is_slice()) continue;
    if (device.is_share() && !is_alone_on(attempt, device.index)) continue;
    const std::optional<int32_t> percent = watch_.last_reading(device.index).utilization_percent;
    if (percent && watch_.is_current(device.index, now)) percents.push_back(*percent);
  }
  return percents;
}

void Activity::look(Time now) {
  for (const auto& [index, holders] : fence_.holders()) {
    for (AttemptRow* attempt : holders) {
      if (attempt->pid == 0 || attempt->over()) continue;
      if (attempt->devices.front().index != index) continue;  // Once, by its first device.
      attempt->activity = attempt->activity_meter.look(look_of(*attempt, now), now);
      if (attempt->state() == AttemptState::kRunning) {
        attempt->gpu_use.look(gpu_percents(*attempt, now), now);
        attempt->peak_gpu_memory_mb =
            std::max(attempt->peak_gpu_memory_mb, gpu_memory_mb(*attempt, now).value_or(0));
      }
      end_over_share(*attempt);
    }
  }
}

void Activity::end_over_share(AttemptRow& attempt) {
  const ActivityMeter::Activity& activity = *attempt.activity;
  if (share_memory_grace_.ns == 0 || activity.over_mb == 0) return;
  if (activity.over < share_memory_grace_ || !attempt.over_share.empty()) return;
  attempt.over_share = "it used " + std::to_string(activity.over_mb) +
                       " MB more GPU memory than its share has, for " +
                       std::to_string(activity.over.ms() / 1'000) + " s; request more with --gpu-memory";
  orders_.stop(attempt, StopOrder(grace_));
}

void Activity::add_to(v1::Heartbeat& out) const {
  for (const AttemptState state : {AttemptState::kRunning, AttemptState::kExamined}) {
    for (const AttemptRow* attempt : attempts_.in(state)) {
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

}  // namespace gpusched::agent
