#include "host/nodes/rules/watchdog.h"

#include <algorithm>

#include "base/job_labels.h"

namespace gpusched {
namespace {

/// Time that memory may be over a share before anybody is told: allocators come and go.
constexpr Duration kOverShareGrace = seconds(10);
/// Time before its end that the holder of a lease is told, and a part of the lease at most.
constexpr Duration kEndingBefore = minutes(5);
constexpr int64_t kEndingPart = 4;

std::string span_words(Duration span) {
  const int64_t total = span.ms() / 1'000;
  if (total < 120) return std::to_string(total) + " s";
  if (total < 2 * 3'600) return std::to_string(total / 60) + " min";
  return std::to_string(total / 3'600) + " h " + std::to_string(total / 60 % 60) + " min";
}

WatchAction action_of(const std::string& word, WatchAction usual, bool may_soften) {
  WatchAction asked = usual;
  for (const WatchAction action : {WatchAction::kWarn, WatchAction::kRequeue, WatchAction::kCancel}) {
    if (word == to_string(action)) asked = action;
  }
  return may_soften ? asked : std::max(asked, usual);
}

Duration after_of(int64_t asked_ms, Duration usual, Duration longest) {
  if (asked_ms <= 0) return usual;
  const Duration asked = milliseconds(std::min(asked_ms, int64_t{INT64_MAX / 1'000'000}));
  // Where nobody looks by default, a job may ask to be looked at.
  if (usual.ns == 0) return asked;
  return std::min(asked, std::max(usual, longest));
}

}  // namespace

WatchPolicy policy_of(const WatchLimits& limits, const v1::JobSpec& spec) {
  WatchPolicy policy = limits.usual;
  policy.idle_after = after_of(spec.idle_after_ms(), policy.idle_after, limits.after_max);
  policy.hung_after = after_of(spec.hung_after_ms(), policy.hung_after, limits.after_max);
  policy.idle_action = action_of(spec.idle_action(), policy.idle_action, limits.job_may_soften);
  policy.hung_action = action_of(spec.hung_action(), policy.hung_action, limits.job_may_soften);
  policy.is_lease = spec.labels().contains(std::string(kLeaseLabel));
  return policy;
}

WatchFinding judge(const WatchPolicy& policy, std::span<const MemberActivity> members,
                   const RunTime& run_time) {
  if (members.empty()) return {};
  for (const MemberActivity& member : members) {
    if (member.over_mb <= 0 || member.over < kOverShareGrace) continue;
    return {.kind = WatchdogFinding::kOverShare,
            .detail = "uses " + std::to_string(member.over_mb) + " MB more GPU memory than its share has",
            .age = member.over};
  }
  const Duration before = std::min(kEndingBefore, Duration{run_time.limit.ns / kEndingPart});
  if (policy.is_lease && run_time.limit.ns > 0 && run_time.limit - run_time.past <= before) {
    return {.kind = WatchdogFinding::kEnding,
            .detail = "the lease is about to end; renew it to keep its GPUs"};
  }
  Duration idle = members.front().idle;
  Duration hung = members.front().busy;
  for (const MemberActivity& member : members) {
    idle = std::min(idle, member.idle);
    hung = std::min({hung, member.busy, member.quiet});
  }
  if (policy.idle_after.ns > 0 && idle >= policy.idle_after) {
    return {.kind = WatchdogFinding::kIdle,
            .detail = "its GPUs have been unused for " + span_words(idle) +
                      ": no utilization, and no memory use beyond the idle level",
            .age = idle,
            .action = policy.idle_action};
  }
  if (policy.hung_after.ns > 0 && hung >= policy.hung_after) {
    return {.kind = WatchdogFinding::kHung,
            .detail = "its GPUs have been fully busy for " + span_words(hung) +
                      " without output and without a report that its work is saved",
            .age = hung,
            .action = policy.hung_action};
  }
  return {};
}

}  // namespace gpusched
