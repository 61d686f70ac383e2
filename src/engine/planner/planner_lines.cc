#include <utility>

#include "base/check.h"
#include "engine/planner/planner.h"

namespace gpusched {
namespace {

/// A place in a queue that is_time_dependent is found again after so long at the latest.
constexpr Duration kRankKept = seconds(30);

}  // namespace

Amount Planner::planned_usage_of(TenantId tenant) const {
  for (const auto& [id, planned] : planned_usage_) {
    if (id == tenant) return planned;
  }
  return {};
}

policy::QueueKey Planner::key_of(const State& state, const Job& head, const OrderKey& order) const {
  const Tenant* owner = state.find_tenant(head.tenant);
  CHECK(owner != nullptr);
  policy::QueueKey key = policies_.queue_order->key({.state = state,
                                                     .tenant = *owner,
                                                     .head = head,
                                                     .order = order,
                                                     .capacity = capacity_,
                                                     .planned = planned_usage_,
                                                     .now = now_});
  if (pools_.lends()) key.ranks.insert(key.ranks.begin(), in_own_pool(state, head) ? 0 : 1);
  if (!guarantees_) return key;
  // A job within its guarantee comes before all that would borrow.
  const Amount wanted = expected_amount(state, state.class_of(head).parts, 0);
  const bool covered = guarantees::covering(state, head.tenant, wanted, planned_held_) != nullptr;
  key.ranks.insert(key.ranks.begin(), covered ? 0 : 1);
  return key;
}

// The tenant's line stands in the queue under what its first ready class's head and its use say now.
void Planner::requeue_line(const State& state, TenantId tenant) {
  Line& line = lines_[tenant.value];
  std::optional<policy::QueueKey> key;
  if (!line.ready.empty()) {
    const OrderKey& first = line.ready.begin()->first;
    const Job* head = state.jobs.find(first.job);
    if (head == nullptr) return;  // The same command forgot it: what it did to its class comes next.
    key = key_of(state, *head, first);
  }
  if (is_time_dependent()) {
    if (line.key.has_value()) ranked_lines_.erase({line.ranked_at, tenant});
    if (key.has_value()) ranked_lines_.insert({now_, tenant});
    line.ranked_at = now_;
  }
  if (key == line.key) return;
  if (line.key.has_value()) queue_.erase({*line.key, tenant});
  if (key.has_value()) queue_.insert({*key, tenant});
  line.key = std::move(key);
}

// Where a blocked class stands among those of its shape.
void Planner::rank_blocked(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  if (is_time_dependent()) {
    ranked_classes_.erase({entry.ranked_at, job_class});
    ranked_classes_.insert({now_, job_class});
  }
  entry.ranked_at = now_;
  const Job* head = state.jobs.find(entry.head.job);
  if (head == nullptr) return;  // The same command forgot it: what it did to its class comes next.
  policy::QueueKey key = key_of(state, *head, entry.head);
  if (key == entry.key) return;
  Shape& shape = shapes_[entry.shape];
  Waiting& waiting = entry.kept ? shape.kept : shape.blocked;
  waiting.erase({entry.key, job_class});
  waiting.insert({key, job_class});
  entry.key = std::move(key);
}

void Planner::enqueue_blocked(const State& state, uint32_t job_class, bool kept) {
  ClassInfo& entry = info(job_class);
  entry.key = key_of(state, head_of(state, job_class), entry.head);
  entry.ranked_at = now_;
  entry.kept = kept;
  Shape& shape = shapes_[entry.shape];
  (kept ? shape.kept : shape.blocked).insert({entry.key, job_class});
  shape.mixed = shape.mixed || kept;
  lines_[entry.tenant.value].blocked.insert(job_class);
  enter_family(state, entry.tenant);
  if (is_time_dependent()) ranked_classes_.insert({now_, job_class});
}

// Blocked no more, for whatever reason it was.
void Planner::leave_blocked(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  preemptors_.erase(job_class);
  if (is_limit(entry.reason) && over_quota_.erase({entry.reason.tenant, job_class}) > 0) return;
  Shape& shape = shapes_[entry.shape];
  (entry.kept ? shape.kept : shape.blocked).erase({entry.key, job_class});
  lines_[entry.tenant.value].blocked.erase(job_class);
  ranked_classes_.erase({entry.ranked_at, job_class});
  entry.kept = false;
  leave_family(state, entry.tenant);
}

void Planner::enter_family(const State& state, TenantId tenant) {
  if (has_families()) families_[state.root_of(tenant).value].insert(tenant);
}

void Planner::leave_family(const State& state, TenantId tenant) {
  if (!has_families()) return;
  const Line& line = lines_[tenant.value];
  if (!line.ready.empty() || !line.blocked.empty()) return;
  const auto family = families_.find(state.root_of(tenant).value);
  if (family == families_.end()) return;
  family->second.erase(tenant);
  if (family->second.empty()) families_.erase(family);
}

void Planner::requeue_tenant(const State& state, TenantId tenant) {
  requeue_line(state, tenant);
  for (const uint32_t job_class : lines_[tenant.value].blocked) rank_blocked(state, job_class);
}

void Planner::requeue_all(const State& state) {
  std::vector<TenantId> waiting;
  for (const auto& [at, tenant] : ranked_lines_) waiting.push_back(tenant);
  std::vector<uint32_t> blocked;
  for (const auto& [at, job_class] : ranked_classes_) blocked.push_back(job_class);
  for (const TenantId tenant : waiting) requeue_line(state, tenant);
  for (const uint32_t job_class : blocked) rank_blocked(state, job_class);
}

// With time, and with what tenants have, the places of all that are ranked by use change. A changed place is
// found again at once, and everything else when its place was found too long ago: use decays over hours.
void Planner::requeue_drifted(const State& state) {
  const std::set<TenantId> moved = std::exchange(moved_tenants_, {});
  const bool someone = std::exchange(someone_moved_, false) && can_reclaim();
  if (!is_time_dependent()) return;
  const PoolRooms rooms = pool_rooms(state);
  if (capacity_ != capacity_ranked_ || rooms != rooms_ranked_ || someone) {
    capacity_ranked_ = capacity_;
    rooms_ranked_ = rooms;
    return requeue_all(state);
  }
  // Whether a job is within its guarantee depends on its own tree alone.
  for (const TenantId tenant : moved) {
    requeue_tenant(state, tenant);
    requeue_relatives(state, tenant);
  }
  while (!ranked_lines_.empty() && ranked_lines_.begin()->first + kRankKept <= now_)
    requeue_line(state, ranked_lines_.begin()->second);
  while (!ranked_classes_.empty() && ranked_classes_.begin()->first + kRankKept <= now_)
    rank_blocked(state, ranked_classes_.begin()->second);
}

const Job& Planner::head_of(const State& state, uint32_t job_class) {
  const Job* head = state.jobs.find(info(job_class).head.job);
  CHECK(head != nullptr);
  return *head;
}

// Something of the tenant was placed or ended: its relatives are ranked by that too.
void Planner::requeue_relatives(const State& state, TenantId tenant) {
  if (!has_families()) return;
  const auto family = families_.find(state.root_of(tenant).value);
  if (family == families_.end()) return;
  const std::vector<TenantId> relatives(family->second.begin(), family->second.end());
  for (const TenantId relative : relatives) {
    if (relative != tenant) requeue_tenant(state, relative);
  }
}

void Planner::put_ready(const State& state, uint32_t job_class, const OrderKey& head) {
  ClassInfo& entry = info(job_class);
  entry.head = head;
  lines_[entry.tenant.value].ready.insert({entry.head, job_class});
  enter_family(state, entry.tenant);
  requeue_line(state, entry.tenant);
}

void Planner::take_from_ready(const State& state, uint32_t job_class) {
  const ClassInfo& entry = info(job_class);
  lines_[entry.tenant.value].ready.erase({entry.head, job_class});
  requeue_line(state, entry.tenant);
  leave_family(state, entry.tenant);
}

void Planner::make_ready(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  if (entry.state == ClassState::kReady) take_from_ready(state, job_class);
  if (entry.state == ClassState::kBlocked) leave_blocked(state, job_class);
  entry.look_at = kNever;
  if (entry.state == ClassState::kIdle) {
    // The slot may have had another class before.
    entry.tenant = state.classes[job_class].tenant;
    entry.shape = acquire_shape(state, job_class);
    entry.preempts = false;
    entry.passed.reset();
    set_reason(job_class, WaitReason{});
  }
  const std::optional<OrderKey> first = waiting_.first(state, job_class);
  CHECK(first.has_value());
  entry.state = ClassState::kReady;
  put_ready(state, job_class, *first);
}

void Planner::set_reason(uint32_t job_class, const WaitReason& reason) {
  ClassInfo& entry = info(job_class);
  if (entry.reason == reason) return;
  entry.reason = reason;
  if (entry.reason_changed) return;
  entry.reason_changed = true;
  changed_reasons_.push_back(job_class);
}

void Planner::block(const State& state, uint32_t job_class, const WaitReason& reason) {
  take_from_ready(state, job_class);
  ClassInfo& entry = info(job_class);
  entry.state = ClassState::kBlocked;
  if (entry.preempts) preemptors_.insert(job_class);
  set_reason(job_class, reason);
  if (is_limit(reason)) {
    over_quota_.insert({reason.tenant, job_class});
  } else {
    enqueue_blocked(state, job_class, is_kept_back(reason));
  }
}

void Planner::make_idle(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  if (entry.state == ClassState::kReady) take_from_ready(state, job_class);
  if (entry.state == ClassState::kBlocked) {
    if (is_limit(entry.reason)) {
      freed_tenants_.insert(entry.reason.tenant);
      wake_limited(state, entry.tenant);
    }
    leave_blocked(state, job_class);
  }
  if (entry.state != ClassState::kIdle) release_shape(entry.shape);
  entry.state = ClassState::kIdle;
}

const WaitReason& Planner::reason(uint32_t job_class) const {
  static const WaitReason kUnknown;
  return job_class < classes_.size() ? classes_[job_class].reason : kUnknown;
}

std::vector<uint32_t> Planner::take_changed_reasons() {
  for (const uint32_t job_class : changed_reasons_) classes_[job_class].reason_changed = false;
  return std::exchange(changed_reasons_, {});
}

}  // namespace gpusched
