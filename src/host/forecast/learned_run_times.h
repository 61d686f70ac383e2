#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <memory>

#include "engine/messages/events.h"
#include "engine/policy/policy.h"
#include "host/forecast/job_facts.h"
#include "host/forecast/prediction_memory.h"
#include "predict/learned.h"
#include "predict/quality.h"

namespace gpusched {

/// Run times for the planner of a job of which `expected` is known, beside its limit: its whole run if it ran
/// now in place of one that waits before it; if it has run for `elapsed`; and for its order. Where nothing is
/// known, and when the configuration says `limits`, the limit counts.
Duration expected_to_pass(const predict::RunTimes& expected, const State& state, const Job& job, Time now);
Duration expected_of_running(const predict::RunTimes& expected, const State& state, const Job& job,
                             Duration elapsed, Time now);
Duration expected_to_order(const predict::RunTimes& expected, const State& state, const Job& job,
                           Duration attained, Time now);

/// Run times as finished jobs teach them, for the planner; its owner tells it what happens. Where nothing is
/// known, and when the configuration says `limits`, a job's own limit counts. A specification is read once,
/// and jobs of one kind are predicted once until something changes it: a planner asks about all
/// that runs in each cycle. Not thread-safe.
class LearnedRunTimes final : public policy::RunTimes {
 public:
  /// How good the predictions were that were made when jobs started.
  struct Quality {
    predict::QuantileScore p50{500};
    predict::QuantileScore p90{900};

    void add(int64_t p50_ms, int64_t p90_ms, int64_t run_ms) {
      p50.add(p50_ms, run_ms);
      p90.add(p90_ms, run_ms);
    }
  };
  /// Number of tenants that are counted by themselves; all others are counted together.
  static constexpr std::size_t kQualityTenantsMax = 64;

  std::string_view name() const override { return "learned"; }
  Duration to_pass(const State& state, const Job& job, Time now) const override;
  Duration of_running(const State& state, const Job& job, Duration elapsed, Time now) const override;
  Duration to_order(const State& state, const Job& job, Duration attained, Time now) const override;

  /// Learns from the newest finished jobs of a state, and of what runs in it.
  void begin(const State& state);
  /// Learns an event that `state` already has.
  void observe(const State& state, const Event& event);
  const Quality& quality() const { return quality_; }
  /// The same of each tenant's jobs: the first kQualityTenantsMax that had a score, and under no tenant those
  /// of all others.
  const std::map<TenantId, Quality>& quality_by_tenant() const { return by_tenant_; }
  /// Expected run times of a job; empty: nothing is known.
  predict::RunTimes expected(const predict::JobFacts& facts, Time now) const {
    return predictor_.predict(facts, now.ms());
  }

  /// Jobs whose specifications it has read and that are not finished.
  std::size_t jobs_remembered() const { return facts_.size(); }
  /// Cost of the planner's questions so far.
  uint64_t specs_read() const { return facts_.specs_read(); }
  uint64_t predictions_made() const { return predictions_.made(); }

 private:
  struct Said {
    predict::JobFacts facts;
    TenantId tenant;
    int64_t p50_ms = 0;
    int64_t p90_ms = 0;
  };

  const predict::RunTimes& remembered(const State& state, const Job& job, Time now) const;
  void started(const State& state, const Job& job);
  void ended(uint64_t job, Time started_at, Time at, bool by_itself);

  predict::Learned predictor_;
  mutable FactsMemory facts_;
  mutable PredictionMemory predictions_;
  boost::unordered_flat_map<uint64_t, Said> running_;  ///< By job.
  Quality quality_;
  std::map<TenantId, Quality> by_tenant_;
};

}  // namespace gpusched
