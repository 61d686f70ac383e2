#include "api/backend/tasks/task_index.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "api/contract/spec_peek.h"
#include "api/views/state_views.h"
#include "base/check.h"

namespace gpusched::api {
namespace {

constexpr uint64_t kSweptBeside = 16;  // Rows looked at with each batch that forgets jobs, at least.

bool is_final(TaskState state) { return state != TaskState::kPending && state != TaskState::kRunning; }

std::vector<JobId> jobs_in(const Changes& changes) {
  std::set<JobId> jobs;
  for (const Event& event : changes.events) {
    std::visit(
        [&jobs](const auto& what) {
          if constexpr (requires { JobId{what.job}; }) {
            if (what.job.valid()) jobs.insert(what.job);
          }
        },
        event);
  }
  return {jobs.begin(), jobs.end()};
}

}  // namespace

TaskState task_state_of(JobState state) {
  switch (state) {
    case JobState::kPending:
    case JobState::kScheduled:
    case JobState::kPreempted:
      return TaskState::kPending;
    case JobState::kRunning:
      return TaskState::kRunning;
    case JobState::kCompleted:
      return TaskState::kCompleted;
    case JobState::kFailed:
      return TaskState::kFailed;
    case JobState::kCancelled:
      return TaskState::kCancelled;
  }
  UNREACHABLE();
}

void TaskIndex::fill(const State& state, std::span<const Job* const> jobs) {
  const std::lock_guard lock(mutex_);
  std::vector<Noted> untold;
  for (const Job* const job : jobs) {
    if (job->is_array()) continue;
    add(job->id, job->tenant, owner_text(state, *job), job->spec.view());
    if (const auto at = rows_.find(job->id); at != rows_.end())
      note(*job, at->second, true, state.last.at, untold);
  }
}

void TaskIndex::observe(const Observer::View& view, const Changes& changes) {
  std::vector<Noted> noted;
  std::vector<std::shared_ptr<const Watcher>> watchers;
  {
    const std::lock_guard lock(mutex_);
    uint64_t forgotten = 0;
    std::set<JobId> added;
    for (const Event& event : changes.events) {
      if (const auto* const gone = std::get_if<JobsForgotten>(&event)) forgotten += gone->count;
      const auto* const one = std::get_if<JobSubmitted>(&event);
      if (one == nullptr || one->request.is_array()) continue;
      add(one->job, one->tenant, owner_text(one->owner_kind, one->owner), one->request.spec.view());
      if (rows_.contains(one->job)) added.insert(one->job);
    }
    if (rows_.empty()) return;
    for (const JobId id : jobs_in(changes)) {
      const auto at = rows_.find(id);
      if (at == rows_.end()) continue;
      if (const Job* const job = view.state.jobs.find(id)) {
        note(*job, at->second, added.contains(id), view.state.last.at, noted);
      } else {
        erase(at);
      }
    }
    if (forgotten > 0) sweep(view.state, 2 * forgotten + kSweptBeside);
    if (noted.empty() || watchers_.empty()) return;
    for (const auto& [number, watcher] : watchers_) watchers.push_back(watcher);
  }
  tell(view, noted, watchers);
}

void TaskIndex::add(JobId job, TenantId tenant, std::string owner, std::string_view spec) {
  const std::optional<std::string_view> id = spec_label(spec, kTaskIdLabel);
  if (!id || id->empty()) return;
  Row row{.name = {.tenant = tenant, .owner = std::move(owner), .id = std::string(*id)},
          .content = task_content_of(spec)};
  by_name_.try_emplace(row.name, job);
  by_id_[{tenant, row.name.id}].insert(job);
  if (const auto at = submissions_.find(row.name); at != submissions_.end()) {
    if (!std::exchange(at->second.seen, true)) tenants_[tenant].submitting -= 1;
    if (at->second.job) submissions_.erase(at);
  }
  const auto [at, is_new] = rows_.emplace(job, std::move(row));
  if (is_new) enter(job, at->second);
}

void TaskIndex::note(const Job& job, Row& row, bool is_new, Time now, std::vector<Noted>& noted) {
  const auto tell = [&](TaskState state, Time at) {
    noted.push_back({.job = job.id,
                     .tenant = job.tenant,
                     .change = {.id = row.name.id, .job = job.id, .state = state, .at = at}});
  };
  if (is_new) {
    row.since = job.submitted_at;
    tell(TaskState::kPending, job.submitted_at);
  }
  const TaskState state = task_state_of(job.state);
  if (state == row.state) return;
  // One batch of changes may have both its start and its end.
  if (row.state == TaskState::kPending && is_final(state) && job.started_at.valid() &&
      job.started_at >= row.since) {
    tell(TaskState::kRunning, job.started_at);
  }
  leave(job.id, row);
  row.state = state;
  row.since = is_final(state) ? job.ended_at : state == TaskState::kRunning ? job.started_at : now;
  enter(job.id, row);
  tell(state, row.since);
}

void TaskIndex::enter(JobId job, const Row& row) {
  TenantTasks& tasks = tenants_[row.name.tenant];
  switch (row.state) {
    case TaskState::kPending:
      tasks.pending.insert(job);
      return;
    case TaskState::kRunning:
      tasks.running.insert(job);
      return;
    case TaskState::kCompleted:
      tasks.completed += 1;
      return;
    case TaskState::kFailed:
      tasks.failed += 1;
      return;
    case TaskState::kCancelled:
      tasks.cancelled += 1;
      return;
  }
  UNREACHABLE();
}

// Tasks that have ended stay counted.
void TaskIndex::leave(JobId job, const Row& row) {
  TenantTasks& tasks = tenants_[row.name.tenant];
  tasks.pending.erase(job);
  tasks.running.erase(job);
}

void TaskIndex::erase(std::map<JobId, Row>::iterator at) {
  const auto& [job, row] = *at;
  leave(job, row);
  const auto named = by_name_.find(row.name);
  if (named != by_name_.end() && named->second == job) by_name_.erase(named);
  const auto alike = by_id_.find({row.name.tenant, row.name.id});
  CHECK(alike != by_id_.end());
  alike->second.erase(job);
  if (alike->second.empty()) by_id_.erase(alike);
  rows_.erase(at);
}

void TaskIndex::sweep(const State& state, uint64_t rows) {
  for (; rows > 0; --rows) {
    auto at = rows_.upper_bound(swept_);
    if (at == rows_.end()) {
      swept_ = {};
      return;
    }
    swept_ = at->first;
    if (state.jobs.find(at->first) == nullptr) erase(at);
  }
}

std::optional<JobId> TaskIndex::known(const TaskName& name) const {
  auto at = by_name_.find(name);
  if (at == by_name_.end()) at = by_name_.find({.tenant = name.tenant, .owner = "", .id = name.id});
  return at == by_name_.end() ? std::nullopt : std::optional(at->second);
}

std::optional<JobId> TaskIndex::find(const TaskName& name) const {
  const std::lock_guard lock(mutex_);
  if (const std::optional<JobId> job = known(name)) return job;
  const auto at = submissions_.find(name);
  return at == submissions_.end() ? std::nullopt : at->second.job;
}

std::optional<JobId> TaskIndex::find_any(TenantId tenant, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_id_.find({tenant, id});
  return at == by_id_.end() ? std::nullopt : std::optional(*at->second.begin());
}

std::string TaskIndex::id_of(JobId job) const {
  const std::lock_guard lock(mutex_);
  const auto at = rows_.find(job);
  return at == rows_.end() ? std::string() : at->second.name.id;
}

int64_t TaskIndex::waiting(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return 0;
  return static_cast<int64_t>(at->second.pending.size()) + at->second.submitting;
}

TaskIndex::Counts TaskIndex::counts(TenantId tenant) const {
  Counts counts{.pending = waiting(tenant)};
  const std::lock_guard lock(mutex_);
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return counts;
  const TenantTasks& tasks = at->second;
  counts.running = static_cast<int64_t>(tasks.running.size());
  counts.completed = tasks.completed;
  counts.failed = tasks.failed;
  counts.cancelled = tasks.cancelled;
  counts.refused = tasks.refused;
  return counts;
}

std::vector<JobId> TaskIndex::tasks(TenantId tenant, TaskState state, std::size_t tasks_max) const {
  const std::lock_guard lock(mutex_);
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return {};
  CHECK(state == TaskState::kPending || state == TaskState::kRunning);
  const std::set<JobId>& all = state == TaskState::kPending ? at->second.pending : at->second.running;
  return {all.begin(), std::next(all.begin(), static_cast<std::ptrdiff_t>(std::min(tasks_max, all.size())))};
}

void TaskIndex::note_refused(TenantId tenant) {
  const std::lock_guard lock(mutex_);
  tenants_[tenant].refused += 1;
}

ApiError TaskIndex::other_content() {
  return {ErrorKind::kAlreadyExists, "task already exists with other content", "task_id"};
}

TaskIndex::Begun TaskIndex::begin(const TaskName& name, TaskContent content, Outcome outcome) {
  const std::lock_guard lock(mutex_);
  const auto compared = [content](TaskContent first) {
    return first.is_known() && first != content ? Begun::kOther : Begun::kKnown;
  };
  if (const std::optional<JobId> job = known(name)) return compared(rows_.at(*job).content);
  const auto [at, is_first] = submissions_.try_emplace(name, Submission{.content = content});
  if (is_first) {
    tenants_[name.tenant].submitting += 1;
    return Begun::kFirst;
  }
  if (at->second.job) return compared(at->second.content);
  at->second.waiters.push_back({.content = content, .outcome = std::move(outcome)});
  return Begun::kAfter;
}

void TaskIndex::settle(const TaskName& name, const Answer<JobId>& outcome) {
  std::vector<Waiter> waiters;
  TaskContent first;
  {
    const std::lock_guard lock(mutex_);
    const auto at = submissions_.find(name);
    CHECK(at != submissions_.end());
    waiters.swap(at->second.waiters);
    first = at->second.content;
    if (outcome.ok() && !at->second.seen) {
      at->second.job = *outcome;
    } else {
      if (!at->second.seen) tenants_[name.tenant].submitting -= 1;
      submissions_.erase(at);
    }
  }
  for (const Waiter& waiter : waiters) {
    if (waiter.content == first) {
      waiter.outcome(outcome);
    } else if (outcome.ok()) {
      waiter.outcome(other_content());
    } else {
      waiter.outcome(
          ApiError{ErrorKind::kConflict,
                   "the task was submitted with other content at the same time, and that was refused; "
                   "submit it again",
                   "task_id"});
    }
  }
}

std::shared_ptr<void> TaskIndex::watch(CallerPtr caller, Changed changed) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = next_watcher_++;
  watchers_.emplace(number, std::make_shared<Watcher>(std::move(caller), std::move(changed)));
  return {nullptr, [self = shared_from_this(), number](void*) {
            std::shared_ptr<const Watcher> last;  // Let go outside the lock.
            const std::lock_guard inner(self->mutex_);
            const auto found = self->watchers_.find(number);
            last = std::move(found->second);
            self->watchers_.erase(found);
          }};
}

void TaskIndex::tell(const Observer::View& view, const std::vector<Noted>& noted,
                     const std::vector<std::shared_ptr<const Watcher>>& watchers) {
  for (const auto& watcher : watchers) {
    const Viewer viewer = Viewer::of(watcher->caller);
    for (const Noted& one : noted) {
      const Job* const job = view.state.jobs.find(one.job);
      if (job == nullptr || !sees_jobs_of(view.state, *watcher->caller, one.tenant)) continue;
      TaskChange change = one.change;
      if (change.state == task_state_of(job->state)) {
        JobView shown = view_of(view, *job, viewer, {.name = false, .place = false, .gpus = false});
        conceal(view.state, *watcher->caller, *job, shown);
        change.message = std::move(shown.message);
      }
      watcher->changed(change);
    }
  }
}

}  // namespace gpusched::api
