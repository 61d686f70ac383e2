#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "api/contract/jobs.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/types.h"

/// Forecasts for a submission, why a job waits, and how good such answers were.
namespace gpusched::api {

/// When a waiting job starts, as the forecast says; see forecast::Estimate.
struct StartEstimateView {
  Time made_at;
  Time p50, p90;   ///< Not valid: not known.
  Time at_latest;  ///< Not valid: there is no bound.
  Time later_than;
  bool stuck = false;
  int64_t place = 0;
  uint32_t runs = 0;
};

/// A changed request that would start now.
struct ChangeView {
  std::string kind, flags;
  int32_t gpu_count = 0;
  int64_t gpu_memory_mb = 0;  ///< For all GPUs together.
  std::string gpu_model;
  int64_t cpu_milli = 0, memory_mb = 0;
  Duration max_runtime = {};
  std::string node_name;
  std::vector<std::string> gpus;
};

/// Numbers by name.
using Evidence = std::vector<std::pair<std::string_view, int64_t>>;

struct ExplainView {
  JobId id;
  JobState state = JobState::kPending;
  std::string reason, message;
  std::vector<std::string> lifted_by;
  int64_t queue_position = 0;
  Time estimated_start;  ///< Start of a blocked job for which devices are kept free; none for others.
  Evidence evidence;
  std::optional<StartEstimateView> estimate;  ///< Only for a job that waits.
  std::vector<ChangeView> changes;            ///< The first costs least.
};

/// The result of a submission, before it is made.
struct PlanView {
  struct Displaced {
    JobId job;  ///< None: another tenant's, which is not shown.
    int64_t gpu_count = 0;
  };
  struct Quota {
    TenantId tenant;
    std::string_view resource;
    int64_t used_after = 0, limit = 0;
  };
  TenantId tenant;
  bool starts_now = false;
  std::string node_name;
  std::vector<std::string> gpus;
  std::vector<Displaced> displaces;
  std::string reason, message;
  std::vector<std::string> lifted_by;
  Evidence evidence;
  std::optional<StartEstimateView> estimate;
  std::vector<ChangeView> changes;
  std::optional<Duration> run_p50, run_p90;
  std::optional<int64_t> gpu_seconds_reserved, gpu_seconds_expected;
  std::vector<Quota> quota;
};

/// Scores of earlier forecasts: for all tenants, and for each of a bounded number.
struct QualityView {
  struct Score {
    std::string tenant;  ///< Empty: all; "other": all that are not listed.
    int64_t count = 0;
    int64_t p50_covered = 0, p90_covered = 0;
    double p50_pinball_sum = 0, p90_pinball_sum = 0;  ///< Seconds.
    double error_sum = 0, early_sum = 0;              ///< Seconds; of starts only.
  };
  /// Score of the GPU memory that tasks of agents were given by what had been learned.
  struct MemoryScore {
    std::string tenant;  ///< As above.
    int64_t count = 0;
    int64_t within = 0;  ///< They used no more.
    int64_t given_mb_sum = 0, peak_mb_sum = 0;
  };
  std::vector<Score> run_times, starts;  ///< The first is of all.
  std::vector<MemoryScore> task_memory;  ///< The same; empty: it is not learned.
  std::vector<int64_t> error_bounds;     ///< Seconds; distances of starts from what was said.
  std::vector<int64_t> error_buckets;    ///< One more than bounds; not cumulative.
  int64_t forecasts = 0;
  double forecast_seconds = 0, copy_seconds = 0;
};

/// Forecasts for a submission, why a job waits, and how good such answers were. Everything is thread-safe and
/// returns at once; answers come by `Done`.
class ForecastBackend {
 public:
  virtual ~ForecastBackend() = default;

  /// Says what becomes of a submission of one job, and does nothing. Refused for what the submission would be
  /// refused for. On a thread that may take seconds; kUnavailable when too many ask. A tenant that is named
  /// sees nothing of other tenants' jobs; that goes for `explain_job` too.
  virtual void plan(const CallerPtr& caller, SubmitRequest request, Done<PlanView> done) = 0;
  virtual void explain_job(const CallerPtr& caller, JobId job, const std::string& tenant,
                           Done<ExplainView> done) = 0;
  /// `tenant` given: without the scores of others and of all.
  virtual void get_quality(const CallerPtr& caller, const std::string& tenant, Done<QualityView> done) = 0;
};

}  // namespace gpusched::api
