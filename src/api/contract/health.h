#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "api/contract/forecasts.h"
#include "model/types.h"

/// How the scheduler is, and its numbers.
namespace gpusched::api {

struct HealthView {
  bool serving = true;  ///< Writes are accepted.
  std::string reason;   ///< Why not; one sentence.
  ErrorKind kind = ErrorKind::kUnavailable;
  std::vector<std::string> concerns;  ///< Problems that do not keep it from serving; a sentence each.
};

/// Counters for Prometheus. Everything is since the start unless it says "now".
struct MetricsView {
  struct State {
    JobState state;
    int64_t total = 0;  ///< Jobs that entered the state.
    int64_t now = 0;    ///< Jobs that are in it now.
  };
  std::vector<State> jobs;
  int64_t queue_size = 0;  ///< Waiting now.
  int64_t preemptions = 0;
  struct Gpu {
    std::string node, gpu;
    double utilization = 0;  ///< 0..1
  };
  std::vector<Gpu> gpus;
  std::vector<double> latency_bounds;  ///< Seconds; upper bounds, without +Inf.
  std::vector<int64_t>
      latency_buckets;  ///< One more than bounds; not cumulative. Time from submission to placement.
  double latency_sum = 0;
  int64_t latency_count = 0;
  /// Seconds from a job's asking for what its tenant is guaranteed, or its pool's, to its start on what
  /// others gave back; by the same bounds.
  std::vector<int64_t> reclaim_buckets;
  double reclaim_sum = 0;
  int64_t reclaim_count = 0;
  /// Further ones; those of one name behind each other.
  struct Counter {
    std::string_view name, type, help;  ///< In static storage; `type` is "counter" or "gauge".
    int64_t value = 0;
    std::vector<std::pair<std::string_view, std::string>> labels = {};
    std::optional<double> real = {};  ///< In place of `value`.
    bool is_bare = false;             ///< The name stands without the name space.
  };
  std::vector<Counter> counters;
  /// The answers of one door.
  struct Requests {
    std::string_view kind;                         ///< Such as "grpc"; of static storage.
    std::vector<std::pair<int, int64_t>> answers;  ///< By code.
    std::vector<double> bounds;                    ///< Seconds; upper bounds, without +Inf.
    std::vector<int64_t> buckets;                  ///< One more than bounds; not cumulative.
    double seconds = 0;                            ///< Sum over all answers.
  };
  std::vector<Requests> requests;
  int64_t journal_syncs = 0;        ///< Durable writes of the journal.
  double journal_sync_seconds = 0;  ///< Time that these took together.
  QualityView quality;
};

/// How the scheduler is, and its numbers. Everything is thread-safe and returns at once; answers come by
/// `Done`.
class HealthBackend {
 public:
  virtual ~HealthBackend() = default;

  virtual void get_metrics(const CallerPtr& caller, Done<MetricsView> done) = 0;
  /// Cheap; any thread.
  virtual HealthView health() const = 0;
  /// Whether any node can run container images now. Cheap; any thread.
  virtual bool containers_possible() const = 0;
};

}  // namespace gpusched::api
