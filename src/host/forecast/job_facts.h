#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>

#include "base/blob.h"
#include "model/state.h"
#include "predict/predictor.h"

namespace gpusched {

/// Facts by which the predictor knows a job: its user, name, command, size and limit. Names and commands lose
/// what counts up in them, so that `train-1` and `train-2` are alike. A task of an agent, whose name is an
/// id, is known by its type and by the order of its payload's size instead. Reads the specification.
predict::JobFacts facts_of(const State& state, const Job& job);

/// The same, with what the specifications of unfinished jobs say read once. Not thread-safe.
class FactsMemory {
 public:
  /// The same as `gpusched::facts_of`.
  predict::JobFacts facts_of(const State& state, const Job& job);
  /// The job is finished.
  void forget(JobId job) { known_.erase(job.value); }

  std::size_t size() const { return known_.size(); }
  /// Specifications that were read so far.
  uint64_t specs_read() const { return specs_read_; }

 private:
  /// When there are more, all are forgotten and read again: 64 bytes each.
  static constexpr std::size_t kJobsMax = 262'144;
  struct Known {
    Blob spec;  ///< The specification that was read; held, so that no other one has its identity.
    uint64_t user = 0;
    uint64_t name = 0;
    uint64_t shape = 0;
  };

  boost::unordered_flat_map<uint64_t, Known> known_;  ///< By job.
  uint64_t specs_read_ = 0;
};

}  // namespace gpusched
