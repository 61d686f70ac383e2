#include "node/watch/activity_meter.h"

namespace gpusched {
namespace {

/// Since when it is so.
Duration follow(bool is, Time& since, Time now) {
  if (!is) {
    since = {};
    return {};
  }
  if (!since.valid()) since = now;
  return now - since;
}

}  // namespace

ActivityMeter::Activity ActivityMeter::look(const Look& now_seen, Time now) {
  if (!quiet_since_.valid() || mark_ != now_seen.mark) quiet_since_ = now;
  mark_ = now_seen.mark;
  return {.idle = follow(now_seen.idle, idle_since_, now),
          .busy = follow(now_seen.busy, busy_since_, now),
          .quiet = now - quiet_since_,
          .over_mb = now_seen.over_mb,
          .over = follow(now_seen.over_mb > 0, over_since_, now)};
}

}  // namespace gpusched
