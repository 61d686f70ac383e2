#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/blob.h"
#include "base/fields.h"
#include "engine/messages/identity_commands.h"
#include "engine/messages/job_commands.h"
#include "engine/messages/job_request.h"
#include "engine/messages/tenant_commands.h"
#include "model/booking.h"
#include "model/job.h"
#include "model/types.h"

/// Everything that can be asked of the engine. Commands are journaled as they are: a field's number and
/// meaning, and a command's place in `Command`, are for ever.
namespace gpusched {

/// Journals what `decide` depends on. Proposed at start when it differs from the state's.
struct Configure {
  EngineConfig config;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "config", self.config);
  }
};

/// Lets timers fire, retention forget and keys expire, up to the command's own time.
struct AdvanceTime {
  uint32_t unused = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "unused", self.unused);
  }
};

struct DeviceOffer {
  std::string uuid;
  std::string model;
  int64_t memory_mb = 0;
  DeviceCondition condition = DeviceCondition::kOk;
  std::string detail;
  std::optional<int32_t> numa_node = {};  ///< See Device.
  std::string pci_bus_id = {};
  bool mig = false;  ///< It is in MIG mode.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "uuid", self.uuid);
    visit(2, "model", self.model);
    visit(3, "memory_mb", self.memory_mb);
    visit(4, "condition", self.condition);
    visit(5, "detail", self.detail);
    visit(40, "numa_node", self.numa_node);
    visit(41, "pci_bus_id", self.pci_bus_id);
    visit(50, "mig", self.mig);
  }
};

/// An attempt that a registering agent knows.
struct KnownAttempt {
  JobId job;
  uint32_t attempt = 0;
  uint32_t member = 0;
  bool ended = false;        ///< Its AttemptEnded follows.
  uint64_t device_mask = 0;  ///< Devices with which it was started.
  Time placed_at;            ///< As it was ordered; none: of an agent that does not know it.

  AttemptKey key() const { return {.job = job, .attempt = attempt, .member = member}; }
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "member", self.member);
    visit(4, "ended", self.ended);
    visit(5, "device_mask", self.device_mask);
    visit(6, "placed_at", self.placed_at);
  }
};

/// A node announces itself, for the first time or again. A new boot id of the same machine proves its older
/// attempts dead; with the same one, what it does not know of and the state has as running is lost. Since
/// feature level 6 it is refused while another boot of the machine may still be alive, and when its data
/// folder or one of its devices belongs to another node that is not dead for certain.
struct RegisterNode {
  std::string name;
  std::string instance;
  std::string boot_id;
  std::string version;
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  std::vector<DeviceOffer> devices;
  std::vector<KnownAttempt> attempts;
  bool validates = false;  ///< After a boot it takes no work before NodeValidated.
  std::vector<std::string> features;
  std::vector<Label> labels;
  std::string address;              ///< Where other nodes reach it; empty: its name.
  std::string machine = {};         ///< Names the machine through its boots; empty: not told.
  std::vector<int64_t> links = {};  ///< See Node, of the offered devices in their order; empty: not known.
  std::string topology_note = {};

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "name", self.name);
    visit(2, "instance", self.instance);
    visit(3, "boot_id", self.boot_id);
    visit(4, "version", self.version);
    visit(5, "cpu_milli", self.cpu_milli);
    visit(6, "memory_mb", self.memory_mb);
    visit(7, "devices", self.devices);
    visit(8, "attempts", self.attempts);
    visit(9, "validates", self.validates);
    visit(10, "features", self.features);
    visit(11, "labels", self.labels);
    visit(40, "links", self.links);
    visit(41, "topology_note", self.topology_note);
    visit(60, "address", self.address);
    visit(70, "machine", self.machine);
  }
};

/// The node was silent past its lease.
struct NodeLeaseLost {
  NodeId node;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
  }
};

/// A silent node is heard again on the stream it had.
struct NodeLeaseBack {
  NodeId node;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
  }
};

/// An operator's word that nothing runs on a silent node any more.
struct ConfirmNodeDead {
  NodeId node;
  std::string boot_id;  ///< Given: only if the node's boot is still this one.
  std::string by;       ///< Caller who confirms it, as far as known.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "boot_id", self.boot_id);
    visit(3, "by", self.by);
  }
};

/// Sets a device's condition, by its driver's word or an operator's. An operator's word is `lasting`: it bars
/// the device until an operator's kOk, whatever the driver says; that kOk also ends a quarantine, once the
/// node sees the device empty. (In old journals words are not lasting; there the driver's next word overrides
/// them.)
struct SetDeviceCondition {
  NodeId node;
  uint32_t device = 0;
  DeviceCondition condition = DeviceCondition::kOk;
  std::string detail;
  bool by_operator = false;
  std::optional<uint32_t> generation = {};  ///< Given: only if the device's generation is still this one.
  bool lasting = false;
  std::string by = {};  ///< The operator, for everybody who looks.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "condition", self.condition);
    visit(4, "detail", self.detail);
    visit(5, "by_operator", self.by_operator);
    visit(6, "generation", self.generation);
    visit(7, "lasting", self.lasting);
    visit(8, "by", self.by);
  }
};

/// The devices of one node for one member, each in the generation that the planner saw.
struct MemberPlacement {
  NodeId node;
  uint32_t part = 0;
  uint64_t device_mask = 0;
  std::vector<uint32_t> generations;  ///< In the order of the mask's bits.
  int32_t mig_start = 0;              ///< Slices only: the slot of the device's memory at which it begins.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "part", self.part);
    visit(3, "device_mask", self.device_mask);
    visit(4, "generations", self.generations);
    visit(100, "mig_start", self.mig_start);
  }
};

/// Members that start together or not at all.
///
/// With preemptions these attempts are told to end, and the members may name devices that they hold: those
/// are promised to the job, which a later group without preemptions starts on exactly them.
struct PlanGroup {
  JobId job;
  uint32_t attempt = 0;
  std::vector<MemberPlacement> members;
  std::vector<Preemption> preemptions;
  bool reclaims = false;  ///< Its tenant's guarantee, from those who use more than theirs.
  Time asked_at = {};     ///< Since when the job asks for it, or for its pool's share.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "members", self.members);
    visit(4, "preemptions", self.preemptions);
    visit(60, "reclaims", self.reclaims);
    visit(61, "asked_at", self.asked_at);
  }
};

/// Carries out the planner's choice. Only safety is checked again; a stale group is dropped whole.
struct CommitPlan {
  uint64_t based_on = 0;  ///< The newest sequence number that the planner had seen.
  std::vector<PlanGroup> groups;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "based_on", self.based_on);
    visit(2, "groups", self.groups);
  }
};

struct AttemptStarted {
  JobId job;
  uint32_t attempt = 0;
  uint32_t member = 0;
  NodeId node;
  Time placed_at;            ///< Given: only if the attempt was placed then.
  std::string image_digest;  ///< "sha256:...": what its image's name meant there; empty: nothing to keep.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "member", self.member);
    visit(4, "node", self.node);
    visit(5, "placed_at", self.placed_at);
    visit(6, "image_digest", self.image_digest);
  }
};

/// A member of a gang is ready on its node and waits for the others.
struct AttemptPrepared {
  JobId job;
  uint32_t attempt = 0;
  uint32_t member = 0;
  NodeId node;
  Time placed_at;  ///< Given: only if the attempt was placed then.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "member", self.member);
    visit(4, "node", self.node);
    visit(5, "placed_at", self.placed_at);
  }
};

struct AttemptEnded {
  JobId job;
  uint32_t attempt = 0;
  uint32_t member = 0;
  NodeId node;
  Outcome outcome;
  Time placed_at;  ///< Given: only if the attempt was placed then.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "member", self.member);
    visit(4, "node", self.node);
    visit(5, "outcome", self.outcome);
    visit(6, "placed_at", self.placed_at);
  }
};

/// The node saw no process on the device and its memory at its baseline.
struct DeviceReleased {
  NodeId node;
  uint32_t device = 0;
  uint32_t generation = 0;
  AttemptKey share_of;  ///< Only this attempt's share of it; job 0: the whole device.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "generation", self.generation);
    visit(4, "share_job", self.share_of.job);
    visit(5, "share_attempt", self.share_of.attempt);
    visit(6, "share_member", self.share_of.member);
  }
};

/// The device is still not empty. Past the drain limit it is quarantined with this evidence.
struct DeviceStillBusy {
  NodeId node;
  uint32_t device = 0;
  uint32_t generation = 0;
  std::string evidence;
  AttemptKey share_of;  ///< The attempt whose share of it is meant; job 0: the whole device.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "generation", self.generation);
    visit(4, "evidence", self.evidence);
    visit(5, "share_job", self.share_of.job);
    visit(6, "share_attempt", self.share_of.attempt);
    visit(7, "share_member", self.share_of.member);
  }
};

/// An operator takes a node out of service (kDraining) or puts it back (kInService).
struct SetNodeAvailability {
  NodeId node;
  Availability to = Availability::kInService;
  std::string by;
  std::string reason;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "to", self.to);
    visit(3, "by", self.by);
    visit(4, "reason", self.reason);
  }
};

/// Reports the result of the node's own checks, in the boot that is named.
struct NodeValidated {
  NodeId node;
  std::string boot_id;
  bool passed = false;
  std::string detail;  ///< The checks that failed, and how to repair it.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "boot_id", self.boot_id);
    visit(3, "passed", self.passed);
    visit(4, "detail", self.detail);
  }
};

/// An operator's labels of a node: first those in `remove` go, then those in `set` come.
struct LabelNode {
  NodeId node;
  std::vector<Label> set;
  std::vector<std::string> remove;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "set", self.set);
    visit(3, "remove", self.remove);
  }
};

/// A scheduler begins, after a time in which nobody watched: its own time is not counted against anything
/// that runs or is silent. Proposed first at start, where that matters.
struct NoteStart {
  uint32_t unused = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "unused", self.unused);
  }
};

/// A job says through its node that it saved its work `age` before this command's time. Only forwards: what
/// is older than an earlier word, than its attempt, or not yet, is refused.
struct CheckpointSaved {
  JobId job;
  uint32_t attempt = 0;
  NodeId node;
  Duration age;
  Time placed_at;  ///< Given: only if the attempt was placed then.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "node", self.node);
    visit(4, "age", self.age);
    visit(5, "placed_at", self.placed_at);
  }
};

/// Keeps nodes for somebody, or for nobody, at a time agreed before; see Booking.
struct MakeBooking {
  std::string name;
  TenantId tenant;
  std::vector<std::string> users;
  std::vector<NodeId> nodes;
  Time begin_at;         ///< Start time; not valid: see begin_after.
  Duration begin_after;  ///< Start relative to now, if begin_at is not valid.
  Duration length;
  Duration every;
  std::string reason;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "name", self.name);
    visit(2, "tenant", self.tenant);
    visit(3, "users", self.users);
    visit(4, "nodes", self.nodes);
    visit(5, "begin_at", self.begin_at);
    visit(6, "begin_after", self.begin_after);
    visit(7, "length", self.length);
    visit(8, "every", self.every);
    visit(9, "reason", self.reason);
  }
};

/// Ends a booking, whether it is on or not. Jobs that run there go on.
struct CancelBooking {
  BookingId booking;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "booking", self.booking);
  }
};

/// A device's temperature, as its node tells it, crossed the threshold, or came down far enough. A hot device
/// takes no new work; nothing that runs there ends.
struct NoteDeviceHeat {
  NodeId node;
  uint32_t device = 0;
  bool hot = false;
  std::string detail;  ///< The evidence, of a hot one.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "hot", self.hot);
    visit(4, "detail", self.detail);
  }
};

/// Reports a fault of a device by its node. If the id is the device's last one, nothing changes.
struct NoteDeviceFault {
  NodeId node;
  uint32_t device = 0;
  FaultClass fault = FaultClass::kNone;  ///< kNone: it was reset, or its node restarted.
  std::string code;
  std::string detail;
  int64_t id = 0;  ///< Number of this report by the node, for this device.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "device", self.device);
    visit(3, "fault", self.fault);
    visit(4, "code", self.code);
    visit(5, "detail", self.detail);
    visit(6, "id", self.id);
  }
};

/// The watchdog's word on a running attempt; see src/host/nodes/rules/watchdog.h.
struct ReportWatchdogFinding {
  JobId job;
  uint32_t attempt = 0;
  WatchdogFinding kind = WatchdogFinding::kNone;  ///< kNone: what it was warned about is over.
  std::string detail;
  Duration age;  ///< For so long it has been so.
  WatchAction action = WatchAction::kWarn;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "attempt", self.attempt);
    visit(3, "kind", self.kind);
    visit(4, "detail", self.detail);
    visit(5, "age", self.age);
    visit(6, "action", self.action);
  }
};

/// Moves running jobs so that a waiting one can start. The first group is that job's, with those that are
/// moved as its preemptions; each of the others says where one of these goes on, in their order. All of it
/// happens or nothing.
struct MoveJobs {
  std::vector<PlanGroup> groups;
  std::string by;   ///< Caller who asked for it.
  std::string why;  ///< In their words.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "groups", self.groups);
    visit(2, "by", self.by);
    visit(3, "why", self.why);
  }
};

/// Takes a node that is gone for good off the books. Refused while it reports, holds something, or is part of
/// a reservation.
struct RemoveNode {
  NodeId node;
  std::string boot_id;  ///< Given: only if the node's boot is still this one.
  std::string by;       ///< Caller who asked for it.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "node", self.node);
    visit(2, "boot_id", self.boot_id);
    visit(3, "by", self.by);
  }
};

/// An operator stops all starts, or lets them go on. Running jobs are left alone, and submissions are taken.
struct PauseStarts {
  bool paused = true;
  std::string by;
  std::string why;  ///< Reason for a pause; may be empty.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "paused", self.paused);
    visit(2, "by", self.by);
    visit(3, "why", self.why);
  }
};

/// Divides the cluster's GPUs into pools, in place of those before. Refused when the pools do not lend and
/// one holds more than its new share.
struct SetPools {
  int64_t online_milli = 0;  ///< As in PoolShares.
  int64_t batch_milli = 0;
  std::string by;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "online_milli", self.online_milli);
    visit(2, "batch_milli", self.batch_milli);
    visit(3, "by", self.by);
  }
};

/// A command's index here is its tag in the journal: append only.
using Command =
    std::variant<Configure, AdvanceTime, CreateTenant, UpdateTenant, DeleteTenant, RegisterNode,
                 NodeLeaseLost, NodeLeaseBack, ConfirmNodeDead, SetDeviceCondition, SubmitJobs, CancelJob,
                 CommitPlan, AttemptStarted, AttemptEnded, DeviceReleased, DeviceStillBusy, UpdateJob,
                 HoldJob, RequeueJob, SetNodeAvailability, NodeValidated, LabelNode, NoteStart,
                 CheckpointSaved, MakeBooking, CancelBooking, NoteDeviceHeat, AttemptPrepared,
                 NoteDeviceFault, ReportWatchdogFinding, MoveJobs, RemoveNode, PauseStarts, CreateKey,
                 RevokeKey, BindRole, CreateNodeTicket, AdmitNode, RevokeNode, SetPools, RecordPerson>;

/// How many sequence numbers the command takes. At least one.
uint32_t sequence_count(const Command& command);

/// A command's name for logs and dumps.
std::string_view name_of(const Command& command);

/// False for enumerators that do not exist and amounts so large that counting with them could overflow. To be
/// asked before a command is journaled: a journal that holds another one cannot be read.
bool well_formed(const Command& command);

/// The name of the first field that holds a control character, of those that name things or people and are
/// shown to others; null: none does. To be asked before a command is proposed: what holds one is refused, but
/// older journals that do are read.
const char* unprintable_field(const Command& command);

/// True for what must wait while the disk is full: it adds work. Ends, cancels and releases do not.
bool is_new_work(const Command& command);

}  // namespace gpusched
