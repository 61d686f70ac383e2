#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/ids.h"
#include "base/time.h"

/// Running jobs that could go on elsewhere so that others start.
namespace gpusched::api {

/// A move of a running job so that waiting jobs start.
struct MoveView {
  JobId job;
  std::string from_node, to_node;
  std::vector<std::string> from_gpus, to_gpus;
  int64_t gpu_count = 0;
  int64_t lost_gpu_ms = 0;
  bool saved = false;
  int64_t ended_before = 0;
};
struct MoveProposalView {
  std::string id;
  JobId job;
  std::string node_name;
  std::vector<std::string> gpus;
  std::vector<MoveView> moves;
  int64_t lost_gpu_ms = 0;
  std::vector<JobId> starts;
  int64_t gpus_started = 0;
  Time otherwise;  ///< None: not known.
  int64_t unusable_milli_before = 0, unusable_milli_after = 0;
};
struct MovesView {
  struct Unmoved {
    JobId job;
    std::string message;
  };
  Time at;
  std::string_view mode;  ///< off, propose, act
  std::vector<MoveProposalView> proposals;
  std::vector<Unmoved> unmoved;
  int64_t gpus_free = 0;
  int64_t unusable_milli = 0;
  bool stopped_early = false;
  std::string message;
};
struct MovesRequest {
  std::string tenant;     ///< Given: it is refused.
  JobId job;              ///< None: for whatever waits.
  int64_t moves_max = 0;  ///< 0: the usual number.
};
struct ApplyMoves {
  std::string id, by, reason;
};

/// Tells which running jobs could go on elsewhere so that others start. Everything is thread-safe and returns
/// at once; answers come by `Done`.
class MoveBackend {
 public:
  virtual ~MoveBackend() = default;

  /// Gives the running jobs that could go on elsewhere so that others start. On the same thread as `plan`.
  virtual void get_moves(const CallerPtr& caller, MovesRequest request, Done<MovesView> done) = 0;
  /// Carries out a proposal of the last answers. kMoveStale when it no longer holds, or is not known.
  virtual void apply_moves(const CallerPtr& caller, ApplyMoves request, Done<MoveProposalView> done) = 0;
};

}  // namespace gpusched::api
