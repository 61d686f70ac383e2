#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/types.h"

namespace gpusched::replay {

/// A policy to replay: a queue order of the scheduler's, and what else differs from the default.
struct ReplayPolicy {
  /// Where run times come from.
  enum class Knows : uint8_t {
    kLearned,  ///< From jobs that ended before, as the scheduler does.
    kLimits,   ///< From the limits that users asked for.
    kOracle,   ///< From the trace, which nobody can know: how long each will run.
  };
  std::string name;  ///< As it was written.
  SchedulingPolicy scheduling;
  Knows knows = Knows::kLearned;
};

/// Reads `ORDER[+OPTION..]`, such as `fair_share+reservations=8`: ORDER is a value of scheduler.queue_order,
/// options are `jobs=NAME` (scheduler.job_order), `reservations=N` (0 to limits::kReservationsMax), `preempt`
/// (scheduler.preempt_by_attained), `limits` and `oracle`. kInvalidArgument says what is known.
Result<ReplayPolicy> parse_policy(std::string_view text);
/// Several of them, with commas between.
Result<std::vector<ReplayPolicy>> parse_policies(std::string_view text);

}  // namespace gpusched::replay
