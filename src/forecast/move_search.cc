#include "forecast/move_search.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/bits.h"
#include "base/check.h"
#include "base/limits.h"
#include "engine/policy/give_back.h"
#include "engine/policy/victims.h"

namespace gpusched::forecast {
namespace {

/// Tries of ways to give the jobs of one set their places.
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
  const Job& job = state.job_at(attempt.job);
  const Member& member = attempt.members.front();
  const bool saved = job.extras->saved_at.valid() && job.extras->saved_at >= attempt.started_at;
  const Duration lost = std::max(now - (saved ? job.extras->saved_at : attempt.started_at), Duration{});
  const int64_t gpus = std::popcount(member.device_mask);
  return {.job = &job,
          .attempt = &attempt,
          .devices = std::popcount(member.device_mask & serves),
          .mask = member.device_mask & serves,
          .saved = saved,
          .price = {.lost_gpu_ms = gpus * lost.ms(),
                    .moves = 1,
                    .ended_before = job.extras->preempt_count,
                    .gpus = gpus}};
}

}  // namespace

bool MoveSearch::may_gain(const World& world, const Job& job) {
  const State& state = world.state();
  const std::vector<Part>& parts = state.class_of(job).parts;
  if (!job.is_queued() || is_gang(parts) || state.find_promise(job.id) != nullptr) return false;
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
  if (!state.tenant_at(job->tenant).allow_preemption) return MoveObstacle::kNotPreemptible;
  if (job->preemption_exempt) return MoveObstacle::kExempt;
  if (job->preemption_mode != PreemptionMode::kRequeue || job->interactive) return MoveObstacle::kEndsForGood;
  if (policy::effective_priority(state, *job) > policy::effective_priority(state, gains))
    return MoveObstacle::kHigherPriority;
  const Time now = world_.now();
  const policy::LeastLost victims({.grace = options_.grace, .grace_max = options_.grace_max});
  if (policy::gives_back_too_late(gains, now + victims.grace_of(*job))) return MoveObstacle::kTooLate;
  if (!attempt->started_at.valid() || now < attempt->started_at + options_.protection)
    return MoveObstacle::kJustStarted;
  const Time ended = std::max(job->extras->preempted_at, job->extras->moved_at);
  if (ended.valid() && now < ended + options_.recent) return MoveObstacle::kEndedLately;
  if (job->extras->preempt_count >= options_.budget) return MoveObstacle::kEndedOften;
  const Node& node = state.node_at(attempt->members.front().node);
  return has_other_place(*job, node.slot) ? std::nullopt : std::optional(MoveObstacle::kNoOtherPlace);
}

// Asked once for all jobs that need the same.
bool MoveSearch::has_other_place(const Job& job, uint32_t slot) {
  auto known = std::find_if(elsewhere_.begin(), elsewhere_.end(), [&](const Elsewhere& one) {
    return one.job_class == job.job_class && one.max_runtime_ns == job.max_runtime.ns;
  });
  if (known == elsewhere_.end()) {
    const std::vector<Place> places = places_.others(job, UINT32_MAX, work_);
    Elsewhere found{.job_class = job.job_class, .max_runtime_ns = job.max_runtime.ns};
    if (!places.empty()) {
      found.slot = places.front().slot;
      const bool several = std::any_of(places.begin(), places.end(),
                                       [&](const Place& place) { return place.slot != found.slot; });
      found.places = several ? 2 : 1;
    }
    known = elsewhere_.insert(elsewhere_.end(), found);
  }
  return known->places > 1 || (known->places == 1 && known->slot != slot);
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

// The node's devices for the part, and the free ones among them, by class; without GPUs one entry.
std::vector<std::pair<uint32_t, uint64_t>> MoveSearch::kinds_on(const Part& part, uint32_t slot) const {
  std::vector<std::pair<uint32_t, uint64_t>> kinds;
  for (const auto& [device_class, free] : places_.room(slot).free) {
    if (part.gpu_count == 0) return {{device_class, 0}};
    if (world_.state().device_classes[device_class].serves(part)) kinds.emplace_back(device_class, free);
  }
  return kinds;
}

// Nothing when the node could never have the job, or has room for it: then it waits for something else.
std::optional<MoveSearch::Spot> MoveSearch::spot_on(const Part& part, uint32_t slot,
                                                    uint32_t device_class) const {
  const Node& node = world_.state().nodes[slot];
  const Room& room = places_.room(slot);
  Spot spot{.slot = slot, .device_class = device_class};
  uint64_t free = 0;
  if (part.gpu_count > 0) {
    spot.serves = fit_of_class(slot, device_class);
    for (const auto& [kind, mask] : room.free) {
      if (kind == device_class) free = mask;
    }
  }
  if (std::popcount(spot.serves) < part.gpu_count) return std::nullopt;
  if (node.cpu_milli < part.cpu_milli || node.memory_mb < part.memory_mb) return std::nullopt;
  spot.lack = {.devices = part.gpu_count - std::popcount(free),
               .cpu_milli = part.cpu_milli - room.cpu_milli,
               .memory_mb = part.memory_mb - room.memory_mb,
               .attempts = 1 - room.attempts};
  if (spot.lack.none()) return std::nullopt;
  return spot;
}

bool MoveSearch::helps(const Lack& lack, const Member& member, uint64_t serves) {
  return (lack.devices > 0 && (member.device_mask & serves) != 0) ||
         (lack.cpu_milli > 0 && member.cpu_milli > 0) || (lack.memory_mb > 0 && member.memory_mb > 0) ||
         lack.attempts > 0;
}

void MoveSearch::give(Lack& lack, const Mover& mover, int64_t sign) {
  const Member& member = mover.attempt->members.front();
  lack.devices -= sign * mover.devices;
  lack.cpu_milli -= sign * member.cpu_milli;
  lack.memory_mb -= sign * member.memory_mb;
  lack.attempts -= sign;
}

std::vector<Mover> MoveSearch::movers_on(const Job& job, const Spot& spot) {
  const State& state = world_.state();
  std::vector<Mover> movers;
  for (const AttemptKey& key : state.nodes[spot.slot].attempts) {
    if (movers.size() >= limits::kVictimsMax || !work_.take(1)) break;
    const Attempt& attempt = state.attempt_at(key.job, key.attempt);
    if (!helps(spot.lack, attempt.members[key.member], spot.serves)) continue;
    if (!obstacle(job, key).has_value())
      movers.push_back(mover_of(state, attempt, spot.serves, world_.now()));
  }
  return movers;
}

void MoveSearch::add_sets(const Job& job, const Spot& spot, std::vector<Set>& sets) {
  const std::vector<Mover> movers = movers_on(job, spot);
  if (movers.size() <= limits::kMovableTriedMax) return subsets(spot, movers, sets);
  greedy(spot, movers, sets);
}

// All that suffice and of which none is needless.
void MoveSearch::subsets(const Spot& spot, const std::vector<Mover>& movers, std::vector<Set>& sets) {
  const uint64_t end = uint64_t{1} << movers.size();
  if (!work_.take(end / 8)) return;
  const auto left_of = [&](uint64_t chosen) {
    Lack left = spot.lack;
    for (uint64_t bits = chosen; bits != 0; bits &= bits - 1)
      give(left, movers[static_cast<std::size_t>(std::countr_zero(bits))], 1);
    return left;
  };
  for (uint64_t chosen = 1; chosen < end; ++chosen) {
    if (static_cast<std::size_t>(std::popcount(chosen)) > options_.moves_max) continue;
    if (!left_of(chosen).none()) continue;
    bool needless = false;
    for (uint64_t bits = chosen; bits != 0 && !needless; bits &= bits - 1)
      needless = left_of(chosen & ~(bits & (~bits + 1))).none();
    if (needless || !work_.take(1)) continue;
    Set set{.price = {}, .slot = spot.slot, .device_class = spot.device_class, .chosen = chosen};
    for (uint64_t bits = chosen; bits != 0; bits &= bits - 1)
      set.price = plus(set.price, movers[static_cast<std::size_t>(std::countr_zero(bits))].price);
    sets.push_back(set);
  }
}

// The cheapest for what they give first, until they suffice; then without those that are needless.
void MoveSearch::greedy(const Spot& spot, const std::vector<Mover>& movers, std::vector<Set>& sets) const {
  std::vector<std::size_t> order(movers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return movers[a].price.lost_gpu_ms * std::max(movers[b].devices, 1) <
           movers[b].price.lost_gpu_ms * std::max(movers[a].devices, 1);
  });
  Lack left = spot.lack;
  std::vector<std::size_t> taken;
  for (const std::size_t index : order) {
    if (left.none()) break;
    give(left, movers[index], 1);
    taken.push_back(index);
  }
  if (!left.none()) return;
  Set set{.price = {}, .slot = spot.slot, .device_class = spot.device_class};
  for (auto it = taken.rbegin(); it != taken.rend(); ++it) {
    give(left, movers[*it], -1);
    if (left.none()) continue;
    give(left, movers[*it], 1);
    set.chosen |= uint64_t{1} << *it;
    set.price = plus(set.price, movers[*it].price);
  }
  if (static_cast<std::size_t>(std::popcount(set.chosen)) <= options_.moves_max) sets.push_back(set);
}

// Gives the jobs from `index` on their places, the tightest first, going back where that leaves no place for
// a later one.
bool MoveSearch::settle(const std::vector<Mover>& movers, uint32_t from, std::size_t index,
                        std::vector<Place>& chosen, uint32_t& tries) {
  if (index == movers.size()) return true;
  const Part& part = world_.state().class_of(*movers[index].job).parts.front();
  for (Place place : places_.others(*movers[index].job, from, work_)) {
    if (++tries > kSettlingsMax || work_.over) return stopped_early_ = true, false;
    place.mask = places_.devices_at(part, place);
    places_.take(part, place);
    chosen.push_back(place);
    const bool settled = settle(movers, from, index + 1, chosen, tries);
    places_.give_back(part, place);
    if (settled) return true;
    chosen.pop_back();
  }
  return false;
}

MoveProposal MoveSearch::proposal_of(const Job& job, const Set& set, const std::vector<Mover>& movers,
                                     const std::vector<Place>& chosen) const {
  const State& state = world_.state();
  const Node& node = state.nodes[set.slot];
  const Part& part = state.class_of(job).parts.front();
  MoveProposal made{.command = {}, .moves = {}, .price = set.price, .starts = {}, .otherwise = {}};
  PlanGroup gains{.job = job.id, .attempt = job.attempt_count + 1, .members = {}, .preemptions = {}};
  uint64_t theirs = 0;
  made.command.groups.push_back(gains);
  for (std::size_t i = 0; i < movers.size(); ++i) {
    const Mover& mover = movers[i];
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
  const State& state = world_.state();
  const std::optional<Spot> spot = spot_on(state.class_of(job).parts.front(), set.slot, set.device_class);
  CHECK(spot.has_value());
  const std::vector<Mover> all = movers_on(job, *spot);
  std::vector<Mover> movers;
  for (uint64_t bits = set.chosen; bits != 0; bits &= bits - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(bits));
    if (index >= all.size()) return std::nullopt;  // The work was used up.
    movers.push_back(all[index]);
  }
  // The largest are hardest to place.
  std::stable_sort(movers.begin(), movers.end(),
                   [](const Mover& a, const Mover& b) { return a.price.gpus > b.price.gpus; });
  std::vector<Place> chosen;
  uint32_t tries = 0;
  if (!settle(movers, set.slot, 0, chosen, tries)) return std::nullopt;
  MoveProposal made = proposal_of(job, set, movers, chosen);
  MoveJobs command = made.command;
  command.by = "forecast";
  Events events;
  const Stamp stamp{.sequence = state.last.sequence + 1, .at = world_.now()};
  if (decide(state, command, stamp, events).rejection.has_value()) return std::nullopt;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    places_.take(state.class_of(*movers[i].job).parts.front(), chosen[i]);
    used_.push_back(movers[i].job->id);
  }
  places_.close(set.slot);
  return made;
}

std::optional<MoveProposal> MoveSearch::cheapest(const Job& job) {
  const Part& part = world_.state().class_of(job).parts.front();
  places_.look_for(job);
  elsewhere_.clear();  // A place that is kept free for one job is kept from the other.
  std::vector<Set> sets;
  const auto nodes = static_cast<uint32_t>(world_.state().nodes.size());
  if (!work_.take(nodes)) return std::nullopt;
  for (uint32_t slot = 0; slot < nodes && !work_.over; ++slot) {
    if (!places_.allows(job, slot)) continue;
    for (const auto& [device_class, free] : kinds_on(part, slot)) {
      if (const std::optional<Spot> spot = spot_on(part, slot, device_class)) add_sets(job, *spot, sets);
    }
  }
  std::stable_sort(sets.begin(), sets.end(), [](const Set& a, const Set& b) {
    return a.price != b.price ? a.price < b.price : a.slot < b.slot;
  });
  for (const Set& set : sets) {
    if (work_.over) break;
    if (std::optional<MoveProposal> made = carried_out(job, set)) return made;
  }
  return std::nullopt;
}

Unmoved MoveSearch::nearest(const Job& job) {
  const State& state = world_.state();
  const Part& part = state.class_of(job).parts.front();
  Unmoved out{.job = job.id, .gpus_wanted = part.gpu_count, .nearest = {}, .blockers = {}};
  std::pair<int64_t, int64_t> best{INT64_MAX, 0};  // Still missing, and jobs in the way.
  for (const Node& node : state.nodes) {
    if (!work_.take(1)) break;
    for (const auto& [device_class, free] : kinds_on(part, node.slot)) {
      out.gpus_free += std::popcount(free);
      const std::optional<Spot> spot = spot_on(part, node.slot, device_class);
      if (!spot.has_value() || !places_.allows(job, node.slot)) continue;
      const uint64_t serves = spot->serves;
      const Lack& lack = spot->lack;
      std::vector<Unmoved::Blocker> blockers;
      int64_t missing = std::max<int64_t>(lack.devices, 0);
      std::size_t movable = 0;
      for (const AttemptKey& key : node.attempts) {
        const Member& member = state.attempt_at(key.job, key.attempt).members[key.member];
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
    // Only `decide` knows whether it has a place.
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
