#pragma once

#include <algorithm>
#include <cstdint>

namespace gpusched::predict {

/// Accuracy of the predictions of one quantile, counted as jobs end.
class QuantileScore {
 public:
  explicit QuantileScore(int32_t per_mille) : per_mille_(per_mille) {}

  /// A job for which `predicted_ms` was said has run for `run_ms`.
  void add(int64_t predicted_ms, int64_t run_ms) {
    ++count_;
    if (run_ms <= predicted_ms) ++covered_;
    const int64_t miss = run_ms - predicted_ms;
    pinball_ms_ += miss >= 0 ? miss * per_mille_ / 1000 : -miss * (1000 - per_mille_) / 1000;
  }

  int32_t per_mille() const { return per_mille_; }
  int64_t count() const { return count_; }
  int64_t covered() const { return covered_; }
  int64_t pinball_sum_ms() const { return pinball_ms_; }
  /// The share of jobs that ended within the prediction: `per_mille` when it is calibrated. 0 without jobs.
  int32_t covered_per_mille() const {
    return count_ == 0 ? 0 : static_cast<int32_t>(covered_ * 1000 / count_);
  }
  /// The mean pinball loss (Koenker, Bassett 1978): `q * (run - predicted)` of a run that was longer, else
  /// `(1 - q) * (predicted - run)`. Lower is better; the true quantile has the least. 0 without jobs.
  int64_t pinball_ms() const { return count_ == 0 ? 0 : pinball_ms_ / count_; }

 private:
  int32_t per_mille_;
  int64_t count_ = 0;
  int64_t covered_ = 0;
  int64_t pinball_ms_ = 0;
};

/// Holds the coverage of a quantile where it was promised, whatever the predictor gets wrong: after each job
/// the quantile that is asked for moves a little up when the job ran longer, and down when it did not (Gibbs,
/// Candes 2021, "Adaptive conformal inference under distribution shift"). In millionths inside.
class Calibration {
 public:
  /// `step_per_mille`: how far one job moves the level; 5 forgets in about 200 jobs.
  explicit Calibration(int32_t target_per_mille, int32_t step_per_mille = 5)
      : target_(target_per_mille), step_(step_per_mille), level_millionths_(target_per_mille * 1000) {}

  /// The quantile to ask the predictor for.
  int32_t level_per_mille() const { return std::clamp((level_millionths_ + 500) / 1000, 0, 1000); }
  /// A job ended within the prediction, or did not.
  void add(bool covered) {
    const int32_t error =
        covered ? target_ - 1000 : target_;  // In thousandths; zero on average when calibrated.
    level_millionths_ = std::clamp(level_millionths_ + step_ * error, 0, 1'000'000);
  }

 private:
  int32_t target_;
  int32_t step_;
  int32_t level_millionths_;
};

}  // namespace gpusched::predict
