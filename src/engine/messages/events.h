#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/fields.h"
#include "base/time.h"
#include "engine/messages/booking_events.h"
#include "engine/messages/commands.h"
#include "engine/messages/config_events.h"
#include "engine/messages/identity_events.h"
#include "engine/messages/submission_events.h"
#include "engine/messages/tenant_events.h"
#include "model/cluster.h"
#include "model/job.h"
#include "model/types.h"

/// Events: `decide` makes them, `evolve` applies them; each mixes itself into the running digest, so numbers
/// and meanings are for ever, as for commands. An event is self-contained: the observer gets these and
/// nothing else.
namespace gpusched {

struct NodeRegistered {
  NodeId node;
  bool rebooted = false;      ///< Everything that it held before is free.
  Boxed<RegisterNode> offer;  ///< Without its attempts.
  Time at;
  std::vector<uint32_t>
      reused;  ///< The slots that the first of its new devices take; others get slots of their own.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "rebooted", self.rebooted);
    visit(3, "offer", self.offer);
    visit(4, "at", self.at);
    visit(5, "reused", self.reused);
  }
};

struct NodeStateChanged {
  NodeId node;
  NodeState to = NodeState::kReady;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "to", self.to);
    visit(3, "at", self.at);
  }
};

struct DeviceConditionChanged {
  NodeId node;
  uint32_t device = 0;
  DeviceCondition condition = DeviceCondition::kOk;
  std::string detail;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "condition", self.condition);
    visit(4, "detail", self.detail);
  }
};

/// The job is scheduled: its attempt holds its devices, CPU and memory from here on.
struct AttemptPlaced {
  JobId job;
  uint32_t attempt = 0;
  std::vector<Member> members;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "members", self.members);
    visit(4, "at", self.at);
  }
};

/// A member runs. With its last member the job is running.
struct MemberStarted {
  JobId job;
  uint32_t attempt = 0;
  uint32_t member = 0;
  Time at;
  std::string image_digest;  ///< Given: its job's images are this one from now on.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "member", self.member);
    visit(4, "at", self.at);
    visit(5, "image_digest", self.image_digest);
  }
};

/// A member of a gang waits on its node. When it is the last that was waited for, all go.
struct MemberPrepared {
  JobId job;
  uint32_t attempt = 0;
  uint32_t member = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "member", self.member);
  }
};

/// Its node is to end the attempt.
struct StopRequested {
  JobId job;
  uint32_t attempt = 0;
  StopReason reason = StopReason::kNone;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "reason", self.reason);
  }
};

/// A member ended: its CPU and memory are free, its devices draining.
struct MemberEnded {
  JobId job;
  uint32_t attempt = 0;
  uint32_t member = 0;
  Outcome outcome;
  bool last = false;          ///< The attempt is over with it.
  bool devices_free = false;  ///< The node restarted or was confirmed dead: nothing is on them.
  Time at;
  NodeId node;  ///< The member's, for those that follow: the attempt may be gone. Not part of any digest.
  bool lost_tolerated = false;  ///< The gang goes on without this member.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "member", self.member);
    visit(4, "outcome", self.outcome);
    visit(5, "last", self.last);
    visit(6, "devices_free", self.devices_free);
    visit(7, "at", self.at);
    visit(8, "borne", self.lost_tolerated);
  }
};

/// The job goes on without this attempt, which holds its devices until its node says otherwise.
struct AttemptAbandoned {
  JobId job;
  uint32_t attempt = 0;
  Time at;  ///< Since feature level 2.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "at", self.at);
  }
};

/// The job is final.
struct JobFinished {
  JobId job;
  JobState state = JobState::kFailed;
  JobReason reason = JobReason::kNone;
  Outcome outcome;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "state", self.state);
    visit(3, "reason", self.reason);
    visit(4, "outcome", self.outcome);
    visit(5, "at", self.at);
  }
};

/// Somebody asked for something to be done about the job: noted in its timeline, and no change by itself.
struct JobAsked {
  JobId job;
  JobStep step = JobStep::kCancelAsked;  ///< One of those that are asked.
  std::string by;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "step", self.step);
    visit(3, "by", self.by);
    visit(4, "at", self.at);
  }
};

/// The job is pending again and waits until `not_before`.
struct JobRequeued {
  JobId job;
  Outcome outcome;  ///< Outcome of the attempt that failed.
  Time not_before;
  bool by_exit_code = false;
  bool free_of_charge = false;  ///< No failure of the job's: no retry is spent.
  bool hold = false;            ///< The job is held.
  bool preempted = false;       ///< It was ended for another job.
  Time at;                      ///< When it was preempted; of every one since feature level 7.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "outcome", self.outcome);
    visit(3, "not_before", self.not_before);
    visit(4, "by_exit_code", self.by_exit_code);
    visit(5, "free_of_charge", self.free_of_charge);
    visit(6, "hold", self.hold);
    visit(50, "preempted", self.preempted);
    visit(51, "at", self.at);
  }
};

struct BackoffEnded {
  JobId job;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
  }
};

/// Finished jobs beyond their retention, from the oldest on.
struct JobsForgotten {
  uint32_t count = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "count", self.count);
  }
};

/// The device is in the pool again, in a new generation.
struct DeviceFreed {
  NodeId node;
  uint32_t device = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
  }
};

/// A device that an unknown attempt occupies leaves the pool until it is seen empty; a quarantined one that
/// an operator calls well is looked at again.
struct DeviceOccupied {
  NodeId node;
  uint32_t device = 0;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "at", self.at);
  }
};

struct DeviceQuarantined {
  NodeId node;
  uint32_t device = 0;
  std::string evidence;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "evidence", self.evidence);
  }
};

/// A timer that was due and had nothing to do any more.
struct TimerDropped {
  Time due;
  uint32_t kind = 0;
  uint64_t id = 0;
  uint32_t extra = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "due", self.due);
    visit(2, "kind", self.kind);
    visit(3, "id", self.id);
    visit(4, "extra", self.extra);
  }
};

struct JobUpdated {
  Boxed<UpdateJob> change;  ///< Its begin and deadline as times.
  int64_t order_key = 0;    ///< When a priority is given.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "change", self.change);
    visit(2, "order_key", self.order_key);
  }
};

struct JobHoldChanged {
  JobId job;
  bool held = false;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "held", self.held);
  }
};

struct NodeAvailabilityChanged {
  NodeId node;
  Availability to = Availability::kInService;
  std::string by;
  std::string reason;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "to", self.to);
    visit(3, "by", self.by);
    visit(4, "reason", self.reason);
    visit(5, "at", self.at);
  }
};

struct NodeLabeled {
  Boxed<LabelNode> change;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "change", self.change);
  }
};

/// An attempt failed on the node by what may be the node's fault.
struct NodeFailureNoted {
  NodeId node;
  TenantId tenant;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "tenant", self.tenant);
    visit(3, "at", self.at);
  }
};

/// An operator takes a device out of use or gives it back.
struct DeviceBarred {
  NodeId node;
  uint32_t device = 0;
  bool barred = false;
  std::string detail;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "barred", self.barred);
    visit(4, "detail", self.detail);
    visit(5, "by", self.by);
  }
};

/// A device became too hot for new work, or has cooled.
struct DeviceHeatChanged {
  NodeId node;
  uint32_t device = 0;
  bool hot = false;
  std::string detail;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "hot", self.hot);
    visit(4, "detail", self.detail);
  }
};

/// For `span` nobody watched, or the wall clock jumped. Runtimes, silences and drains count on from where
/// they stood, and what is kept for a time is kept for longer.
struct TimeSkipped {
  Duration span;
  Time at;  ///< Its end.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "span", self.span);
    visit(2, "at", self.at);
  }
};

/// A job that waits learns what became of one of its parents: did it what the job waits for, or can it never
/// do so any more?
struct DependencySettled {
  JobId job;
  JobId parent;
  bool met = false;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "parent", self.parent);
    visit(3, "met", self.met);
  }
};

/// An element of an array becomes a job.
struct ElementAdded {
  JobId job;
  JobId array;
  Time at;
  bool parked = false;  ///< Before its turn, for which it waits.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "array", self.array);
    visit(3, "at", self.at);
    visit(4, "parked", self.parked);
  }
};

/// A node is off the books: nobody knows it any more.
struct NodeRemoved {
  NodeId node;
  uint32_t slot = 0;  ///< Slot in which it was.
  std::string by;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "slot", self.slot);
    visit(3, "by", self.by);
    visit(4, "at", self.at);
  }
};

/// Tenants that were deleted, and of which nothing is left, are forgotten.
struct TenantsForgotten {
  std::vector<TenantId> tenants;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenants", self.tenants);
  }
};

/// The turn of an element that was parked has come.
struct ElementUnparked {
  JobId job;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
  }
};

/// The rest of an array is never expanded.
struct ArrayClosed {
  JobId job;  ///< The array.
  JobReason reason = JobReason::kNone;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "reason", self.reason);
    visit(3, "at", self.at);
  }
};

/// Devices that others are told to give up are kept for the job.
struct DevicesPromised {
  Boxed<Promise> promise;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "promise", self.promise);
  }
};

/// Why a promise is over.
enum class PromiseEnd : uint8_t {
  kPlaced = 1,  ///< The job starts on what was promised to it.
  kNotWaiting,  ///< The job is held, final or wants something else.
  kNode,        ///< A node left service.
  kDevice,      ///< A device is unfit, missing or quarantined.
  kQuota,       ///< Its tenant may no longer have as much.
  kTime,        ///< The victims did not give it back in time.
};

std::string_view to_string(PromiseEnd why);

/// A promise to the job is over. The job waits as before, unless it starts or is gone.
struct PromiseEnded {
  JobId job;
  PromiseEnd why = PromiseEnd::kPlaced;
  Time at;
  Time asked_at;  ///< Given when a guarantee is kept by it: since when the job asked for that.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "why", self.why);
    visit(3, "at", self.at);
    visit(60, "asked_at", self.asked_at);
  }
};

/// The job's work up to `saved_at` is safe.
struct JobCheckpointed {
  JobId job;
  uint32_t attempt = 0;
  Time saved_at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "saved_at", self.saved_at);
  }
};

/// A share is back: what held it is seen to be gone. The last one frees the device, in a new generation.
struct ShareFreed {
  NodeId node;
  uint32_t device = 0;
  AttemptKey held_by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "held_job", self.held_by.job);
    visit(4, "held_attempt", self.held_by.attempt);
    visit(5, "held_member", self.held_by.member);
  }
};

/// A device's standing fault is another one, or none any more.
struct DeviceFaultChanged {
  NodeId node;
  uint32_t device = 0;
  FaultClass fault = FaultClass::kNone;
  std::string code;
  std::string detail;
  int64_t id = 0;
  std::string by;  ///< The operator who released it; empty: its node's word.
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "fault", self.fault);
    visit(4, "code", self.code);
    visit(5, "detail", self.detail);
    visit(6, "id", self.id);
    visit(7, "by", self.by);
    visit(8, "at", self.at);
  }
};

/// Something speaks against a node that was not drained for it: an operator is called. Without a detail:
/// nothing does any more.
struct NodeSuspected {
  NodeId node;
  std::string detail;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "detail", self.detail);
    visit(3, "at", self.at);
  }
};

/// A running job is warned, or no longer.
struct WatchdogFindingChanged {
  JobId job;
  uint32_t attempt = 0;
  WatchdogFinding kind = WatchdogFinding::kNone;
  std::string detail;
  Time since;
  WatchAction action = WatchAction::kWarn;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "kind", self.kind);
    visit(4, "detail", self.detail);
    visit(5, "since", self.since);
    visit(6, "action", self.action);
  }
};

/// An event's index here is mixed into the digest: append only.
using Event = std::variant<
    Configured, TenantCreated, TenantUpdated, TenantDeleted, NodeRegistered, NodeStateChanged,
    DeviceConditionChanged, JobSubmitted, RequestRemembered, OldestRequestForgotten, AttemptPlaced,
    MemberStarted, StopRequested, MemberEnded, AttemptAbandoned, JobFinished, JobRequeued, BackoffEnded,
    JobsForgotten, DeviceFreed, DeviceOccupied, DeviceQuarantined, TimerDropped, JobUpdated, JobHoldChanged,
    NodeAvailabilityChanged, NodeLabeled, NodeFailureNoted, TimeSkipped, DeviceBarred, DependencySettled,
    ElementAdded, ArrayClosed, DevicesPromised, PromiseEnded, JobCheckpointed, Admitted, BookingMade,
    BookingBegan, BookingEnded, ShareFreed, DeviceHeatChanged, MemberPrepared, DeviceFaultChanged,
    NodeSuspected, WatchdogFindingChanged, ElementUnparked, RequestForgotten, NodeRemoved, TenantsForgotten,
    JobAsked, KeyCreated, KeyRevoked, RoleBound, KeyForgotten, NodeTicketCreated, NodeTicketForgotten,
    NodeAdmitted, NodeRenewed, NodeRevoked, PersonRecorded>;
using Events = std::vector<Event>;

}  // namespace gpusched
