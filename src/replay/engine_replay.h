#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "engine/commands.h"
#include "replay/replay_policy.h"
#include "replay/trace_job.h"

namespace gpusched::replay {

/// What a trace is replayed on. A job runs on one node: what is larger is left out.
struct ReplayCluster {
  uint32_t nodes = 0;
  uint32_t gpus_per_node = 0;  ///< At most limits::kDevicesPerNodeMax.
  /// Given instead: one pool of so many alike GPUs, of which a job may have any. For the engine that is one
  /// node with as many cores.
  int64_t pool = 0;

  int64_t capacity() const { return pool > 0 ? pool : int64_t{nodes} * gpus_per_node; }
};

/// Which of a trace's numbers says whose tenant a job is.
enum class TenantOf : uint8_t { kNobody, kQueue, kUser };

struct ReplayOptions {
  ReplayCluster cluster;
  std::vector<RegisterNode> machines;  ///< Given instead of a cluster: these nodes.
  TenantOf tenant_of = TenantOf::kNobody;
  /// Of the tenants by the number that `tenant_of` names; those beyond are made with the defaults. The names
  /// are the replay's, and parents are numbers too. GPUs of a pool are cores here.
  std::vector<CreateTenant> tenants;
  std::vector<JobRequest> requests;  ///< By job, given: instead of its size and what it asked for.
  EngineConfig config;               ///< Of the engine; its policy is the replay's.
  /// What a job that was ended for another one needs more, each time that it starts again. It goes on from
  /// where it was.
  Duration restart;
};

struct ReplayOutcome {
  struct Run {
    Duration started;  ///< For the first time; since the trace's start, as the next.
    Duration ended;
    uint32_t preemptions = 0;
    bool ran = false;  ///< False: it is too large for a node, or its tenant may never have as much.
  };
  std::vector<Run> runs;  ///< By job.
  uint64_t left_out = 0;  ///< Jobs that did not run.
  uint64_t preemptions = 0;
  uint64_t cycles = 0;
  uint64_t commands = 0;  ///< That the engine decided.
  uint64_t digest = 0;    ///< Of all that happened: two equal replays have the same.
};

/// Replays `jobs`, in the order of submission, on the real engine: each submission, start and end is a
/// command that `decide` and `evolve` apply, and the planner plans after each instant, on a virtual clock and
/// without a journal. At one instant first what ends, then what is submitted, then a cycle. Predictions are
/// learned from what ended before. Deterministic. kInvalidArgument: a cluster or tenant that the engine
/// refuses.
Result<ReplayOutcome> replay_engine(std::span<const TraceJob> jobs, const ReplayPolicy& policy,
                                    const ReplayOptions& options);

}  // namespace gpusched::replay
