#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <string_view>
#include <utility>

#include "predict/predictor.h"

namespace gpusched::predict {

/// Predicts the time limit that the user requested.
class Requested final : public Predictor {
 public:
  std::string_view name() const override { return "requested"; }
  RunTimes predict(const JobFacts& facts, int64_t at_ms) const override;
};

/// The mean of the user's last two finished runs, in whole units of `grain_ms` rounded down, and not beyond
/// the limit; the limit until there are two (Tsafrir, Etsion, Feitelson 2007, section 4.1). Users are never
/// forgotten: for replays of bounded traces.
class LastTwo final : public Predictor {
 public:
  explicit LastTwo(int64_t grain_ms = 1);
  std::string_view name() const override { return "last2"; }
  RunTimes predict(const JobFacts& facts, int64_t at_ms) const override;
  void finished(const JobFacts& facts, int64_t run_ms, int64_t at_ms) override;

 private:
  int64_t grain_ms_;
  boost::unordered_flat_map<uint64_t, std::array<int64_t, 2>> last_;  ///< Newest first; -1: none yet.
};

/// An oracle that is told what nobody can know: the yardstick of replays.
class Clairvoyant final : public Predictor {
 public:
  std::string_view name() const override { return "clairvoyant"; }
  /// The job's run time, before it is asked for.
  void reveal(uint64_t job, int64_t run_ms) { truth_[job] = run_ms; }
  RunTimes predict(const JobFacts& facts, int64_t at_ms) const override;

 private:
  boost::unordered_flat_map<uint64_t, int64_t> truth_;
};

}  // namespace gpusched::predict
