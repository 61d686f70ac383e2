#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/decide/identity/keys.h"
#include "engine/decide/identity/nodes.h"
#include "engine/decide/identity/people.h"
#include "engine/engine.h"

/// The rules of `decide`, one function a command. Internal to the engine. Each appends events or answers a
/// rejection, in the order in which the checks stand.
namespace gpusched::rules {

using Answer = Applied;

inline Applied reject(RejectionCode code) { return {.rejection = Rejection{.code = code}}; }
inline Applied reject(const Rejection& rejection) { return {.rejection = rejection}; }
inline Applied accept() { return {}; }

Applied configure(const State& state, const Configure& command, Stamp stamp, Events& events);
void configured(State& state, const Configured& event);
/// Puts the tenant's unfinished jobs, or if it is invalid all, where they would stand had they come under the
/// rules and with the tier of now.
void put_in_line(State& state, TenantId tenant);
Applied create_tenant(const State& state, const CreateTenant& command, Stamp stamp, Events& events);
Applied update_tenant(const State& state, const UpdateTenant& command, Stamp stamp, Events& events);
/// The tenant is deleted, and its keys are revoked with it.
void end_tenant(State& state, const TenantDeleted& event);
Applied delete_tenant(const State& state, const DeleteTenant& command, Stamp stamp, Events& events);

/// Whether a submission of so many jobs, otherwise fine, may come in now; appends what its user has then
/// spent.
std::optional<Rejection> admit(const State& state, const SubmitJobs& command, int64_t jobs, Time at,
                               Events& events);
Applied make_booking(const State& state, const MakeBooking& command, Stamp stamp, Events& events);
Applied note_device_heat(const State& state, const NoteDeviceHeat& command, Events& events);
Applied note_device_fault(const State& state, const NoteDeviceFault& command, Stamp stamp, Events& events);
Applied note_watch(const State& state, const ReportWatchdogFinding& command, Stamp stamp, Events& events);
Applied cancel_booking(const State& state, const CancelBooking& command, Stamp stamp, Events& events);
/// Puts the booking of this name into the parts, when the submission may use it.
std::optional<Rejection> book(const State& state, const SubmitJobs& command, const std::string& name,
                              std::vector<Part>& parts);
/// A booking's timer: it begins or ends.
void booking_due(const State& state, const Timer& timer, Time now, Events& events);
/// Where there are pools: what does not say what it is, is online from the priority tier `high` on.
WorkClass kind_of_work(WorkClass given, int64_t effective_priority);
Applied submit_jobs(const State& state, const SubmitJobs& command, Stamp stamp, Events& events);
/// Changes what the event names of a tenant's settings.
void update_tenant(State& state, const TenantUpdated& event);
Applied set_pools(const State& state, const SetPools& command, Stamp stamp, Events& events);
Applied pause_starts(const State& state, const PauseStarts& command, Stamp stamp, Events& events);
Applied cancel_job(const State& state, const CancelJob& command, Stamp stamp, Events& events);
/// Why a placed job may not have this limit: it is longer than before, and could pass the next reservation of
/// its nodes, or jobs wait, whose promised start it could delay.
std::optional<Rejection> check_longer(const State& state, const Job& job, Duration limit, Time now);
Applied update_job(const State& state, const UpdateJob& command, Stamp stamp, Events& events);
Applied hold_job(const State& state, const HoldJob& command, Stamp stamp, Events& events);
Applied requeue_job(const State& state, const RequeueJob& command, Stamp stamp, Events& events);

Applied register_node(const State& state, const RegisterNode& command, Stamp stamp, Events& events);
Applied node_lease_lost(const State& state, const NodeLeaseLost& command, Stamp stamp, Events& events);
Applied node_lease_back(const State& state, const NodeLeaseBack& command, Stamp stamp, Events& events);
Applied remove_node(const State& state, const RemoveNode& command, Stamp stamp, Events& events);
Applied confirm_node_dead(const State& state, const ConfirmNodeDead& command, Stamp stamp, Events& events);
Applied set_device_condition(const State& state, const SetDeviceCondition& command, Stamp stamp,
                             Events& events);
Applied set_node_availability(const State& state, const SetNodeAvailability& command, Stamp stamp,
                              Events& events);
Applied node_validated(const State& state, const NodeValidated& command, Stamp stamp, Events& events);
Applied label_node(const State& state, const LabelNode& command, Events& events);
Applied device_released(const State& state, const DeviceReleased& command, Events& events);
Applied device_still_busy(const State& state, const DeviceStillBusy& command, Stamp stamp, Events& events);
Applied note_start(const State& state, Stamp stamp, Events& events);

/// The slots that the registration's new devices take from devices that are gone and that nothing holds.
/// Nothing: there are too few slots for all of them.
std::optional<std::vector<uint32_t>> reused_slots(const State& state, const Node* node,
                                                  const RegisterNode& command, bool rebooted, Time at);
/// Deleted tenants of which nothing is left, the oldest first; some of them where there are many.
std::vector<TenantId> forgettable_tenants(const State& state);
/// There are numbers for all of the registration's kinds of device, those that no device is of any more
/// counted.
bool has_device_classes(const State& state, const RegisterNode& command);

/// Resources that a node would have beside those that are free on it.
struct Given {
  NodeId node;
  uint64_t device_mask = 0;
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  std::size_t attempts = 0;
  std::size_t exclusive = 0;  ///< How many of them have the node for themselves.
};
/// The node's devices in `mask` are as many as the part wants, of one class that satisfies it.
bool devices_serve(const State& state, const Node& node, const Part& part, uint64_t mask);
/// Every member of the group fits, all together and each whole, on what is free and what is given.
bool group_fits(const State& state, const PlanGroup& group, const std::vector<Part>& parts,
                const std::vector<Given>& given);
/// The members of the group, each with what it will hold.
std::vector<Member> members_of(const State& state, const PlanGroup& group, const std::vector<Part>& parts);
/// A group with preemptions: its victims' stops and the job's promise, or nothing when it is stale or one of
/// its victims is not needed.
bool preempt_group(const State& state, const Job& job, const PlanGroup& group, Stamp stamp, Events& events);
/// The promised job's start on exactly what was promised to it, or nothing while that is not free.
bool place_promised(const State& state, const Promise& promise, const PlanGroup& group, Stamp stamp,
                    Events& events);
/// The group is the start of a job that is moved, where it is moved to.
bool starts_as_moved(const Promise& promise, const PlanGroup& group);
/// Ends of promises that the state does not allow (any more); whether there are any. To be asked again when
/// they are applied.
bool end_broken_promises(const State& state, Time at, Events& events);
/// All moves and the promise to the job that gains by them, or a rejection: something of it does not hold.
Applied move_jobs(const State& state, const MoveJobs& command, Stamp stamp, Events& events);
Applied checkpoint_saved(const State& state, const CheckpointSaved& command, Stamp stamp, Events& events);

/// One group of a plan: events, or nothing when it is stale.
bool plan_group(const State& state, const PlanGroup& group, Stamp stamp, Events& events);
Applied attempt_prepared(const State& state, const AttemptPrepared& command, Events& events);
Applied attempt_started(const State& state, const AttemptStarted& command, Stamp stamp, Events& events);
Applied attempt_ended(const State& state, const AttemptEnded& command, Stamp stamp, Events& events);

/// The job runs now: those that wait for its start learn it.
void settle_start(const State& state, JobId job, Events& events);
/// The next thing that is due at `now`: its events, or false when nothing is.
bool next_due(const State& state, Time now, Events& events);

/// Ends of members by one command: each, and what it means for its gang and its job. The facts of a gang are
/// counted once, however many of its members end together.
class MemberEnds {
 public:
  MemberEnds(const State& state, Time at, Events& events) : state_(state), at_(at), events_(events) {}

  void end(const Attempt& attempt, uint32_t member, const Outcome& outcome, bool devices_free);

 private:
  /// A gang as the state and what this command did to it have it.
  struct Gang {
    std::map<uint32_t, Outcome> ended;  ///< By this command.
    std::set<uint32_t> lost_tolerated;  ///< By this command: the others went on without it.
    std::vector<int64_t> left;       ///< Members of each part that were not tolerated; none: not counted yet.
    std::optional<uint32_t> failed;  ///< The first that ended badly.
    std::size_t going = 0;
    bool told_to_stop = false;  ///< By this command.
  };

  Gang& gang_of(const Attempt& attempt);
  bool bears(const Attempt& attempt, Gang& gang, uint32_t member, const Outcome& outcome) const;
  static Outcome outcome_of(const Attempt& attempt, const Gang& gang, const Outcome& last);

  const State& state_;
  const Time at_;
  Events& events_;
  std::map<AttemptKey, Gang> gangs_;
};
/// A member of a job's attempt ended so: what that says of its node. Asked before the end is applied.
void judge_node(const State& state, const Attempt& attempt, uint32_t member, TenantId tenant,
                const Outcome& outcome, Time at, Events& events);
/// A job's attempt is over or given up: finished, or pending again. `refusing`: the nodes that would not
/// start it.
void conclude(const State& state, const Job& job, StopReason stop, const Outcome& outcome, Time at,
              Events& events, const std::vector<NodeId>& refusing = {});
/// A waiting job, or one that waits by the events before, avoids these nodes too, for 30 s and longer from
/// time to time; and no longer those for which that is over.
void avoid_nodes(const State& state, const Job& job, const std::vector<NodeId>& refusing, Time at,
                 Events& events);
/// The job's new parts avoid what the job avoids.
void keep_avoided(const State& state, const Job& job, std::vector<Part>& parts);

/// The tenant or ancestor whose limit `wanted` on top of `with_usage ? usage : nothing` would break.
std::optional<Rejection> over_quota(const State& state, TenantId tenant, const Amount& wanted,
                                    bool with_usage);

}  // namespace gpusched::rules
