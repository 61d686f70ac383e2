#include "api/views/flow_views.h"

#include <algorithm>

#include "api/contract/json_writer.h"
#include "api/contract/names.h"
#include "api/fields/flow_fields.h"
#include "api/views/reader_clock.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kParentsShown = 8;

std::string instant(Time time) {
  std::string out;
  JsonWriter json(out);
  json.value(time);
  std::erase(out, '"');
  return out;
}

std::string wanted(const JobDependency& one) {
  switch (one.kind) {
    case DependencyKind::kAfterOk:
      return job_name(one.parent) + " to complete";
    case DependencyKind::kAfterAny:
      return job_name(one.parent) + " to end";
    case DependencyKind::kAfterStart:
      return job_name(one.parent) + " to start";
  }
  UNREACHABLE();
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size() && i < kParentsShown; ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  if (words.size() > kParentsShown) out += " and " + std::to_string(words.size() - kParentsShown) + " others";
  return out;
}

std::string dependency_message(const State& state, const Job& job) {
  std::vector<std::string> never;
  std::vector<std::string> open;
  for (const JobDependency& one : job.dependency_list()) {
    if (one.verdict == JobDependency::Verdict::kImpossible) never.push_back(wanted(one));
    if (one.verdict == JobDependency::Verdict::kOpen) open.push_back(wanted(one));
  }
  if (!never.empty())
    return "waits for " + joined(never) + ", which can no longer happen; to cancel it: gpu-cli cancel " +
           job_name(job.id);
  std::string held;
  for (const JobDependency& one : job.dependency_list()) {
    const Job* const parent = state.jobs.find(one.parent);
    const bool waits_on_it =
        one.verdict == JobDependency::Verdict::kOpen && parent != nullptr && parent->held;
    if (held.empty() && waits_on_it)
      held = "; " + job_name(one.parent) + " is held, to release it: gpu-cli release " + job_name(one.parent);
  }
  return "waits for " + joined(open) + held;
}

std::string array_message(const State& state, const Job& job) {
  const JobArray* array = state.find_array(job.id);
  if (array == nullptr) return "an array";
  const auto live = static_cast<int64_t>(array->live.size());
  const std::string text = std::to_string(array->unexpanded() + array->waiting) + " of " +
                           std::to_string(array->count) + " elements are waiting, " +
                           std::to_string(live - array->waiting) + " running, " +
                           std::to_string(array->completed) + " completed, " + std::to_string(array->failed) +
                           " failed, " + std::to_string(array->cancelled) + " cancelled";
  return job.cancel_requested ? "is being cancelled: " + text : text;
}

/// An element that is no job yet.
std::shared_ptr<const Job> future_job(const Job& whole, const JobArray& array, JobId id) {
  auto job = std::make_shared<Job>(whole);
  job->id = id;
  job->array = array.id;
  job->dependencies = {};
  job->unmet = 0;
  job->not_before = {};
  job->held = false;
  job->state = JobState::kPending;
  job->reason = JobReason::kArray;
  if (array.closed == JobReason::kNone) return job;
  job->state = array.closed == JobReason::kDeadline ? JobState::kFailed : JobState::kCancelled;
  job->reason = array.closed;
  return job;
}

}  // namespace

std::optional<FoundJob> look_up(const State& state, JobId id) {
  if (is_element_name(id)) {
    const JobArray* array = state.find_array(array_of_name(id));
    if (array == nullptr) return std::nullopt;
    const auto position = array->position_of_index(index_of_name(id));
    if (!position) return std::nullopt;
    id = array->element(*position);
  }
  if (const Job* job = state.jobs.find(id)) return FoundJob(job);
  const JobArray* array = state.array_of_element(id);
  if (array == nullptr || array->is_expanded(array->position_of(id))) return std::nullopt;
  const Job* whole = state.jobs.find(array->id);
  if (whole == nullptr) return std::nullopt;
  return FoundJob(future_job(*whole, *array, id));
}

void add_flow(const State& state, const Job& job, JobView& shown) {
  shown.retry_causes = job.retry.causes;
  shown.retry_exit_codes = job.retry.exit_codes.view();
  shown.deadline = job.deadline;
  if (job.reason == JobReason::kBegin) shown.begin_at = job.not_before;
  if (!job.dependencies.empty()) shown.dependencies = job.dependency_list();
  if (!job.array.valid()) return;
  const JobArray* array = state.find_array(job.array);
  if (array == nullptr) return;
  if (job.is_element()) {
    shown.array = job.array;
    shown.array_index = array->index_at(array->position_of(job.id));
    if (!shown.name.empty()) shown.name += "-" + std::to_string(*shown.array_index);
    return;
  }
  ArrayView& view = shown.array_view.emplace();
  view.indexes = ranges_text(array->ranges);
  if (array->at_once > 0) view.indexes += "%" + std::to_string(array->at_once);
  if (array->unexpanded() > 0) view.unexpanded = ranges_text(array->ranges, array->next, array->early);
  view.count = array->count;
  view.waiting = array->unexpanded() + array->waiting;
  view.running = static_cast<int64_t>(array->live.size()) - array->waiting;
  view.completed = array->completed;
  view.failed = array->failed;
  view.cancelled = array->cancelled;
}

std::string flow_message(const State& state, const Job& job) {
  if (job.unmet > 0) return dependency_message(state, job);
  if (job.reason == JobReason::kBegin) return "waits for its begin time, " + instant(job.not_before);
  if (job.is_array()) return array_message(state, job);
  if (job.is_element() && job.reason == JobReason::kArray)
    return "waits until earlier elements of " + job_name(job.array) + " have started or ended";
  return {};
}

std::vector<std::string> flow_lifted_by(const State& state, const Job& job) {
  if (job.unmet > 0) {
    const auto list = job.dependency_list();
    std::vector<std::string> out;
    for (const JobDependency& one : list) {
      if (one.verdict == JobDependency::Verdict::kImpossible) return {};
      if (one.verdict == JobDependency::Verdict::kMet) continue;
      const std::string event = one.kind == DependencyKind::kAfterStart ? "JobStarted" : "JobEnded";
      if (std::find(out.begin(), out.end(), event) == out.end()) out.push_back(event);
    }
    return out;
  }
  if (job.reason == JobReason::kBegin) return {"BeginTime"};
  const JobArray* array = job.is_array() ? state.find_array(job.id) : nullptr;
  if (array != nullptr && array->unexpanded() == 0) return {"JobEnded"};
  if (job.array.valid()) return {"JobStarted", "JobEnded"};
  return {};
}

std::string deadline_warning(const State& state, const Job& job) {
  if (!job.deadline.valid() || job.max_runtime.ns == 0 || is_final(job.state)) return {};
  const bool runs = job.state == JobState::kRunning && job.started_at.valid();
  const Time begins = runs ? job.started_at : std::max(reader_now(state), job.not_before);
  if (begins + job.max_runtime <= job.deadline) return {};
  return "; warning: if it runs for its full time limit, it will miss its deadline, " + instant(job.deadline);
}

}  // namespace gpusched::api
