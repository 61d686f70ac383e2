#include "forecast/move_search.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "base/limits.h"
#include "engine/policy/victims.h"

namespace gpusched::forecast {
namespace {

/// So many ways to give the jobs of one set their places are tried.
constexpr uint32_t kSettlingsMax = 4'096;

MovePrice plus(const MovePrice& a, const MovePrice& b) {
  return {.lost_gpu_ms = a.lost_gpu_ms + b.lost_gpu_ms,
          .moves = a.moves + b.moves,
          .ended_before = a.ended_before + b.ended_before,
          .gpus = a.gpus + b.gpus};
}

MemberPlacement placement_on(const Node& node, uint64_t mask) {
  MemberPlacement member{.node = node.id, .part = 0, .device_mask = mask, .generations = {}};
  for (uint64_t rest = mask; rest != 0; rest &= rest - 1)
    member.generations.push_back(node.devices[static_cast<std::size_t>(std::countr_zero(rest))].generation);
  return member;
}

/// It lacks nothing but room: neither a limit nor its turn keeps it.
bool waits_for_room(WaitCode code) {
  return code == WaitCode::kGpusBusy || code == WaitCode::kCpuBusy || code == WaitCode::kMemoryBusy ||
         code == WaitCode::kNodeFull;
}

Mover mover_of(const State& state, const Attempt& attempt, uint64_t serves, Time now) {
  const Job* job = state.jobs.find(attempt.job);
  const Member& member = attempt.members.front();
  const bool saved = job->saved_at.valid() && job->saved_at >= attempt.started_at;
  const Duration lost = std::max(now - (saved ? job->saved_at : attempt.started_at), Duration{});
  const int64_t gpus = std::popcount(member.device_mask);
  return {.job = job,
          .attempt = &attempt,
          .devices = std::popcount(member.device_mask & serves),
          .mask = member.device_mask & serves,
          .saved = saved,
          .price = {
              .lost_gpu_ms = gpus * lost.ms(), .moves = 1, .ended_before = job->preempt_count, .gpus = gpus}};
}

}  // namespace

bool MoveSearch::may_gain(const World& world, const Job& job) {
  const State& state = world.state();
  const std::vector<Part>& parts = state.class_of(job).parts;
  if (!job.waits_in_line() || is_gang(parts)) return false;
  const Part& part = parts.front();
  if (part.is_share() || part.is_exclusive() || part.is_arranged() || part.is_elastic()) return false;
  return waits_for_room(world.planner().reason(job.job_class).code);
}

std::optional<MoveObstacle> MoveSearch::obstacle(const Job& gains, const AttemptKey& key) {
  const State& state = world_.state();
  const Attempt* attempt = state.find_attempt(key.job, key.attempt);
  CHECK(attempt != nullptr);
  const Job* job = state.jobs.find(key.job);
  const bool used = std::find(used_.begin(), used_.end(), key.job) != used_.end();
  if (job == nullptr || attempt->abandoned || attempt->stop != StopReason::kNone || used ||
      job->cancel_requested)
    return MoveObstacle::kEnding;
  const std::vector<Part>& parts = state.class_of(*job).parts;
  const Part& part = parts.front();
  if (is_gang(parts)) return MoveObstacle::kGang;
  if (part.is_share()) return MoveObstacle::kShare;
  if (part.is_exclusive() || part.is_arranged()) return MoveObstacle::kArranged;
  if (!state.find_tenant(job->tenant)->allow_preemption) return MoveObstacle::kNotPreemptible;
  if (job->preemption_exempt) return MoveObstacle::kExempt;
  if (job->preemption_mode != PreemptionMode::kRequeue || job->interactive) return MoveObstacle::kEndsForGood;
  if (policy::effective_priority(state, *job) > policy::effective_priority(state, gains))
    return MoveObstacle::kHigherPriority;
  const Time now = world_.now();
  if (!attempt->started_at.valid() || now < attempt->started_at + options_.protection)
    return MoveObstacle::kJustStarted;
  const Time ended = std::max(job->preempted_at, job->moved_at);
  if (ended.valid() && now < ended + options_.recent) return MoveObstacle::kEndedLately;
  if (job->preempt_count >= options_.budget) return MoveObstacle::kEndedOften;
  const Node* node = state.find_node(attempt->members.front().node);
  return has_other_place(*job, node->slot) ? std::nullopt : std::optional(MoveObstacle::kNoOtherPlace);
}

bool MoveSearch::has_other_place(const Job& job, uint32_t slot) {
  const std::pair entry(job.id, false);
  const auto at = std::lower_bound(known_places_.begin(), known_places_.end(), entry);
  const bool known = at != known_places_.end() && at->first == job.id;
  if (known) return at->second;
  const bool has = places_.anywhere_else(job, slot, work_);
  known_places_.insert(std::lower_bound(known_places_.begin(), known_places_.end(), entry), {job.id, has});
  return has;
}

uint64_t MoveSearch::fit_of_class(uint32_t slot, uint32_t device_class) const {
  uint64_t mask = 0;
  const Node& node = world_.state().nodes[slot];
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    const Device& device = node.devices[i];
    const bool there = device.state == DeviceState::kHeld || device.state == DeviceState::kFree;
    if (device.device_class == device_class && device.fit() && there && !device.promised_to.valid())
      mask |= uint64_t{1} << i;
  }
  return mask;
}

// What the node has for the part, with what is free of it, by class; without GPUs one entry.
std::vector<std::pair<uint32_t, uint64_t>> MoveSearch::kinds_on(const Part& part, uint32_t slot) const {
  std::vector<std::pair<uint32_t, uint64_t>> kinds;
  for (const auto& [device_class, free] : places_.room(slot).free) {
    if (part.gpu_count == 0) return {{device_class, 0}};
    if (world_.state().device_classes[device_class].serves(part)) kinds.emplace_back(device_class, free);
  }
  return kinds;
}

MoveSearch::Lack MoveSearch::lack_of(const Part& part, uint32_t slot, uint64_t free) const {
  const Room& room = places_.room(slot);
  return {.devices = part.gpu_count - std::popcount(free),
          .cpu_milli = part.cpu_milli - room.cpu_milli,
          .memory_mb = part.memory_mb - room.memory_mb,
          .attempts = 1 - room.attempts};
}

bool MoveSearch::helps(const Lack& lack, const Member& member, uint64_t serves) const {
  return (lack.devices > 0 && (member.device_mask & serves) != 0) ||
         (lack.cpu_milli > 0 && member.cpu_milli > 0) || (lack.memory_mb > 0 && member.memory_mb > 0) ||
         lack.attempts > 0;
}

void MoveSearch::add_sets(const Job& job, uint32_t slot, uint32_t device_class, std::vector<Set>& sets) {
  const State& state = world_.state();
  const Part& part = state.class_of(job).parts.front();
  const Node& node = state.nodes[slot];
  const uint64_t serves = part.gpu_count == 0 ? 0 : fit_of_class(slot, device_class);
  if (std::popcount(serves) < part.gpu_count) return;
  if (node.cpu_milli < part.cpu_milli || node.memory_mb < part.memory_mb) return;
  uint64_t free = 0;
  for (const auto& [kind, mask] : places_.room(slot).free) {
    if (kind == device_class && part.gpu_count > 0) free = mask;
  }
  const Lack lack = lack_of(part, slot, free);
  if (lack.none()) return;  // There is room: it waits for something else.
  std::vector<Mover> movers;
  for (const AttemptKey& key : node.attempts) {
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    if (!helps(lack, attempt->members[key.member], serves) || !work_.take(1)) continue;
    if (obstacle(job, key).has_value()) continue;
    movers.push_back(mover_of(state, *attempt, serves, world_.now()));
  }
  Set set{.price = {}, .slot = slot, .device_class = device_class, .movers = {}};
  if (movers.size() <= limits::kMovableTriedMax) return subsets(lack, movers, set, sets);
  greedy(lack, movers, set, sets);
}

void give(const Mover& mover, int64_t sign, const Member& member, int64_t& devices, int64_t& cpu_milli,
          int64_t& memory_mb, int64_t& attempts) {
  devices -= sign * mover.devices;
  cpu_milli -= sign * member.cpu_milli;
  memory_mb -= sign * member.memory_mb;
  attempts -= sign;
}

// All that suffice and of which none is needless.
void MoveSearch::subsets(const Lack& lack, const std::vector<Mover>& movers, Set& set,
                         std::vector<Set>& sets) {
  const uint64_t end = uint64_t{1} << movers.size();
  if (!work_.take(end / 8)) return;
  const auto left_of = [&](uint64_t chosen) {
    Lack left = lack;
    for (uint64_t bits = chosen; bits != 0; bits &= bits - 1) {
      const Mover& mover = movers[static_cast<std::size_t>(std::countr_zero(bits))];
      give(mover, 1, mover.attempt->members.front(), left.devices, left.cpu_milli, left.memory_mb,
           left.attempts);
    }
    return left;
  };
  for (uint64_t chosen = 1; chosen < end; ++chosen) {
    if (static_cast<std::size_t>(std::popcount(chosen)) > options_.moves_max) continue;
    if (!left_of(chosen).none()) continue;
    bool needless = false;
    for (uint64_t bits = chosen; bits != 0 && !needless; bits &= bits - 1)
      needless = left_of(chosen & ~(bits & (~bits + 1))).none();
    if (needless) continue;
    set.price = {};
    set.movers.clear();
    for (uint64_t bits = chosen; bits != 0; bits &= bits - 1) {
      set.movers.push_back(movers[static_cast<std::size_t>(std::countr_zero(bits))]);
      set.price = plus(set.price, set.movers.back().price);
    }
    sets.push_back(set);
  }
}

// The cheapest for what they give first, until they suffice; then without those that are needless.
void MoveSearch::greedy(const Lack& lack, const std::vector<Mover>& movers, Set& set,
                        std::vector<Set>& sets) {
  std::vector<Mover> order = movers;
  std::stable_sort(order.begin(), order.end(), [](const Mover& a, const Mover& b) {
    return a.price.lost_gpu_ms * std::max(b.devices, 1) < b.price.lost_gpu_ms * std::max(a.devices, 1);
  });
  Lack left = lack;
  const auto count = [&](const Mover& mover, int64_t sign) {
    give(mover, sign, mover.attempt->members.front(), left.devices, left.cpu_milli, left.memory_mb,
         left.attempts);
  };
  std::vector<Mover> chosen;
  for (const Mover& mover : order) {
    if (left.none()) break;
    count(mover, 1);
    chosen.push_back(mover);
  }
  if (!left.none()) return;
  set.price = {};
  set.movers.clear();
  for (auto it = chosen.rbegin(); it != chosen.rend(); ++it) {
    count(*it, -1);
    if (left.none()) continue;
    count(*it, 1);
    set.movers.push_back(*it);
    set.price = plus(set.price, it->price);
  }
  if (set.movers.size() <= options_.moves_max) sets.push_back(set);
}

// Gives the jobs from `index` on their places, the tightest first, going back where that leaves no place for
// a later one.
bool MoveSearch::settle(const std::vector<Mover>& movers, uint32_t from, std::size_t index,
                        std::vector<Place>& chosen, uint32_t& tries) {
  if (index == movers.size()) return true;
  const Part& part = world_.state().class_of(*movers[index].job).parts.front();
  for (const Place& place : places_.others(*movers[index].job, from, work_)) {
    if (++tries > kSettlingsMax || work_.over) return stopped_early_ = true, false;
    places_.take(part, place);
    chosen.push_back(place);
    const bool settled = settle(movers, from, index + 1, chosen, tries);
    places_.give_back(part, place);
    if (settled) return true;
    chosen.pop_back();
  }
  return false;
}

MoveProposal MoveSearch::proposal_of(const Job& job, const Set& set, const std::vector<Place>& chosen) const {
  const State& state = world_.state();
  const Node& node = state.nodes[set.slot];
  const Part& part = state.class_of(job).parts.front();
  MoveProposal made{.command = {}, .moves = {}, .price = set.price, .starts = {}, .otherwise = {}};
  PlanGroup gains{.job = job.id, .attempt = job.attempt_count + 1, .members = {}, .preemptions = {}};
  uint64_t theirs = 0;
  made.command.groups.push_back(gains);
  for (std::size_t i = 0; i < set.movers.size(); ++i) {
    const Mover& mover = set.movers[i];
    const Node& to = state.nodes[chosen[i].slot];
    theirs |= mover.mask;
    gains.preemptions.push_back({.job = mover.job->id, .attempt = mover.attempt->number});
    made.command.groups.push_back({.job = mover.job->id,
                                   .attempt = mover.attempt->number + 1,
                                   .members = {placement_on(to, chosen[i].mask)},
                                   .preemptions = {}});
    made.moves.push_back({.job = mover.job->id,
                          .attempt = mover.attempt->number,
                          .from = node.id,
                          .from_mask = mover.attempt->members.front().device_mask,
                          .to = to.id,
                          .to_mask = chosen[i].mask,
                          .saved = mover.saved,
                          .price = mover.price});
  }
  uint64_t free = 0;
  for (const auto& [kind, mask] : places_.room(set.slot).free) {
    if (kind == set.device_class) free = mask;
  }
  uint64_t mask = lowest_bits(theirs, part.gpu_count);
  mask |= lowest_bits(free, part.gpu_count - std::popcount(mask));
  gains.members.push_back(placement_on(node, mask));
  made.command.groups.front() = std::move(gains);
  return made;
}

std::optional<MoveProposal> MoveSearch::carried_out(const Job& job, const Set& set) {
  // The largest are hardest to place.
  std::vector<std::size_t> order(set.movers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return set.movers[a].price.gpus > set.movers[b].price.gpus;
  });
  Set sorted = set;
  for (std::size_t i = 0; i < order.size(); ++i) sorted.movers[i] = set.movers[order[i]];
  std::vector<Place> chosen;
  uint32_t tries = 0;
  if (!settle(sorted.movers, set.slot, 0, chosen, tries)) return std::nullopt;
  MoveProposal made = proposal_of(job, sorted, chosen);
  MoveJobs command = made.command;
  command.by = "forecast";
  Events events;
  const Stamp stamp{.sequence = world_.state().last.sequence + 1, .at = world_.now()};
  if (decide(world_.state(), command, stamp, events).rejection.has_value()) return std::nullopt;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    places_.take(world_.state().class_of(*sorted.movers[i].job).parts.front(), chosen[i]);
    used_.push_back(sorted.movers[i].job->id);
  }
  places_.close(set.slot);
  return made;
}

std::optional<MoveProposal> MoveSearch::cheapest(const Job& job) {
  const Part& part = world_.state().class_of(job).parts.front();
  places_.look_for(job);
  known_places_.clear();  // What is kept free for one is kept from the other.
  std::vector<Set> sets;
  const auto nodes = static_cast<uint32_t>(world_.state().nodes.size());
  if (!work_.take(nodes)) return std::nullopt;
  for (uint32_t slot = 0; slot < nodes && !work_.over; ++slot) {
    if (!places_.allows(job, slot)) continue;
    for (const auto& [device_class, free] : kinds_on(part, slot)) add_sets(job, slot, device_class, sets);
  }
  std::stable_sort(sets.begin(), sets.end(), [](const Set& a, const Set& b) {
    return a.price != b.price ? a.price < b.price : a.slot < b.slot;
  });
  for (const Set& set : sets) {
    if (std::optional<MoveProposal> made = carried_out(job, set)) return made;
    if (work_.over) break;
  }
  return std::nullopt;
}

Unmoved MoveSearch::nearest(const Job& job) {
  const State& state = world_.state();
  const Part& part = state.class_of(job).parts.front();
  Unmoved out{.job = job.id, .gpus_wanted = part.gpu_count, .nearest = {}, .blockers = {}};
  std::pair<int64_t, int64_t> best{INT64_MAX,
                                   0};  // What would still be missing, and how many are in the way.
  for (const Node& node : state.nodes) {
    if (!work_.take(1)) break;
    for (const auto& [device_class, free] : kinds_on(part, node.slot)) {
      out.gpus_free += std::popcount(free);
      const uint64_t serves = part.gpu_count == 0 ? 0 : fit_of_class(node.slot, device_class);
      if (!places_.allows(job, node.slot) || std::popcount(serves) < part.gpu_count) continue;
      if (node.cpu_milli < part.cpu_milli || node.memory_mb < part.memory_mb) continue;
      const Lack lack = lack_of(part, node.slot, free);
      std::vector<Unmoved::Blocker> blockers;
      int64_t missing = std::max<int64_t>(lack.devices, 0);
      std::size_t movable = 0;
      for (const AttemptKey& key : node.attempts) {
        const Member& member = state.find_attempt(key.job, key.attempt)->members[key.member];
        const int64_t gpus = std::popcount(member.device_mask & serves);
        if (!helps(lack, member, serves)) continue;
        if (const auto why = obstacle(job, key)) {
          blockers.push_back({.job = key.job, .gpus = gpus, .why = *why});
        } else {
          missing -= gpus;
          ++movable;
        }
      }
      const std::pair rank(std::max<int64_t>(missing, 0), static_cast<int64_t>(blockers.size()));
      if (rank >= best) continue;
      best = rank;
      out.nearest = node.id;
      out.too_many = missing <= 0 && movable > options_.moves_max;
      std::stable_sort(blockers.begin(), blockers.end(),
                       [](const auto& a, const auto& b) { return a.gpus > b.gpus; });
      if (blockers.size() > 3) blockers.resize(3);
      out.blockers = std::move(blockers);
    }
  }
  return out;
}

bool MoveSearch::holds(const MoveProposal& proposal) {
  const State& state = world_.state();
  const Job* job = state.jobs.find(proposal.job());
  if (job == nullptr || !may_gain(world_, *job)) return false;
  places_.look_for(*job);
  const PlanGroup& gains = proposal.command.groups.front();
  const Node* node = state.find_node(gains.members.front().node);
  if (node == nullptr || !places_.allows(*job, node->slot)) return false;
  for (std::size_t i = 0; i < proposal.moves.size(); ++i) {
    const Move& move = proposal.moves[i];
    const Job* moved = state.jobs.find(move.job);
    const Node* to = state.find_node(move.to);
    if (moved == nullptr || to == nullptr || state.find_attempt(move.job, move.attempt) == nullptr)
      return false;
    // That it has a place is what `decide` says.
    const auto why = obstacle(*job, {.job = move.job, .attempt = move.attempt});
    if (why.has_value() && why != MoveObstacle::kNoOtherPlace) return false;
    if (!places_.allows(*moved, to->slot)) return false;
  }
  MoveJobs command = proposal.command;
  command.by = "forecast";
  Events events;
  const Stamp stamp{.sequence = state.last.sequence + 1, .at = world_.now()};
  return !decide(state, command, stamp, events).rejection.has_value();
}

}  // namespace gpusched::forecast
