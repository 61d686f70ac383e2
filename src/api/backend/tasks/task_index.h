#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/contract/caller.h"
#include "base/task_labels.h"
#include "base/text/task_content.h"
#include "host/core/interfaces.h"
#include "host/readers/observer.h"
#include "model/state.h"

namespace gpusched::api {

enum class TaskState : uint8_t { kPending, kRunning, kCompleted, kFailed, kCancelled };
/// A job that is placed and does not run yet, or was preempted, is pending.
TaskState task_state_of(JobState state);

/// A task came into another state.
struct TaskChange {
  std::string id;
  JobId job;
  TaskState state = TaskState::kPending;
  Time at;
  std::string message;  ///< One sentence, as the watcher may know it.
};

/// Names a task. Ids are each owner's own: nobody takes or finds out another's by choosing the same.
struct TaskName {
  TenantId tenant;
  std::string owner;  ///< As owner_text has it. All callers without a credential are one.
  std::string id;     ///< Chosen by the client.

  friend auto operator<=>(const TaskName&, const TaskName&) = default;
};

/// The jobs that are tasks, by the ids that clients chose: found in the jobs' labels, so that it is as
/// durable as the jobs, and filled again at every start. Knows the submissions under way, too, so that one id
/// of an owner never becomes two jobs. The first of several jobs of one owner with the same id is the task,
/// for as long as it is kept. A job of before owners were known is everybody's in its tenant. Thread-safe.
class TaskIndex final : public std::enable_shared_from_this<TaskIndex> {
 public:
  /// Takes in all of a state; `jobs` are those of it that may be tasks, in the order of their ids.
  void fill(const State& state, std::span<const Job* const> jobs);
  /// Takes in a batch of changes and tells those who watch. On the observer's thread.
  void observe(const Observer::View& view, const Changes& changes);

  /// The owner's task of that id.
  std::optional<JobId> find(const TaskName& name) const;
  /// The oldest task of that id in the tenant, whose ever it is: whether the caller may know of it is asked
  /// elsewhere.
  std::optional<JobId> find_any(TenantId tenant, const std::string& id) const;
  /// The id of the task that the job is; empty: it is none.
  std::string id_of(JobId job) const;
  /// The tenant's tasks that are pending, and those that are being submitted.
  int64_t waiting(TenantId tenant) const;

  /// Tasks of a tenant. Ended ones are those that were kept when the scheduler began, and those that ended
  /// since; refused ones are counted since then.
  struct Counts {
    int64_t pending = 0, running = 0, completed = 0, failed = 0, cancelled = 0, refused = 0;
  };
  Counts counts(TenantId tenant) const;
  /// The oldest of those in a state, pending or running.
  std::vector<JobId> tasks(TenantId tenant, TaskState state, std::size_t tasks_max) const;
  /// One of the tenant's was not let in.
  void note_refused(TenantId tenant);

  /// Receives the result of a submission.
  using Outcome = std::function<void(const Answer<JobId>&)>;
  enum class Begun : uint8_t {
    kFirst,  ///< Nobody has submitted it: the caller must `settle` it, and is not told by `outcome`.
    kKnown,  ///< It is a job already: see `find`.
    kAfter,  ///< Somebody is submitting it: `outcome` tells how that went.
    kOther,  ///< It is a job already, of other content (`other_content`).
  };
  /// Whoever submits other content than who is submitting it is told by `outcome` as well: kAlreadyExists
  /// when that became a job, else kConflict. A job of before contents were kept is of any content.
  Begun begin(const TaskName& name, TaskContent content, Outcome outcome);
  void settle(const TaskName& name, const Answer<JobId>& outcome);

  /// The refusal of a task whose id is another's of the same owner.
  static ApiError other_content();

  using Changed = std::function<void(const TaskChange&)>;
  /// Calls `changed` on the observer's thread with each change of a task that the caller may see, until the
  /// token is dropped; it may still run once then. It must not block.
  std::shared_ptr<void> watch(CallerPtr caller, Changed changed);

 private:
  using SharedId = std::pair<TenantId, std::string>;
  struct Row {
    TaskName name;
    TaskContent content;
    TaskState state = TaskState::kPending;
    Time since;  ///< Beginning of the state.
  };
  /// A tenant's.
  struct TenantTasks {
    std::set<JobId> pending, running;
    int64_t completed = 0, failed = 0, cancelled = 0, refused = 0;
    int64_t submitting = 0;  ///< Submissions that are no jobs yet, as far as was seen.
  };
  struct Waiter {
    TaskContent content;
    Outcome outcome;
  };
  struct Submission {
    TaskContent content;
    std::vector<Waiter> waiters;
    std::optional<JobId> job;  ///< It was accepted, and the observer has not seen it yet.
    bool seen = false;         ///< The observer has: it is counted as a job.
  };
  struct Watcher {
    CallerPtr caller;
    Changed changed;
  };
  struct Noted {
    JobId job;
    TenantId tenant;
    TaskChange change;
  };

  // All with the mutex held.
  void add(JobId job, TenantId tenant, std::string owner, std::string_view spec);
  /// The job of that name, or of that id of an unknown owner.
  std::optional<JobId> known(const TaskName& name) const;
  void note(const Job& job, Row& row, bool is_new, Time now, std::vector<Noted>& noted);
  void enter(JobId job, const Row& row);
  void leave(JobId job, const Row& row);
  void erase(std::map<JobId, Row>::iterator at);
  /// Looks at some rows whether their jobs are still kept, so that all have been looked at in time.
  void sweep(const State& state, uint64_t rows);

  static void tell(const Observer::View& view, const std::vector<Noted>& noted,
                   const std::vector<std::shared_ptr<const Watcher>>& watchers);

  mutable std::mutex mutex_;  // Guards all below.
  std::map<JobId, Row> rows_;
  std::map<TaskName, JobId> by_name_;
  std::map<SharedId, std::set<JobId>> by_id_;
  std::map<TaskName, Submission> submissions_;
  std::map<TenantId, TenantTasks> tenants_;
  JobId swept_;  ///< Up to this one, of the present round.
  std::map<uint64_t, std::shared_ptr<const Watcher>> watchers_;
  uint64_t next_watcher_ = 1;
};

}  // namespace gpusched::api
