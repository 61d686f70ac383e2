#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/time.h"
#include "gpusched/v1/types.pb.h"
#include "model/types.h"

namespace gpusched {

/// Limits for what a running job may leave undone, and the actions that follow.
struct WatchPolicy {
  Duration idle_after;  ///< Its GPUs unused; zero: that is not looked at.
  WatchAction idle_action = WatchAction::kWarn;
  Duration hung_after;  ///< Its GPUs busy and nothing else; zero: likewise.
  WatchAction hung_action = WatchAction::kWarn;
  bool is_lease = false;  ///< Its holder is told when its time is about to end.

  friend bool operator==(const WatchPolicy&, const WatchPolicy&) = default;
};

/// The operator's: what holds for jobs that ask for nothing, and how much milder a job may ask to be treated.
/// Harder it may always.
struct WatchLimits {
  WatchPolicy usual;
  Duration after_max;           ///< A job may ask for as long; never less than the usual. Zero: no longer.
  bool job_may_soften = false;  ///< A job may ask for a milder action than the usual one.

  bool on() const { return usual.idle_after.ns > 0 || usual.hung_after.ns > 0; }
};

/// Policy for a job by its specification. Words that are no action count as none.
WatchPolicy policy_of(const WatchLimits& limits, const v1::JobSpec& spec);

/// For how long one member of an attempt has done what, as its node tells.
struct MemberActivity {
  Duration idle;        ///< Its GPUs unused.
  Duration busy;        ///< All of them at work.
  Duration quiet;       ///< No output, and no word that its work is saved.
  int64_t over_mb = 0;  ///< Memory of a GPU that it uses beyond its share.
  Duration over;        ///< Time for which it has done so.
};

/// Warning about an attempt; kNone: nothing.
struct WatchFinding {
  WatchdogFinding kind = WatchdogFinding::kNone;
  std::string detail = {};
  Duration age;
  WatchAction action = WatchAction::kWarn;
};
/// How long an attempt may run, and for how long it has.
struct RunTime {
  Duration limit;  ///< Zero: for ever.
  Duration past;
};
/// Judges an attempt with these members: idle or hung when all of them are, over its share when one is; a
/// lease is ending for its last minutes, at most a quarter of its time.
WatchFinding judge(const WatchPolicy& policy, std::span<const MemberActivity> members,
                   const RunTime& run_time = {});

}  // namespace gpusched
