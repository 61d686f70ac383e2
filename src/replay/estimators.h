#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/policy/backfill/overrun.h"
#include "predict/predictor.h"
#include "replay/pool_replay.h"

namespace gpusched::replay {

/// What of a job a predictor may know.
predict::JobFacts facts_of(uint32_t job, const TraceJob& what);

/// Estimates by a predictor. A job is predicted once, when it is submitted, from what was known then; what
/// happens later changes nothing but how long it has been running itself.
class PredictedRuns : public Estimator {
 public:
  /// Which number of the predicted run times is used for what.
  struct Use {
    int32_t order_per_mille = 500;  ///< Who is shortest: a quantile; 0: the typical run.
    int32_t hold_per_mille = 500;   ///< How long it will hold what it gets, when it asks to pass others.
    int32_t running_per_mille = 0;  ///< The same once it runs; 0: as `hold_per_mille`.
    policy::Correction correction = policy::Correction::kTsafrir;
    /// When it runs longer: first this quantile of what similar jobs that ran longer took, if any did, and
    /// only then the correction; 0: at once the correction.
    int32_t again_per_mille = 0;
    uint32_t again_max = 1;  ///< So many times.
    Duration least = {};     ///< No estimate is shorter.
  };

  PredictedRuns(predict::Predictor& predictor, const Use& use) : predictor_(predictor), use_(use) {}

  RunEstimate submitted(uint32_t job, const TraceJob& what, Duration now) override;
  Duration ran_out(uint32_t job, const TraceJob& what, Duration estimate, Duration elapsed) override;
  void started(uint32_t job, const TraceJob& what, Duration now) override;
  void finished(uint32_t job, const TraceJob& what, Duration now) override;

 protected:
  /// Called with each prediction.
  virtual void predicted(uint32_t /*job*/, const predict::RunTimes& /*times*/) {}

 private:
  struct Known {
    predict::RunTimes times;
    Duration first_estimate;
    uint32_t corrections = 0;
    uint32_t again = 0;
  };

  predict::Predictor& predictor_;
  Use use_;
  std::vector<Known> known_;  ///< By job; emptied when it has ended.
};

}  // namespace gpusched::replay
