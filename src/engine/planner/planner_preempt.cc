#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "base/bits.h"
#include "base/check.h"
#include "base/limits.h"
#include "engine/decide/decide.h"
#include "engine/planner/plan_slice.h"
#include "engine/planner/planner.h"
#include "engine/policy/give_back.h"
#include "engine/policy/victims.h"
#include "model/topology.h"

// Ending others for a job that cannot start otherwise, and starting it on what they gave back.
namespace gpusched {
namespace {

using policy::Lack;
using policy::VictimView;

/// Nodes on which victims are looked for, for one job at a time; the next search goes on behind them.
constexpr uint32_t kVictimNodesMax = 64;
/// Cost of a look at one victim, with its expected end, in looks at a node.
constexpr uint64_t kVictimVisits = 16;
/// A job waits for what is expected soon for at most so many times its patience.
constexpr int64_t kPatienceMax = 2;
constexpr Duration kSearchOn = seconds(1);
/// Rooms that are counted for jobs that ask for the same.
constexpr int64_t kRoomsCounted = 64;
/// Waiting jobs that are looked at for them; others may have other priorities.
constexpr int64_t kAlikeLooked = 256;
/// How often room that others are giving back is looked for again: what ends says so by itself.
constexpr Duration kLookAtRoom = seconds(5);
/// A guarantee is asked back from others unless what the job needs is expected within so long anyway.
constexpr Duration kReclaimPatience = seconds(10);

uint64_t fit_devices(const Node& node) {
  uint64_t mask = 0;
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    if (node.devices[i].fit()) mask |= uint64_t{1} << i;
  }
  return mask;
}

/// Wherever its members are.
int64_t gpus_of(const Attempt& attempt) {
  int64_t gpus = 0;
  for (const Member& member : attempt.members) {
    if (member.state != MemberState::kEnded) gpus += std::popcount(member.device_mask);
  }
  return gpus;
}

MemberPlacement placement_of(const Node& node, uint32_t part, uint64_t mask) {
  MemberPlacement member{.node = node.id, .part = part, .device_mask = mask, .generations = {}};
  for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
    member.generations.push_back(node.devices[static_cast<std::size_t>(std::countr_zero(rest))].generation);
  }
  return member;
}

/// Resources on a node that come back from jobs that are ended for others and are promised to nobody.
struct GivenBack {
  uint64_t devices = 0;
  int64_t cpu_milli = 0, memory_mb = 0;
  int32_t attempts = 0;
  bool whole_node = false;  ///< One of them has the node for itself.
};

GivenBack given_back_on(const State& state, const Node& node, std::span<const JobId> victims,
                        std::span<const std::pair<uint32_t, uint64_t>> promised) {
  GivenBack back;
  for (const AttemptKey& key : node.attempts) {
    const Attempt& attempt = state.attempt_at(key.job, key.attempt);
    const bool going =
        attempt.stop == StopReason::kPreempt || std::ranges::find(victims, key.job) != victims.end();
    const Member& member = attempt.members[key.member];
    if (!going || attempt.abandoned) continue;
    if (member.gpu_milli == 0) back.devices |= member.device_mask;
    back.cpu_milli += member.cpu_milli;
    back.memory_mb += member.memory_mb;
    back.whole_node = back.whole_node || member.exclusive;
    ++back.attempts;
  }
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    if (node.devices[i].promised_to.valid()) back.devices &= ~(uint64_t{1} << i);
  }
  for (const auto& [slot, mask] : promised) {
    if (slot == node.slot) back.devices &= ~mask;
  }
  return back;
}

/// The part's lack on the node once `back` is free.
Lack lack_on(const Node& node, const policy::NodeView& view, const Part& part, const GivenBack& back) {
  Lack lack{.devices = part.gpu_count - std::popcount(view.usable_mask | back.devices),
            .cpu_milli = part.cpu_milli - view.cpu_milli_free - back.cpu_milli,
            .memory_mb = part.memory_mb - view.memory_mb_free - back.memory_mb,
            .attempts = static_cast<int32_t>(node.attempts.size() + node.promised_count + 1) -
                        static_cast<int32_t>(limits::kAttemptsPerNodeMax) - back.attempts};
  // A job that has the node for itself must go, whatever it holds.
  if (view.exclusive && !back.whole_node) lack.attempts = std::max(lack.attempts, 1);
  return lack;
}

/// Until when the job waits for what comes back from others; invalid: not at all, or not any more.
template <typename Class>
Time waits_for_room(Class& entry, bool is_coming, JobId job, Time now) {
  if (!is_coming) {
    entry.room_for = {};
    return {};
  }
  if (entry.room_for != job) {
    entry.room_for = job;
    entry.room_since = now;
  }
  const Time until = entry.room_since + limits::kPromiseKept;
  return now < until ? until : Time{};
}

}  // namespace

void Planner::refresh_preemptors(const State& state) {
  const auto any = [&](auto&& holds) {
    return std::any_of(state.tenants.begin(), state.tenants.end(),
                       [&](const auto& entry) { return !entry.second.deleted && holds(entry.second); });
  };
  const bool before = may_preempt_ || can_reclaim();
  guarantees_ = any([](const Tenant& tenant) { return tenant.guarantee != Amount{}; });
  if (policies_.victims == nullptr) return;
  may_preempt_ = any([](const Tenant& tenant) { return tenant.can_preempt_others; }) &&
                 any([](const Tenant& tenant) { return tenant.allow_preemption; });
  if (!before && !may_preempt_ && !can_reclaim()) return;
  // The possible victims, and the facts that they need, may be others now.
  unblock_all_ = true;
  for (uint32_t slot = 0; slot < state.nodes.size(); ++slot) mark_dirty(slot);
}

void Planner::refresh_weakest(const State& state, uint32_t slot) {
  NodeInfo& node = nodes_[slot];
  node.weakest = INT64_MAX;
  node.gives_back = false;
  if (!may_preempt_ && !can_reclaim()) return;
  for (const AttemptKey& key : state.nodes[slot].attempts) {
    if (state.attempt_at(key.job, key.attempt).stop == StopReason::kPreempt) node.gives_back = true;
    if (!may_preempt_) continue;
    const Job* job = state.jobs.find(key.job);
    if (job == nullptr || job->preemption_exempt) continue;
    if (!state.tenant_at(job->tenant).allow_preemption) continue;
    node.weakest = std::min(node.weakest, policy::effective_priority(state, *job));
  }
}

bool Planner::could_run(const State& state, uint32_t slot, uint32_t device_class, uint64_t mask,
                        const Part& part) {
  if (part.wishes() != nullptr && !place_allows(state.nodes[slot], *part.wishes())) return false;
  if (!satisfy_layout(state, slot, part, mask)) return false;
  policy::NodeView empty = view_of(state, slot, device_class, part);
  empty.exclusive = empty.busy = false;
  empty.shared_mask = 0;
  empty.cpu_milli_free = state.nodes[slot].cpu_milli;
  empty.memory_mb_free = state.nodes[slot].memory_mb;
  empty.free_mask = empty.usable_mask = mask;
  empty.attempt_count = 0;
  return std::all_of(policies_.filters.begin(), policies_.filters.end(), [&](const auto& filter) {
    return filter->check(part, empty) == policy::Refusal::kNone;
  });
}

// Promised jobs whose victims are gone, each on exactly what was promised to it.
void Planner::start_promised(const State& state, CommitPlan& plan) {
  if (!look_promised_) return;
  look_promised_ = false;
  for (const auto& [id, promise] : state.promises) {
    if (slice_.is_full(plan)) {
      look_promised_ = true;
      return;
    }
    const Job* job = state.jobs.find(id);
    CHECK(job != nullptr);
    PlanGroup group{.job = id, .attempt = job->attempt_count + 1, .members = {}, .preemptions = {}};
    bool there = true;
    for (const Member& member : promise.members) {
      const Node& node = state.node_at(member.node);
      there = there && nodes_[node.slot].ready;
      group.members.push_back(placement_of(node, member.part, member.device_mask));
    }
    Events events;
    if (!there || !rules::place_promised(state, promise, group, state.last, events)) continue;
    planned_.push_back({.job = id,
                        .attempt = group.attempt,
                        .node = state.node_at(promise.members.front().node).slot,
                        .amounts = {}});
    if (promise.moves && promise.amount == Amount{})
      add_planned_usage(state, *job, total_of(state.class_of(*job).parts));
    plan.groups.push_back(std::move(group));
  }
}

bool Planner::starts_where_moved(const State& state, JobId job) const {
  const Promise* promise = state.promises.empty() ? nullptr : state.find_promise(job);
  return promise != nullptr && promise->moves &&
         std::any_of(planned_.begin(), planned_.end(),
                     [&](const Planned& planned) { return planned.job == job; });
}

void Planner::look_again(uint32_t job_class, Time at) {
  ClassInfo& entry = info(job_class);
  entry.look_at = std::min(entry.look_at, at);
  preempt_look_ = std::min(preempt_look_, entry.look_at);
}

void Planner::retry_preemptors(const State& state) {
  if (preempt_look_ > now_) return;
  preempt_look_ = kNever;
  std::vector<uint32_t> again;
  for (const uint32_t job_class : preemptors_) {
    const Time at = info(job_class).look_at;
    if (at <= now_) {
      again.push_back(job_class);
    } else {
      preempt_look_ = std::min(preempt_look_, at);
    }
  }
  for (const uint32_t job_class : again) make_ready(state, job_class);
}

// Whether the job may end this one at all, beside others or alone. When it may later, `look` says so.
bool Planner::may_end(const State& state, const Job& job, const Attempt& attempt, const Claim& claim,
                      Time& look) const {
  // One share's end frees nothing that whole devices could be made of.
  const bool shares = std::any_of(attempt.members.begin(), attempt.members.end(),
                                  [](const Member& member) { return member.gpu_milli > 0; });
  if (shares) return false;
  const Job* victim = state.jobs.find(attempt.job);
  if (victim == nullptr) return false;  // It is over, and forecasts keep no such jobs.
  if (policy::gives_back_too_late(job, now_ + policies_.victims->grace_of(*victim))) return false;
  if (!claim.any()) {
    const Time allowed = policies_.victims->allowed_from(state, job, attempt);
    if (allowed > now_) look = std::min(look, allowed);
    return allowed <= now_;
  }
  if (!policies_.victims->reclaimable(state, attempt)) return false;
  return preserves_guarantees(state, job, claim, std::span(&victim, 1));
}

bool Planner::preserves_guarantees(const State& state, const Job& job, const Claim& claim,
                                   std::span<const Job* const> victims) const {
  if (pools_.lends() && !preserves_pool_shares(state, job, claim, victims)) return false;
  return !guarantees_ || guarantees::preserves_guarantees(state, job.tenant, claim.wanted, claim.covering,
                                                          victims, planned_held_);
}

// Those on the node that the job may end, and which of them it would; `beside_going`: once those are gone
// that are ended for others.
std::optional<Planner::Preempting> Planner::victims_on(const State& state, const Job& job,
                                                       Candidate& candidate, uint32_t slot,
                                                       uint32_t device_class, const Claim& claim, Time& look,
                                                       bool beside_going) {
  const Node& from = state.nodes[slot];
  const Part& part = state.class_of(job).parts.front();
  uint64_t kind_mask = 0;
  for (const auto& [kind, mask] : nodes_[slot].class_masks) {
    if (kind == device_class) kind_mask = mask & fit_devices(from);
  }
  if (!could_run(state, slot, device_class, kind_mask, part)) return std::nullopt;
  if (part.gpu_count > 0 && ((affordable(state, candidate) >> device_class) & 1) == 0) return std::nullopt;
  if (is_reserved(slot) && delayed_by(state, candidate, slot, part, device_class) != nullptr)
    return std::nullopt;
  if (nodes_[slot].booked && meets_booking(state, candidate, slot)) return std::nullopt;
  const policy::NodeView view = view_of(state, slot, device_class, part);
  GivenBack back;
  if (beside_going) back = given_back_on(state, from, planned_victims_, planned_promised_);
  back.devices &= kind_mask;
  const Lack lack = lack_on(from, view, part, back);
  std::vector<VictimView> candidates;
  for (const AttemptKey& key : from.attempts) {
    if (candidates.size() >= limits::kVictimsMax) break;
    if (std::find(planned_victims_.begin(), planned_victims_.end(), key.job) != planned_victims_.end())
      continue;
    const Attempt* attempt = state.find_attempt(key.job, key.attempt);
    CHECK(attempt != nullptr);
    const Member& member = attempt->members[key.member];
    const int32_t devices = std::popcount(member.device_mask & kind_mask);
    const bool helps = (lack.devices > 0 && devices > 0) || (lack.cpu_milli > 0 && member.cpu_milli > 0) ||
                       (lack.memory_mb > 0 && member.memory_mb > 0) || lack.attempts > 0;
    if (!helps) continue;
    // A gang gives back everything that it has here at once. Its members stand side by side.
    if (!candidates.empty() && candidates.back().attempt == attempt) {
      candidates.back().devices += devices;
      candidates.back().cpu_milli += member.cpu_milli;
      candidates.back().memory_mb += member.memory_mb;
      continue;
    }
    slice_.visits += kVictimVisits;
    if (!may_end(state, job, *attempt, claim, look)) continue;
    const Job& victim = state.job_at(key.job);
    candidates.push_back({.job = &victim,
                          .attempt = attempt,
                          .devices = devices,
                          .cpu_milli = member.cpu_milli,
                          .memory_mb = member.memory_mb,
                          .gpus = gpus_of(*attempt),
                          .end = expected_end(state, *attempt),
                          .priority = policy::effective_priority(state, victim),
                          .spared = claim.any() && policies_.victims->spared(state, *attempt, now_)});
  }
  policy::VictimLimit limit;
  if (can_reclaim()) {
    limit = [&](std::span<const uint32_t> chosen) {
      std::vector<const Job*> victims;
      for (const uint32_t index : chosen) victims.push_back(candidates[index].job);
      return preserves_guarantees(state, job, claim, victims);
    };
  }
  const std::optional<policy::VictimChoice> choice = policies_.victims->choose(lack, candidates, now_, limit);
  if (!choice.has_value()) return std::nullopt;
  Preempting found{
      .node = slot, .device_class = device_class, .victims = {}, .cost = choice->cost, .claim = claim};
  for (const uint32_t index : choice->chosen) found.victims.push_back(candidates[index]);
  return found;
}

// True while the job still waits for what is expected soon without ending anybody; that is bounded.
bool Planner::is_patient(const State& state, const Job& job, Duration patience, Duration at_most) {
  ClassInfo& entry = info(job.job_class);
  if (entry.patient_job != job.id) {
    entry.patient_job = job.id;
    entry.patient_since = now_;
  }
  const Time until = entry.patient_since + at_most;
  if (now_ >= until) return false;
  const std::optional<Reservation> start = earliest_start(state, job.job_class);
  if (!start.has_value() || start->start > now_ + patience) return false;
  look_again(job.job_class, std::min(until, std::max(start->start, now_ + kSearchOn)));
  return true;
}

// How many jobs like this one fit on what others already give back, which may be more than was needed; up to
// `most`.
int64_t Planner::rooms_coming(const State& state, const Job& job, Candidate& candidate, int64_t most) {
  const Shape& shape = shape_of(job.job_class);
  const Part& part = shape.parts.front();
  // On one node, with its devices of one kind, once those are gone from it that are ended for others.
  const auto rooms_of = [&](uint32_t slot, uint32_t kind, uint64_t mask) -> int64_t {
    const Node& from = state.nodes[slot];
    const uint64_t kind_mask = mask & fit_devices(from);
    const policy::NodeView view = view_of(state, slot, kind, part);
    const GivenBack back = given_back_on(state, from, planned_victims_, planned_promised_);
    const auto attempts = static_cast<int64_t>(from.attempts.size()) + from.promised_count - back.attempts;
    const int devices = std::popcount(view.usable_mask | (back.devices & kind_mask));
    int64_t rooms = static_cast<int64_t>(limits::kAttemptsPerNodeMax) - attempts;
    if (part.gpu_count > 0) rooms = std::min<int64_t>(rooms, devices / part.gpu_count);
    if (part.cpu_milli > 0) rooms = std::min(rooms, (view.cpu_milli_free + back.cpu_milli) / part.cpu_milli);
    if (part.memory_mb > 0) rooms = std::min(rooms, (view.memory_mb_free + back.memory_mb) / part.memory_mb);
    if (rooms <= 0 || (view.exclusive && !back.whole_node)) return 0;
    if (!could_run(state, slot, kind, kind_mask, part)) return 0;
    if (is_reserved(slot) && delayed_by(state, candidate, slot, part, kind) != nullptr) return 0;
    return nodes_[slot].booked && meets_booking(state, candidate, slot) ? 0 : rooms;
  };
  const auto rooms_on = [&](uint32_t slot) -> int64_t {
    if (!nodes_[slot].gives_back || !nodes_[slot].ready || shape.excluded.test(slot)) return 0;
    ++slice_.visits;
    if (part.gpu_count == 0) return rooms_of(slot, FreeIndex::kNoDevices, 0);
    int64_t rooms = 0;
    for (const auto& [kind, mask] : nodes_[slot].class_masks)
      rooms += ((shape.device_classes >> kind) & 1) != 0 ? rooms_of(slot, kind, mask) : 0;
    return rooms;
  };
  slice_.visits += nodes_.size() / 16;
  int64_t rooms = 0;
  for (uint32_t slot = 0; slot < nodes_.size() && rooms < most; ++slot) rooms += rooms_on(slot);
  return std::min(rooms, most);
}

// Whether more jobs like this one, it and those behind it, ask by the same right than so many rooms hold:
// then what comes back is not enough for them, and they would wait for one victim after another.
bool Planner::more_ask_than(const State& state, const Job& job, const Claim& claim, int64_t rooms) {
  const JobClass& alike = state.class_of(job);
  const int64_t priority = policy::effective_priority(state, job);
  std::vector<JobId> placed;  // By this plan.
  for (const Planned& planned : planned_) {
    if (state.job_at(planned.job).job_class == job.job_class) placed.push_back(planned.job);
  }
  std::ranges::sort(placed);
  int64_t asking = 0;
  int64_t looked = 0;
  for (OrderedJobs::Cursor at = alike.waiting.begin(); !at.at_end() && asking <= rooms; at.next()) {
    const JobId id = (*at).job;
    if (std::ranges::binary_search(placed, id)) continue;
    if (++looked > kAlikeLooked) break;
    if (claim.any() || policy::effective_priority(state, state.job_at(id)) == priority) ++asking;
  }
  slice_.visits += static_cast<uint64_t>(looked);
  if (asking <= rooms) return false;
  const Amount one = claim.any() ? claim.wanted : expected_amount(state, alike.parts, 0);
  Amount all = one;
  for (int64_t i = 0; i < rooms; ++i) all.add(one);
  if (quota_block(state, job.job_class, all).has_value()) return false;
  if (claim.covering != nullptr)
    return guarantees::covering(state, job.tenant, all, planned_held_) != nullptr;
  if (!claim.pool) return true;
  const bool online = work_of(alike.parts) == WorkClass::kOnline;
  return pool_held(state, online) + all.gpu_thousandths() <=
         pools_.gpus_of(online, capacity_.gpus) * kMilliPerGpu;
}

void Planner::commit(const State& state, const Job& job, Candidate& candidate, const Preempting& chosen,
                     CommitPlan& plan) {
  const Node& from = state.nodes[chosen.node];
  const Part& part = state.class_of(job).parts.front();
  PlanGroup group{.job = job.id,
                  .attempt = job.attempt_count + 1,
                  .members = {},
                  .preemptions = {},
                  .reclaims = chosen.claim.covering != nullptr,
                  .asked_at = chosen.claim.any() ? info(job.job_class).asking_since : Time{}};
  const uint64_t usable = view_of(state, chosen.node, chosen.device_class, part).usable_mask;
  uint64_t kind_mask = 0;
  for (const auto& [kind, mask] : nodes_[chosen.node].class_masks) {
    if (kind == chosen.device_class) kind_mask = mask & fit_devices(from);
  }
  // Theirs first: what is free stays for others.
  uint64_t theirs = 0;
  for (const VictimView& victim : chosen.victims) {
    group.preemptions.push_back({.job = victim.job->id, .attempt = victim.attempt->number});
    planned_victims_.push_back(victim.job->id);
    const std::vector<Part>& parts = state.class_of(*victim.job).parts;
    const Amount given = state.held_by(*victim.job);
    if (guarantees_) planned_held_.add(state, victim.job->tenant, negated(given));
    (work_of(parts) == WorkClass::kOnline ? planned_online_going_ : planned_batch_going_) +=
        given.gpu_thousandths();
    for (const Member& member : victim.attempt->members) {
      nodes_[state.node_at(member.node).slot].gives_back = true;
      if (member.node == from.id && member.state != MemberState::kEnded)
        theirs |= member.device_mask & kind_mask;
    }
  }
  uint64_t mask = lowest_bits(theirs, part.gpu_count);
  mask |= lowest_bits(usable, part.gpu_count - std::popcount(mask));
  CHECK(std::popcount(mask) == part.gpu_count);
  planned_promised_.emplace_back(chosen.node, mask);
  group.members.push_back(placement_of(from, 0, mask));
  NodeInfo& node = nodes_[chosen.node];
  node.free_mask &= ~mask;
  node.cpu_milli_free -= part.cpu_milli;
  node.memory_mb_free -= part.memory_mb;
  index_node(state, chosen.node);
  const policy::PoolAmounts amounts = amounts_on(chosen.node, part, chosen.device_class);
  take_extra(state, candidate, chosen.node, amounts);
  node.first_release = {};
  planned_.push_back({.job = job.id, .attempt = group.attempt, .node = chosen.node, .amounts = amounts});
  plan.groups.push_back(std::move(group));
  add_planned_usage(state, job, chosen.claim.wanted);
}

// Thousandths of GPUs that this kind of work holds and keeps.
int64_t Planner::pool_held(const State& state, bool online) const {
  const PoolUse& use = online ? state.online : state.batch;
  const int64_t planned = online ? planned_online_ : planned_batch_;
  return use.milli - use.stopping_gpu_milli + planned -
         (online ? planned_online_going_ : planned_batch_going_);
}

Planner::PoolRooms Planner::pool_rooms(const State& state) const {
  PoolRooms rooms = {};
  if (!pools_.lends()) return rooms;
  for (const bool online : {false, true}) {
    const int64_t room = pools_.gpus_of(online, capacity_.gpus) * kMilliPerGpu - pool_held(state, online);
    rooms[online ? 1 : 0] = std::clamp<int64_t>(room, 0, limits::kDevicesPerNodeMax * kMilliPerGpu);
  }
  return rooms;
}

bool Planner::in_own_pool(const State& state, const Job& job) const {
  const std::vector<Part>& parts = state.class_of(job).parts;
  const bool online = work_of(parts) == WorkClass::kOnline;
  const int64_t wanted = total_of(parts).gpu_thousandths();
  return wanted == 0 ||
         pool_held(state, online) + wanted <= pools_.gpus_of(online, capacity_.gpus) * kMilliPerGpu;
}

// Nothing but a tenant's guarantee may make more of a pool's share idle; and who asks for its own pool's
// takes from the other one.
bool Planner::preserves_pool_shares(const State& state, const Job& job, const Claim& claim,
                                    std::span<const Job* const> victims) const {
  if (claim.covering != nullptr) return true;
  const std::vector<Part>& parts = state.class_of(job).parts;
  const bool own = work_of(parts) == WorkClass::kOnline;
  int64_t change[2] = {};  // Change of batch work's GPUs, and of online work's, in thousandths.
  change[own ? 1 : 0] += total_of(parts).gpu_thousandths();
  for (const Job* victim : victims) {
    const std::vector<Part>& theirs = state.class_of(*victim).parts;
    const bool online = work_of(theirs) == WorkClass::kOnline;
    if (claim.pool && online == own) return false;
    change[online ? 1 : 0] -= state.held_by(*victim).gpu_thousandths();
  }
  for (const bool online : {false, true}) {
    const int64_t share = pools_.gpus_of(online, capacity_.gpus) * kMilliPerGpu;
    const int64_t idle = std::max<int64_t>(share - pool_held(state, online), 0);
    if (share - pool_held(state, online) - change[online ? 1 : 0] > idle) return false;
  }
  return true;
}

// The right by which the job asks for its own share or guarantee, if any; notes since when it asks.
std::optional<Planner::Claim> Planner::reclaim_claim(const State& state, const Job& job) {
  if (!can_reclaim()) return std::nullopt;
  ClassInfo& entry = info(job.job_class);
  const Amount wanted = expected_amount(state, state.class_of(job).parts, 0);
  Claim claim;
  if (guarantees_) claim.covering = guarantees::covering(state, job.tenant, wanted, planned_held_);
  claim.pool = claim.covering == nullptr && pools_.lends() && wanted.has_gpus() && in_own_pool(state, job);
  if (!claim.any()) {
    entry.asking_job = {};
    return std::nullopt;
  }
  if (entry.asking_job != job.id) {
    entry.asking_job = job.id;
    entry.asking_since = now_;
  }
  return claim;
}

// Holdings have changed: a guarantee may cover more now, or somebody may borrow more.
void Planner::guarantees_moved() {
  for (const uint32_t job_class : preemptors_) {
    if (info(job_class).preempts) look_again(job_class, info(job_class).tried_at + kSearchOn);
  }
}

// Finds the cheapest victims over the nodes.
std::optional<Planner::Preempting> Planner::find_victims(const State& state, const Job& job,
                                                         Candidate& candidate, const Claim& claim, Time& look,
                                                         bool beside_going) {
  const int64_t priority = policy::effective_priority(state, job);
  const Part& part = state.class_of(job).parts.front();
  // A job of the same priority may come to have a lower level, which the node does not say.
  const int64_t weakest_max = policy::ends_by_attained(state) ? priority : priority - 1;
  std::optional<Preempting> best;
  uint32_t examined = 0;
  const auto count = static_cast<uint32_t>(nodes_.size());
  const uint32_t begin = victim_cursor_;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t slot = (begin + i) % count;
    const NodeInfo& node = nodes_[slot];
    if (!node.ready || shape_of(job.job_class).excluded.test(slot)) continue;
    if (beside_going && !node.gives_back) continue;
    if (claim.any() ? state.nodes[slot].attempts.empty() : node.weakest > weakest_max) continue;
    if (++examined > kVictimNodesMax) {
      if (!beside_going) victim_cursor_ = slot;
      look = std::min(look, now_ + kSearchOn);
      break;
    }
    const auto consider = [&](uint32_t kind) {
      Claim here = claim;
      here.wanted = amount_on(state, job, kind);
      if (claim.covering != nullptr)
        here.covering = guarantees::covering(state, job.tenant, here.wanted, planned_held_);
      if (claim.any() && !here.any()) return;  // Not with what these devices would give it.
      std::optional<Preempting> found =
          victims_on(state, job, candidate, slot, kind, here, look, beside_going);
      if (!found.has_value()) return;
      const bool better = !best.has_value() || found->cost < best->cost ||
                          (found->cost == best->cost && found->node < best->node);
      if (better) best = std::move(found);
    };
    if (part.gpu_count == 0) consider(FreeIndex::kNoDevices);
    for (const auto& [kind, mask] : node.class_masks) {
      if (part.gpu_count > 0 && ((shape_of(job.job_class).device_classes >> kind) & 1) != 0) consider(kind);
    }
  }
  slice_.visits += count / 16;
  return best;
}

bool Planner::preempt(const State& state, const Job& job, Candidate& candidate, CommitPlan& plan) {
  if (policies_.victims == nullptr) return false;
  if (!state.promises.empty() && state.find_promise(job.id) != nullptr) return false;  // It is moved.
  ClassInfo& entry = info(job.job_class);
  // Freed devices may not lie as they are asked for, and no victim can give a whole node.
  const Part& part = shapes_[entry.shape].parts.front();
  if (part.is_share() || shapes_[entry.shape].gang.has_value() || part.is_exclusive() || part.is_arranged())
    return false;
  const bool by_priority = may_preempt_ && state.tenant_at(job.tenant).can_preempt_others;
  const std::optional<Claim> claim = reclaim_claim(state, job);
  entry.preempts = by_priority || can_reclaim();
  entry.tried_at = now_;
  if (policy::gives_back_too_late(job, now_ + policies_.victims->grace())) return false;
  if (!by_priority && !claim.has_value()) return false;
  if (state.promises.size() + plan.groups.size() >= limits::kPromisesMax) return false;
  Time look = kNever;
  std::optional<Preempting> best;
  if (claim.has_value()) best = find_victims(state, job, candidate, *claim, look, false);
  const Claim right = best.has_value() ? *claim : Claim{};
  if (!best.has_value() && by_priority) best = find_victims(state, job, candidate, right, look, false);
  if (!best.has_value()) {
    if (look != kNever) look_again(job.job_class, look);
    return false;
  }
  // Beside what others give back less may have to be lost.
  const auto less_does = [&] {
    Time later = kNever;
    const std::optional<Preempting> less = find_victims(state, job, candidate, right, later, true);
    return less.has_value() && less->cost < best->cost;
  };
  // Nobody is ended while the job waits for that, as long as for a promise; unless those behind it need more.
  const int64_t rooms = rooms_coming(state, job, candidate, kRoomsCounted);
  const bool coming = rooms > 0 ? !more_ask_than(state, job, best->claim, rooms) : less_does();
  if (const Time until = waits_for_room(entry, coming, job.id, now_); until.valid()) {
    look_again(job.job_class, std::min(until, now_ + kLookAtRoom));
    return false;
  }
  const Duration patience = policies_.victims->patience();
  const auto waits = [&] {
    return best->claim.any() ? is_patient(state, job, std::min(patience, kReclaimPatience), kReclaimPatience)
                             : is_patient(state, job, patience, patience * kPatienceMax);
  };
  // The room that is coming is what is expected soon, and it is not enough.
  if (rooms == 0 && waits()) return false;
  entry.patient_job = {};
  commit(state, job, candidate, *best, plan);
  return true;
}

}  // namespace gpusched
