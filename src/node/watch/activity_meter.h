#pragma once

#include <cstdint>

#include "base/time.h"

namespace gpusched {

/// For how long one running attempt has left its devices unused, kept them busy, said nothing, or used more
/// than its share; counted from the first look at the earliest. Not thread-safe.
class ActivityMeter {
 public:
  /// Result of one look at the attempt.
  struct Look {
    bool idle = false;    ///< None of its devices is used.
    bool busy = false;    ///< All of them are at work.
    int64_t mark = 0;     ///< Another one whenever it said something.
    int64_t over_mb = 0;  ///< Memory beyond its share.
  };
  struct Activity {
    Duration idle, busy, quiet;
    int64_t over_mb = 0;
    Duration over;
  };

  Activity look(const Look& now_seen, Time now);

 private:
  Time idle_since_, busy_since_, quiet_since_, over_since_;  ///< Not valid: it is not so.
  int64_t mark_ = 0;
};

}  // namespace gpusched
