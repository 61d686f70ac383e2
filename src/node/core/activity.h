#pragma once

#include <cstdint>
#include <map>

#include "base/ids.h"
#include "base/time.h"
#include "node/core/ports.h"

namespace gpusched {

/// For how long running attempts have left their devices unused, kept them busy, said nothing, or used more
/// than their share; counted from the first look at the earliest. Not thread-safe.
class ActivityWatch {
 public:
  /// What one look at an attempt shows.
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

  Activity look(const AttemptKey& key, const Look& now_seen, Time now);
  void forget(const AttemptKey& key) { watched_.erase(key); }

 private:
  struct Watched {
    Time idle_since, busy_since, quiet_since, over_since;  ///< Not valid: it is not so.
    int64_t mark = 0;
  };
  std::map<AttemptKey, Watched> watched_;
};

}  // namespace gpusched
