#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/time.h"
#include "history/record/questions.h"

/// The history: finished jobs and the use of GPUs over all time.
namespace gpusched::api {

struct HistoryFilter {
  std::string tenant;  ///< Id or name; empty: all that the caller may see.
  std::optional<std::string> user;
  std::string state;  ///< "completed", "failed" or "cancelled"; empty: any.
  std::string node;   ///< Given: jobs of which an attempt was there.
  Time since, until;  ///< Given: submitted at or after, and before.
  int64_t limit = 50;
  history::Cursor before;
};

struct UsageFilter {
  std::string tenant;
  std::optional<std::string> user;
  std::vector<history::UsageBy> by;
  Time since, until;
};

/// Everything is thread-safe and returns at once; answers come by `Done`, from the history's thread. A query
/// never touches the scheduler's threads. kUnavailable: none is kept, or it cannot be read now.
class HistoryBackend {
 public:
  virtual ~HistoryBackend() = default;

  virtual void list_history(const CallerPtr& caller, HistoryFilter filter, Done<history::JobsPage> done) = 0;
  /// kPermissionDenied for callers without a credential.
  virtual void get_usage(const CallerPtr& caller, UsageFilter filter, Done<history::UsageReport> done) = 0;
  /// Makes a copy of the database beside it and answers with its path. For administrators.
  virtual void copy_history(const CallerPtr& caller, Done<std::string> done) = 0;
};

}  // namespace gpusched::api
