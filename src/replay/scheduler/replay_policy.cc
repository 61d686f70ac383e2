#include "replay/scheduler/replay_policy.h"

#include <charconv>

#include "base/limits.h"
#include "engine/policy/policy.h"

namespace gpusched::replay {
namespace {

Error wrong(std::string sentence) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(sentence), .field = "policy"};
}

/// Takes the text before the separator, and the separator, away from `rest`.
std::string_view take(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view word = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return word;
}

/// The configuration's default.
constexpr Duration kOvertaking = hours(24);

Result<Unit> add_option(std::string_view option, ReplayPolicy& policy) {
  constexpr std::string_view kJobs = "jobs=";
  constexpr std::string_view kReservations = "reservations=";
  if (option == "limits" || option == "oracle") {
    policy.knows = option == "limits" ? ReplayPolicy::Knows::kLimits : ReplayPolicy::Knows::kOracle;
    return Unit{};
  }
  if (option == "preempt") {
    policy.scheduling.preempt_by_attained = true;
    return Unit{};
  }
  if (option.starts_with(kJobs)) {
    policy.scheduling.job_order = option.substr(kJobs.size());
    if (policy::make_job_order(policy.scheduling.job_order, policy.scheduling) != nullptr) return Unit{};
    return wrong("there is no order of jobs '" + policy.scheduling.job_order +
                 "'; use priority_aging, deadline, shortest or least_attained");
  }
  if (option.starts_with(kReservations)) {
    const std::string_view number = option.substr(kReservations.size());
    int64_t count = -1;
    const auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), count);
    const bool whole = error == std::errc() && rest == number.data() + number.size();
    if (!whole || count < 0 || count > limits::kReservationsMax) {
      return wrong("reservations must be a number from 0 to " + std::to_string(limits::kReservationsMax) +
                   ", not '" + std::string(number) + "'");
    }
    policy.scheduling.reservations = count;
    return Unit{};
  }
  return wrong("there is no policy option '" + std::string(option) +
               "'; use jobs=NAME, reservations=N, preempt, limits or oracle");
}

}  // namespace

Result<ReplayPolicy> parse_policy(std::string_view text) {
  ReplayPolicy policy;
  policy.name = text;
  policy.scheduling.overtaking = kOvertaking;
  policy.scheduling.attained_levels = {3'600, 36'000};
  std::string_view rest = text;
  policy.scheduling.queue_order = take(rest, '+');
  if (policy::make_queue_order(policy.scheduling.queue_order) == nullptr) {
    return wrong("there is no policy '" + policy.scheduling.queue_order +
                 "'; use priority_aging, fair_share, fifo, strict_priority or cost_aware");
  }
  while (!rest.empty()) {
    const Result<Unit> added = add_option(take(rest, '+'), policy);
    if (!added) return added.error();
  }
  return policy;
}

Result<std::vector<ReplayPolicy>> parse_policies(std::string_view text) {
  std::vector<ReplayPolicy> policies;
  while (!text.empty()) {
    Result<ReplayPolicy> one = parse_policy(take(text, ','));
    if (!one) return one.error();
    policies.push_back(std::move(*one));
  }
  if (policies.empty()) return wrong("contains no policy; one is fair_share");
  return policies;
}

}  // namespace gpusched::replay
