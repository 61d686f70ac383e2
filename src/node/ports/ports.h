#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "shim/box.h"

/// Ports through which NodeCore sees the world. Production and `sim/` implement these; NodeCore calls them on
/// its own thread only, and none of them may call NodeCore back before it returned.
namespace gpusched {

AttemptKey from_wire(const v1::AttemptKey& key);
v1::AttemptKey to_wire(const AttemptKey& key);
/// "12-1-0": job, attempt, member. For logs and markers.
std::string to_string(const AttemptKey& key);

/// At most `size_max` bytes of `text`, what is not UTF-8 replaced by '?': messages hold nothing else.
std::string clean_text(std::string_view text, std::size_t size_max);

/// The stream to the scheduler.
class NodeLink {
 public:
  virtual ~NodeLink() = default;
  /// Queues a message behind those before it. Dropped when the link is down. Sending Register, the link adds
  /// the proof of the token, if there is one.
  virtual void send(const v1::AgentMessage& message) = 0;
};

/// A device that an attempt holds, or its share of one; `generation` is the fence of its release, of a share
/// with the attempt's key.
struct HeldDevice {
  uint32_t index = 0;
  uint32_t generation = 0;
  AttemptKey share_of = {};      ///< Attempt whose share it is; job 0: it holds the whole device.
  int32_t milli = 0;             ///< Size of a share, in thousandths of the device.
  int64_t memory_mb = 0;         ///< Memory of a share.
  std::string mig_profile = {};  ///< Profile of a share that is a MIG slice, such as "1g.10gb"; else empty.
  int32_t mig_start = 0;         ///< The slice's first slot of memory.

  bool is_share() const { return share_of.job.valid(); }
  bool is_slice() const { return !mig_profile.empty(); }

  friend bool operator==(const HeldDevice&, const HeldDevice&) = default;
};

/// A persistent worker, and the task for it (src/shim/worker). Its environment names the attempt that begins
/// it, which its own name takes the place of.
struct WorkerPlan {
  std::string match;                     ///< Attempts with the same one may have the same worker.
  std::vector<std::string> arguments;    ///< The worker's.
  std::vector<std::string> environment;  ///< The worker's, without what is the task's.
  std::string frame;                     ///< The task's, without a payload of `SpawnRequest::payload_bytes`.
  uint32_t tasks_max = 1;                ///< Most that the worker may have at once.
  std::string endpoint = {};  ///< The URL that its tasks are sent to: all together so many at once.
};

struct SpawnRequest {
  AttemptKey key;
  std::vector<std::string> arguments;  ///< At least one.
  /// "NAME=value", complete. For a worker's task: only what the log tells of its start.
  std::vector<std::string> environment;
  std::string working_directory = {};       ///< Empty: the attempt's own folder.
  bool working_directory_optional = false;  ///< The attempt's own folder does as well.
  Duration grace;              ///< Between SIGTERM and SIGKILL at the maximum runtime or without contact.
  Duration max_runtime = {};   ///< Zero: no limit.
  Duration lost_contact = {};  ///< Zero: silence does not kill.
  std::vector<HeldDevice> devices = {};
  shim::Box box = {};     ///< Surroundings of its processes: user, cgroups, limits, folders of their own.
  std::string user = {};  ///< User that they run as; empty: the agent's own user.
  std::optional<shim::Credentials> identity = {};  ///< The same as numbers.
  bool container = false;                          ///< The command is the runner of a container.
  /// Gangs only: all is made ready, and the command waits for `Spawner::go`.
  bool gated = false;
  std::string hosts = {};  ///< Gangs only: the file of its members' hosts, for launchers.
  std::shared_ptr<const WorkerPlan> worker = {};  ///< Null: it is no task of a persistent worker.
  uint32_t port = 0;             ///< Port of a gang's first member, which must be free. 0: none.
  std::string script = {};       ///< Content of the attempt's script file; empty: it has none.
  uint32_t script_argument = 0;  ///< Argument that becomes the script's path; 0: none.
  /// Size of the payload that `AttemptFiles` keeps for it: its standard input, or the rest of its frame. 0:
  /// there is none.
  uint32_t payload_bytes = 0;
};

/// A MIG slice that was made, as programs and the kernel name it.
struct MadeSlice {
  std::string uuid = {};          ///< "MIG-..."; empty: none.
  int32_t gpu_instance = -1;      ///< Its numbers on its GPU; -1: not known.
  int32_t compute_instance = -1;  ///< Within the GPU instance.
};

/// Devices that the order grants the attempt.
std::vector<HeldDevice> held_devices_of(const v1::StartAttempt& order);

/// The box that an attempt is to live in.
struct BoxPlan {
  shim::Box box;
  std::string user = {};                                ///< User that it runs as; empty: the agent's own.
  std::optional<shim::Credentials> identity = {};       ///< The same as numbers.
  std::map<std::string, std::string> environment = {};  ///< HOME and the like; the job's own entries win.
  std::string device_fence = "advisory";                ///< Or "cgroup": no other device can be opened.
  std::string tmp_folder = {};  ///< The attempt's own folder for temporary files, as the job sees it.
};

/// Decides the boxes of attempts, by what the job asks, the operator allows and the machine can do.
class BoxMaker {
 public:
  virtual ~BoxMaker() = default;
  /// kInvalidArgument, with a sentence for people, when such a job cannot run here. Things that it takes,
  /// such as cores, are the attempt's until `release`. `slices`: of the order's devices, in their order;
  /// empty when none is a MIG slice.
  virtual Result<BoxPlan> plan(const v1::StartAttempt& order, const v1::JobSpec& spec,
                               const std::vector<MadeSlice>& slices) = 0;
  /// An attempt that an earlier agent started has these cores.
  virtual void keep(const AttemptKey& key, const std::vector<uint32_t>& cores) = 0;
  /// The attempt is over. May be repeated.
  virtual void release(const AttemptKey& key) = 0;
  /// For Register.features.
  virtual std::vector<std::string> features() const = 0;
};

/// State of an attempt that was ordered and does not run yet: one line for people.
struct Preparation {
  AttemptKey key;
  std::string message;
};

/// The process that owns an attempt, named so that no other process of this boot has that name; 0: not known.
struct ShimProcess {
  int64_t pid = 0;
  uint64_t start_ticks = 0;

  friend bool operator==(const ShimProcess&, const ShimProcess&) = default;
};

/// A running attempt that said when its work was safe.
struct SavedWork {
  AttemptKey key;
  int64_t unix_ns = 0;  ///< By this machine's clock.
};

/// How an attempt is ended.
struct StopOrder {
  StopOrder() = default;
  /// SIGTERM, then after `grace` SIGKILL.
  StopOrder(Duration after) : grace(after) {}  // NOLINT(google-explicit-constructor)

  Duration grace;
  int signal = 0;            ///< Sent instead of SIGTERM; 0: SIGTERM.
  bool until_saved = false;  ///< SIGKILL also as soon as the job says that its work is saved.
};

/// Starts and stops attempts. Answers later, by NodeCore::on_shim_*; one on_shim_ended or on_shim_lost for
/// each attempt that was started or adopted. A gated one that waits is on_shim_prepared, also when adopted.
/// Answers about one attempt come in the order of what happened.
class Spawner {
 public:
  virtual ~Spawner() = default;
  virtual void start(SpawnRequest request) = 0;
  /// A gated attempt that is prepared begins. May be repeated; of any other attempt it does nothing.
  virtual void go(const AttemptKey& key) = 0;
  /// May be repeated: a later order may be less patient, and one without a signal of its own sends SIGTERM
  /// still. Does nothing for an attempt that is over.
  virtual void stop(const AttemptKey& key, const StopOrder& order) = 0;
  /// Called once, before any start: finds out what became of attempts that an earlier agent may have started.
  /// Answers each with on_shim_started (if it runs), on_shim_ended (also if the outcome is on disk) or
  /// on_shim_lost (no outcome, and no process left); reports by on_shim_found what runs and was not asked
  /// for.
  virtual void adopt(const std::vector<AttemptKey>& keys) = 0;
  /// The scheduler answered what was said to it `age` ago: shims with a limit on silence count from then on,
  /// those that are started later too.
  virtual void mark_contact(Duration age) = 0;
  /// From now on the attempt may run so long from its start; zero: without limit. Does nothing for an attempt
  /// that is over.
  virtual void set_max_runtime(const AttemptKey& key, Duration limit) = 0;
  /// The process that owns a running attempt.
  virtual ShimProcess shim_of(const AttemptKey&) { return {}; }
  /// The name that a running attempt's image has everywhere: "sha256:...". Empty: it has none, or one that
  /// other nodes could not have.
  virtual std::string image_digest(const AttemptKey&) { return {}; }
  /// Attempts that prepare: pulling an image. Those that say nothing are not among them.
  virtual std::vector<Preparation> preparing() { return {}; }
  /// Running attempts that said so, with the last time that each named.
  virtual std::vector<SavedWork> saved() { return {}; }
  /// Ends an attempt whose shim does not do as it was told: the shim too, and all that is its. Answered as
  /// any end is, by on_shim_ended when its outcome is on disk, else by on_shim_lost.
  virtual void force_end(const AttemptKey&) {}
  /// Replaces the process that starts attempts, which does not answer, by another one. Attempts that it did
  /// not start are lost.
  virtual void replace_server() {}
  /// Whether the process is of a persistent worker without a task, which is ended before another attempt
  /// starts on its devices.
  virtual bool keeps(int64_t) { return false; }
  /// How many attempts have the same processes as this one, itself included: the tasks of one worker.
  virtual std::size_t tasks_beside(const AttemptKey&) { return 1; }
  /// Whether the process is one of the attempt's, however it was started.
  virtual bool owns(const AttemptKey& key, int64_t pid) = 0;
};

/// Programs that an operator lets run around attempts, and the node's checks. Answers later, by
/// NodeCore::on_prolog_done, on_epilog_done and on_checked, once for each call.
class NodeHooks {
 public:
  virtual ~NodeHooks() = default;
  virtual bool has_prolog() const = 0;
  virtual bool has_epilog() const = 0;
  virtual bool can_reboot() const = 0;
  virtual void prolog(const AttemptKey& key, const std::vector<HeldDevice>& devices) = 0;
  virtual void epilog(const AttemptKey& key, const std::vector<HeldDevice>& devices,
                      const v1::Outcome& outcome) = 0;
  virtual void check() = 0;
  /// Not answered: the node goes away.
  virtual void reboot(const std::string& reason) = 0;
  virtual bool can_reset_devices() const { return false; }
  /// Resets a device that nothing uses. Answered by NodeCore::on_device_reset.
  virtual void reset_device(uint32_t) {}
};

/// A short text about this machine's devices, which outlives the agent.
class FaultMemory {
 public:
  virtual ~FaultMemory() = default;
  virtual std::string load() = 0;
  virtual void save(const std::string& text) = 0;
};

/// One fact about an attempt, in the order in which they become true.
struct StoreRecord {
  enum class Kind : uint8_t {
    kBoot = 1,     ///< An agent opened the store: `boot_id`, `epoch`.
    kIntent = 2,   ///< It may be started from now on: `devices`, its box. Never again, whatever happens next.
    kStarted = 3,  ///< `pid`, `started_unix_ns`, `identity`, `shim`.
    kEnded = 4,    ///< `outcome`.
    kAcked = 5,    ///< The scheduler has the outcome.
    kClosed = 6,   ///< It has its devices' releases, too. Kept as a tombstone.
    kForgotten = 7,  ///< No longer kept.
    kDevices = 8,    ///< `device_uuids`: which devices those of its kIntent are.
    kProlog = 9      ///< Its prolog may begin from now on, and its epilog must follow.
  };
  Kind kind = Kind::kIntent;
  AttemptKey key = {};
  std::vector<HeldDevice> devices = {};
  std::string user = {};                       ///< kIntent: SpawnRequest::user.
  std::vector<uint32_t> cores = {};            ///< kIntent: that it has for itself.
  int64_t placed_at_ns = 0;                    ///< With `devices`.
  std::vector<std::string> device_uuids = {};  ///< For `devices`, in their order.
  int64_t pid = 0;
  int64_t started_unix_ns = 0;
  std::optional<shim::Credentials> identity = {};
  ShimProcess shim = {};
  v1::Outcome outcome = {};
  std::string boot_id = {};
  uint64_t epoch = 0;
};

struct StoredAttempt {
  std::vector<HeldDevice> devices;
  /// For `devices`, in their order: their numbers may be others by now. Empty: they are as they were.
  std::vector<std::string> device_uuids = {};
  std::string user = {};
  std::vector<uint32_t> cores = {};
  int64_t placed_at_ns = 0;  ///< As ordered; 0: not known.
  bool prolog = false;       ///< Its prolog may have begun.
  int64_t pid = 0;           ///< 0: not known to have started.
  int64_t started_unix_ns = 0;
  std::optional<shim::Credentials> identity = {};  ///< Not known of those that older agents started.
  ShimProcess shim = {};
  std::optional<v1::Outcome> outcome;
  bool acked = false;
  bool closed = false;
  bool of_earlier_boot =
      false;  ///< It was recorded before StoreImage::boot_id began: no process of it is left.
};

/// The contents of a store: the records' sum. Applying a record twice changes nothing.
struct StoreImage {
  std::string boot_id;  ///< The machine's boot in which the last record was written; empty in a new store.
  uint64_t epoch = 0;   ///< How often a store was opened.
  std::map<AttemptKey, StoredAttempt> attempts;
  std::deque<AttemptKey> closed;  ///< In the order in which they closed; the first one is still kept.

  void apply(const StoreRecord& record);
};

/// A durable record of attempts. Appended records survive the process once `flush` returned, and the machine
/// once `sync` is answered by NodeCore::on_synced.
class AttemptStore {
 public:
  virtual ~AttemptStore() = default;
  /// Position of the record, counting from 1 for each opening.
  virtual uint64_t append(const StoreRecord& record) = 0;
  /// Gives everything appended to the operating system, in one write. False: the disk is full, some of it
  /// waits here for the next call, and nothing that relies on it may happen yet. Another failure ends the
  /// process.
  virtual bool flush() = 0;
  /// Starts making everything flushed durable. Many calls may share one answer.
  virtual void sync() = 0;
};

/// Knowledge of an attempt whose output is read.
enum class AttemptLife : uint8_t { kUnknown, kRunning, kEnded };

/// Attempts' folders: their output while they run and after. Everything is done soon, and not at once.
class AttemptFiles {
 public:
  virtual ~AttemptFiles() = default;
  /// Answers by NodeCore::on_output, once.
  virtual void read(const v1::ReadLog& order, AttemptLife life) = 0;
  /// Keeps the payload of an attempt that is ordered to start, for its shim, until the attempt has ended.
  virtual Result<Unit> keep_payload(const AttemptKey&, std::string_view) { return Unit{}; }
  /// The attempt is being started, or runs already.
  virtual void began(const AttemptKey& key) = 0;
  /// Nothing writes to its output any more: who waits for more is told.
  virtual void ended(const AttemptKey& key) = 0;
  /// Drops all reads: the scheduler that asked for them is gone.
  virtual void forget_reads() = 0;
  /// Removes the folder.
  virtual void remove(const AttemptKey& key) = 0;
  /// The time by this machine's clock and the scheduler's: nothing is too old by a clock alone.
  virtual void note_time(Time) {}
  /// How much output it wrote, of both kinds together; 0: not known.
  virtual int64_t output_size(const AttemptKey&) { return 0; }
};

/// An attempt's command, and whom it runs or ran as: what the agent knows by itself.
struct AttemptProcess {
  int64_t pid = 0;        ///< 0: it has ended.
  std::string user = {};  ///< Empty: the agent's own.
  std::optional<shim::Credentials> identity = {};
};

/// Interactive sessions in running attempts, and files of attempts. Answers go to the scheduler by the link.
class AttemptSessions {
 public:
  virtual ~AttemptSessions() = default;
  virtual void open(const v1::OpenSession& order, const AttemptProcess& process) = 0;
  virtual void input(const v1::SessionInput& input) = 0;
  virtual void read_file(const v1::ReadFile& order, const AttemptProcess& process) = 0;
  /// Its sessions end with it.
  virtual void attempt_ended(const AttemptKey& key) = 0;
  /// The scheduler that they were for is gone.
  virtual void end_all() = 0;
};

/// Port by which a running attempt of a service is reached on this node.
struct EndpointReading {
  AttemptKey key;
  uint32_t port = 0;
  std::optional<bool> ready = {};  ///< Result of its probe; absent: it has none, or it did not answer yet.
  std::string detail = {};         ///< Why it is not ready, for people.
};

/// Ports of running attempts of services, and whether they can be used, which is probed apart from the
/// agent's loop. The notes of shims on disk count, so that a restarted agent knows them again.
class AttemptEndpoints {
 public:
  virtual ~AttemptEndpoints() = default;
  /// The attempt runs. Does nothing for an attempt without a port; may be repeated.
  virtual void began(const AttemptKey& key) = 0;
  /// It is over. May be repeated.
  virtual void ended(const AttemptKey& key) = 0;
  /// Readings of all that are running, in the order of their keys.
  virtual std::vector<EndpointReading> readings() = 0;
};

/// A MIG slice that is there.
struct SliceReading {
  std::string profile;  ///< "1g.10gb".
  int32_t start = 0;    ///< Its first slot of memory.
  MadeSlice made = {};  ///< Without uuid while nothing can run in it.
  bool ours = true;     ///< This agent made it, or an earlier one with the same data folder.
  int64_t memory_used_mb = 0;
  std::vector<int64_t> processes = {};  ///< Pids that compute in it.
};

/// A program that stays on a device and is no job's, such as CUDA's multi-process service.
struct DaemonReading {
  int64_t pid = 0;
  std::string program;
  int64_t memory_mb = -1;  ///< Use of the device's memory; -1: not told.
  std::string mps_directory =
      {};  ///< Folder where clients of CUDA's multi-process service reach it; empty: as usual.
};

/// One look at a device. Without condition OK it says nothing of the device's use.
struct DeviceReading {
  v1::DeviceCondition condition = v1::DEVICE_CONDITION_OK;
  std::string detail = {};  ///< Why it is not OK.
  int64_t memory_used_mb = 0;
  std::optional<int32_t> utilization_percent = {};  ///< Absent: not told.
  std::optional<int32_t> temperature_celsius = {};  ///< Absent: not told.
  int32_t power_watts = 0;
  std::vector<int64_t> processes = {};  ///< Pids that compute or draw on it, but for `daemons`.
  std::vector<DaemonReading> daemons = {};
  /// Use of its memory by each of `processes`; empty: its driver does not tell. -1: not for this one.
  std::vector<int64_t> process_memory_mb = {};

  std::vector<uint32_t> xids = {};          ///< Codes that came up since the last reading.
  int64_t ecc_uncorrected = -1;             ///< Errors since the driver was loaded; -1: not told.
  bool remap_pending = false;               ///< Rows or pages of memory wait for a reset.
  bool remap_failed = false;                ///< There are no spare rows left.
  std::vector<std::string> throttles = {};  ///< Why the hardware slows it down: codes of fault_kinds.

  std::vector<SliceReading> slices = {};  ///< Slices of a GPU in MIG mode.
  /// Why no slice can be made on it, in a sentence that says what to do; empty: nothing stands against it.
  /// Processes on it go on, and it is released as ever.
  std::string mig_problem = {};
};

/// The program of CUDA's multi-process service, which enforces shares' limits.
inline constexpr const char* kMpsServer = "nvidia-cuda-mps-server";
/// It, if it serves the device; else null.
const DaemonReading* find_mps(const DeviceReading& reading);

/// A node's devices, in the order of their indexes.
class DeviceReader {
 public:
  virtual ~DeviceReader() = default;
  /// The reading, or nothing when it takes time: then it comes by NodeCore::on_reading, once for each call.
  virtual std::optional<DeviceReading> read(uint32_t index) = 0;
};

/// Makes and destroys MIG slices. Answers later, once for each call and in the order of the calls, by
/// NodeCore::on_slice_made and on_slice_destroyed. A reading that is asked for later shows what was done.
class SliceMaker {
 public:
  virtual ~SliceMaker() = default;
  /// One that is there already, was made by this agent and is empty, does as well.
  virtual void make_slice(uint32_t index, const std::string& profile, int32_t start) = 0;
  /// Does nothing if there is none. A slice that something runs in, or that this agent did not make, stays,
  /// and the answer says why.
  virtual void destroy_slice(uint32_t index, const std::string& profile, int32_t start) = 0;
};

struct HostLoad {
  double cpu = 0;     ///< 0..1 since the last call.
  double memory = 0;  ///< 0..1
};
class HostMeter {
 public:
  virtual ~HostMeter() = default;
  virtual HostLoad load() = 0;
};

/// All that NodeCore has of the world.
struct NodePorts {
  const Clock& clock;
  NodeLink& link;
  Spawner& spawner;
  AttemptStore& store;
  AttemptFiles& files;
  DeviceReader& devices;
  HostMeter& host;
  NodeHooks* hooks = nullptr;             ///< Null: no checks, no prolog, no epilog.
  BoxMaker* boxes = nullptr;              ///< Null: attempts live as the agent does.
  AttemptSessions* sessions = nullptr;    ///< Null: this node has none.
  FaultMemory* memory = nullptr;          ///< Null: faults are forgotten when the agent ends.
  SliceMaker* slices = nullptr;           ///< Null: this node makes no MIG slices.
  AttemptEndpoints* endpoints = nullptr;  ///< Null: nobody looks after ports.
};

}  // namespace gpusched
