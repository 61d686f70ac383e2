#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/attempts/report_outbox.h"
#include "node/gpu/device_topology.h"
#include "node/ports/ports.h"
#include "node/process/launch.h"
#include "node/watch/device_watch.h"
#include "node/watch/fault_watch.h"

namespace gpusched {

struct NodeOptions {
  std::string node_name;
  std::string instance;   ///< Of the data folder; made once.
  std::string mark = {};  ///< See mark_of_instance; empty: the instance.
  std::string boot_id;
  std::string version;
  std::string machine = {};  ///< Names the machine through its boots; empty: not known.
  uint64_t process = 0;      ///< Drawn at the agent's start.
  std::string cluster = {};  ///< Whose node it is; empty: nobody's yet.
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  std::map<std::string, std::string> labels = {};
  std::string address = {};  ///< Where gangs' members on other nodes reach this one; empty: its name.
  std::vector<DeviceFacts> devices = {};
  DeviceTopology topology = {};  ///< How they are linked.
  LaunchDefaults launch = {};
  /// Ended attempts whose folders and tombstones are kept; the oldest that the scheduler knows all about go
  /// first.
  std::size_t finished_kept = 10'000;
  std::vector<std::string> features = {};  ///< What it can do, for placement and for people.
  Duration check_every = minutes(5);       ///< Between checks that pass.
  Duration check_patience = seconds(70);   ///< Checks without an answer for so long have failed.
  Duration clock_skew_max = seconds(60);   ///< Against the scheduler's clock.
  Duration order_patience = seconds(60);   ///< A shim that did not do as it was told by then is ended.
  FaultTable faults = {};                  ///< What is done about which fault of a device.
  /// An attempt that used more memory of a device than its share has for so long is ended; zero: none is.
  Duration share_memory_grace = {};
};

struct NodePorts {
  const Clock& clock;
  NodeLink& link;
  Spawner& spawner;
  AttemptStore& store;
  AttemptFiles& files;
  DeviceReader& devices;
  HostMeter& host;
  NodeHooks* hooks = nullptr;           ///< Null: no checks, no prolog, no epilog.
  BoxMaker* boxes = nullptr;            ///< Null: attempts live as the agent does.
  AttemptSessions* sessions = nullptr;  ///< Null: this node has none.
  FaultMemory* memory = nullptr;        ///< Null: faults are forgotten when the agent ends.
  SliceMaker* slices = nullptr;         ///< Null: this node makes no MIG slices.
};

/// A node's mind: takes the scheduler's orders, has them carried out once, and reports what became of them
/// until that is acknowledged. A reactor without I/O, threads or clock of its own; `sim/` runs the same code.
///
/// Every input is one of the `on_` functions; after one or many of them call `settle`, which does what they
/// asked for. Call `on_tick` no later than `next_deadline`. Not thread-safe.
///
/// Promises, for each attempt key, through crashes of the agent:
/// - it is started at most once, however often it is ordered; stopped before it was started, it never is;
/// - it is not started on a device that another attempt of this node has and that is not over;
/// - its end is reported only when its outcome is durable, and then until it is acknowledged;
/// - each of its devices is reported released only after it ended and the device was seen empty;
/// - its MIG slices are made before it is started, and destroyed before they are reported released.
class NodeCore {
 public:
  NodeCore(NodeOptions options, NodePorts ports, const StoreImage& image);
  NodeCore(const NodeCore&) = delete;
  NodeCore& operator=(const NodeCore&) = delete;

  /// The stream stands and both sides proved who they are. Sends Register.
  void on_link_up();
  void on_link_down();
  /// Anything but Challenge, which is the link's business.
  void on_message(const v1::SchedulerMessage& message);

  /// A gated attempt waits for its gang.
  void on_shim_prepared(const AttemptKey& key);
  void on_shim_started(const AttemptKey& key, int64_t pid, int64_t started_unix_ns);
  void on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome);
  /// An attempt that is being ended said that its work is saved, and ends now.
  void on_shim_saved(const AttemptKey& key, int64_t unix_ns);
  void on_shim_lost(const AttemptKey& key, const std::string& detail);
  /// A running attempt that the store does not know: its record was lost with the disk's last writes.
  void on_shim_found(const AttemptKey& key, int64_t pid, int64_t started_unix_ns);

  /// `problem` empty: it passed.
  void on_prolog_done(const AttemptKey& key, const std::string& problem);
  void on_epilog_done(const AttemptKey& key, const std::string& problem);
  void on_checked(const std::string& problem);
  void on_device_reset(uint32_t index, const std::string& problem);
  /// The answers of SliceMaker. `problem` empty: it was made, or is gone.
  void on_slice_made(uint32_t index, const std::string& profile, int32_t start, const MadeSlice& made,
                     const std::string& problem);
  void on_slice_destroyed(uint32_t index, const std::string& profile, int32_t start,
                          const std::string& problem);

  /// The kernel's log tells an Xid of the device in this slot, see XidLine.
  void on_xid(const std::string& pci, uint32_t xid, const std::string& text);
  /// How far that log was read, by whoever reads it; kept while the machine runs.
  uint64_t log_position() const { return faults_.log_position(); }
  void set_log_position(uint64_t position);

  /// Every record up to `position` is durable.
  void on_synced(uint64_t position);
  void on_reading(uint32_t index, DeviceReading reading);
  /// The answer to AttemptFiles::read.
  void on_output(v1::LogChunk chunk);
  void on_tick();
  void settle();
  Time next_deadline() const;

  /// The scheduler accepted the registration on this connection.
  bool registered() const { return registered_; }
  std::size_t running_count() const { return attempts_.running_count(); }
  std::size_t unacknowledged_count() const { return outbox_.size(); }
  std::size_t known_count() const { return attempts_.size(); }

 private:
  using Row = agent::AttemptRow;
  using State = agent::AttemptState;
  using Deadline = agent::Deadline;
  /// What is released: a device, or an attempt's share of one.
  using Fence = std::pair<uint32_t, AttemptKey>;

  void restore(const StoreImage& image);
  /// False, and it is told, when what a shim says of it cannot be.
  bool take_word(Row& attempt, State to);
  std::vector<HeldDevice> devices_now(const StoredAttempt& stored) const;
  void send_register();
  void add_saved(v1::Heartbeat& out);
  void add_saved(const SavedWork& work, v1::Heartbeat& out);
  void send_heartbeat(Time now);

  void on_registered(const v1::Registered& registered);
  void on_start(const v1::StartAttempt& order);
  void on_gang_release(const v1::GoAttempt& order);
  void on_stop(const v1::StopAttempt& order);
  void take_back_start(Row& attempt);
  void on_check_release(const v1::CheckRelease& order);
  void on_ack(const v1::Ack& ack);
  void on_report_acked(const v1::Report& report);
  void on_end_acked(const v1::Ended& ended);
  void on_read_log(const v1::ReadLog& order);
  void on_open_session(const v1::OpenSession& order);
  void on_read_file(const v1::ReadFile& order);

  void record(StoreRecord record);
  void hold_devices(Row& attempt);
  void let_go_devices(Row& attempt);
  void begin_releases(Row& attempt, Time now);
  void supersede_release(const Fence& fence);
  void supersede_releases(uint32_t index, const HeldDevice* but_shares_of);
  void end_attempt(Row& attempt, v1::Outcome outcome);
  v1::Outcome make_outcome(v1::Outcome::Cause cause, const std::string& detail) const;
  std::optional<std::string> conflict_of(const std::vector<HeldDevice>& wanted) const;
  void refuse_start(const v1::StartAttempt& order, const std::string& why);
  bool is_taken(const HeldDevice& device) const;
  void await_release(const HeldDevice& device);
  void forget_awaited(uint32_t index, const HeldDevice* but_shares_of);
  void begin_awaited(uint32_t index, Time now);
  const Row* holder_of(uint32_t index) const;
  bool serves_mps() const;
  void add_mps(const Row& attempt, SpawnRequest& request) const;
  void note_daemons(uint32_t index);
  bool holds(const AttemptKey& key, uint32_t index) const;
  bool is_accounted(uint32_t index, int64_t pid) const;

  void report_prepared(Row& attempt);
  void report_started(Row& attempt);
  void report_ended(Row& attempt);
  void report_synced_ends();
  void report_again(Row& attempt);
  void refuse_number(const v1::AttemptKey& key, int64_t placed_at_ns, v1::Outcome::Cause cause);
  void release_unheld(const v1::StartAttempt& order);
  void report_release(const HeldDevice& device, bool released, const std::string& evidence,
                      std::optional<Duration> checked = {});
  void report_devices();
  void on_released_acked(const v1::Released& released, uint64_t report);
  void close_if_done(Row& attempt);
  void forget_oldest();

  void take_faults();
  void report_faults();
  void on_fault_acked(const v1::DeviceFault& fault);
  void on_clear_fault(const v1::ClearFault& order);
  void reset_devices();
  bool examine(Row& attempt, const v1::Outcome& outcome);
  void end_examined();
  v1::Outcome blame_device(const Row& attempt, const v1::Outcome& outcome);
  void look_at_attempts(Time now);
  ActivityMeter::Look look_of(const Row& attempt, Time now);
  void end_over_share(Row& attempt);
  void add_activity(v1::Heartbeat& out) const;

  void expect_end(Row& attempt, const StopOrder& order);
  void expect_end_of_run(Row& attempt);
  void look_at_orders(Time now);
  v1::Outcome outcome_of_lost(const Row& attempt, const std::string& detail) const;

  void record_intent(const Row& attempt, std::vector<uint32_t> cores);
  void queue_start(Row& attempt, Result<SpawnRequest> plan);
  void begin_slice_creation(Row& attempt, const v1::StartAttempt& order);
  void make_slices();
  void note_driver_works();
  void finish_slices(Row& attempt);
  void end_late_slices(Time now);
  void destroy_slice(const HeldDevice& device);
  void destroy_orphans(Time now);
  bool has_next_holder(const HeldDevice& slice) const;
  bool is_wanted(uint32_t index, const SliceReading& slice) const;
  void add_slicing(v1::Heartbeat& out) const;

  bool begin_prolog(Row& attempt);
  void release_after_epilog(Row& attempt, Time now);
  bool flush_records();
  void start(Row& attempt);
  void note_fault(const std::string& problem);
  void begin_check();
  void give_up_check();
  void lift_fault();
  void take_verdict(const std::string& problem);
  void report_verdict();
  void note_clock(const v1::Registered& registered);
  void on_change(const v1::ChangeAttempt& order);

  void beat(Time now);
  /// The scheduler answered what was sent at `sent_at`.
  void note_contact(Time sent_at);
  void on_heartbeat_seen(uint64_t sequence);

  NodeOptions options_;
  NodePorts ports_;
  std::vector<std::string> device_uuids_;
  DeviceWatch watch_;
  ReportOutbox outbox_;
  agent::AttemptTable attempts_;
  std::deque<AttemptKey> closed_;

  std::vector<AttemptKey> to_adopt_;
  bool adopted_ = false;
  std::vector<Row*> to_start_;
  struct Stop {
    Row* attempt = nullptr;
    StopOrder order;
  };
  std::vector<Stop> to_stop_;
  std::vector<SavedWork> last_words_;  ///< Of attempts that end, for the next heartbeat.
  std::deque<Row*> unsynced_ends_;     ///< In the order of their records.
  uint64_t last_position_ = 0;
  uint64_t synced_position_ = 0;
  bool flush_wanted_ = false;
  bool sync_wanted_ = false;

  /// Who waits for a release, by device: the attempt that held it last.
  struct Release {
    HeldDevice device;
    std::optional<AttemptKey> key;
    uint64_t report = 0;        ///< Outstanding Released or Draining; 0: none.
    std::string evidence = {};  ///< Reported last.
    Duration pause = {};        ///< Before its slice, which could not be destroyed, is looked at again.
  };
  std::map<Fence, Release> releases_;
  /// Releases that the scheduler waits for and that begin when no attempt has the device, or the share, any
  /// more.
  std::map<Fence, HeldDevice> awaited_;
  std::map<uint32_t, std::vector<Row*>> holders_;  ///< By device; no empty entries.
  std::map<uint32_t, uint64_t> condition_reports_;
  std::map<Fence, uint64_t> busy_reports_;  ///< Draining, for devices that a running attempt holds.

  std::map<uint32_t, std::string> daemons_told_;  ///< By device.
  FaultWatch faults_;
  std::map<uint32_t, uint64_t> fault_reports_;
  std::map<uint32_t, int64_t> faults_known_;  ///< Which word on a device the scheduler has, as it said last.
  struct Reset {
    int64_t id = 0;  ///< The word that it was for.
    bool running = false;
  };
  std::map<uint32_t, Reset> resets_;
  using SlicePlace = std::pair<uint32_t, int32_t>;  ///< Device and first slot.
  std::set<SlicePlace> destroying_;
  std::vector<uint64_t> looks_for_orphans_;  ///< DeviceWatch::looks when they were looked for last.
  Time orphans_from_;                        ///< Not before this.

  std::optional<std::string> verdict_;  ///< Of the checks; empty: passed; nothing: not known yet.
  uint64_t verdict_report_ = 0;
  std::string fault_;  ///< Of a hook, standing until `fault_until_`.
  Time fault_until_;
  int faults_in_a_row_ = 0;  ///< Without an attempt that began.
  std::string clock_problem_;
  bool disk_full_ = false;
  Time next_flush_ = kNever;  ///< While the disk is full.
  bool checking_ = false;
  Time check_due_ = kNever;  ///< By then the checks that run must have answered.
  Time next_check_ = kNever;

  bool link_up_ = false;
  bool registered_ = false;
  uint64_t heartbeat_sequence_ = 0;
  std::deque<Time> heartbeats_sent_at_;  ///< The newest ones on this connection, up to `heartbeat_sequence_`.
  Time registration_sent_at_;
  Duration heartbeat_every_;
  Time next_beat_ = kNever;
  Time next_look_;
  Time contact_at_;         ///< When the newest message that the scheduler answered was sent.
  Time contact_marked_at_;  ///< What the spawner knows of it.
};

}  // namespace gpusched
