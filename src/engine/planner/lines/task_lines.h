#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/policy/task_order.h"
#include "model/index/ordered_jobs.h"
#include "model/state.h"

namespace gpusched {

/// The jobs of each class that has tasks in line, in the order of a TaskOrder; other classes cost nothing.
///
/// Problem: each placement of a task changes its user's use, and with that the places of all that wait of the
/// user. Idea: tasks of one class, user and cost have the same delay, so they keep their order among each
/// other: only the first of such a group is compared with the first of others. Example: one user has 1,000
/// tasks in line and another one; when one is placed, one key changes. Cost: O(log n) a change, and one key
/// for each of the user's groups; use is counted in sixtieths of the window.
///
/// A class's jobs that are no tasks stand where the state has them. Where waiting earns nothing
/// (`aging_per_hour` 0) tasks stand there, too. Copies share the order. Pure; not thread-safe.
class TaskLines {
 public:
  /// Specifications that a reset reads at most to find the classes that have tasks: some milliseconds. Where
  /// so many other shares of GPUs wait, a class that it did not come to has its line here from the next of
  /// its tasks on.
  static constexpr uint32_t kResetReadsMax = 16'384;

  /// Null: no job is a task.
  void reset(const State& state, std::shared_ptr<const policy::TaskOrder> order, Time now);
  /// The class has its line here, not in the state.
  bool has(uint32_t job_class) const { return job_class < lines_.size() && lines_[job_class].active; }
  /// The job may have come in line, left it, or changed.
  void observe(const State& state, JobId id);
  /// An attempt of it was placed: its user has used that.
  void note_placed(const State& state, JobId id);
  /// Time has come; what was used too long ago counts no longer.
  void forget_use(Time now);
  /// The plan in the making places the job: until `plan_applied` it is not in line, and its user has used it.
  void place(JobId id);
  void plan_applied(const State& state);

  /// The first of a class that has its line here; nothing: nobody waits.
  std::optional<OrderKey> first(const State& state, uint32_t job_class);
  /// The first `jobs_max` behind `begin`, in order.
  std::vector<OrderKey> behind(uint32_t job_class, const OrderKey& begin, std::size_t jobs_max) const;
  /// Where the job stands, if it is in a line here.
  std::optional<OrderKey> key_of(JobId id) const;
  /// Classes whose first job may be another one than at the last call; one may be named twice.
  std::vector<uint32_t> take_changed() { return std::exchange(changed_, {}); }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;  ///< Stands for jobs that are no tasks.
  struct GroupKey {
    uint32_t user = kNobody;
    int64_t cost = 0;  ///< As in TaskFacts, as is all use.
    friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
  };
  struct Group {
    int64_t shift = 0;  ///< How far behind the state's order they stand, in units of `Job::order_key`.
    OrderedJobs jobs;   ///< In the state's order.

    OrderKey head() const { return shifted(jobs.front()); }
    OrderKey shifted(const OrderKey& order) const { return {.key = order.key - shift, .job = order.job}; }
  };
  struct Line {
    bool active = false;
    std::map<GroupKey, Group> groups;    ///< None is empty.
    std::map<OrderKey, GroupKey> heads;  ///< The first of each.
  };
  using UserKey = std::pair<TenantId, std::string>;
  struct User {
    UserKey key;
    int64_t weight_milli = 0;
    int64_t use = 0;  ///< Within the window, with what the plan in the making places.
    std::set<std::pair<uint32_t, int64_t>> groups;  ///< Classes, and costs, of what waits.
  };
  struct Entry {
    uint32_t job_class = 0;
    GroupKey group;
    OrderKey order;  ///< The state's.
  };

  std::optional<policy::TaskFacts> facts_of(const State& state, const Job& job) const;
  int64_t slice_of(Time at) const;
  uint32_t user_at(TenantId tenant, const policy::TaskFacts& facts);
  void add_use(uint32_t user, int64_t cost);
  void leave_if_unknown(uint32_t user);
  int64_t shift_of(const GroupKey& group) const;
  bool finds_task(const State& state, uint32_t job_class, uint32_t& reads_left) const;
  void begin_line(const State& state, uint32_t job_class);
  void put_in(const State& state, const Job& job);
  void take_out(JobId id);
  void end_if_empty(uint32_t job_class);
  template <typename Edit>
  void change(uint32_t job_class, const GroupKey& key, Edit&& edit);

  std::shared_ptr<const policy::TaskOrder> order_;
  int64_t aging_ = 0;
  std::vector<Line> lines_;                             ///< By class.
  boost::unordered_flat_map<uint64_t, Entry> entries_;  ///< By job.
  std::map<UserKey, uint32_t> user_numbers_;
  std::vector<User> users_;                                ///< Users by number.
  std::vector<uint32_t> free_users_;                       ///< Numbers that are free.
  std::map<int64_t, std::map<uint32_t, int64_t>> slices_;  ///< Use by users in each slice of the window.
  std::vector<std::pair<JobId, GroupKey>> planned_;
  std::vector<uint32_t> emptied_;  ///< Classes that may be here no longer when the plan is applied.
  std::vector<uint32_t> changed_;
};

}  // namespace gpusched
