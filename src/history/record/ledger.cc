#include "history/record/ledger.h"

#include <algorithm>
#include <bit>

#include "base/overloaded.h"

namespace gpusched::history {
namespace {

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kHoursPerDay = 24;
constexpr int64_t kMilli = 1'000;

}  // namespace

void UsageSums::add(const UsageSums& other) {
  gpu_us += other.gpu_us;
  share_us += other.share_us;
  slice_us += other.slice_us;
  lost_us += other.lost_us;
  cpu_us += other.cpu_us;
  memory_mb_s += other.memory_mb_s;
  attempts += other.attempts;
}

void add_usage(const OpenMember& member, int64_t from_ms, int64_t until_ms, bool lost, Usages& usages) {
  const MemberPlace& place = member.place;
  const int64_t milli = place.gpu_milli > 0 ? place.gpu_milli : kMilli;
  for (int64_t begin = from_ms; begin < until_ms;) {
    const int64_t hour = begin / kHourMs;
    const int64_t end = std::min(until_ms, (hour + 1) * kHourMs);
    const int64_t ms = end - begin;
    UsageKey key{.hour = hour,
                 .tenant = member.tenant,
                 .user = member.user,
                 .node = place.node,
                 .device = -1,
                 .model = place.model};
    UsageSums beside{.cpu_us = int64_t{place.cpu_milli} * ms,
                     // Differences of whole seconds since the epoch: pieces add up to the whole.
                     .memory_mb_s = place.memory_mb * (end / kMilli - begin / kMilli)};
    for (uint64_t mask = place.device_mask; mask != 0; mask &= mask - 1) {
      key.device = std::countr_zero(mask);
      UsageSums sums = std::exchange(beside, {});
      sums.gpu_us = milli * ms;
      (place.is_slice ? sums.slice_us : sums.share_us) = place.gpu_milli > 0 ? sums.gpu_us : 0;
      sums.lost_us = lost ? sums.gpu_us : 0;
      usages[key].add(sums);
    }
    if (place.device_mask == 0) usages[key].add(beside);
    begin = end;
  }
}

int64_t gpu_us_of(const ClosedMember& closed) {
  const MemberPlace& place = closed.member.place;
  const int64_t milli = place.gpu_milli > 0 ? place.gpu_milli : kMilli * std::popcount(place.device_mask);
  return milli * (closed.ended_ms - closed.member.placed_ms);
}

std::map<UsageDay, UsageSums> by_day(const Usages& usages) {
  std::map<UsageDay, UsageSums> days;
  for (const auto& [key, sums] : usages)
    days[{.day = key.hour / kHoursPerDay, .tenant = key.tenant, .user = key.user, .model = key.model}].add(
        sums);
  return days;
}

void Ledger::apply(const Event& event) {
  std::visit(Overloaded{[&](const Placed& e) { on(e); }, [&](const Started& e) { on(e); },
                        [&](const Ended& e) { on(e); }, [&](const Abandoned& e) { on(e); },
                        [&](const Adopted& e) { on(e); }, Ignores<Preempted, Finished, QuotaChanged>{}},
             event);
}

void Ledger::open(const Placed& placed, const MemberPlace& place) {
  const AttemptKey key{.job = placed.job, .attempt = placed.attempt, .member = place.member};
  open_.insert_or_assign(key, OpenMember{.key = key,
                                         .tenant = placed.tenant,
                                         .user = placed.user,
                                         .place = place,
                                         .placed_ms = placed.at.ms()});
  changes_.touched.insert(key);
}

void Ledger::on(const Placed& placed) {
  for (const MemberPlace& place : placed.members) open(placed, place);
}

void Ledger::on(const Started& started) {
  const auto it = open_.find(started.key);
  if (it == open_.end()) return;
  it->second.started_ms = started.at.ms();
  changes_.touched.insert(started.key);
}

void Ledger::close(std::map<AttemptKey, OpenMember>::iterator it, ClosedMember closed) {
  closed.member = std::move(it->second);
  const OpenMember& member = closed.member;
  closed.ended_ms = std::max(closed.ended_ms, member.placed_ms);
  add_usage(member, member.placed_ms, closed.ended_ms, !closed.succeeded, changes_.usages);
  const uint64_t mask = member.place.device_mask;
  changes_
      .usages[{.hour = closed.ended_ms / kHourMs,
               .tenant = member.tenant,
               .user = member.user,
               .node = member.place.node,
               .device = mask == 0 ? -1 : std::countr_zero(mask),
               .model = member.place.model}]
      .attempts += 1;
  changes_.touched.insert(it->first);
  open_.erase(it);
  changes_.closed.push_back(std::move(closed));
}

void Ledger::on(const Ended& ended) {
  const auto it = open_.find(ended.key);
  if (it == open_.end()) return;  // It was abandoned before.
  close(it, {.member = {},
             .ended_ms = ended.at.ms(),
             .cause = std::string(to_string(ended.cause)),
             .exit_code = ended.exit_code,
             .signal = ended.signal,
             .cpu_used_ms = ended.cpu_ms,
             .peak_memory_bytes = ended.peak_memory_bytes,
             .succeeded = ended.cause == EndCause::kExited && ended.exit_code == 0});
}

void Ledger::on(const Abandoned& abandoned) {
  auto it = open_.lower_bound({.job = abandoned.job, .attempt = abandoned.attempt, .member = 0});
  while (it != open_.end() && it->first.job == abandoned.job && it->first.attempt == abandoned.attempt) {
    const auto next = std::next(it);
    close(it, {.member = {}, .ended_ms = abandoned.at.ms(), .cause = "abandoned"});
    it = next;
  }
}

void Ledger::on(const Adopted& adopted) {
  std::set<AttemptKey> running;
  for (const Placed& placed : adopted.running) {
    for (const MemberPlace& place : placed.members) {
      const AttemptKey key{.job = placed.job, .attempt = placed.attempt, .member = place.member};
      running.insert(key);
      const auto known = open_.find(key);
      // Numbers of attempts are given again after an older copy of the data was restored.
      if (known == open_.end() || known->second.placed_ms != placed.at.ms()) open(placed, place);
    }
  }
  for (const AttemptKey& key : adopted.begun) {
    OpenMember& member = open_.at(key);
    if (member.started_ms == 0) member.started_ms = member.placed_ms;
    changes_.touched.insert(key);
  }
  std::map<JobId, const JobRow*> ended;
  for (const JobRow& job : adopted.jobs) ended[job.id] = &job;
  for (auto it = open_.begin(); it != open_.end();) {
    const auto next = std::next(it);
    const auto job = ended.find(it->first.job);
    if (running.contains(it->first)) {
      // It still runs.
    } else if (job != ended.end() && job->second->attempts == it->first.attempt) {
      const JobRow& row = *job->second;
      close(it, {.member = {},
                 .ended_ms = row.ended_at.ms(),
                 .cause = row.cause,
                 .exit_code = row.exit_code,
                 .signal = row.signal,
                 .succeeded = row.state == to_string(JobState::kCompleted)});
    } else {
      ++members_lost_;
      changes_.touched.insert(it->first);
      open_.erase(it);
    }
    it = next;
  }
}

}  // namespace gpusched::history
