#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/policy/backfill/overrun.h"
#include "predict/predictor.h"
#include "published/pool_replay.h"

namespace gpusched::replay {

/// Estimates by a predictor. A job is predicted once, when it is submitted, from what was known then; what
/// happens later changes nothing but how long it has been running itself.
class PredictedRuns : public Estimator {
 public:
  /// Number of the predicted run times by which the shortest is found.
  enum class OrderBy : uint8_t { kQuantile, kMean, kTypical };
  /// Which number of the predicted run times is used for what.
  struct Use {
    OrderBy order_by = OrderBy::kQuantile;
    int32_t order_per_mille = 500;  ///< kQuantile: which one.
    int32_t hold_per_mille = 500;   ///< How long it will hold what it gets, when it asks to pass others.
    /// The same for jobs whose limit is at most `short_limit`: they may be let through gaps more boldly,
    /// because one that lasts longer than believed delays what is reserved by no more than its limit.
    int32_t short_hold_per_mille = 0;
    Duration short_limit = {};      ///< Zero: none is treated so.
    int32_t running_per_mille = 0;  ///< The same once it runs; 0: as `hold_per_mille`.
    policy::Correction correction = policy::Correction::kTsafrir;
    /// When it runs longer: first this quantile of what similar jobs that ran longer took, if any did, and
    /// only then the correction; 0: at once the correction.
    int32_t again_per_mille = 0;
    Duration least = {};  ///< No estimate is shorter.
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
  int64_t order_ms(const predict::RunTimes& times) const;

  struct Known {
    predict::RunTimes times;
    Duration first_estimate;
    uint32_t corrections = 0;
    bool asked_again = false;
  };

  predict::Predictor& predictor_;
  Use use_;
  std::vector<Known> known_;  ///< By job; emptied when it has ended.
};

}  // namespace gpusched::replay
