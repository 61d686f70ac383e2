#pragma once

#include <cstdint>
#include <string_view>

#include "predict/run_times.h"

namespace gpusched::predict {

/// Facts about a job before it runs. Names are numbers here: a caller with words hashes them, stably. Zero
/// means "not known" for each.
struct JobFacts {
  uint64_t job = 0;
  uint64_t user = 0;
  uint64_t name = 0;     ///< Hash of the job's name without counters in it.
  uint64_t shape = 0;    ///< Hash of its command: program and fixed words, without numbers and paths.
  int64_t size = 0;      ///< GPUs or processors.
  int64_t limit_ms = 0;  ///< Time limit at which it is ended.
};

/// Says how long jobs will run, from what is past. Deterministic: the same calls give the same answers on
/// every machine. Pure; not thread-safe. Nothing of what it learned is stored: it is learned again from
/// finished jobs.
class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual std::string_view name() const = 0;
  /// For a job submitted at `at_ms`, from nothing later than that. Never empty unless nothing at all is
  /// known; no sample is beyond the job's limit.
  virtual RunTimes predict(const JobFacts& facts, int64_t at_ms) const = 0;
  /// The job began to run. Each is told once, in the order of time.
  virtual void started(const JobFacts& /*facts*/, int64_t /*at_ms*/) {}
  /// The job ended by itself or at its limit, after `run_ms`. Runs that somebody else cut short (cancelled,
  /// preempted, node lost) are told by `left`.
  virtual void finished(const JobFacts& /*facts*/, int64_t /*run_ms*/, int64_t /*at_ms*/) {}
  /// The job runs no more, and how long it would have run nobody knows.
  virtual void left(const JobFacts& /*facts*/) {}
};

}  // namespace gpusched::predict
