#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <vector>

#include "engine/policy/policy.h"
#include "forecast/forecast.h"
#include "predict/predictor.h"

namespace gpusched {

/// Run times as they are known at one moment, for a forecast: each kind of job is looked up once and then
/// remembered, for the planners of all its runs and for the run times that are drawn. Not thread-safe.
class KnownRunTimes final : public policy::RunTimes, public forecast::RunSource {
 public:
  using LookUp = std::function<predict::RunTimes(const predict::JobFacts&)>;
  /// Returns the facts by which a job is known.
  using FactsOf = std::function<predict::JobFacts(const State& state, const Job& job)>;
  explicit KnownRunTimes(LookUp look_up);
  KnownRunTimes(LookUp look_up, FactsOf facts_of);

  std::string_view name() const override { return "known"; }
  Duration to_pass(const State& state, const Job& job, Time now) const override;
  Duration of_running(const State& state, const Job& job, Duration elapsed, Time now) const override;
  Duration to_order(const State& state, const Job& job, Duration attained, Time now) const override;
  Duration whole_run(const State& state, const Job& job, Duration elapsed, int32_t per_mille) override;
  /// Empty: nothing is known.
  const predict::RunTimes& known(const State& state, const Job& job) const;

 private:
  /// More kinds than this are forgotten and looked up again: 3 kB each.
  static constexpr std::size_t kKindsMax = 20'000;
  /// Jobs by id, with the limit that their kind was found for.
  struct Kind {
    int64_t limit_ms = 0;
    uint32_t job_class = 0;
    uint32_t index = 0;
  };

  LookUp look_up_;
  FactsOf facts_of_;
  mutable boost::unordered_flat_map<uint64_t, Kind> kind_of_job_;
  mutable boost::unordered_flat_map<uint64_t, uint32_t> kind_of_facts_;
  mutable std::vector<predict::RunTimes> kinds_;
};

}  // namespace gpusched
