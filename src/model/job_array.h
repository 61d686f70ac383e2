#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "model/types.h"

namespace gpusched {

/// Many jobs that are alike but for their index, in one record: elements become jobs of their own only
/// shortly before they run. The array's own job, of the same id, says what all of them are; it waits until
/// the last element ended. The element at position p has the id `id + 1 + p`.
struct JobArray {
  JobId id;
  std::vector<IndexRange> ranges;
  int64_t count = 0;
  int64_t at_once = 0;         ///< Maximum elements that are unfinished jobs at a time; 0: no limit.
  int64_t next = 0;            ///< Positions before it are, or were, jobs of their own.
  std::vector<int64_t> early;  ///< Positions behind `next` that are or were jobs too, ascending.
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t cancelled = 0;
  JobReason closed = JobReason::kNone;  ///< Why the rest will never be expanded.
  bool started = false;                 ///< An element ran.

  // Derived.
  std::set<JobId> live;    ///< Elements that are jobs, have not ended and are not parked.
  std::set<JobId> parked;  ///< Elements that are jobs before their turn. See Job::parked.
  int64_t waiting = 0;     ///< Number of pending elements among `live`.
  int64_t records = 0;     ///< Elements that are jobs, ended ones among them.

  bool has(JobId element) const {
    return element > id && element.value <= id.value + static_cast<uint64_t>(count);
  }
  JobId element(int64_t position) const { return JobId{id.value + 1 + static_cast<uint64_t>(position)}; }
  int64_t position_of(JobId element) const { return static_cast<int64_t>(element.value - id.value) - 1; }
  int64_t index_at(int64_t position) const;
  std::optional<int64_t> position_of_index(int64_t index) const;
  /// Returns whether it is, or was, a job of its own.
  bool is_expanded(int64_t position) const;
  /// Elements that are yet to be jobs.
  int64_t unexpanded() const;
  /// The element at `position` becomes a job.
  void note_expanded(int64_t position);

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "id", self.id);
    visit(2, "ranges", self.ranges);
    visit(3, "count", self.count);
    visit(4, "at_once", self.at_once);
    visit(5, "next", self.next);
    visit(6, "early", self.early);
    visit(7, "completed", self.completed);
    visit(8, "failed", self.failed);
    visit(9, "cancelled", self.cancelled);
    visit(10, "closed", self.closed);
    visit(11, "started", self.started);
  }
};

}  // namespace gpusched
