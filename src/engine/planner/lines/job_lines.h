#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/planner/lines/task_lines.h"
#include "engine/policy/policy.h"
#include "model/index/ordered_jobs.h"
#include "model/state.h"

namespace gpusched {

/// The jobs of each class that wait in line, in the order of the policies' JobOrder. The state's own order is
/// not copied, except for classes with tasks (see TaskLines). Every change costs O(log n); with an order that
/// is_time_dependent a few ranks are computed again now and then. Pure; not thread-safe.
class JobLines {
 public:
  /// `policies` must outlive this, or the next `reset`.
  void reset(const State& state, const policy::PolicySet& policies, Time now);
  /// The job may have come in line, left it, or changed.
  void observe(const State& state, JobId job);
  /// Puts those first that waited for too long, and makes some ranks again when it is time. The classes whose
  /// lines changed; one may be named twice.
  std::vector<uint32_t> refresh(const State& state, Time now);

  /// An attempt of it was placed.
  void note_placed(const State& state, JobId job) { tasks_.note_placed(state, job); }

  /// The first of the class's line; nothing: nobody waits.
  std::optional<OrderKey> first(const State& state, uint32_t job_class);
  /// The class's line, unless it `has_tasks`; valid until the next change.
  const OrderedJobs& of(const State& state, uint32_t job_class);
  /// Visits the class's line behind `begin`, in order, until `visit` says no; of tasks `jobs_max` at most.
  template <typename Visit>
  void visit_behind(const State& state, uint32_t job_class, const OrderKey& begin, std::size_t jobs_max,
                    Visit&& visit);
  /// Where a job stands that waits in line.
  OrderKey key_of(const State& state, const Job& job, Time now) const;

  /// The places in the class's line change with each job that is placed: the plan in the making is to tell
  /// with `place`, and when it is applied.
  bool has_tasks(uint32_t job_class) const { return tasks_.has(job_class); }
  /// Takes the job out of line until the plan is applied. The classes whose lines changed.
  std::vector<uint32_t> place(JobId job);
  void plan_applied(const State& state) { tasks_.plan_applied(state); }

 private:
  struct Entry {
    uint32_t job_class = 0;
    int64_t rank = 0;
    Time since;  ///< From when its waiting counts.
  };

  bool kept() const { return order_ != nullptr && !order_->uses_static_order(); }
  Time since_of(const Job& job) const;
  int64_t rank_of(const State& state, const Job& job, Time now);
  bool waited_too_long(Time since, Time now) const;
  void put_in(const State& state, const Job& job);
  void take_out(JobId job);
  bool move(JobId job, int64_t rank);
  void rank_anew(const State& state, std::vector<uint32_t>& changed);

  const policy::JobOrder* order_ = nullptr;
  const policy::RunTimes* run_times_ = nullptr;
  Duration overtaking_;
  Time now_;
  int64_t predictions_left_ = 0;
  std::vector<OrderedJobs> lines_;                      ///< By class.
  boost::unordered_flat_map<uint64_t, Entry> entries_;  ///< By job.
  std::set<std::pair<Time, JobId>> by_age_;             ///< All that are not first because they waited.
  std::pair<Time, JobId> cursor_;                       ///< Ranks up to it were computed again.
  Time ranked_at_;                                      ///< Time of the last computation of ranks.
  std::size_t ranks_owed_ = 0;                          ///< Refreshes whose computation of ranks is due.
  TaskLines tasks_;                                     ///< Classes not in the state's own order.
};

template <typename Visit>
void JobLines::visit_behind(const State& state, uint32_t job_class, const OrderKey& begin,
                            std::size_t jobs_max, Visit&& visit) {
  if (has_tasks(job_class)) {
    for (const OrderKey& key : tasks_.behind(job_class, begin, jobs_max))
      if (!visit(key)) return;
    return;
  }
  for (OrderedJobs::Cursor at = of(state, job_class).begin(); !at.at_end(); at.next())
    if (begin < *at && !visit(*at)) return;
}

}  // namespace gpusched
