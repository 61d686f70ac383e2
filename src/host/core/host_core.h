#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/queue_limits.h"
#include "base/storage_limits.h"
#include "base/time.h"
#include "codec/group.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/victims.h"
#include "host/core/edit_set.h"
#include "host/core/interfaces.h"
#include "host/core/proposal_queue.h"
#include "host/core/queue_room.h"
#include "host/core/spec_room.h"
#include "host/core/stamp_clock.h"
#include "host/forecast/learned_run_times.h"
#include "host/nodes/node_hub.h"

namespace gpusched {

/// Handling of free devices that are scattered; see forecast/moves.h.
struct MoveTuning {
  enum class Mode : uint8_t { kOff, kPropose, kAct };
  Mode mode = Mode::kPropose;
  int64_t price_max = 600;   ///< kAct: GPU-seconds that may be lost for each GPU that starts.
  int64_t per_hour_max = 4;  ///< kAct: jobs that are moved within any hour.
  Duration rest = hours(1);  ///< A job that was moved or ended for another is left alone for so long.
};

struct HostTuning {
  Duration node_lease = seconds(15);
  Duration heartbeat = seconds(5);      ///< Interval for agents; at most a third of the lease.
  Duration grace = seconds(10);         ///< Between SIGTERM and SIGKILL; zero: as each agent has it.
  std::size_t proposals_max = 200'000;  ///< Maximum of new work that waits for its group.
  std::size_t proposal_bytes_max = limits::kProposalBytesMax;  ///< Maximum bytes of that work in the journal.
  int64_t spec_bytes_max = 0;  ///< Maximum for the specifications of kept jobs; 0: no limit. See SpecRoom.
  Duration preempt_grace_max = minutes(5);  ///< At most so much of what jobs ask for; zero: `grace` for all.
  bool preemption = true;                   ///< Jobs may be ended for others, as tenants allow it.
  policy::LeastLost::Params victims;        ///< Choice of the jobs that end.
  HeatLimits heat;                          ///< From when on a GPU takes no new work.
  WatchLimits watch;                        ///< Handling of jobs that make no use of their GPUs.
  /// The jobs that are tasks, and their order; null: none is one. See PolicySet.
  std::shared_ptr<const policy::TaskOrder> tasks;
  MoveTuning moves;                                 ///< Handling of free GPUs that are scattered.
  Duration clock_jump_max = limits::kClockJumpMax;  ///< See StampClock.
  Duration step_max = {};                           ///< Longest step of the host's thread; zero: any.
};

/// `tuning.victims`, with the time that stopped jobs are given. Where each agent has its own, the agents'
/// default is taken for all.
policy::LeastLost::Params victim_params(const HostTuning& tuning);

/// Counters since the start, for metrics. Read by the core's thread; others get a copy from Host.
struct HostStats {
  uint64_t commands = 0;
  uint64_t rejected = 0;
  uint64_t groups = 0;
  uint64_t payload_bytes = 0;
  uint64_t cycles = 0;
  uint64_t placements = 0;
  uint64_t preemptions = 0;
};

/// The one loop, as a reactor without threads: collect, stamp, make durable, decide, evolve, publish, plan.
/// Everything it does happens inside a call of its members; one thread owns it. `sim/` drives it on a virtual
/// clock.
///
/// Group commit (docs/adr/journal.md).
/// Problem: a client may be told only what is durable, and a sync takes as long as hundreds of decisions.
/// Idea: while one group is written, everything that arrives waits, and is the next group: one record, one
/// sync. Nothing is decided before its group is durable, so a write that fails needs no way back.
/// Example: group 41 is being synced while submissions A, B and C arrive. 41 is durable: its commands are
/// decided in their order and answered. A, B and C become group 42, written at once. The events of 41 may let
/// a job start: the plan goes to the front of the queue, into 43 if 42 has left.
/// Cost: one sync a group, so a command waits for at most two; the busier, the larger the groups (at most
/// limits::kGroupCommandsMax commands and about a quarter of limits::kGroupBytesMax).
class HostCore {
 public:
  /// `position` is the journal's last. `fatal` is told of a failed write: the process must end.
  HostCore(State state, uint64_t position, HostTuning tuning, const Clock& clock, GroupWriter& writer,
           ChangeSink& sink, std::function<void(const Error&)> fatal);

  /// Queues a command. `decision` may be empty. Refused at once: new work while the disk is full
  /// (kStorageFull) or too much waits already (kUnavailable), and whatever no journal record could hold
  /// (kTooLarge).
  void propose(Proposal proposal);
  void propose(Command command, Decision decision) {
    propose(Proposal{.command = std::move(command), .decision = std::move(decision)});
  }
  /// Queues edits that are made together, refused at once for what `propose` refuses.
  void propose(EditSet set);
  /// The writer's answer to the group in flight. kStorageFull, kTooLarge: nothing was written. kUnavailable,
  /// kLocked: see SharedJournal::writer; nothing is decided any more. Any other error is fatal.
  void on_durable(const Result<Unit>& result);
  /// Lets due timers fire and starts what can be started. Call after a batch of inputs and at `next_wakeup`.
  void turn();
  /// The monotonic time at which `turn` is needed without any input; kNever if none is.
  Time next_wakeup() const;
  /// True when nothing waits and nothing is in flight.
  bool idle() const { return !in_flight_ && queue_.empty() && edit_sets_.empty() && !planner_.wants_cycle(); }
  bool in_flight() const { return in_flight_; }
  /// Whether new work is accepted.
  bool accepts_new_work() const { return space_ == JournalSpace::kOpen; }
  /// Proposals that are not decided, and what they take in the journal.
  std::size_t proposals_waiting() const { return queue_.size() + group_.size() + edit_sets_.size(); }
  std::size_t proposal_bytes_waiting() const { return queue_.bytes() + (in_flight_ ? group_bytes_ : 0); }
  /// Sets the configuration that shall hold from now on. It is journaled as soon as the disk takes it, and
  /// tried again until then. A Configure that is proposed and accepted does the same.
  void want(EngineConfig config) { wanted_ = std::move(config); }
  /// Why the engine did not take what is wanted; empty: it did, or will.
  const std::string& config_trouble() const { return config_trouble_; }
  /// Has all but so many finished jobs forgotten, the oldest first, although the disk is full: only that
  /// makes room. When new work is taken again the configuration is as it is wanted.
  void keep_finished(int64_t count);
  /// Stops taking proposals: everything new is refused, and so is what waits. For a clean end.
  void close();

  NodeHub& nodes() { return nodes_; }
  const State& state() const { return state_; }
  const HostStats& stats() const { return stats_; }
  const StampClock& stamps() const { return stamps_; }
  uint64_t position() const { return position_; }
  /// Called after the last decision of each group.
  void on_group_done(std::function<void()> hook) { group_done_.push_back(std::move(hook)); }

 private:
  bool start_matters() const;
  /// Puts the next set of edits that is accepted before everything else of a group. Whether any was answered.
  bool begin_with_edits();
  void refuse_edits(const Error& error);
  void start_group();
  void fail(Proposal& proposal, const Error& error);
  /// For a command that finds no room; nothing of it is journaled.
  void refuse(Proposal& proposal, const Rejection& rejection);
  /// For new work while the disk is full.
  void refuse_new_work(Proposal& proposal);
  void apply_group();
  void finish(Proposal& proposal, const Applied& applied, uint64_t sequence);
  void observe(std::size_t begin);
  void look_at_space();
  bool may_plan() const;
  void plan();
  /// Has a plan made again that waited for the group before it for too long: what it decided by the clock
  /// (deadlines, graces, promised starts) may be wrong by now.
  void drop_old_plan();
  /// The planner learns what became of its plan, and makes the next one.
  void end_plan();
  void advance_time();
  /// Leaves out the last groups of a plan that no record could hold; the planner plans them again.
  void trim(CommitPlan& plan) const;
  void configure();
  Error storage_full_error() const;
  /// The tenant that answers for new work; none: nobody does, or there is no such tenant.
  std::optional<TenantId> holder_of(const Command& command) const;

  State state_;
  uint64_t position_;
  HostTuning tuning_;
  const Clock& clock_;
  GroupWriter& writer_;
  ChangeSink& sink_;
  std::function<void(const Error&)> fatal_;
  StampClock stamps_;
  LearnedRunTimes* run_times_ = nullptr;  ///< The planner's.
  Planner planner_;
  NodeHub nodes_;
  HostStats stats_;
  GroupEncoder encoder_;

  const std::size_t group_bytes_max_;  ///< Maximum payload of a journal record.
  ProposalQueue queue_;
  std::deque<EditSet> edit_sets_;  ///< Edits that wait.
  std::vector<Proposal> group_;    ///< In flight.
  Time group_at_;
  uint64_t group_bytes_ = 0;
  Events events_;  ///< Events of the group that is being applied.
  bool in_flight_ = false;
  bool plan_in_flight_ = false;
  Time planned_at_;              ///< When the plan was made that waits or is in flight.
  bool time_in_flight_ = false;  ///< An AdvanceTime is queued or in flight.
  bool starting_ = false;        ///< The command that begins this scheduler's time is queued or in flight.
  JournalSpace space_ = JournalSpace::kOpen;  ///< As of the last turn.
  bool closed_ = false;
  Time retry_at_ = kNever;  ///< When to try again after a full disk.
  std::optional<EngineConfig> wanted_;
  std::optional<int64_t> finished_kept_;  ///< While the disk is full.
  SpecRoom spec_room_;
  QueueRoom queue_room_;
  std::optional<EngineConfig> refused_config_;  ///< By the engine: not to be tried again.
  std::string config_trouble_;
  bool configuring_ = false;
  std::vector<std::function<void()>> group_done_;
};

}  // namespace gpusched
