#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "engine/messages/commands.h"
#include "model/job.h"
#include "model/state.h"
#include "predict/run_times.h"
#include "replay/scheduler/replay_policy.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// The cluster of a replay. A job runs on one node; a larger one is left out, or is a gang.
struct ReplayCluster {
  uint32_t nodes = 0;
  uint32_t gpus_per_node = 0;  ///< At most limits::kDevicesPerNodeMax.
  bool gangs = false;  ///< Jobs larger than a node get whole nodes; those that do not fill them are left out.
  uint32_t racks =
      0;  ///< The nodes are evenly in so many racks, which their labels name; 0: nothing names one.
  bool rack_required = false;  ///< Each gang waits until one rack has it; else it may be over several.
  /// Given instead: one pool of so many alike GPUs, of which a job may have any. For the engine that is one
  /// node with as many cores.
  int64_t pool = 0;

  int64_t capacity() const { return pool > 0 ? pool : int64_t{nodes} * gpus_per_node; }
};

/// The number of a trace that says whose tenant a job is.
enum class TenantOf : uint8_t { kNobody, kQueue, kUser };

/// Looks on while a trace is replayed. Called on the replay's thread; changes nothing.
class ReplayWatcher {
 public:
  virtual ~ReplayWatcher() = default;
  /// Knowledge of jobs at the moment.
  class Knowledge {
   public:
    virtual ~Knowledge() = default;
    /// The job of the trace that the engine calls so.
    virtual uint32_t index_of(JobId id) const = 0;
    /// How long the job may run, by what the policy knows; empty: nothing.
    virtual predict::RunTimes expected(uint32_t index, Time now) const = 0;
  };
  /// The engine accepted the job.
  virtual void submitted(JobId /*id*/, uint32_t /*index*/, Time /*now*/) {}
  /// It was placed, for the first time or again, and has begun.
  virtual void placed(const State& /*state*/, const Attempt& /*attempt*/, uint32_t /*index*/, Time /*now*/) {}
  /// It was ended for another one, and waits again.
  virtual void stopped(JobId /*id*/, uint32_t /*index*/, Time /*now*/) {}
  /// All of an instant has happened, and the planner starts nothing more.
  virtual void settled(const State& /*state*/, const Knowledge& /*knowledge*/, Time /*now*/) {}
};

struct ReplayOptions {
  ReplayCluster cluster;
  std::vector<RegisterNode> machines;  ///< Given instead of a cluster: these nodes.
  TenantOf tenant_of = TenantOf::kNobody;
  /// Tenants by the number that `tenant_of` names; those beyond are made with the defaults. The names are the
  /// replay's, and parents are numbers too. GPUs of a pool are cores here.
  std::vector<CreateTenant> tenants;
  std::vector<JobRequest> requests;  ///< By job, given: instead of its size and what it asked for.
  EngineConfig config;               ///< For the engine; its policy is the replay's.
  /// Extra time of a job that was ended for another one, each time that it starts again.
  Duration restart;
  Duration grace;            ///< From the word to end a job until it has ended and all it held is free.
  bool starts_anew = false;  ///< It has saved nothing when it was ended; else it goes on from where it was.
  ReplayWatcher* watcher = nullptr;  ///< Outlives the replay.
};

struct ReplayOutcome {
  struct Run {
    Duration started;  ///< For the first time; since the trace's start, as the next.
    Duration ended;
    uint32_t preemptions = 0;
    bool ran = false;  ///< False: it fits nowhere, or its tenant may never have as much.
  };
  std::vector<Run> runs;  ///< By job.
  uint64_t left_out = 0;  ///< Jobs that did not run.
  uint64_t preemptions = 0;
  int64_t lost_ms = 0;  ///< GPUs x time that ended jobs ran for nothing.
  /// Each time that a guarantee was taken back: from asking until the job was placed.
  std::vector<Duration> reclaims;
  uint64_t cycles = 0;
  uint64_t commands = 0;  ///< Decided by the engine.
  uint64_t digest = 0;    ///< Digest of all that happened: two equal replays have the same.
};

/// Replays `jobs`, in the order of submission, on the real engine: each submission, start and end is a
/// command that `decide` and `evolve` apply, and the planner plans after each instant, on a virtual clock and
/// without a journal. At one instant first what ends, then what is submitted, then a cycle. Predictions are
/// learned from what ended before. Deterministic. kInvalidArgument: a cluster or tenant that the engine
/// refuses.
Result<ReplayOutcome> replay_engine(std::span<const TraceJob> jobs, const ReplayPolicy& policy,
                                    const ReplayOptions& options);

}  // namespace gpusched::replay
