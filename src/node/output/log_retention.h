#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/time.h"

namespace gpusched {

struct LogRetentionOptions {
  std::string data_folder;
  int64_t bytes_max = 0;  ///< Limit of all attempts' output together; 0: none.
  Duration kept = {};     ///< After an attempt's end; zero: for ever.
};

/// Decides which output goes when: that of ended attempts, the oldest first, once it is too old or the node
/// keeps too much. Output of running attempts is counted and never touched. Every removal is noted, so that a
/// reader is told when and why. Not thread-safe.
class LogRetention {
 public:
  explicit LogRetention(LogRetentionOptions options);
  ~LogRetention();
  LogRetention(const LogRetention&) = delete;
  LogRetention& operator=(const LogRetention&) = delete;

  void began(const AttemptKey& key) { running_.insert(key); }
  void ended(const AttemptKey& key, Time wall);
  /// Its folder goes now.
  void forgot(const AttemptKey& key, Time wall, const std::string& why);
  /// Takes in what an earlier agent left, by the attempts' folders. A file older than `born`, when the data
  /// folder was made, was written by a wrong clock: it counts from `wall` on.
  void look_around(Time born, Time wall);
  /// The clock whose times were given so far was wrong by this much. The times in files stay.
  void shift(Duration by);
  /// Removes what has to go; for its age only `by_age`. Returns how long it may be until the next time.
  Duration enforce(Time wall, bool by_age = true);

  int64_t ended_bytes() const { return ended_bytes_; }

 private:
  using Age = std::pair<int64_t, AttemptKey>;

  std::string folder_of(const AttemptKey& key) const;
  int64_t bytes_of(const AttemptKey& key) const;
  int64_t running_bytes(Time wall);
  void add(const AttemptKey& key, int64_t ended_unix_ns, bool by_clock);
  void remove_oldest(Time wall, const std::string& why);
  void note(const AttemptKey& key, Time wall, const std::string& why);

  const LogRetentionOptions options_;
  std::set<AttemptKey> running_;
  std::map<AttemptKey, std::pair<int64_t, int64_t>> ended_;  ///< When, in Unix ns, and how many bytes.
  std::set<Age> by_age_;
  std::set<AttemptKey> by_clock_;  ///< Ended ones that are dated by given times.
  int64_t ended_bytes_ = 0;
  int64_t running_bytes_ = 0;
  Time running_seen_at_;
  int notes_ = -1;
};

/// File of the agent's data folder that notes removals: a line each, the oldest first.
inline constexpr const char* kRemovedLogsFile = "removed-logs";
/// "2026-01-31 14:03:07 UTC: older than 7 days"; empty: its output was not removed, as far as is known.
std::string removed_log_note(const std::string& data_folder, const AttemptKey& key);

}  // namespace gpusched
