#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "forecast/world.h"

/// Finds running jobs that could go on elsewhere so that one that waits starts at once, at what price and to
/// what gain. Free devices that are scattered over nodes are brought together that way. Nothing here changes
/// anything: what it finds is a command that may be proposed.
namespace gpusched::forecast {

/// Why a running job is not moved.
enum class MoveObstacle : uint8_t {
  kNotPreemptible = 1,  ///< The tenant does not allow preemption.
  kExempt,              ///< The job is exempt from preemption.
  kEndsForGood,         ///< The job would be cancelled instead of requeued, or is interactive.
  kGang,                ///< The job has several members.
  kShare,               ///< The job has a share of a GPU.
  kArranged,            ///< The job asks for specific GPUs, a layout or an exclusive node.
  kEnding,              ///< The job is already being stopped.
  kJustStarted,         ///< The job has not started, or only just now.
  kEndedLately,         ///< The job was preempted or moved recently.
  kEndedOften,          ///< The job was preempted or moved as often as a job may be.
  kHigherPriority,      ///< The waiting job's is lower.
  kNoOtherPlace,        ///< The job fits nowhere else now.
  kTooLate,             ///< Its release comes after the waiting job's deadline.
};
std::string_view to_string(MoveObstacle obstacle);
/// Continues the sentence "job-7 holds 2 of node n1 and ".
std::string_view describe(MoveObstacle obstacle);

struct MoveOptions {
  JobId only;                         ///< Given: moves for this waiting job alone.
  std::size_t moves_max = 4;          ///< Maximum moves for one job; at most limits::kMovesMax.
  std::size_t proposals = 8;          ///< Maximum proposals; at most limits::kMoveProposalsMax.
  Duration protection = seconds(60);  ///< A job that started more recently is left alone.
  Duration recent = minutes(10);      ///< A job that was ended for another more recently is left alone.
  int64_t budget = 3;                 ///< A job that was ended for others so often is left alone.
  Duration grace = seconds(10);       ///< Time that a job may take to end.
  Duration grace_max = minutes(5);    ///< Maximum, where the job asks for its own time.
};

/// Price of one or several moves. Compared field by field; the first that differs decides.
struct MovePrice {
  int64_t lost_gpu_ms = 0;  ///< GPUs times the time since the job saved its work, or since its start.
  int64_t moves = 0;
  int64_t ended_before = 0;  ///< Earlier preemptions of these jobs.
  int64_t gpus = 0;
  friend auto operator<=>(const MovePrice&, const MovePrice&) = default;
};

struct Move {
  JobId job;
  uint32_t attempt = 0;
  NodeId from;
  uint64_t from_mask = 0;
  NodeId to;
  uint64_t to_mask = 0;
  bool saved = false;  ///< The job has said in this attempt that it saved its work.
  MovePrice price;
};

/// One waiting job and what has to move for it. Moves of one proposal happen at the same time; no two
/// proposals of a plan touch the same devices or jobs, so each may be carried out alone, in any order.
struct MoveProposal {
  MoveJobs command;  ///< Command without its author. The first group's job is the beneficiary.
  std::vector<Move> moves;
  MovePrice price;
  std::vector<JobId> starts;    ///< Jobs that would start at once, the beneficiary first.
  int64_t gpus_started = 0;     ///< GPUs of these together.
  Time otherwise;               ///< Expected start of the beneficiary without the moves; none: unknown.
  int64_t unusable_before = 0;  ///< Thousandths of free GPUs that expected shapes could not use, before.
  int64_t unusable_after = 0;   ///< The same after the moves.

  JobId job() const { return command.groups.front().job; }
};

/// A job that no moves would start, and what is in the way on the node that comes nearest.
struct Unmoved {
  struct Blocker {
    JobId job;
    int64_t gpus = 0;  ///< Suitable GPUs on the node that it holds.
    MoveObstacle why = MoveObstacle::kNoOtherPlace;
  };
  JobId job;
  int64_t gpus_wanted = 0;  ///< GPUs that it needs on one node.
  int64_t gpus_free = 0;    ///< Suitable free GPUs on all nodes together.
  NodeId nearest;           ///< Nearest node; none: no node could ever run it, or none is available now.
  std::vector<Blocker> blockers;  ///< Blockers, largest holders first; at most three.
  bool too_many = false;          ///< More jobs than may be would have to move.
  bool not_tried = false;         ///< Waits for no room on one node: a gang, a share, a limit or its turn.
};

struct MovePlan {
  Time at;                              ///< Time of the state that was examined.
  uint64_t sequence = 0;                ///< The newest command in that.
  std::vector<MoveProposal> proposals;  ///< In the order of the queue.
  std::vector<Unmoved> unmoved;  ///< Jobs that were looked at for nothing; at most limits::kMoveGainersMax.
  int64_t gpus_free = 0;
  int64_t unusable = 0;        ///< Thousandths of these, as in MoveProposal.
  bool stopped_early = false;  ///< The work was used up: there may be more, or cheaper ones.
};

/// Moves for the jobs that wait in `world`, which is settled, the cheapest for each. A job that is moved runs
/// on whole devices of one node, may be ended for others (`allow_preemption`), was not lately, is of no
/// higher priority than the job that gains, and has another place now that no reservation, booking or promise
/// keeps. All subsets of up to limits::kMovableTriedMax jobs of a node are tried, of more the cheapest first.
/// Nothing is proposed that `decide` would refuse now.
MovePlan plan_moves(const World& world, const MoveOptions& options, Work& work);

/// Why no moves start the job, as one sentence for operators.
std::string describe(const State& state, const Unmoved& unmoved);

/// Limits of moves that are carried out automatically.
struct MoveBounds {
  int64_t price_max = 0;  ///< GPU-seconds that may be lost for each GPU that starts.
  Duration patience;      ///< Least time that the gaining job has waited.
  Duration soon;          ///< Least time to its expected start without the moves.
};
bool is_worth_it(const World& world, const MoveProposal& proposal, const MoveBounds& bounds);

/// Whether the proposal still holds in `world` by the same rules.
bool still_holds(const World& world, const MoveProposal& proposal, const MoveOptions& options);

}  // namespace gpusched::forecast
