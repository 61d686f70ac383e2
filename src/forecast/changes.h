#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "forecast/world.h"

/// Finds changes that would start a job now. Asks the real planner in a world of its own, one changed request
/// after the other.
namespace gpusched::forecast {

/// Kind of change to a request, from the cheapest for its owner to the most expensive.
enum class ChangeKind : uint8_t {
  kShorterLimit = 1,   ///< A time limit short enough to end before the reserved start of others.
  kLessCpu,            ///< Fewer CPU cores.
  kLessMemory,         ///< Less main memory.
  kLessGpuMemory,      ///< GPUs with less memory.
  kOtherModel,         ///< Any model instead of the one that it names.
  kFewerGpus,          ///< As many GPUs as are available.
  kFewerOfOtherModel,  ///< Both.
  kIdleGuarantee,      ///< Another tenant lets it have what it is guaranteed and does not use.
};
std::string_view to_string(ChangeKind kind);

/// A request that would start now, and where.
struct Change {
  ChangeKind kind = ChangeKind::kFewerGpus;
  Part part;              ///< Resources of one member after the change.
  Duration max_runtime;   ///< Time limit after the change; zero: none.
  PlanGroup start;        ///< Placement; with kIdleGuarantee also the borrowers that are preempted.
  TenantId lender;        ///< kIdleGuarantee: tenant whose guarantee it is.
  int64_t lent_gpus = 0;  ///< kIdleGuarantee: number of its GPUs that are needed.
};

/// The smallest changes of the job's request that start it now, the cheapest kind first; of each kind the
/// smallest, at most `count` of them. Empty: no change that was tried starts it, or it does not wait in line.
/// Nobody is ended for it, but by an idle guarantee. At most limits::kForecastAsksMax requests are tried. In
/// `scratch`, which is settled, the job is afterwards as it was.
std::vector<Change> smallest_changes(World& scratch, JobId job, std::size_t count, Work& work);

/// A submission that is tried.
struct Trial {
  std::optional<Rejection> rejection;  ///< Rejection as of the submission itself.
  JobId job;
  JobId subject;                   ///< The job itself; of an array its first element.
  std::optional<PlanGroup> start;  ///< Placement if it starts now, with its victims; otherwise it waits.
};
/// Submits one job in `scratch`, which is settled. It waits there afterwards.
Trial try_submission(World& scratch, SubmitJobs command, Work& work);

/// The job itself; of an array its first element that waits in line. Invalid when there is none.
JobId subject_of(const State& state, JobId job);

}  // namespace gpusched::forecast
