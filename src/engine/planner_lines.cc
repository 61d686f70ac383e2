#include <utility>

#include "base/check.h"
#include "engine/planner.h"

namespace gpusched {

Amount Planner::planned_usage_of(TenantId tenant) const {
  for (const auto& [id, planned] : planned_usage_) {
    if (id == tenant) return planned;
  }
  return {};
}

policy::QueueKey Planner::key_of(const State& state, const Job& head, const OrderKey& order) const {
  const Tenant* owner = state.find_tenant(head.tenant);
  CHECK(owner != nullptr);
  return policies_.queue_order->key({.state = state,
                                     .tenant = *owner,
                                     .head = head,
                                     .order = order,
                                     .capacity = capacity_,
                                     .planned = planned_usage_,
                                     .now = now_});
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
  if (key == line.key) return;
  if (line.key.has_value()) queue_.erase({*line.key, tenant});
  if (key.has_value()) queue_.insert({*key, tenant});
  line.key = std::move(key);
}

// With time, and with what a tenant was given, the places of all lines that are ranked by use change.
void Planner::requeue_drifted(const State& state) {
  if (!policies_.queue_order->drifts()) return;
  std::vector<TenantId> waiting;
  waiting.reserve(queue_.size());
  for (const auto& [key, tenant] : queue_) waiting.push_back(tenant);
  for (const TenantId tenant : waiting) requeue_line(state, tenant);
}

const Job& Planner::head_of(const State& state, uint32_t job_class) {
  const Job* head = state.jobs.find(info(job_class).head.job);
  CHECK(head != nullptr);
  return *head;
}

// Something of the tenant was placed: its relatives are ranked by that too.
void Planner::requeue_relatives(const State& state, TenantId tenant) {
  if (!policies_.queue_order->drifts() || queue_.size() < 2) return;
  const TenantId root = state.root_of(tenant);
  std::vector<TenantId> relatives;
  for (const auto& [key, other] : queue_) {
    if (other != tenant && state.root_of(other) == root) relatives.push_back(other);
  }
  for (const TenantId relative : relatives) requeue_line(state, relative);
}

void Planner::put_ready(const State& state, uint32_t job_class, const OrderKey& head) {
  ClassInfo& entry = info(job_class);
  entry.head = head;
  lines_[entry.tenant.value].ready.insert({entry.head, job_class});
  requeue_line(state, entry.tenant);
}

void Planner::take_from_ready(const State& state, uint32_t job_class) {
  const ClassInfo& entry = info(job_class);
  lines_[entry.tenant.value].ready.erase({entry.head, job_class});
  requeue_line(state, entry.tenant);
}

void Planner::make_ready(const State& state, uint32_t job_class) {
  ClassInfo& entry = info(job_class);
  if (entry.state == ClassState::kReady) take_from_ready(state, job_class);
  if (entry.state == ClassState::kBlocked) blocked_.erase(job_class);
  entry.look_at = kNever;
  if (entry.state == ClassState::kIdle) {
    // The slot may have had another class before.
    entry.tenant = state.classes[job_class].tenant;
    entry.device_classes_known = 0;
    entry.preempts = false;
    set_reason(job_class, WaitReason{});
  }
  const OrderedJobs& waiting = waiting_.of(state, job_class);
  CHECK(!waiting.empty());
  entry.state = ClassState::kReady;
  put_ready(state, job_class, waiting.front());
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
  info(job_class).state = ClassState::kBlocked;
  blocked_.insert(job_class);
  set_reason(job_class, reason);
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
