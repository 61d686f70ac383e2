// Arrays: elements that become jobs one after the other.
#include "base/check.h"
#include "base/limits.h"
#include "model/state.h"

namespace gpusched {

const JobArray* State::find_array(JobId id) const {
  const auto found = arrays.find(id);
  return found == arrays.end() ? nullptr : &found->second;
}

const JobArray* State::array_of_element(JobId element) const {
  auto behind = arrays.lower_bound(element);
  if (behind == arrays.begin()) return nullptr;
  const JobArray& before = std::prev(behind)->second;
  return before.has(element) ? &before : nullptr;
}

bool State::has_ended(JobId id) const {
  const Job* job = jobs.find(id);
  if (job != nullptr) return is_final(job->state);
  const JobArray* array = array_of_element(id);
  return array == nullptr || array->closed != JobReason::kNone || array->is_expanded(array->position_of(id));
}

void State::count_array_waiting(const Job& array_job, int64_t change) {
  array_waiting += change;
  count_waiting(tenant_at(array_job.tenant), change);
}

void State::add_array(JobArray array) {
  const Job* job = jobs.find(array.id);
  CHECK(job != nullptr);
  count_array_waiting(*job, array.count - 1);
  const JobId id = array.id;
  const bool inserted = arrays.try_emplace(id, std::move(array)).second;
  CHECK(inserted);
  refresh_array(id);
}

void State::restore_array(JobArray array) {
  const Job* job = jobs.find(array.id);
  if (job != nullptr && !is_final(job->state)) count_array_waiting(*job, array.unexpanded() - 1);
  const JobId id = array.id;
  arrays.insert_or_assign(id, std::move(array));
  refresh_array(id);
}

Job& State::add_element(JobId element, bool parked) {
  const JobArray* known = array_of_element(element);
  CHECK(known != nullptr);
  JobArray& array = arrays.find(known->id)->second;
  const Job* whole = jobs.find(array.id);
  CHECK(whole != nullptr);
  CHECK(array.closed == JobReason::kNone);
  array.note_expanded(array.position_of(element));
  count_array_waiting(*whole, -1);
  Job job;
  job.id = element;
  job.array = array.id;
  job.tenant = whole->tenant;
  job.spec = whole->spec;
  job.order_key = whole->order_key;
  job.submitted_at = whole->submitted_at;
  job.submitted_by = whole->submitted_by;
  job.owner = whole->owner;
  owners.retain(job.owner);
  job.max_runtime = whole->max_runtime;
  job.retry = whole->retry;
  job.priority = whole->priority;
  job.preemption_mode = whole->preemption_mode;
  job.preemption_exempt = whole->preemption_exempt;
  job.require_feasible = whole->require_feasible;
  job.preempt_grace_ms = whole->preempt_grace_ms;
  job.job_class = whole->job_class;
  retain_class(job.job_class);
  const Time deadline = whole->deadline;
  job.parked = parked;
  if (parked) {
    array.parked.insert(element);
  } else {
    array.live.insert(element);
    array.waiting += 1;
  }
  array.records += 1;
  Job& added = add_job(std::move(job));
  set_deadline(added, deadline);
  refresh_array(array.id);
  return added;
}

void State::unpark(Job& element) {
  CHECK(element.parked);
  CHECK(element.state == JobState::kPending);
  JobArray& array = arrays.find(element.array)->second;
  leave_line(element);
  element.parked = false;
  element.reason = wait_reason(element);
  array.parked.erase(element.id);
  array.live.insert(element.id);
  array.waiting += 1;
  enter_line(element);
  refresh_array(array.id);
}

std::optional<JobId> State::next_element(const JobArray& array) const {
  std::optional<JobId> next;
  if (array.unexpanded() > 0) next = array.element(array.next);
  for (const JobId parked : array.parked) {
    if (next.has_value() && *next < parked) break;
    if (!job_at(parked).held) return parked;
  }
  return next;
}

void State::close_array(JobId id, JobReason reason) {
  CHECK(reason != JobReason::kNone);
  JobArray& array = arrays.find(id)->second;
  if (array.closed != JobReason::kNone) return;
  Job* job = jobs.find(id);
  CHECK(job != nullptr);
  const int64_t rest = array.unexpanded();
  count_array_waiting(*job, -rest);
  (reason == JobReason::kDeadline ? array.failed : array.cancelled) += rest;
  array.closed = reason;
  if (reason == JobReason::kCancelled) job->cancel_requested = true;
  const Dependent first{.parent = array.element(0), .child = {}};
  for (auto at = dependents.lower_bound(first); at != dependents.end() && array.has(at->parent); ++at) {
    if (jobs.find(at->parent) == nullptr) settling.insert(at->parent);
  }
  refresh_array(id);
}

void State::element_moved(const Job& job, JobState from) {
  JobArray& array = arrays.find(job.array)->second;
  if (job.is_array()) {
    if (is_final(job.state))
      count_array_waiting(job, 1);  // It counted for its elements, of which none is left.
  } else if (array.parked.erase(job.id) > 0) {
    if (job.state == JobState::kFailed) array.failed += 1;
    if (job.state == JobState::kCancelled) array.cancelled += 1;
  } else {
    if (from == JobState::kPending) array.waiting -= 1;
    if (job.state == JobState::kPending) array.waiting += 1;
    if (job.state == JobState::kRunning) array.started = true;
    if (is_final(job.state)) {
      array.live.erase(job.id);
      if (job.state == JobState::kCompleted) array.completed += 1;
      if (job.state == JobState::kFailed) array.failed += 1;
      if (job.state == JobState::kCancelled) array.cancelled += 1;
    }
  }
  refresh_array(job.array);
}

void State::element_removed(JobId id, bool is_array) {
  const auto found = arrays.find(id);
  CHECK(found != arrays.end());
  if (!is_array) found->second.records -= 1;
  if (found->second.records == 0 && jobs.find(id) == nullptr) arrays.erase(found);
}

void State::refresh_array(JobId id) {
  const JobArray* array = find_array(id);
  if (array == nullptr) return;
  const Job* job = jobs.find(id);
  bool due = job != nullptr && job->state == JobState::kPending;
  if (due && (array->unexpanded() > 0 || !array->parked.empty())) {
    const auto live = static_cast<int64_t>(array->live.size());
    due = !job->held && job->unmet == 0 && !job->not_before.valid() && array->waiting < limits::kArrayAhead &&
          (array->at_once == 0 || live < array->at_once) && next_element(*array).has_value();
  } else if (due) {
    due = array->live.empty();
  }
  if (due) {
    due_arrays.insert(id);
  } else {
    due_arrays.erase(id);
  }
}

}  // namespace gpusched
