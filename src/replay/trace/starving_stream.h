#pragma once

#include <algorithm>
#include <vector>

#include "base/prng.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// An adversary's stream of small jobs that alone would fill `pool` GPUs by `load_percent` for `days`, and
/// one job that needs all of it (`whole`), one that needs half, each `every`: small ones come at every moment
/// at which a large one could have started, so whoever lets them pass for ever starves the large ones.
struct StarvingStream {
  int64_t pool = 64;
  int64_t days = 30;
  int64_t load_percent = 80;
  Duration every = hours(24);
  Duration small_max = hours(2);  ///< Longest run of a small job.
  Duration large_run = hours(1);  ///< Run of each large one.
};

/// How long a large job may wait at most. It is trusted that small work is gone when it is expected to be
/// until twice the wait that was promised at first, which is at most the longest limit, and at least 4 h
/// (docs/policies.md); then what runs has to reach its limit; and before all that what stood before it has
/// to start, for which at most as long is allowed here.
inline Duration longest_wait_bound(const StarvingStream& stream) {
  return std::max(hours(4), stream.small_max * 2) + stream.small_max * 2;
}

inline std::vector<TraceJob> starving_stream(const StarvingStream& stream, uint64_t seed) {
  Prng prng(seed);
  std::vector<TraceJob> jobs;
  const int64_t end_ms = hours(24 * stream.days).ms();
  // Small jobs have 1 to 4 GPUs and run for 1 minute to `small_max`, both uniform.
  const int64_t mean_ms = (minutes(1).ms() + stream.small_max.ms()) / 2;
  const double gap_ms = 2.5 * static_cast<double>(mean_ms) * 100 /
                        (static_cast<double>(stream.pool) * static_cast<double>(stream.load_percent));
  for (int64_t at_ms = 0; at_ms < end_ms;) {
    const int64_t run_ms = prng.between(minutes(1).ms(), stream.small_max.ms());
    jobs.push_back({.id = 0,
                    .submitted = milliseconds(at_ms),
                    .run = milliseconds(run_ms),
                    .requested = stream.small_max,
                    .size = prng.between(1, 4),
                    .user = 1,
                    .queue = 1});
    at_ms += prng.between(1, std::max<int64_t>(2, static_cast<int64_t>(2 * gap_ms)));
  }
  for (int64_t at_ms = stream.every.ms() / 2; at_ms < end_ms; at_ms += stream.every.ms()) {
    for (const int64_t size : {stream.pool, stream.pool / 2}) {
      jobs.push_back({.id = 1,
                      .submitted = milliseconds(at_ms),
                      .run = stream.large_run,
                      .requested = stream.large_run,
                      .size = size,
                      .user = 2,
                      .queue = 2});
    }
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const auto& a, const auto& b) { return a.submitted < b.submitted; });
  return jobs;
}

}  // namespace gpusched::replay
