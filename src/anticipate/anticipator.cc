#include "anticipate/anticipator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <tuple>

#include "base/check.h"
#include "base/utf8.h"

namespace gpusched::anticipate {
namespace {

constexpr std::size_t kEvidenceMax = 1'000;
constexpr std::size_t kTextShown = 200;
constexpr int64_t kHourNs = hours(1).ns;
constexpr int64_t kSecondNs = seconds(1).ns;
/// Signs of a need keep a lease up to so many times longer than without them.
constexpr int64_t kPatience = 3;

std::string minutes_text(Duration span) {
  const int64_t whole = span.ns / minutes(1).ns;
  return whole >= 1 ? std::to_string(whole) + " min" : std::to_string(span.ns / kSecondNs) + " s";
}

std::string gpus_text(int32_t gpus) { return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs"); }

/// The strongest reason of each rule: one rule counts once, however often it matched.
std::vector<Reason> strongest(std::vector<Reason> reasons) {
  std::ranges::stable_sort(reasons, [](const Reason& a, const Reason& b) {
    return std::tuple(-std::abs(a.weight), -a.gpus, a.rule) <
           std::tuple(-std::abs(b.weight), -b.gpus, b.rule);
  });
  std::vector<Reason> kept;
  for (Reason& reason : reasons) {
    if (std::ranges::none_of(kept, [&](const Reason& other) { return other.rule == reason.rule; }))
      kept.push_back(std::move(reason));
  }
  return kept;
}

/// Where the GPU time of an hour since 1970 is kept.
std::size_t place_of(int64_t hour) {
  constexpr auto kHours = static_cast<int64_t>(Memory::kHours);
  return static_cast<std::size_t>(((hour % kHours) + kHours) % kHours);
}

int32_t sum_of(const std::vector<Reason>& reasons) {
  int32_t sum = 0;
  for (const Reason& reason : reasons) sum += reason.weight;
  return sum;
}

}  // namespace

std::string_view to_string(Decision::Kind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"wait", "allocate", "extend", "release", "refuse"};
  return kNames.at(static_cast<std::size_t>(kind));
}

Anticipator::Anticipator(std::vector<Rule> rules, Settings settings, Memory memory)
    : rules_(std::move(rules)), settings_(settings), memory_(std::move(memory)) {
  CHECK(settings_.lease.ns > 0);
  CHECK(settings_.bounds.gpus_max > 0);
}

std::vector<Decision> Anticipator::observe(const Observation& seen, Time now) {
  std::vector<Decision> decisions;
  const std::string text = lower_case(seen.text);
  bool news = false;
  for (const Rule& rule : rules_) {
    if (!matches(rule, seen.source, text)) continue;
    if (rule.meaning == Meaning::kOver) {
      end_need(seen, now);
      continue;
    }
    const Key key{rule.name, seen.monitor, seen.origin};
    const auto known = evidence_.find(key);
    const bool is_known = known != evidence_.end() && now - known->second.at < settings_.window;
    if (!is_known && evidence_.size() >= kEvidenceMax) continue;
    evidence_[key] = {.rule = rule.name,
                      .monitor = seen.monitor,
                      .origin = seen.origin,
                      .source = seen.source,
                      .text = std::string(utf8_cut(seen.text, kTextShown)),
                      .weight = memory_.learning.weight_of(rule.name, rule.weight),
                      .gpus = gpus_of(rule, text),
                      .at = now};
    news = news || !is_known;
    if (is_known) evidence_.at(key).at = now;
  }
  const bool suffices = score(now) >= settings_.threshold;
  if (suffices) {
    for (Lease& lease : memory_.leases) lease.needed_at = std::max(lease.needed_at, now);
  }
  if (news) decisions.push_back(decide(reasons(now), now));
  return decisions;
}

std::vector<Decision> Anticipator::conclude(const Observation& seen, const std::string& name, int32_t weight,
                                            int32_t gpus, Time now) {
  if (evidence_.size() >= kEvidenceMax) return {};
  evidence_[{name, seen.monitor, seen.origin}] = {.rule = name,
                                                  .monitor = seen.monitor,
                                                  .origin = seen.origin,
                                                  .source = seen.source,
                                                  .text = std::string(utf8_cut(seen.text, kTextShown)),
                                                  .weight = memory_.learning.weight_of(name, weight),
                                                  .gpus = std::max(gpus, 1),
                                                  .at = now};
  return {decide(reasons(now), now)};
}

std::vector<Reason> Anticipator::reasons(Time now) const {
  std::vector<Reason> counting;
  for (const auto& [key, reason] : evidence_) {
    if (now - reason.at < settings_.window) counting.push_back(reason);
  }
  return strongest(std::move(counting));
}

int32_t Anticipator::score(Time now) const { return sum_of(reasons(now)); }

void Anticipator::end_need(const Observation& seen, Time now) {
  // Only what the same monitor saw is over: another one's need goes on.
  std::erase_if(evidence_, [&](const auto& entry) { return entry.second.monitor == seen.monitor; });
  if (score(now) >= settings_.threshold) return;
  for (Lease& lease : memory_.leases) lease.is_over = true;
}

LeaseRequest Anticipator::request_of(const std::vector<Reason>& reasons) const {
  LeaseRequest request{.gpus = 1, .length = settings_.lease};
  for (const Reason& reason : reasons) {
    if (reason.weight <= 0) continue;
    request.gpus = std::clamp(reason.gpus, request.gpus, settings_.bounds.gpus_max);
    const Rule* const rule = find_rule(reason.rule);
    if (rule == nullptr) continue;
    if (request.gpu_model.empty()) request.gpu_model = rule->gpu_model;
    request.memory_gb = std::max(request.memory_gb, rule->memory_gb);
  }
  return request;
}

std::string Anticipator::forbidden(const LeaseRequest& request, Time now) const {
  if (std::ssize(memory_.leases) >= settings_.bounds.leases_max)
    return "a lease is held already; bounds.leases_max is " + std::to_string(settings_.bounds.leases_max);
  const int64_t wanted = request.gpus * (request.length.ns / kSecondNs);
  const int64_t allowed = settings_.bounds.gpu_minutes_per_day * 60;
  if (spent_gpu_seconds(now) + wanted > allowed) {
    return "the leases of the last 24 hours leave no room for " + gpus_text(request.gpus) + " for " +
           minutes_text(request.length) + "; bounds.gpu_minutes_per_day is " +
           std::to_string(settings_.bounds.gpu_minutes_per_day);
  }
  return {};
}

Decision Anticipator::decide(std::vector<Reason> found, Time now) {
  Decision decision{.score = sum_of(found), .reasons = std::move(found)};
  if (decision.score < settings_.threshold) {
    decision.why =
        "the signs weigh " + std::to_string(decision.score) + " of " + std::to_string(settings_.threshold);
    return decision;
  }
  std::vector<Reason> rested;
  std::string resting;
  for (const Reason& reason : decision.reasons) {
    const auto until = resting_until_.find(reason.monitor);
    if (until == resting_until_.end() || until->second <= now) {
      rested.push_back(reason);
    } else if (reason.weight > 0) {
      resting = reason.monitor;
    }
  }
  decision.request = request_of(decision.reasons);
  const auto held = std::ranges::find_if(memory_.leases, [&](const Lease& lease) {
    return !lease.is_released && lease.request.gpus >= decision.request.gpus;
  });
  if (held != memory_.leases.end()) {
    decision.lease = held->number;
    decision.why = "a lease is held for this already";
    return decision;
  }
  decision.kind = Decision::Kind::kRefuse;
  decision.why = forbidden(decision.request, now);
  if (!decision.why.empty()) return decision;
  if (sum_of(rested) < settings_.threshold) {
    decision.why =
        "monitor " + resting + " asked for a lease less than " + minutes_text(settings_.cooldown) + " ago";
    return decision;
  }
  decision.kind = Decision::Kind::kAllocate;
  decision.lease = ++memory_.last_number;
  decision.why = "the signs weigh " + std::to_string(decision.score) + " of " +
                 std::to_string(settings_.threshold) + ": ask for " + gpus_text(decision.request.gpus) +
                 " for " + minutes_text(decision.request.length);
  Lease lease{.number = decision.lease, .request = decision.request, .asked_at = now, .needed_at = now};
  for (const Reason& reason : decision.reasons) {
    if (reason.weight <= 0) continue;
    lease.rules.push_back(reason.rule);
    resting_until_[reason.monitor] = now + settings_.cooldown;
  }
  memory_.leases.push_back(std::move(lease));
  return decision;
}

std::vector<Decision> Anticipator::tick(Time now) {
  std::erase_if(evidence_, [&](const auto& entry) { return now - entry.second.at >= settings_.window; });
  std::erase_if(resting_until_, [&](const auto& entry) { return entry.second <= now; });
  std::vector<Decision> decisions;
  for (std::size_t at = 0; at < memory_.leases.size();) {
    Lease& lease = memory_.leases[at];
    count_time(lease, now);
    // Its time is over, whether or not the scheduler could be asked.
    if (lease.ready_at.valid() && lease.expires_at.valid() && lease.expires_at <= now) {
      end_lease(at, true);
      continue;
    }
    if (std::optional<Decision> decision = look_after(lease, now)) decisions.push_back(std::move(*decision));
    ++at;
  }
  return decisions;
}

std::optional<Decision> Anticipator::look_after(Lease& lease, Time now) {
  if (lease.is_released) return std::nullopt;
  Decision decision{.lease = lease.number, .request = lease.request, .score = score(now)};
  decision.why = release_reason(lease, now);
  if (!decision.why.empty()) {
    lease.is_released = true;
    // The signs that called for it are answered: they do not call for the next one.
    const Time answered = std::max(lease.used_at, lease.needed_at);
    std::erase_if(evidence_, [&](const auto& entry) { return entry.second.at <= answered; });
    decision.kind = Decision::Kind::kRelease;
    return decision;
  }
  const bool is_due = lease.ready_at.valid() && lease.expires_at.valid() &&
                      (lease.expires_at - now).ns <= settings_.lease.ns / 2;
  if (!is_due || lease.is_at_limit) return std::nullopt;
  decision.why = limit_reason(lease, now);
  if (!decision.why.empty()) {
    lease.is_at_limit = true;
    decision.kind = Decision::Kind::kRefuse;
    return decision;
  }
  decision.kind = Decision::Kind::kExtend;
  decision.request.length = settings_.lease;
  decision.why = lease.in_use ? "it is in use" : "it may still be needed";
  return decision;
}

std::string Anticipator::release_reason(const Lease& lease, Time now) const {
  if (lease.in_use) return {};
  if (lease.is_over) return "a rule saw the end of the work, and nobody uses it";
  const auto since = [&](Time quiet, Duration patience) {
    const Time latest = quiet + patience * kPatience;  // Signs alone do not keep it for ever.
    return now - std::max(quiet, std::min(lease.needed_at, latest)) >= patience;
  };
  if (lease.used_at.valid()) {
    if (since(lease.used_at, settings_.idle))
      return "nobody used it for " + minutes_text(now - lease.used_at);
  } else if (since(lease.ready_at.valid() ? lease.ready_at : lease.asked_at, settings_.unused)) {
    return lease.ready_at.valid()
               ? "nobody used it since it was ready, " + minutes_text(now - lease.ready_at) + " ago"
               : "it was not granted, and nothing calls for it any more";
  }
  return {};
}

std::string Anticipator::limit_reason(const Lease& lease, Time now) const {
  if ((now - lease.ready_at) + settings_.lease > settings_.bounds.held_max)
    return "it is not extended: bounds.held_max_minutes allows no more; it ends by itself";
  const int64_t wanted = lease.request.gpus * (settings_.lease.ns / kSecondNs);
  if (spent_gpu_seconds(now) + wanted > settings_.bounds.gpu_minutes_per_day * 60)
    return "it is not extended: bounds.gpu_minutes_per_day allows no more; it ends by itself";
  return {};
}

void Anticipator::count_time(Lease& lease, Time now) {
  if (!lease.ready_at.valid()) return;
  const Time from = std::max(lease.counted_to, lease.ready_at);
  lease.counted_to = now;
  const int64_t whole = (now - from).ns / kSecondNs;
  if (whole <= 0) {
    lease.counted_to = from;
    return;
  }
  lease.counted_to = from + seconds(whole);
  const int64_t hour = now.ns / kHourNs;
  const int64_t passed = std::clamp<int64_t>(hour - memory_.spent_hour, 0, Memory::kHours);
  for (int64_t back = 0; back < passed; ++back) memory_.spent_gpu_seconds.at(place_of(hour - back)) = 0;
  memory_.spent_hour = std::max(memory_.spent_hour, hour);
  memory_.spent_gpu_seconds.at(place_of(hour)) += whole * lease.request.gpus;
}

int64_t Anticipator::spent_gpu_seconds(Time now) const {
  int64_t spent = 0;
  const int64_t hour = now.ns / kHourNs;
  for (int64_t back = 0; back < int64_t{Memory::kHours}; ++back) {
    if (hour - back > memory_.spent_hour) continue;  // That hour's place still holds yesterday's.
    if (memory_.spent_hour - (hour - back) >= int64_t{Memory::kHours}) break;
    spent += memory_.spent_gpu_seconds.at(place_of(hour - back));
  }
  return spent;
}

void Anticipator::lease_seen(uint64_t number, const LeaseSeen& seen, Time now) {
  Lease* const lease = find(number);
  if (lease == nullptr) return;
  if (seen.is_ready && !lease->ready_at.valid()) lease->ready_at = now;
  if (seen.expires_at.valid()) lease->expires_at = seen.expires_at;
  if (!seen.is_gone) return;
  count_time(*lease, now);
  end_lease(static_cast<std::size_t>(lease - memory_.leases.data()), true);
}

void Anticipator::lease_use(uint64_t number, bool in_use, Time now) {
  Lease* const lease = find(number);
  if (lease == nullptr) return;
  lease->in_use = in_use;
  if (!in_use) return;
  lease->used_at = now;
  lease->is_over = false;
}

void Anticipator::lease_failed(uint64_t number) {
  const Lease* const lease = find(number);
  if (lease != nullptr) end_lease(static_cast<std::size_t>(lease - memory_.leases.data()), false);
}

void Anticipator::end_lease(std::size_t at, bool counts) {
  const Lease& lease = memory_.leases.at(at);
  // One that was never ready says nothing about who asked for it.
  if (counts && lease.ready_at.valid()) {
    for (const std::string& rule : lease.rules) memory_.learning.count(rule, lease.used_at.valid());
  }
  memory_.leases.erase(memory_.leases.begin() + static_cast<std::ptrdiff_t>(at));
}

Lease* Anticipator::find(uint64_t number) {
  const auto found = std::ranges::find(memory_.leases, number, &Lease::number);
  return found == memory_.leases.end() ? nullptr : &*found;
}

const Rule* Anticipator::find_rule(const std::string& name) const {
  const auto found = std::ranges::find(rules_, name, &Rule::name);
  return found == rules_.end() ? nullptr : &*found;
}

}  // namespace gpusched::anticipate
