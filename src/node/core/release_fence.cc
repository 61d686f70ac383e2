#include "node/core/release_fence.h"

#include <algorithm>

#include "base/check.h"
#include "log/log.h"

namespace gpusched::agent {
namespace {

constexpr std::size_t kEvidenceBytesMax = 4'096;
constexpr Duration kLateSlicePause = seconds(2);
constexpr Duration kDestroyPauseFirst = milliseconds(250);
constexpr Duration kDestroyPauseMax = seconds(5);

/// True for another share of the device that is no older than `but_shares_of`; null: false.
bool is_beside(const HeldDevice& device, const HeldDevice* but_shares_of) {
  return but_shares_of != nullptr && device.is_share() && device.generation >= but_shares_of->generation &&
         device.share_of != but_shares_of->share_of;
}

/// Fills the fields that Released and Draining have alike.
template <typename Message>
void fill(Message& message, const HeldDevice& device) {
  message.set_index(device.index);
  message.set_generation(device.generation);
  if (device.is_share()) *message.mutable_share_of() = to_wire(device.share_of);
}

}  // namespace

void ReleaseFence::hold(AttemptRow& attempt) {
  attempt.holds = true;
  for (const HeldDevice& device : attempt.devices) {
    // The scheduler gave the device away: it knows of the releases before. Other shares' go on.
    supersede_all(device.index, device.is_share() ? &device : nullptr);
    forget_awaited(device.index, device.is_share() ? &device : nullptr);
    holders_[device.index].push_back(&attempt);
    watch_.hold(device);
  }
}

void ReleaseFence::let_go(AttemptRow& attempt) {
  if (!std::exchange(attempt.holds, false)) return;
  for (const HeldDevice& device : attempt.devices) {
    std::vector<AttemptRow*>& holders = holders_[device.index];
    holders.erase(std::find(holders.begin(), holders.end(), &attempt));
    if (holders.empty()) holders_.erase(device.index);
    watch_.let_go(device);
  }
}

std::optional<std::string> ReleaseFence::conflict_of(const std::vector<HeldDevice>& wanted) const {
  for (const HeldDevice& device : wanted) {
    const auto holders = holders_.find(device.index);
    if (holders == holders_.end() || device.index >= watch_.facts().size()) continue;
    for (const AttemptRow* other : holders->second) {
      if (other->over() || other->of_earlier_boot) continue;
      const bool beside =
          std::all_of(other->devices.begin(), other->devices.end(), [&](const HeldDevice& held) {
            const bool same_slot = held.is_slice() && device.is_slice() && held.mig_start == device.mig_start;
            return held.index != device.index || (held.is_share() && device.is_share() && !same_slot);
          });
      if (beside) continue;
      return "its GPU " + watch_.facts()[device.index].uuid + " is used by attempt " + to_string(other->key) +
             ", which has not ended on this node";
    }
  }
  return std::nullopt;
}

void ReleaseFence::release(AttemptRow& attempt) {
  const Time now = ports_.clock.monotonic();
  attempts_.move(attempt, AttemptState::kReleasing);
  let_go(attempt);
  for (const HeldDevice& device : attempt.devices) {
    // Given away again: its release is known. A share's is not, when others hold other shares.
    if (!device.is_share() && holder_of(device.index) != nullptr) continue;
    const auto newer = releases_.find(fence_of(device));
    if (newer != releases_.end() && newer->second.device.generation > device.generation) continue;
    begin(device, attempt.key, now);
    attempt.unreleased += 1;
  }
  for (const HeldDevice& device : attempt.devices) begin_awaited(device.index, now);
}

void ReleaseFence::begin(const HeldDevice& device, std::optional<AttemptKey> key, Time now) {
  supersede(fence_of(device));
  releases_[fence_of(device)] = Release{.device = device, .key = key};
  watch_.begin_release(device, now);
}

void ReleaseFence::release_unheld(const v1::StartAttempt& order) {
  const Time now = ports_.clock.monotonic();
  for (const HeldDevice& device : held_devices_of(order)) {
    if (is_taken(device)) {
      await(device);
    } else {
      begin(device, std::nullopt, now);
    }
  }
}

// Holders of devices.

const AttemptRow* ReleaseFence::holder_of(uint32_t index) const {
  const auto found = holders_.find(index);
  return found == holders_.end() ? nullptr : found->second.front();
}

bool ReleaseFence::holds(const AttemptKey& key, uint32_t index) const {
  const auto found = holders_.find(index);
  return found != holders_.end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const AttemptRow* attempt) { return attempt->key == key; });
}

/// An attempt has it that has not let go of it yet.
bool ReleaseFence::is_taken(const HeldDevice& device) const {
  return device.is_share() ? holds(device.share_of, device.index) : holder_of(device.index) != nullptr;
}

bool ReleaseFence::is_draining(uint32_t index) const {
  const auto release = releases_.lower_bound({index, AttemptKey{}});
  return release != releases_.end() && release->first.first == index;
}

bool ReleaseFence::is_accounted(uint32_t index, int64_t pid) const {
  const auto found = holders_.find(index);
  return found != holders_.end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const AttemptRow* attempt) { return ports_.spawner.owns(attempt->key, pid); });
}

/// Another attempt has the place of this slice by now.
bool ReleaseFence::has_next_holder(const HeldDevice& slice) const {
  const auto holders = holders_.find(slice.index);
  if (holders == holders_.end()) return false;
  return std::any_of(holders->second.begin(), holders->second.end(), [&](const AttemptRow* attempt) {
    return attempt->key != slice.share_of &&
           std::any_of(attempt->devices.begin(), attempt->devices.end(), [&](const HeldDevice& held) {
             return held.index == slice.index && held.is_slice() && held.mig_start == slice.mig_start;
           });
  });
}

bool ReleaseFence::is_wanted(uint32_t index, const SliceReading& slice) const {
  const auto is_it = [&](const HeldDevice& device) {
    return device.index == index && device.mig_start == slice.start && device.mig_profile == slice.profile;
  };
  const auto holders = holders_.find(index);
  if (holders != holders_.end()) {
    for (const AttemptRow* attempt : holders->second) {
      if (std::any_of(attempt->devices.begin(), attempt->devices.end(), is_it)) return true;
    }
  }
  return std::any_of(releases_.begin(), releases_.end(),
                     [&](const auto& release) { return is_it(release.second.device); });
}

// Releases that wait for others.

void ReleaseFence::await(const HeldDevice& device) {
  const auto [known, fresh] = awaited_.try_emplace(fence_of(device), device);
  if (!fresh && known->second.generation < device.generation) known->second = device;
}

// The scheduler gave the device away: it knows of the releases before. Other shares' go on.
void ReleaseFence::forget_awaited(uint32_t index, const HeldDevice* but_shares_of) {
  std::erase_if(awaited_, [&](const auto& awaited) {
    return awaited.second.index == index && !is_beside(awaited.second, but_shares_of);
  });
}

void ReleaseFence::begin_awaited(uint32_t index, Time now) {
  for (auto at = awaited_.begin(); at != awaited_.end();) {
    const HeldDevice device = at->second;
    if (device.index != index || is_taken(device)) {
      ++at;
      continue;
    }
    at = awaited_.erase(at);
    const auto known = releases_.find(fence_of(device));
    if (known != releases_.end() && known->second.device.generation >= device.generation) continue;
    begin(device, std::nullopt, now);
  }
}

void ReleaseFence::supersede_all(uint32_t index, const HeldDevice* but_shares_of) {
  std::vector<Fence> over;
  for (auto at = releases_.lower_bound({index, AttemptKey{}});
       at != releases_.end() && at->first.first == index; ++at) {
    if (!is_beside(at->second.device, but_shares_of)) over.push_back(at->first);
  }
  for (const Fence& fence : over) supersede(fence);
}

void ReleaseFence::supersede(const Fence& fence) {
  const auto found = releases_.find(fence);
  if (found == releases_.end()) return;
  const Release release = std::move(found->second);
  releases_.erase(found);
  reports_.withdraw(release.report);
  if (!release.key) return;
  AttemptRow* const attempt = attempts_.find(*release.key);
  if (attempt == nullptr || attempt->unreleased == 0) return;
  attempt->unreleased -= 1;
  endings_.close_if_done(*attempt);
}

// Reports to the scheduler.

/// Nothing is told of a release that another one took the place of.
void ReleaseFence::report(const HeldDevice& device, bool released, const std::string& evidence,
                          std::optional<Duration> checked) {
  const auto found = releases_.find(fence_of(device));
  if (found == releases_.end() || !(found->second.device == device)) return;
  Release& release = found->second;
  if (!released && release.evidence == evidence) return;
  v1::Report report;
  if (released) {
    fill(*report.mutable_released(), device);
  } else {
    fill(*report.mutable_draining(), device);
    report.mutable_draining()->set_evidence(clean_text(evidence, kEvidenceBytesMax));
    if (checked) report.mutable_draining()->set_checked_ms(std::max<int64_t>(checked->ms(), 1));
  }
  release.evidence = evidence;
  reports_.replace(release.report, std::move(report));
}

void ReleaseFence::report_busy(const HeldDevice& device, const AttemptRow& holder) {
  v1::Report report;
  fill(*report.mutable_draining(), device);
  const bool in_epilog = holder.state() == AttemptState::kCleaning;
  report.mutable_draining()->set_in_epilog(in_epilog);
  report.mutable_draining()->set_evidence(in_epilog
                                              ? "the epilog of attempt " + to_string(holder.key) + " runs"
                                              : "attempt " + to_string(holder.key) + " runs on it");
  reports_.replace(busy_reports_[fence_of(device)], std::move(report));
}

void ReleaseFence::report_condition(const ConditionNews& news) {
  v1::Report report;
  report.mutable_condition()->set_index(news.index);
  report.mutable_condition()->set_condition(news.condition);
  report.mutable_condition()->set_detail(clean_text(news.detail, kEvidenceBytesMax));
  reports_.replace(condition_reports_[news.index], std::move(report));
  log_event(LogLevel::kWarning, "agent", "device_condition", {},
            {{"index", news.index},
             {"condition", v1::DeviceCondition_Name(news.condition)},
             {"detail", news.detail}});
}

void ReleaseFence::judge(const ReleaseVerdict& verdict, Time now) {
  const AttemptRow* const had_it = attempts_.find(verdict.device.share_of);
  const bool of_earlier_agent = had_it != nullptr && had_it->of_earlier_agent;
  const bool slice_is_gone = verdict.released && verdict.device.is_slice();
  if (slice_is_gone && has_next_holder(verdict.device)) {
    // Its release was told before, and the scheduler gave the place to another.
    report(verdict.device, true, "", verdict.checked);
  } else if (verdict.slice_there && destroy_slice_) {
    destroy_slice_(verdict.device);
  } else if (slice_is_gone && of_earlier_agent && now < orphans_from_) {
    // The earlier agent may have asked the driver for the slice, which makes it yet.
    watch_.resume_release(verdict.device, now, kLateSlicePause);
  } else {
    report(verdict.device, verdict.released, verdict.evidence, verdict.checked);
  }
}

void ReleaseFence::report_news() {
  const Time now = ports_.clock.monotonic();
  for (const ReleaseVerdict& verdict : watch_.take_verdicts()) judge(verdict, now);
  for (const ConditionNews& news : watch_.take_conditions()) report_condition(news);
}

// Answers of the scheduler.

void ReleaseFence::on_released_acked(const v1::Released& released, uint64_t report) {
  const Fence fence{released.index(), from_wire(released.share_of())};
  const auto found = releases_.find(fence);
  if (found == releases_.end() || found->second.report != report) return;
  found->second.report = 0;
  supersede(fence);
}

void ReleaseFence::on_draining_acked(const v1::Draining& draining, uint64_t report) {
  const auto found = releases_.find({draining.index(), from_wire(draining.share_of())});
  if (found != releases_.end() && found->second.report == report) found->second.report = 0;
}

void ReleaseFence::on_check_release(const v1::CheckRelease& order) {
  const Time now = ports_.clock.monotonic();
  for (const v1::GrantedDevice& asked : order.devices()) {
    const HeldDevice device{.index = asked.index(),
                            .generation = asked.generation(),
                            .share_of = from_wire(asked.share_of()),
                            .mig_profile = asked.mig_profile(),
                            .mig_start = asked.mig_start()};
    const AttemptRow* holder = holder_of(device.index);
    if (device.is_share() && !holds(device.share_of, device.index)) holder = nullptr;
    if (holder != nullptr) {
      report_busy(device, *holder);
      await(device);
      continue;
    }
    const Fence fence = fence_of(device);
    const auto known = releases_.find(fence);
    if (known != releases_.end() && known->second.device.generation > device.generation) continue;
    if (known == releases_.end() || known->second.device.generation < device.generation) {
      supersede(fence);
      releases_[fence] = Release{.device = device, .key = std::nullopt};
    }
    releases_[fence].evidence.clear();  // Asked for, so answered even when nothing changed.
    watch_.begin_release(releases_[fence].device, now);
  }
}

bool ReleaseFence::on_slice_destroyed(uint32_t index, const std::string& profile, int32_t start,
                                      const std::string& problem) {
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
    report(device, problem.empty(),
           problem.empty() ? "" : "its MIG slice could not be destroyed: " + problem);
  return !waiting.empty();
}

}  // namespace gpusched::agent
