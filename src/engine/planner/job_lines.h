#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "engine/policy/policy.h"
#include "model/index/ordered_jobs.h"
#include "model/state.h"

namespace gpusched {

/// The jobs of each class that wait in line, in the order of the policies' JobOrder. Of the state's own order
/// nothing is kept beside the state. Every change costs O(log n); of an order that is_time_dependent a few
/// ranks are made anew every now and then. Pure; not thread-safe.
class JobLines {
 public:
  /// `policies` must outlive this, or the next `reset`.
  void reset(const State& state, const policy::PolicySet& policies, Time now);
  /// The job may have come in line, left it, or changed.
  void observe(const State& state, JobId job);
  /// Puts those first that waited for too long, and makes some ranks anew when it is time. The classes whose
  /// lines changed; one may be named twice.
  std::vector<uint32_t> refresh(const State& state, Time now);

  /// The class's line; valid until the next change.
  const OrderedJobs& of(const State& state, uint32_t job_class);
  /// Where a job stands that waits in line.
  OrderKey key_of(const State& state, const Job& job, Time now) const;

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
  std::pair<Time, JobId> cursor_;                       ///< Up to there ranks were made anew,
  Time ranked_at_;                                      ///< when that was last done,
  std::size_t ranks_owed_ = 0;                          ///< and for how many refreshes it is due.
};

}  // namespace gpusched
