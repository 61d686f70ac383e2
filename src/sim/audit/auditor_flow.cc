// The auditor's books of what jobs wait for: times, other jobs, and arrays' elements.
#include <algorithm>
#include <utility>

#include "sim/audit/auditor.h"

namespace gpusched::sim {
// A job is of who submitted it, as far as the rules know owners.
void Auditor::book_submission(const JobSubmitted& event, ReferenceJob& job) {
  job.owner = {.kind = event.owner_kind, .name = event.owner};
  const auto submission = submission_of_tag_.find(job.tag);
  if (submission != submission_of_tag_.end()) {
    const bool owns = replica_.config.feature_level >= 9;
    if (job.owner != (owns ? submissions_.at(submission->second).owner : JobOwner{}))
      fail(name_of(event.job) + " is owned by another than who submitted it");
  }
  if (replica_.config.feature_level >= 11) job.grace = event.request.preempt_grace;
  book_flow(event, job);
}

// From the submission as the journal has it; what was met then is checked like all else when the job is
// placed.
void Auditor::book_flow(const JobSubmitted& event, ReferenceJob& job) {
  if (event.request.flow.empty()) return;
  const JobFlow& flow = event.request.flow.front();
  job.begin_at = flow.begin_at;
  job.backs_off = flow.begin_at.valid();
  job.deadline = flow.deadline;
  for (const Dependency& one : flow.dependencies) {
    job.parents.push_back({one.parent, one.kind});
    if (!one.met) job.unmet.insert(one.parent);
    if (one.parent >= event.job) fail(name_of(event.job) + " waits for a later job");
    const auto parent = jobs_.find(one.parent);
    if (parent == jobs_.end()) continue;  // An element that is no job yet, or one of the same submission.
    if (parent->second.tenant != event.tenant) fail(name_of(event.job) + " waits for another tenant's job");
  }
  job.element_count = count_of(flow.array);
  job.elements_at_once = flow.array_at_once;
  job.array = job.element_count > 0 ? event.job : JobId{};
}

void Auditor::on(const ElementAdded& event) {
  ReferenceJob& array = jobs_.at(event.array);
  if (array.element_count == 0 || array.final || array.closed)
    fail(name_of(event.job) + " becomes a job of an array that is over");
  if (event.job <= event.array ||
      event.job.value > event.array.value + static_cast<uint64_t>(array.element_count))
    fail(name_of(event.job) + " is no element of its array");
  array.elements_added += 1;
  ReferenceJob job{.tag = array.tag,
                   .owner = array.owner,
                   .tenant = array.tenant,
                   .parts = array.parts,
                   .last_least = array.last_least,
                   .last_most = array.last_most,
                   .retry = array.retry,
                   .max_runtime = array.max_runtime,
                   .exempt = array.exempt,
                   .preemption_mode = array.preemption_mode};
  job.grace = array.grace;
  job.array = event.array;
  job.parents = array.parents;
  job.begin_at = array.begin_at;
  job.deadline = array.deadline;
  job.cancel_asked = event.job == cancelling_;
  job.parked = event.parked;
  if (!event.parked && replica_.config.feature_level >= 6) check_turn(event.job, array);
  if (!jobs_.emplace(event.job, std::move(job)).second) fail(name_of(event.job) + " was given to two jobs");
}

void Auditor::on(const ElementUnparked& event) {
  ReferenceJob& job = jobs_.at(event.job);
  if (!std::exchange(job.parked, false)) fail(name_of(event.job) + " has its turn twice");
  check_turn(event.job, jobs_.at(job.array));
}

// Elements wait for all that their array waits for: a command to one of them does not start it.
void Auditor::check_turn(JobId element, const ReferenceJob& array) {
  if (array.held || array.backs_off || !array.unmet.empty())
    fail(name_of(element) + " has its turn although its array waits");
}

void Auditor::on(const ArrayClosed& event) {
  ReferenceJob& array = jobs_.at(event.job);
  if (event.reason == JobReason::kCancelled && !array.cancel_asked)
    fail(name_of(event.job) + " is closed as cancelled and nobody asked");
  if (event.reason == JobReason::kDeadline && !(array.deadline.valid() && event.at >= array.deadline))
    fail(name_of(event.job) + " is closed before its deadline");
  if (event.reason == JobReason::kDependency && !has_failed_parent(array))
    fail(name_of(event.job) + " is closed although each job that it waits for may still do so");
  // The first reason to close it decides: a cancellation behind its deadline changes nothing.
  if (array.closed) return;
  array.closed = true;
  array.out_of_time = event.reason == JobReason::kDeadline;
}

void Auditor::on(const DependencySettled& event) {
  ReferenceJob& job = jobs_.at(event.job);
  if (event.met) {
    if (job.unmet.erase(event.parent) == 0)
      fail(name_of(event.job) + " is told twice of a job that it waits for");
  } else if (!has_failed_parent(job)) {
    fail(name_of(event.job) + " is told that what it waits for cannot happen, and it can");
  }
}

bool Auditor::fulfils(JobId parent, DependencyKind kind) const {
  const auto reference = jobs_.find(parent);
  if (reference == jobs_.end()) return false;
  const ReferenceJob& job = reference->second;
  switch (kind) {
    case DependencyKind::kAfterOk:
      return job.final && job.state == JobState::kCompleted;
    case DependencyKind::kAfterAny:
      return job.final;
    case DependencyKind::kAfterStart:
      return job.ever_started;
  }
  return false;
}

// An element that never became a job failed its children when its array was closed.
bool Auditor::has_failed_parent(const ReferenceJob& job) const {
  return std::any_of(job.parents.begin(), job.parents.end(), [&](const auto& parent) {
    const auto reference = jobs_.find(parent.first);
    if (reference == jobs_.end()) return true;
    // The oldest journals know a job's start only from its last attempt.
    const bool forgotten = parent.second == DependencyKind::kAfterStart && replica_.config.feature_level < 2;
    if (reference->second.final && forgotten) return true;
    return reference->second.final && !fulfils(parent.first, parent.second);
  });
}

void Auditor::check_may_start(JobId id, const ReferenceJob& job, Time at) {
  if (job.parked) fail(name_of(id) + " is placed before its turn");
  // Before feature level 6 an element that was touched ran in spite of what its array waits for.
  if (job.array.valid() && replica_.config.feature_level < 6) return;
  if (job.begin_at.valid() && at < job.begin_at) fail(name_of(id) + " is placed before it may begin");
  if (job.element_count > 0) fail(name_of(id) + " is an array and is placed itself");
  for (const auto& [parent, kind] : job.parents) {
    if (!fulfils(parent, kind))
      fail(name_of(id) + " is placed before " + name_of(parent) + " did what it waits for");
  }
  if (job.array.valid() && jobs_.at(job.array).elements_at_once > 0) {
    const auto placed = std::count_if(live_.begin(), live_.end(), [&](const JobAttempt& live) {
      return jobs_.at(live.first).array == job.array && !attempts_.at(live).abandoned;
    });
    if (placed >= jobs_.at(job.array).elements_at_once)
      fail(name_of(id) + " runs beside more elements of its array than it allows");
  }
}

// Ends that need no attempt: of arrays, of jobs whose deadline passed, or that wait for what cannot happen.
// True when it was one of them.
bool Auditor::check_flow_end(const JobFinished& event, const ReferenceJob& job) {
  const bool waited = job.state == JobState::kPending;
  if (job.element_count > 0) {
    int64_t completed = 0;
    for (const auto& [id, other] : jobs_) {
      if (other.array != event.job || id == event.job) continue;
      if (!other.final) fail(name_of(event.job) + " is over before its element " + name_of(id));
      if (other.state == JobState::kCompleted) completed += 1;
    }
    if (!job.closed && job.elements_added != job.element_count)
      fail(name_of(event.job) + " is over and not all of its elements were jobs");
    // A deadline may pass between the last element's end and the array's own.
    const bool given_up = job.closed && !job.out_of_time;
    if ((event.state == JobState::kCompleted) != (completed == job.element_count && !given_up))
      fail(name_of(event.job) + " ends otherwise than its elements did: it is " +
           std::string(to_string(event.state)) + ", and " + std::to_string(completed) + " of " +
           std::to_string(job.element_count) + " completed");
    return true;
  }
  if (event.reason == JobReason::kDependency) {
    if (!waited || event.state != JobState::kCancelled || !has_failed_parent(job))
      fail(name_of(event.job) + " ends by a dependency, and what it waits for may still happen");
    return true;
  }
  if ((event.reason == JobReason::kDeadline || event.reason == JobReason::kNotAtOnce) && waited) {
    if (!job.deadline.valid() || event.at < job.deadline)
      fail(name_of(event.job) + " ends by a deadline before it passed");
    return true;
  }
  return false;
}

}  // namespace gpusched::sim
