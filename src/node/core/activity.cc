#include "node/core/activity.h"

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

ActivityWatch::Activity ActivityWatch::look(const AttemptKey& key, const Look& now_seen, Time now) {
  Watched& watched = watched_[key];
  if (!watched.quiet_since.valid() || watched.mark != now_seen.mark) watched.quiet_since = now;
  watched.mark = now_seen.mark;
  return {.idle = follow(now_seen.idle, watched.idle_since, now),
          .busy = follow(now_seen.busy, watched.busy_since, now),
          .quiet = now - watched.quiet_since,
          .over_mb = now_seen.over_mb,
          .over = follow(now_seen.over_mb > 0, watched.over_since, now)};
}

}  // namespace gpusched
