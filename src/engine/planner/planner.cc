#include "engine/planner/planner.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "engine/planner/plan_slice.h"

namespace gpusched {
namespace {

/// How soon a job that could end nobody tries again when something has changed.
constexpr Duration kPreemptAgain = seconds(1);
/// Jobs behind a blocked one that a slice tries at most.
constexpr uint32_t kPassesMax = 4 * limits::kPassTriesMax;

const Part& part_of(const State& state, uint32_t job_class) { return state.classes[job_class].parts.front(); }

/// The limit that the job waits for is expected to be back by the start that is promised to it.
bool is_back_by_start(const auto* promised, auto& claims, const auto& limit, JobId job, auto&& find_start) {
  const auto found = claims.find(limit);
  if (promised == nullptr || promised->job != job || found == claims.end()) return false;
  auto& claim = found->second;
  if (claim.job != job) return false;
  if (!claim.found_at.valid()) find_start(claim);
  return claim.start <= promised->start;
}

}  // namespace

Planner::Planner(policy::PolicySet policies) : policies_(std::move(policies)) {
  CHECK(policies_.queue_order != nullptr);
  CHECK(policies_.job_order != nullptr);
  CHECK(!policies_.filters.empty());
  CHECK(!policies_.scores.empty());
  CHECK(policies_.run_times != nullptr);
}

// Where run times come from, who may be ended and what is a task is the owner's to say, and stays.
void Planner::choose_policies() {
  policy::PolicySet chosen = policy::policies_for(chosen_);
  chosen.run_times = std::move(policies_.run_times);
  chosen.victims = std::move(policies_.victims);
  chosen.tasks = std::move(policies_.tasks);
  policies_ = std::move(chosen);
}

void Planner::start_over(const State& state) {
  std::vector<bool> present;
  for (const NodeInfo& node : nodes_) present.push_back(node.present);
  reset(state);
  for (uint32_t slot = 0; slot < present.size(); ++slot) nodes_[slot].present = present[slot];
}

void Planner::reset(const State& state, bool nodes_present) {
  if (state.config.policy != chosen_) {
    chosen_ = state.config.policy;
    choose_policies();
  }
  classes_.clear();
  lines_.clear();
  queue_.clear();
  reset_shapes();
  ranked_classes_.clear();
  ranked_lines_.clear();
  families_.clear();
  moved_tenants_.clear();
  someone_moved_ = false;
  rooms_ranked_ = {};
  over_quota_.clear();
  preemptors_.clear();
  capacity_ranked_ = {};
  nodes_.clear();
  domains_ = DomainTree();
  begin_fragments(state);
  index_ = FreeIndex();
  shared_index_ = FreeIndex();
  slices_ = SliceIndex();
  task_spaces_ = TaskSpaces();
  dirty_nodes_.clear();
  freed_nodes_.clear();
  freed_tenants_.clear();
  unblock_all_ = false;
  reservations_.clear();
  limit_claims_.clear();
  limit_starts_.clear();
  reservations_missing_ = false;
  fresh_classes_.clear();
  look_ = false;
  looked_at_ = {};
  capacity_ = {};
  look_promised_ = !state.promises.empty();
  preempt_look_ = kNever;
  victim_cursor_ = 0;
  planned_victims_.clear();
  planned_promised_.clear();
  may_preempt_ = false;
  guarantees_ = false;
  pools_ = state.config.pools;
  paused_ = state.config.pause.on();
  aging_ = state.config.aging_per_hour;
  level_ = state.config.feature_level;
  now_ = state.last.at;
  changed_reasons_.clear();
  planned_.clear();
  planned_classes_.clear();
  planned_usage_.clear();
  planned_jobs_.clear();
  planned_held_.clear();
  planned_online_ = planned_batch_ = planned_online_going_ = planned_batch_going_ = 0;
  for (uint32_t slot = 0; slot < state.nodes.size(); ++slot) {
    mark_dirty(slot);
    note_relabeled(slot);
    nodes_[slot].present = nodes_present;
  }
  refresh_preemptors(state);
  device_classes_reused_ = state.device_classes_reused;
  waiting_.reset(state, policies_, now_);
  for (uint32_t i = 0; i < state.classes.size(); ++i) {
    if (waiting_.first(state, i)) make_ready(state, i);
  }
}

Planner::ClassInfo& Planner::info(uint32_t job_class) {
  if (job_class >= classes_.size()) classes_.resize(job_class + 1);
  return classes_[job_class];
}

void Planner::mark_dirty(uint32_t slot) {
  if (slot >= nodes_.size()) nodes_.resize(slot + 1);
  if (nodes_[slot].dirty) return;
  nodes_[slot].dirty = true;
  dirty_nodes_.push_back(slot);
}

void Planner::node_gained(const State& state, NodeId node) {
  const Node* gained = state.find_node(node);
  if (gained == nullptr) return;
  mark_dirty(gained->slot);
  look_promised_ = look_promised_ || !state.promises.empty();
  if (freed_nodes_.empty() || freed_nodes_.back() != gained->slot) freed_nodes_.push_back(gained->slot);
}

// A class's line changed: idle when nobody waits, and ready under its present head.
void Planner::touch_class(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  const std::optional<OrderKey> first = waiting_.first(state, job_class);
  if (!first) return make_idle(state, job_class);
  // The slot may have another class now.
  const JobClass& now = state.classes[job_class];
  if (entry.state != ClassState::kIdle &&
      (entry.tenant != now.tenant || shapes_[entry.shape].parts != now.parts))
    make_idle(state, job_class);
  if (entry.state == ClassState::kBlocked) {
    const OrderKey before = std::exchange(entry.head, *first);
    if (before != entry.head && lines_[entry.tenant.value].blocked.contains(job_class))
      rank_blocked(state, job_class);
    // Jobs that stand behind it below a limit stand behind another head now.
    if (before != entry.head && is_limit(entry.reason)) {
      freed_tenants_.insert(entry.reason.tenant);
      wake_limited(state, entry.tenant);
    }
    // It needs what the old one needed, but may be one for which others are ended.
    if (entry.preempts && entry.head.job != before.job) look_again(job_class, now_);
    return;
  }
  if (entry.state == ClassState::kReady && entry.head == *first) return;
  make_ready(state, job_class);
}

void Planner::unblock(const State& state) {
  std::vector<uint32_t> lifted;
  for (const TenantId tenant : freed_tenants_) forget_claims(state, tenant);
  if (unblock_all_) {
    limit_claims_.clear();
    for (const auto& [tenant, job_class] : over_quota_) lifted.push_back(job_class);
    // The right to end others is a tenant's, not a shape's.
    for (uint32_t job_class = 0; (may_preempt_ || can_reclaim()) && job_class < classes_.size();
         ++job_class) {
      const ClassInfo& entry = classes_[job_class];
      if (entry.state != ClassState::kBlocked) continue;
      if (can_reclaim() || state.tenant_at(entry.tenant).can_preempt_others) lifted.push_back(job_class);
    }
  }
  for (const TenantId tenant : freed_tenants_) {
    for (auto at = over_quota_.lower_bound({tenant, 0}); at != over_quota_.end() && at->first == tenant; ++at)
      lifted.push_back(at->second);
  }
  // Those that wait for their pool stand under nobody.
  if (!freed_tenants_.empty()) {
    forget_claims(state, TenantId{});
    for (auto at = over_quota_.begin(); at != over_quota_.end() && !at->first.valid(); ++at)
      lifted.push_back(at->second);
  }
  for (const uint32_t job_class : preemptors_) {
    const WaitReason& reason = info(job_class).reason;
    if (!freed_nodes_.empty() && reason.code == WaitCode::kQuota && reason.resource == Resource::kGpuMemory)
      lifted.push_back(job_class);
  }
  for (const uint32_t job_class : lifted) {
    if (info(job_class).state == ClassState::kBlocked) make_ready(state, job_class);
  }
  unblock_shapes(state);
  for (const uint32_t job_class : preemptors_) {
    const ClassInfo& entry = info(job_class);
    const bool by_priority = may_preempt_ && state.tenant_at(entry.tenant).can_preempt_others;
    const bool again = (by_priority && !freed_nodes_.empty()) || (can_reclaim() && !freed_tenants_.empty());
    if (again) look_again(job_class, entry.tried_at + kPreemptAgain);
  }
  unblock_all_ = false;
  freed_nodes_.clear();
  freed_tenants_.clear();
}

void Planner::place(const State& state, const Job& job, Candidate& candidate, const Choice& choice,
                    CommitPlan& plan) {
  const Part& part = part_of(state, candidate.job_class);
  NodeInfo& node = nodes_[choice.node];
  node.cpu_milli_free -= part.cpu_milli;
  node.memory_mb_free -= part.memory_mb;
  const int32_t start = slice_start(state, choice.node, part, choice.device_mask);
  take_devices(state, choice.node, part, choice.device_mask, start);
  ++node.attempt_count;
  node.exclusive = node.exclusive || part.is_exclusive();
  index_node(state, choice.node);
  policy::PoolAmounts amounts;
  // A job that may end others needs the expected releases, too.
  if (policies_.reservations > 0 || may_preempt_ || can_reclaim()) {
    amounts = part.is_exclusive() ? node.room : amounts_on(choice.node, part, choice.device_class);
    take_extra(state, candidate, choice.node, amounts);
    node.first_release = {};
  }
  planned_.push_back(
      {.job = job.id, .attempt = job.attempt_count + 1, .node = choice.node, .amounts = amounts});
  MemberPlacement member{.node = state.nodes[choice.node].id,
                         .part = 0,
                         .device_mask = choice.device_mask,
                         .generations = {},
                         .mig_start = start};
  for (uint64_t rest = choice.device_mask; rest != 0; rest &= rest - 1) {
    const auto index = static_cast<std::size_t>(std::countr_zero(rest));
    member.generations.push_back(state.nodes[choice.node].devices[index].generation);
  }
  plan.groups.push_back(
      PlanGroup{.job = job.id, .attempt = job.attempt_count + 1, .members = {std::move(member)}});
  add_planned_usage(state, job, amount_on(state, job, choice.device_class));
}

bool Planner::place_on_free(const State& state, const Job& job, Candidate& candidate, CommitPlan& plan) {
  if (shape_of(candidate.job_class).gang.has_value()) return place_gang(state, job, candidate, plan);
  const Choice choice = choose(state, candidate);
  if (choice.node == Bitmap::kNone) return false;
  place(state, job, candidate, choice, plan);
  return true;
}

// Places the class's head, or blocks the class.
bool Planner::place_head(const State& state, uint32_t job_class, CommitPlan& plan) {
  const uint32_t index = info(job_class).shape;
  const Job& job = head_of(state, job_class);
  if (starts_where_moved(state, job.id)) return true;
  Candidate candidate{.job = job.id, .job_class = job_class};
  const std::optional<WaitReason> over = limit_block(state, candidate);
  if (over) {
    claim_limits(state, job_class, *over);
    // No node is kept for whom a limit keeps waiting for longer.
    const WorkClass pool =
        over->code == WaitCode::kPool ? work_of(state.class_of(job).parts) : WorkClass::kUnset;
    const bool keeps =
        !over->lifts_at.valid() &&
        is_back_by_start(reservation_of(job_class), limit_claims_, LimitKey{over->tenant, pool, false},
                         job.id, [&](LimitClaim& claim) { find_limit_start(state, claim); });
    if (!keeps) drop_reservation(state, job_class);
    block(state, job_class, *over);
    if (keeps) set_start(job_class, reservation_of(job_class)->start);
    if (over->of_limit) pass_behind_head(state, job_class, plan);
    if (over->lifts_at.valid()) {
      preemptors_.insert(job_class);  // It is looked at again then.
      look_again(job_class, over->lifts_at);
    }
    lift_next(state, index);
    return false;
  }
  // Within a slice nodes only lose.
  const bool full = shapes_[index].full_cycle == cycle_;
  if (!full && place_on_free(state, job, candidate, plan)) {
    drop_reservation(state, job_class);
    info(job_class).patient_job = {};  // When it waits again, that is for something else.
    return true;
  }
  if (preempt(state, job, candidate, plan)) {
    drop_reservation(state, job_class);
    return true;
  }
  if (const std::optional<WaitReason> over_memory = memory_block(state, candidate)) {
    block(state, job_class, *over_memory);
    preemptors_.insert(job_class);  // Nodes of the kinds that it may have lift it, too.
    lift_next(state, index);
    return false;
  }
  WaitReason reason =
      shapes_[index].gang.has_value() ? explain_gang(state, job_class) : explain_refusal(state, job_class);
  const bool kept_back = candidate.refused_by != nullptr || candidate.booked_from.valid();
  if (candidate.booked_from.valid()) {
    reason.code = WaitCode::kReservedForOthers;
    reason.reserved_start = candidate.booked_from;
  }
  if (candidate.refused_by != nullptr) {
    reason.code = WaitCode::kReserved;
    reason.reserved_for = candidate.refused_by->job;
    reason.reserved_start = candidate.refused_by->start;
  }
  block(state, job_class, reason);
  Shape& shape = shapes_[index];
  if (!kept_back) {
    shape.full_cycle = cycle_;
    share_reason(index, reason);
  } else if (shape.tries > 0) {
    --shape.tries;
  }
  if (policies_.reservations > 0) {
    promise(state, job_class);
  }
  if (kept_back) pass_behind_head(state, job_class, plan);
  if (kept_back) lift_next(state, index);
  return false;
}

// The class's head was placed: the next one is its head for the rest of the slice.
void Planner::go_on_behind(const State& state, uint32_t job_class, Cursors& cursors) {
  if (waiting_.has_tasks(job_class)) {
    if (std::ranges::find(planned_classes_, job_class) == planned_classes_.end())
      planned_classes_.push_back(job_class);
    // The user's use has changed, and so have the places of the user's other tasks.
    for (const uint32_t changed : waiting_.place(info(job_class).head.job)) touch_class(state, changed);
    return;
  }
  auto at = std::find_if(cursors.begin(), cursors.end(), [&](const auto& c) { return c.first == job_class; });
  if (at == cursors.end()) at = cursors.insert(at, {job_class, waiting_.of(state, job_class).begin()});
  at->second.next();
  if (at->second.at_end()) return make_idle(state, job_class);
  take_from_ready(state, job_class);
  put_ready(state, job_class, *at->second);
}

Planner::Slice Planner::plan(const State& state, Time now) {
  CHECK(planned_.empty());  // One plan in flight at a time.
  if (paused_) return {.plan = {.based_on = state.last.sequence, .groups = {}}};
  ++cycle_;
  slice_ = {};
  passes_left_ = kPassesMax;
  now_ = std::max({now, now_, state.last.at});
  for (const uint32_t slot : dirty_nodes_) refresh_node(state, slot);
  for (const uint32_t job_class : waiting_.refresh(state, now_)) touch_class(state, job_class);
  look_ = false;
  if (policies_.reservations > 0) refresh_reservations(state);
  dirty_nodes_.clear();
  if (pending_unblock()) unblock(state);
  retry_preemptors(state);
  requeue_drifted(state);
  Slice slice;
  slice.plan.based_on = state.last.sequence;
  start_promised(state, slice.plan);
  Cursors cursors;
  while (!queue_.empty()) {
    if (slice_.is_full(slice.plan) || slice_.visits >= limits::kNodeVisitsPerSlice) {
      slice.more = true;
      break;
    }
    const uint32_t job_class = lines_[queue_.begin()->second.value].ready.begin()->second;
    const uint32_t shape = info(job_class).shape;
    if (!place_head(state, job_class, slice.plan)) continue;
    go_on_behind(state, job_class, cursors);
    if (is_time_dependent()) {
      requeue_tenant(state, info(job_class).tenant);
      requeue_relatives(state, info(job_class).tenant);
    }
    lift_next(state, shape);
  }
  if (!slice.more && reservations_missing_) fill_reservations(state);
  if (!slice.more) pass_fresh(state, slice.plan);
  // Keys of this slice were ranked with what it has placed.
  if (pool_rooms(state) != rooms_ranked_) someone_moved_ = true;
  for (const auto& [job_class, cursor] : cursors) planned_classes_.push_back(job_class);
  slice.looks = slice_.visits;
  return slice;
}

void Planner::plan_applied(const State& state) {
  for (const Planned& planned : planned_) {
    const Job* job = state.jobs.find(planned.job);
    if (job != nullptr && (job->attempt_count >= planned.attempt || job->promised)) {
      mark_dirty(planned.node);
      continue;
    }
    // Dropped: what the rest of the slice took for used is free after all.
    node_gained(state, state.nodes[planned.node].id);
    for (const auto& [tenant, amount] : planned_usage_) freed_tenants_.insert(tenant);
    someone_moved_ = true;  // Part of the queue is ranked by the dropped placements.
  }
  if (can_reclaim() && !planned_.empty()) guarantees_moved();
  planned_.clear();
  planned_usage_.clear();
  planned_jobs_.clear();
  planned_held_.clear();
  planned_online_ = planned_batch_ = planned_online_going_ = planned_batch_going_ = 0;
  planned_victims_.clear();
  planned_promised_.clear();
  waiting_.plan_applied(state);
  for (const uint32_t job_class : planned_classes_) {
    // A job that was dropped as stale waits again, before the place that the class's line had reached.
    ClassInfo& entry = info(job_class);
    if (entry.state == ClassState::kBlocked || !waiting_.first(state, job_class)) {
      touch_class(state, job_class);
    } else {
      make_ready(state, job_class);
    }
  }
  planned_classes_.clear();
}

}  // namespace gpusched
