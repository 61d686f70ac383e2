#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "api/contract/forecasts.h"
#include "api/contract/jobs.h"
#include "host/core/interfaces.h"
#include "host/forecast/learned_task_use.h"
#include "host/readers/observer.h"
#include "model/state.h"

namespace gpusched::api {

/// GPU memory for tasks of agents that do not ask for it, by the use of those before them
/// (docs/adr/agent-tasks.md#learn-gpu-memory-for-tasks-that-name-none). Thread-safe.
class TaskUses {
 public:
  /// All of a state.
  void fill(const State& state);
  /// Takes in a batch of changes. On the observer's thread.
  void observe(const Observer::View& view, const Changes& changes);

  /// Gives a tenant's task whose memory is a default the memory that was learned, and says so in a label of
  /// it: never more than the largest GPU has. A label of every task tells the load that was learned,
  /// `0.7 * memory share + 0.3 * utilisation` in tenths of the largest GPU. Where nothing is known, and no
  /// GPU, it stays as it is.
  void give(TenantId tenant, JobRequest& job) const;
  /// How good that was: the first is of all tenants.
  std::vector<QualityView::MemoryScore> scores() const;

 private:
  /// With the mutex held.
  void measure_gpus(const State& state);

  mutable std::mutex mutex_;  // Guards all below.
  LearnedTaskUse learned_;
  int64_t largest_mb_ = 0;  ///< Memory of the largest GPU that is shared; 0: there is none.
};

}  // namespace gpusched::api
