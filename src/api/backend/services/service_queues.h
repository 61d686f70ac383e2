#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "model/state.h"

namespace gpusched::api {

/// A name within a tenant.
using ServiceKey = std::pair<TenantId, std::string>;

/// The jobs of a tenant that wait and have a label. A job waits when it is pending, neither held nor before
/// its begin, and has no dependency that is not met; each element of an array counts. A service's record or
/// replica is in no queue.
struct QueueKey {
  TenantId tenant;
  std::string label;
  std::optional<std::string> value;  ///< Absent: any.
  std::optional<uint32_t> owner;     ///< Only this owner's jobs, by its number in the state; absent: all.

  friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
};

/// How many jobs are in the queues that services follow, kept up to date by what changes: jobs are looked at
/// all together once, when somebody begins to follow a queue. Not thread-safe: ServiceIndex guards it.
class ServiceQueues {
 public:
  bool empty() const { return queues_.empty(); }
  void follow(const QueueKey& queue, const ServiceKey& service);
  /// A queue that nobody follows is forgotten.
  void leave(const QueueKey& queue, const ServiceKey& service);

  /// Something became of the job. Adds those that follow a queue whose number is another one now.
  void note(const State& state, JobId job, std::set<ServiceKey>& touched);
  /// Absent: the queue is not counted yet, or nobody follows it.
  std::optional<int64_t> waiting(const QueueKey& queue) const;

  /// The number of the count that the caller is to make by `count_some`; absent: it is under way, or over.
  std::optional<uint64_t> begin_count(const QueueKey& queue);
  /// Counts some jobs more. Returns whether there are others, and adds those that wait for the end of it.
  bool count_some(const State& state, uint64_t count, std::set<ServiceKey>& touched);

 private:
  struct Queue {
    std::set<ServiceKey> followers;
    std::unordered_map<uint64_t, int64_t>
        jobs;  ///< By id: how many waiting jobs each stands for; none has 0.
    int64_t waiting = 0;
    uint64_t count = 0;  ///< The number of its count; 0: that has not begun.
    JobId counted_to;    ///< From the newest job down to this one; not valid: none yet.
    bool is_counted = false;
  };
  /// Returns whether the number changed.
  static bool set(Queue& queue, JobId job, int64_t waiting);

  std::map<QueueKey, Queue> queues_;
  uint64_t counts_ = 0;
};

}  // namespace gpusched::api
