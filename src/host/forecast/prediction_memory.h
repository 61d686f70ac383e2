#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>

#include "base/digest.h"
#include "predict/learned.h"

namespace gpusched {

/// Predictions for each kind of job, as long as they stay the same. Not thread-safe.
class PredictionMemory {
 public:
  /// Answer of `predictor.predict`; each call must pass the same predictor. Valid until the next call.
  const predict::RunTimes& of(const predict::Learned& predictor, const predict::JobFacts& facts,
                              int64_t at_ms) {
    const predict::Learned::Basis basis = predictor.basis(facts, at_ms);
    const Kind kind{.user = facts.user,
                    .name = facts.name,
                    .shape = facts.shape,
                    .size = facts.size,
                    .limit_ms = facts.limit_ms};
    if (kinds_.size() >= kKindsMax && !kinds_.contains(kind)) kinds_.clear();
    const auto [at, is_new] = kinds_.try_emplace(kind);
    Known& known = at->second;
    if (!is_new && known.basis == basis) return known.run_times;
    ++made_;
    known = {.basis = basis, .run_times = predictor.predict(facts, at_ms)};
    return known.run_times;
  }
  /// Predictions that were made so far.
  uint64_t made() const { return made_; }

 private:
  /// When there are more, all are forgotten and made again: 3 kB each.
  static constexpr std::size_t kKindsMax = 4'096;
  /// All facts but the job itself.
  struct Kind {
    uint64_t user = 0;
    uint64_t name = 0;
    uint64_t shape = 0;
    int64_t size = 0;
    int64_t limit_ms = 0;
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  struct KindHash {
    std::size_t operator()(const Kind& kind) const {
      Digest digest;
      for (const uint64_t word : {kind.user, kind.name, kind.shape, static_cast<uint64_t>(kind.size),
                                  static_cast<uint64_t>(kind.limit_ms)})
        digest.mix(word);
      return digest.value();
    }
  };
  struct Known {
    predict::Learned::Basis basis;
    predict::RunTimes run_times;
  };

  boost::unordered_flat_map<Kind, Known, KindHash> kinds_;
  uint64_t made_ = 0;
};

}  // namespace gpusched
