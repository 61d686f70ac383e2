#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "engine/planner/plan_slice.h"
#include "engine/planner/planner.h"
#include "engine/policy/backfill/overrun.h"

// Backfilling on real nodes: a job has to fit on one, so each node is a pool of its own, and a blocked job's
// start is the earliest shadow time over the nodes that could run it.
namespace gpusched {
namespace {

using policy::PoolAmounts;

// A node's resources as indexes into PoolAmounts; then one for each of its device classes.
constexpr std::size_t kCpu = 0;
constexpr std::size_t kMemory = 1;
constexpr std::size_t kFirstDevices = 2;
constexpr Duration kCoolingExpected = minutes(2);
constexpr Duration kStopExpected = seconds(30);
/// Work may pass a promised job that is expected to be gone by its start; but only until the job has waited
/// twice as long as it was promised at first, and at least so long. After that only work may that must be
/// gone by then, by its limit: expectations alone could let small work pass for ever, because each that is
/// wrong moves the promise.
constexpr Duration kTrustLeast = hours(4);
/// How often an overdue promise is looked at again.
constexpr Duration kLookAgain = seconds(1);
/// Blocked classes that are tried when a reservation is to be given again.
constexpr std::size_t kTriesMax = 64;
/// How soon a class of which not all jobs were tried behind its head is gone on with.
constexpr Duration kPassOn = seconds(1);
/// Freed nodes that are looked at for a better start in a slice.
constexpr std::size_t kMovesMax = 8;

/// The time for which the job would hold its devices if it started now.
Duration run_to_pass(const policy::RunTimes& run_times, const State& state, const Job& job, Time now) {
  return std::max(run_times.to_pass(state, job, now), milliseconds(1));
}

/// The whole run of a job that has run for `elapsed`, always longer than that: work that should be over goes
/// on until its limit, or ever longer where it has none.
Duration run_of_running(const policy::RunTimes& run_times, const State& state, const Job& job,
                        Duration elapsed, Time now) {
  const Duration first = std::max(run_times.of_running(state, job, elapsed, now), milliseconds(1));
  if (elapsed < first) return first;
  policy::Overrun overrun{
      .first_estimate = first, .elapsed = elapsed, .corrections = 0, .limit = job.max_runtime};
  return policy::corrected_estimate(policy::Correction::kLimit, overrun);
}

/// True if the reservation is the candidate's own, where the candidate is or was its class's `first`. A
/// shorter job of its class may pass that, and delay it.
bool is_for(const auto& held, const auto& candidate, JobId first) {
  return held.job_class == candidate.job_class && (candidate.job == held.job || candidate.job == first);
}

}  // namespace

bool runs_into_booking(const policy::RunTimes& run_times, const State& state, const Job& job, uint32_t slot,
                       Time start, Time now) {
  const Time begins = state.nodes[slot].booked_from;
  if (begins == kNever || state.class_of(job).parts.front().booking != 0) return false;
  const Duration longest = job.max_runtime.ns > 0 ? job.max_runtime + limits::kRuntimeSlack
                                                  : run_times.of_running(state, job, Duration{}, now);
  return longest >= begins - std::max(start, now);
}

Time trust_until(Time now, Time start) {
  return start == kNever ? kNever : now + std::max(kTrustLeast, (start - now) * 2);
}

Time Planner::next_look() const {
  if (paused_) return kNever;
  Time next = kNever;
  for (const Reservation& held : reservations_) next = std::min(next, held.start);
  next = std::min(next, preempt_look_);
  return next == kNever ? kNever : std::max(next, looked_at_ + kLookAgain);
}

bool Planner::is_kept_from(uint32_t slot, uint32_t job_class) const {
  return std::any_of(reservations_.begin(), reservations_.end(), [&](const Reservation& held) {
    return held.job_class != job_class && held.on(slot) != nullptr;
  });
}

void Planner::look_at_promises(Time now) {
  looked_at_ = now;
  look_ = true;
}

// Only where there is a reservation to be compared with: it costs a prediction.
void Planner::complete(const State& state, Candidate& candidate) const {
  if (candidate.known) return;
  const Job* job = state.jobs.find(candidate.job);
  CHECK(job != nullptr);
  candidate.key = key_of(state, *job, waiting_.key_of(state, *job, now_));
  candidate.end = now_ + run_to_pass(*policies_.run_times, state, *job, now_);
  candidate.end_by_limit = job->max_runtime.ns > 0 ? now_ + job->max_runtime : kNever;
  candidate.known = true;
}

// Whether what the candidate would hold is back at the reservation's start.
bool Planner::is_gone_by(const Candidate& candidate, Time start, Time trusting_until) const {
  return (now_ < trusting_until ? candidate.end : candidate.end_by_limit) <= start;
}

PoolAmounts Planner::amounts_on(uint32_t slot, const Part& part, uint32_t device_class) const {
  PoolAmounts amounts;
  amounts.value[kCpu] = part.cpu_milli;
  amounts.value[kMemory] = part.memory_mb;
  const auto& masks = nodes_[slot].class_masks;
  for (std::size_t i = 0; i < masks.size() && kFirstDevices + i < amounts.value.size(); ++i) {
    if (masks[i].first == device_class) amounts.value[kFirstDevices + i] = part.gpu_count;
  }
  return amounts;
}

// The reservation on the node that the candidate would delay: one of a job that stands before it, when the
// candidate would still run at its start and holds what is not left over then.
const Planner::Reservation* Planner::delayed_by(const State& state, Candidate& candidate, uint32_t slot,
                                                const Part& part, uint32_t device_class) const {
  // An exclusive job takes the whole node.
  return delayed_by(state, candidate, slot,
                    part.is_exclusive() ? nodes_[slot].room : amounts_on(slot, part, device_class));
}

const Planner::Reservation* Planner::delayed_by(const State& state, Candidate& candidate, uint32_t slot,
                                                const PoolAmounts& amounts) const {
  complete(state, candidate);
  const JobId first = classes_[candidate.job_class].head.job;
  for (const Reservation& held : reservations_) {
    const Hold* hold = is_for(held, candidate, first) ? nullptr : held.on(slot);
    if (hold == nullptr || candidate.key < held.key || is_gone_by(candidate, held.start, held.trusting_until))
      continue;
    if (!amounts.fits(hold->extra)) return &held;
  }
  return nullptr;
}

void Planner::take_extra(const State& state, Candidate& candidate, uint32_t slot,
                         const PoolAmounts& amounts) {
  if (!is_reserved(slot)) return;
  complete(state, candidate);
  const JobId first = info(candidate.job_class).head.job;
  for (Reservation& held : reservations_) {
    Hold* hold = is_for(held, candidate, first) ? nullptr : held.on(slot);
    if (hold == nullptr || is_gone_by(candidate, held.start, held.trusting_until)) continue;
    // A job before it is not bound by it: the start that was promised may be untrue now.
    if (candidate.key < held.key) look_ = true;
    if (!(candidate.key < held.key)) hold->extra -= amounts;
  }
}

Time Planner::expected_end(const State& state, const Attempt& attempt) const {
  const Job* job = state.jobs.find(attempt.job);
  if (job == nullptr || attempt.stop != StopReason::kNone || attempt.abandoned) return now_ + kStopExpected;
  const Time begin = attempt.started_at.valid() ? attempt.started_at : attempt.placed_at;
  const Duration elapsed = std::max(now_ - begin, Duration{});
  return begin + run_of_running(*policies_.run_times, state, *job, elapsed, now_);
}

void Planner::release_of(const State& state, const AttemptKey& key, uint32_t slot) {
  NodeInfo& node = nodes_[slot];
  const Attempt* attempt = state.find_attempt(key.job, key.attempt);
  CHECK(attempt != nullptr);
  const Member& member = attempt->members[key.member];
  PoolAmounts held;
  held.value[kCpu] = member.cpu_milli;
  held.value[kMemory] = member.memory_mb;
  // A shared device comes back when the last of its shares does.
  const uint64_t whole = member.gpu_milli > 0 ? 0 : member.device_mask;
  for (std::size_t i = 0; i < node.class_masks.size() && kFirstDevices + i < held.value.size(); ++i) {
    held.value[kFirstDevices + i] = std::popcount(node.class_masks[i].second & whole);
  }
  if (member.exclusive) held = node.room;  // Nobody else has anything of it.
  add_release(node, expected_end(state, *attempt), held);
}

// One after the other: a job may have several members on the node, and attempts that it was given up in.
void Planner::add_release(NodeInfo& node, Time end, const PoolAmounts& held) {
  node.releases.add({.end = end, .id = node.releases.size(), .amounts = held});
  node.first_release = std::min(node.first_release, end);
}

// Promised resources count as held from now on, also while the victims still hold them, until the promised
// job is expected to end.
void Planner::release_promises(const State& state, uint32_t slot) {
  NodeInfo& node = nodes_[slot];
  for (const auto& [id, promise] : state.promises) {
    const Job* job = state.jobs.find(id);
    CHECK(job != nullptr);
    for (const Member& member : promise.members) {
      if (member.node != state.nodes[slot].id) continue;
      PoolAmounts held;
      held.value[kCpu] = member.cpu_milli;
      held.value[kMemory] = member.memory_mb;
      for (std::size_t kind = 0; kind < node.class_masks.size() && kFirstDevices + kind < held.value.size();
           ++kind) {
        held.value[kFirstDevices + kind] = std::popcount(node.class_masks[kind].second & member.device_mask);
      }
      const Time end =
          now_ + kStopExpected + run_of_running(*policies_.run_times, state, *job, Duration{}, now_);
      add_release(node, end, held);
    }
  }
}

// The node's resources for work, and when those of running work are expected back.
void Planner::refresh_releases(const State& state, uint32_t slot) {
  NodeInfo& node = nodes_[slot];
  const Node& from = state.nodes[slot];
  node.releases = {};
  node.room = {};
  node.first_release = kNever;
  if (!node.ready) return;
  node.room.value[kCpu] = from.cpu_milli;
  node.room.value[kMemory] = from.memory_mb;
  for (std::size_t i = 0; i < node.class_masks.size() && kFirstDevices + i < node.room.value.size(); ++i) {
    PoolAmounts one;
    one.value[kFirstDevices + i] = 1;
    for (uint64_t rest = node.class_masks[i].second; rest != 0; rest &= rest - 1) {
      const auto index = static_cast<std::size_t>(std::countr_zero(rest));
      const Device& device = from.devices[index];
      const bool lasting = device.state == DeviceState::kQuarantined || !device.sound();
      const bool cooling = device.hot && device.state == DeviceState::kFree;
      // Held or draining devices come back; an unfit one is of use to nobody, but its holder gives it back
      // too.
      if (!lasting || device.state == DeviceState::kHeld) node.room += one;
      if (lasting && device.state == DeviceState::kHeld) node.room -= one;
      const bool going = device.state == DeviceState::kDraining || device.state == DeviceState::kShared;
      if (lasting || !(going || cooling)) continue;
      Time end = now_ + (cooling ? kCoolingExpected : policy::kDrainExpected);
      for (const Share& share : device.shares) {
        if (!share.draining())
          end =
              std::max(end, expected_end(state, state.attempt_at(share.held_by.job, share.held_by.attempt)));
      }
      add_release(node, end, one);
    }
  }
  for (const AttemptKey& key : from.attempts) release_of(state, key, slot);
  for (const Planned& planned : planned_) {
    const Job* job = planned.node == slot ? state.jobs.find(planned.job) : nullptr;
    if (job == nullptr) continue;
    const Time end = now_ + run_of_running(*policies_.run_times, state, *job, Duration{}, now_);
    add_release(node, end, planned.amounts);
  }
  if (from.promised_count > 0) release_promises(state, slot);
}

// The earliest start of one of the shape on this node, if it could ever have one there.
std::optional<Planner::Reservation> Planner::start_of_shape(const State& state, const Shape& shape,
                                                            uint32_t slot) {
  NodeInfo& node = nodes_[slot];
  if (!node.ready || shape.excluded.test(slot)) return std::nullopt;
  if (node.first_release <= now_) refresh_releases(state, slot);
  const Part& part = shape.parts.front();
  std::optional<Reservation> best;
  const auto look = [&](uint32_t device_class, uint64_t mask) {
    if (!could_run(state, slot, device_class, mask, part)) return;
    // Nothing tells which devices come back when: work that must lie well, or alone, waits for all.
    const bool whole = part.is_exclusive() || part.is_arranged();
    const PoolAmounts wanted = whole ? node.room : amounts_on(slot, part, device_class);
    const policy::Shadow shadow = node.releases.shadow(node.room, wanted, now_);
    if (shadow.at == kNever || (best.has_value() && best->start <= shadow.at)) return;
    best = Reservation{.job_class = 0,
                       .job = {},
                       .key = {},
                       .start = shadow.at,
                       .holds = {{.node = slot, .wanted = wanted, .extra = shadow.free - wanted}},
                       .looked_at = {}};
  };
  if (part.gpu_count == 0) look(FreeIndex::kNoDevices, 0);
  for (const auto& [kind, mask] : node.class_masks) {
    if (part.gpu_count > 0 && ((shape.device_classes >> kind) & 1) != 0) look(kind, mask);
  }
  return best;
}

// The same for the class's first job, unless another reservation is there.
std::optional<Planner::Reservation> Planner::start_on(const State& state, uint32_t job_class, uint32_t slot) {
  const Reservation* own = reservation_of(job_class);
  if (is_reserved(slot) && (own == nullptr || own->on(slot) == nullptr)) return std::nullopt;
  Candidate head{.job = info(job_class).head.job, .job_class = job_class};
  if (nodes_[slot].booked && meets_booking(state, head, slot)) return std::nullopt;
  Shape& shape = shape_of(job_class);
  refresh_device_classes(state, shape);
  std::optional<Reservation> found = start_of_shape(state, shape, slot);
  if (!found.has_value()) return found;
  begin_by_limits(*found, job_class);
  if (nodes_[slot].booked &&
      runs_into_booking(*policies_.run_times, state, state.job_at(head.job), slot, found->start, now_))
    return std::nullopt;
  found->job_class = job_class;
  return found;
}

// Not before its limits have room for it.
void Planner::begin_by_limits(Reservation& start, uint32_t job_class) {
  const Time from = info(job_class).limits_from;
  if (start.start >= from) return;
  start.start = from;
  for (Hold& hold : start.holds) {
    const NodeInfo& node = nodes_[hold.node];
    hold.extra = node.room - node.releases.held_after(from) - hold.wanted;
  }
}

// A job whose class's head is kept from nodes only by reservations: places it where it delays none.
bool Planner::pass_reservations(const State& state, JobId id, CommitPlan& plan) {
  const Job* job = state.jobs.find(id);
  if (job == nullptr || !job->is_queued()) return false;
  const bool placed = std::any_of(planned_.begin(), planned_.end(),
                                  [&](const Planned& planned) { return planned.job == id; });
  Candidate candidate{.job = id, .job_class = job->job_class};
  if (placed || limit_block(state, candidate).has_value()) return false;
  if (info(job->job_class).reason.of_limit) return place_on_free(state, *job, candidate, plan);
  if (shape_of(job->job_class).gang.has_value()) return place_gang(state, *job, candidate, plan);
  for (const Reservation& held : reservations_) {
    for (const Hold& hold : held.holds) {
      if (slice_.visits >= limits::kNodeVisitsPerSlice) return false;
      const Choice choice = choose_on(state, candidate, hold.node);
      if (choice.node == Bitmap::kNone) continue;
      place(state, *job, candidate, choice, plan);
      return true;
    }
  }
  slice_.visits += booked_nodes_.size() / 16;
  for (const uint32_t slot : booked_nodes_) {
    if (!has_room_before_booking(state, *job, slot)) continue;
    if (slice_.visits >= limits::kNodeVisitsPerSlice) return false;
    const Choice choice = choose_on(state, candidate, slot);
    if (choice.node == Bitmap::kNone) continue;
    place(state, *job, candidate, choice, plan);
    return true;
  }
  return false;
}

// Whether it is worth a look: it costs a fraction of one.
bool Planner::has_room_before_booking(const State& state, const Job& job, uint32_t slot) const {
  const NodeInfo& node = nodes_[slot];
  const Part& part = state.class_of(job).parts.front();
  const bool ends = job.max_runtime.ns == 0 || now_ + job.max_runtime < state.nodes[slot].booked_from;
  const bool devices = part.is_share() || std::popcount(node.free_mask) >= part.gpu_count;
  return node.ready && (ends || part.booking != 0) && devices && node.cpu_milli_free >= part.cpu_milli &&
         node.memory_mb_free >= part.memory_mb;
}

// A task that passes has left the line; where its user's others stand has changed with it.
void Planner::pass(const State& state, JobId id, CommitPlan& plan) {
  if (!pass_reservations(state, id, plan)) return;
  for (const uint32_t changed : waiting_.place(id)) touch_class(state, changed);
}

// The class's next jobs may be shorter than its head. Not all are tried at a time: the next try goes on
// behind those that were.
void Planner::pass_behind_head(const State& state, uint32_t job_class, CommitPlan& plan) {
  const OrderKey begin = info(job_class).passed.value_or(info(job_class).head);
  OrderKey tried = begin;
  bool all = true;
  waiting_.visit_behind(state, job_class, begin, passes_left_ + std::size_t{1}, [&](const OrderKey& next) {
    all = !slice_.is_full(plan) && passes_left_ > 0 && slice_.visits < limits::kNodeVisitsPerSlice;
    if (!all) return false;
    --passes_left_;
    tried = next;
    pass(state, tried.job, plan);
    return true;
  });
  info(job_class).passed = all ? std::nullopt : std::optional(tried);
  if (!all) pass_on(job_class);
}

void Planner::pass_on(uint32_t job_class) {
  preemptors_.insert(job_class);
  look_again(job_class, now_ + kPassOn);
}

// Tries the jobs that came in line behind a head that is kept from nodes.
void Planner::pass_fresh(const State& state, CommitPlan& plan) {
  for (const uint32_t job_class : std::exchange(fresh_classes_, {})) {
    ClassInfo& entry = info(job_class);
    const bool kept =
        entry.state == ClassState::kBlocked && (entry.reason.of_limit || !shape_of(job_class).kept.empty());
    const std::vector<JobId> fresh = std::exchange(entry.fresh, {});
    for (const JobId job : fresh) {
      if (kept && !slice_.is_full(plan)) pass(state, job, plan);
    }
    // Further ones came than are noted. Where all have passed, nobody is left to be looked at again.
    const bool waits = kept && info(job_class).state == ClassState::kBlocked;
    if (waits && (slice_.is_full(plan) || fresh.size() >= limits::kPassTriesMax)) pass_on(job_class);
  }
}

Planner::Reservation* Planner::reservation_of(uint32_t job_class) {
  for (Reservation& held : reservations_) {
    if (held.job_class == job_class) return &held;
  }
  return nullptr;
}

void Planner::update_reserved(uint32_t slot) {
  const bool reserved = std::any_of(reservations_.begin(), reservations_.end(),
                                    [&](const Reservation& held) { return held.on(slot) != nullptr; });
  // Classes that were kept from the node may have it now.
  if (nodes_[slot].reserved && !reserved) freed_nodes_.push_back(slot);
  nodes_[slot].reserved = reserved;
}

void Planner::drop_reservation(const State& state, uint32_t job_class) {
  const auto at = std::find_if(reservations_.begin(), reservations_.end(),
                               [&](const Reservation& held) { return held.job_class == job_class; });
  if (at == reservations_.end()) return;
  const std::vector<Hold> holds = std::move(at->holds);
  const TenantId tenant = info(job_class).tenant;
  reservations_.erase(at);
  reservations_missing_ = true;
  set_start(job_class, {});
  for (const Hold& hold : holds) update_reserved(hold.node);
  wake_limited(state, tenant);
}

// The class was blocked: its head is promised a start if there is a reservation left to give and nobody
// blocked stands before it without one, or if it stands before somebody who has one.
void Planner::promise(const State& state, uint32_t job_class) {
  if (const Reservation* held = reservation_of(job_class)) return set_start(job_class, held->start);
  Shape& shape = shape_of(job_class);
  const bool gang = shape.gang.has_value();
  const auto last = std::max_element(reservations_.begin(), reservations_.end(),
                                     [](const auto& a, const auto& b) { return a.key < b.key; });
  const bool all_given = reservations_.size() >= policies_.reservations;
  const bool none_for_it = all_given && last->key < info(job_class).key;
  if (none_for_it && (gang || !is_far_behind(shape.starts.known))) return;
  if (!gang) refresh_starts(state, shape);
  // A job that no node could ever run takes nobody's reservation.
  const bool never = gang ? !gang_start(state, job_class).has_value() : shape.starts.order.empty();
  if (none_for_it || never) return;
  if (all_given) drop_reservation(state, last->job_class);
  fill_reservations(state);
}

// Nothing is kept free for a job whose deadline comes before it could start.
bool Planner::is_over_by(const State& state, uint32_t job_class, Time start) {
  const Job& head = head_of(state, job_class);
  return head.deadline.valid() && head.deadline < start;
}

void Planner::set_start(uint32_t job_class, Time start) {
  const ClassInfo& entry = info(job_class);
  if (entry.state != ClassState::kBlocked) return;
  WaitReason reason = entry.reason;
  reason.start = start;
  set_reason(job_class, reason);
}

// Keeps a reservation true to what is known now; false when it is over.
bool Planner::refresh_reservation(const State& state, Reservation& held) {
  const ClassInfo& entry = info(held.job_class);
  if (entry.state == ClassState::kIdle || (is_limit(entry.reason) && held.start <= now_)) return false;
  const Job& head = head_of(state, held.job_class);
  if (held.job != head.id) held.trusting_until = trust_until(now_, held.start);
  held.job = head.id;
  held.key = key_of(state, head, entry.head);
  const bool limits_moved = refresh_limits_from(state, held.job_class);
  if (entry.limits_from > held.start) return false;
  if (shapes_[entry.shape].gang.has_value()) return refresh_gang_reservation(state, held);
  const uint32_t before = held.holds.front().node;
  std::optional<Reservation> best = held;
  if (limits_moved) {
    best = earliest_start(state, held.job_class);
  } else if (!nodes_[before].ready || nodes_[before].refreshed == cycle_ || held.start <= now_) {
    const Time promised = held.start;
    best = start_on(state, held.job_class, before);
    if (!best.has_value() || best->start > promised) best = earliest_start(state, held.job_class);
  }
  if (!best.has_value()) return false;
  for (std::size_t i = 0; i < freed_nodes_.size() && i < kMovesMax; ++i) {
    const std::optional<Reservation> other = start_on(state, held.job_class, freed_nodes_[i]);
    if (other.has_value() && other->start < best->start) best = other;
  }
  const uint32_t after = best->holds.front().node;
  // More may be over before it now.
  if (best->start > held.start) {
    freed_nodes_.push_back(after);
    wake_limited(state, entry.tenant);
  }
  if (is_over_by(state, held.job_class, best->start)) return false;
  const bool moved = best->start != held.start;
  held.start = best->start;
  held.holds = std::move(best->holds);
  if (after != before) {
    update_reserved(before);
    update_reserved(after);
  }
  if (moved) set_start(held.job_class, held.start);
  return true;
}

void Planner::refresh_reservations(const State& state) {
  std::vector<uint32_t> over;
  for (Reservation& held : reservations_) {
    if (!refresh_reservation(state, held)) over.push_back(held.job_class);
  }
  for (const uint32_t job_class : over) {
    drop_reservation(state, job_class);
    const ClassInfo& entry = info(job_class);
    // It waits for its limit now, and has a claim on that.
    if (entry.state == ClassState::kBlocked && !is_limit(entry.reason) && entry.limits_from > now_)
      make_ready(state, job_class);
  }
}

// Gives what reservations are left to the blocked classes that stand first.
void Planner::fill_reservations(const State& state) {
  reservations_missing_ = false;
  if (reservations_.size() >= policies_.reservations) return;
  // The shapes' first classes, and of each its next when that has one or has none to get.
  struct Next {
    uint32_t shape = 0;
    Waiting::const_iterator blocked;
    Waiting::const_iterator kept;
  };
  std::vector<Next> fronts;
  for (uint32_t index = 0; index < shapes_.size(); ++index) {
    const Shape& shape = shapes_[index];
    if (!shape.blocked.empty() || !shape.kept.empty())
      fronts.push_back({.shape = index, .blocked = shape.blocked.begin(), .kept = shape.kept.begin()});
  }
  const auto first_of = [&](const Next& next) {
    const Shape& shape = shapes_[next.shape];
    const bool of_kept =
        next.blocked == shape.blocked.end() || (next.kept != shape.kept.end() && *next.kept < *next.blocked);
    return of_kept ? next.kept : next.blocked;
  };
  std::vector<uint32_t> limited;  // Since they were looked at a limit of theirs is full, and for longer.
  for (std::size_t tries = 0; tries < kTriesMax && !fronts.empty(); ++tries) {
    if (reservations_.size() >= policies_.reservations) break;
    const auto best = std::min_element(fronts.begin(), fronts.end(), [&](const Next& a, const Next& b) {
      return *first_of(a) < *first_of(b);
    });
    const auto first = first_of(*best);
    const uint32_t job_class = first->second;
    bool over = false;
    if (reservation_of(job_class) == nullptr) {
      info(job_class).limits_from = {};
      std::optional<Reservation> found = shape_of(job_class).gang.has_value()
                                             ? gang_start(state, job_class)
                                             : earliest_start(state, job_class);
      over = !found.has_value();  // Nor has any other of the shape.
      if (found.has_value()) refresh_limits_from(state, job_class);
      if (found.has_value() && info(job_class).limits_from > found->start) {
        limited.push_back(job_class);
      } else if (found.has_value() && !is_over_by(state, job_class, found->start)) {
        found->job = info(job_class).head.job;
        found->trusting_until = trust_until(now_, found->start);
        found->key = first->first;
        reservations_.push_back(*found);
        for (const Hold& hold : found->holds) update_reserved(hold.node);
        set_start(job_class, found->start);
      }
    }
    ++(first == best->blocked ? best->blocked : best->kept);
    const Shape& shape = shapes_[best->shape];
    if (over || (best->blocked == shape.blocked.end() && best->kept == shape.kept.end())) fronts.erase(best);
  }
  for (const uint32_t job_class : limited) make_ready(state, job_class);
}

}  // namespace gpusched
