// NodeCore: who holds a device, and how its release is vouched for.
#include <algorithm>
#include <utility>

#include "log/log.h"
#include "node/core/node_core.h"
#include "node/gpu/gpu_daemons.h"

namespace gpusched {
namespace {

constexpr std::size_t kEvidenceBytesMax = 4'096;
constexpr Duration kLateSlicePause = seconds(2);

}  // namespace

void NodeCore::hold_devices(Row& attempt) {
  attempt.holds = true;
  for (const HeldDevice& device : attempt.devices) {
    // The scheduler gave the device away: it knows of the releases before. Other shares' go on.
    supersede_releases(device.index, device.is_share() ? &device : nullptr);
    forget_awaited(device.index, device.is_share() ? &device : nullptr);
    holders_[device.index].push_back(&attempt);
    watch_.hold(device);
  }
}

void NodeCore::let_go_devices(Row& attempt) {
  if (!std::exchange(attempt.holds, false)) return;
  for (const HeldDevice& device : attempt.devices) {
    std::vector<Row*>& holders = holders_[device.index];
    holders.erase(std::find(holders.begin(), holders.end(), &attempt));
    if (holders.empty()) holders_.erase(device.index);
    watch_.let_go(device);
  }
}

/// Why an attempt cannot have what it was granted, in words: another one that is not over has it.
std::optional<std::string> NodeCore::conflict_of(const std::vector<HeldDevice>& wanted) const {
  for (const HeldDevice& device : wanted) {
    const auto holders = holders_.find(device.index);
    if (holders == holders_.end() || device.index >= options_.devices.size()) continue;
    for (const Row* other : holders->second) {
      if (other->over() || other->of_earlier_boot) continue;
      const bool beside =
          std::all_of(other->devices.begin(), other->devices.end(), [&](const HeldDevice& held) {
            const bool same_slot = held.is_slice() && device.is_slice() && held.mig_start == device.mig_start;
            return held.index != device.index || (held.is_share() && device.is_share() && !same_slot);
          });
      if (beside) continue;
      return "its GPU " + options_.devices[device.index].uuid + " is taken by attempt " +
             to_string(other->key) + ", which has not ended on this node";
    }
  }
  return std::nullopt;
}

/// An attempt has it that has not let go of it yet.
bool NodeCore::is_taken(const HeldDevice& device) const {
  return device.is_share() ? holds(device.share_of, device.index) : holder_of(device.index) != nullptr;
}

void NodeCore::await_release(const HeldDevice& device) {
  const auto [known, fresh] = awaited_.try_emplace({device.index, device.share_of}, device);
  if (!fresh && known->second.generation < device.generation) known->second = device;
}

// The scheduler gave the device away: it knows of the releases before. Other shares' go on.
void NodeCore::forget_awaited(uint32_t index, const HeldDevice* but_shares_of) {
  std::erase_if(awaited_, [&](const auto& awaited) {
    const HeldDevice& device = awaited.second;
    const bool beside = but_shares_of != nullptr && device.is_share() &&
                        device.generation >= but_shares_of->generation &&
                        device.share_of != but_shares_of->share_of;
    return device.index == index && !beside;
  });
}

void NodeCore::begin_awaited(uint32_t index, Time now) {
  for (auto at = awaited_.begin(); at != awaited_.end();) {
    const HeldDevice device = at->second;
    if (device.index != index || is_taken(device)) {
      ++at;
      continue;
    }
    at = awaited_.erase(at);
    const Fence fence{device.index, device.share_of};
    const auto known = releases_.find(fence);
    if (known != releases_.end() && known->second.device.generation >= device.generation) continue;
    supersede_release(fence);
    releases_[fence] = Release{.device = device, .key = std::nullopt};
    watch_.begin_release(device, now);
  }
}

const agent::AttemptRow* NodeCore::holder_of(uint32_t index) const {
  const auto found = holders_.find(index);
  return found == holders_.end() ? nullptr : found->second.front();
}

bool NodeCore::holds(const AttemptKey& key, uint32_t index) const {
  const auto found = holders_.find(index);
  return found != holders_.end() && std::any_of(found->second.begin(), found->second.end(),
                                                [&](const Row* attempt) { return attempt->key == key; });
}

// It belongs to an attempt that has the device, or a share of it.
bool NodeCore::is_accounted(uint32_t index, int64_t pid) const {
  const auto found = holders_.find(index);
  return found != holders_.end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const Row* attempt) { return ports_.spawner.owns(attempt->key, pid); });
}

bool NodeCore::serves_mps() const {
  for (uint32_t index = 0; index < options_.devices.size(); ++index) {
    if (find_mps(watch_.last_reading(index)) != nullptr) return true;
  }
  return false;
}

/// A share's limits are enforced by the multi-process service, which its job must find.
void NodeCore::add_mps(const Row& attempt, SpawnRequest& request) const {
  if (attempt.devices.empty() || request.container) return;
  const HeldDevice& device = attempt.devices.front();
  if (!device.is_share() || device.is_slice() || device.index >= options_.devices.size()) return;
  const DaemonReading* const mps = find_mps(watch_.last_reading(device.index));
  if (mps == nullptr || mps->mps_directory.empty()) return;
  const std::string name = "CUDA_MPS_PIPE_DIRECTORY=";
  const bool own = std::any_of(request.environment.begin(), request.environment.end(),
                               [&](const std::string& entry) { return entry.starts_with(name); });
  if (!own) request.environment.push_back(name + mps->mps_directory);
}

void NodeCore::note_daemons(uint32_t index) {
  std::string programs;
  for (const DaemonReading& daemon : watch_.last_reading(index).daemons)
    programs += (programs.empty() ? "" : ", ") + daemon.program;
  if (std::exchange(daemons_told_[index], programs) == programs) return;
  log_event(LogLevel::kInfo, "agent", "gpu_daemons", {},
            {{"uuid", options_.devices[index].uuid},
             {"programs", programs},
             {"mps", find_mps(watch_.last_reading(index)) != nullptr}});
}

void NodeCore::begin_releases(Row& attempt, Time now) {
  attempts_.move(attempt, State::kReleasing);
  let_go_devices(attempt);
  for (const HeldDevice& device : attempt.devices) {
    // Given away again: its release is known. A share's is not, when others hold other shares.
    if (!device.is_share() && holder_of(device.index) != nullptr) continue;
    const Fence fence{device.index, device.share_of};
    const auto newer = releases_.find(fence);
    if (newer != releases_.end() && newer->second.device.generation > device.generation) continue;
    supersede_release(fence);
    releases_[fence] = Release{.device = device, .key = attempt.key};
    attempt.unreleased += 1;
    watch_.begin_release(device, now);
  }
  for (const HeldDevice& device : attempt.devices) begin_awaited(device.index, now);
}

// Of shares of the same generation as `but_shares_of` only its own.
void NodeCore::supersede_releases(uint32_t index, const HeldDevice* but_shares_of) {
  std::vector<Fence> over;
  for (auto at = releases_.lower_bound({index, AttemptKey{}});
       at != releases_.end() && at->first.first == index; ++at) {
    const HeldDevice& device = at->second.device;
    const bool beside = but_shares_of != nullptr && device.is_share() &&
                        device.generation >= but_shares_of->generation &&
                        device.share_of != but_shares_of->share_of;
    if (!beside) over.push_back(at->first);
  }
  for (const Fence& fence : over) supersede_release(fence);
}

void NodeCore::supersede_release(const Fence& fence) {
  const auto found = releases_.find(fence);
  if (found == releases_.end()) return;
  const Release release = std::move(found->second);
  releases_.erase(found);
  outbox_.withdraw(release.report);
  if (!release.key) return;
  Row* const attempt = attempts_.find(*release.key);
  if (attempt == nullptr || attempt->unreleased == 0) return;
  attempt->unreleased -= 1;
  close_if_done(*attempt);
}

/// Nothing is told of a release that another one took the place of.
void NodeCore::report_release(const HeldDevice& device, bool released, const std::string& evidence,
                              std::optional<Duration> checked) {
  const auto found = releases_.find({device.index, device.share_of});
  if (found == releases_.end() || !(found->second.device == device)) return;
  Release& release = found->second;
  if (!released && release.evidence == evidence) return;
  v1::Report report;
  if (released) {
    report.mutable_released()->set_index(device.index);
    report.mutable_released()->set_generation(device.generation);
    if (device.is_share()) *report.mutable_released()->mutable_share_of() = to_wire(device.share_of);
  } else {
    report.mutable_draining()->set_index(device.index);
    report.mutable_draining()->set_generation(device.generation);
    report.mutable_draining()->set_evidence(clean_text(evidence, kEvidenceBytesMax));
    if (checked) report.mutable_draining()->set_checked_ms(std::max<int64_t>(checked->ms(), 1));
    if (device.is_share()) *report.mutable_draining()->mutable_share_of() = to_wire(device.share_of);
  }
  release.evidence = evidence;
  outbox_.withdraw(release.report);
  release.report = outbox_.add(std::move(report));
}

void NodeCore::report_devices() {
  const Time now = ports_.clock.monotonic();
  for (const ReleaseVerdict& verdict : watch_.take_verdicts()) {
    const Row* const had_it = attempts_.find(verdict.device.share_of);
    const bool of_earlier_agent = had_it != nullptr && had_it->of_earlier_agent;
    if (verdict.released && verdict.device.is_slice() && has_next_holder(verdict.device)) {
      // Its release was told before, and the scheduler gave the place to another.
      report_release(verdict.device, true, "", verdict.checked);
    } else if (verdict.slice_there && ports_.slices != nullptr) {
      destroy_slice(verdict.device);
    } else if (verdict.released && verdict.device.is_slice() && of_earlier_agent && now < orphans_from_) {
      // That agent may have asked the driver for the slice, which makes it yet.
      watch_.resume_release(verdict.device, now, kLateSlicePause);
    } else {
      report_release(verdict.device, verdict.released, verdict.evidence, verdict.checked);
    }
  }
  for (const ConditionNews& news : watch_.take_conditions()) {
    v1::Report report;
    report.mutable_condition()->set_index(news.index);
    report.mutable_condition()->set_condition(news.condition);
    report.mutable_condition()->set_detail(clean_text(news.detail, kEvidenceBytesMax));
    uint64_t& outstanding = condition_reports_[news.index];
    outbox_.withdraw(outstanding);
    outstanding = outbox_.add(std::move(report));
    log_event(LogLevel::kWarning, "agent", "device_condition", {},
              {{"index", news.index},
               {"condition", v1::DeviceCondition_Name(news.condition)},
               {"detail", news.detail}});
  }
}

void NodeCore::on_released_acked(const v1::Released& released, uint64_t report) {
  const Fence fence{released.index(), from_wire(released.share_of())};
  const auto found = releases_.find(fence);
  if (found == releases_.end() || found->second.report != report) return;
  found->second.report = 0;
  supersede_release(fence);
}

// What an order granted that is not carried out.
void NodeCore::release_unheld(const v1::StartAttempt& order) {
  const Time now = ports_.clock.monotonic();
  for (const HeldDevice& device : held_devices_of(order)) {
    if (is_taken(device)) {
      await_release(device);
      continue;
    }
    const Fence fence{device.index, device.share_of};
    supersede_release(fence);
    releases_[fence] = Release{.device = device, .key = std::nullopt};
    watch_.begin_release(device, now);
  }
}

void NodeCore::on_check_release(const v1::CheckRelease& order) {
  const Time now = ports_.clock.monotonic();
  for (const v1::GrantedDevice& asked : order.devices()) {
    const HeldDevice device{.index = asked.index(),
                            .generation = asked.generation(),
                            .share_of = from_wire(asked.share_of()),
                            .mig_profile = asked.mig_profile(),
                            .mig_start = asked.mig_start()};
    const Row* holder = holder_of(device.index);
    if (device.is_share() && !holds(device.share_of, device.index)) holder = nullptr;
    const Fence fence{device.index, device.share_of};
    if (holder != nullptr) {
      v1::Report report;
      report.mutable_draining()->set_index(device.index);
      report.mutable_draining()->set_generation(device.generation);
      const bool in_epilog = holder->state() == State::kCleaning;
      report.mutable_draining()->set_in_epilog(in_epilog);
      report.mutable_draining()->set_evidence(
          in_epilog ? "the epilog of attempt " + to_string(holder->key) + " runs"
                    : "attempt " + to_string(holder->key) + " runs on it");
      if (device.is_share()) *report.mutable_draining()->mutable_share_of() = asked.share_of();
      uint64_t& outstanding = busy_reports_[fence];
      outbox_.withdraw(outstanding);
      outstanding = outbox_.add(std::move(report));
      await_release(device);
      continue;
    }
    const auto known = releases_.find(fence);
    if (known != releases_.end() && known->second.device.generation > device.generation) continue;
    if (known == releases_.end() || known->second.device.generation < device.generation) {
      supersede_release(fence);
      releases_[fence] = Release{.device = device, .key = std::nullopt};
    }
    releases_[fence].evidence.clear();  // Asked for, so answered even when nothing changed.
    watch_.begin_release(releases_[fence].device, now);
  }
}

}  // namespace gpusched
