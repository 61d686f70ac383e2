#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/attempts/endings.h"
#include "node/attempts/records.h"
#include "node/attempts/reports.h"
#include "node/core/activity.h"
#include "node/core/checks.h"
#include "node/core/faults.h"
#include "node/core/leases.h"
#include "node/core/orders.h"
#include "node/core/output.h"
#include "node/core/release_fence.h"
#include "node/core/sessions.h"
#include "node/core/slices.h"
#include "node/core/telemetry.h"
#include "node/ports/ports.h"
#include "node/process/launch.h"
#include "node/watch/device_watch.h"
#include "node/watch/gpu_faults.h"

namespace gpusched {

struct NodeOptions {
  std::string node_name;
  std::string instance;   ///< Mark of the data folder; made once.
  std::string mark = {};  ///< See mark_of_instance; empty: the instance.
  std::string boot_id;
  std::string version;
  std::string machine = {};  ///< Names the machine through its boots; empty: not known.
  uint64_t process = 0;      ///< Drawn at the agent's start.
  std::string cluster = {};  ///< Cluster of the node; empty: none yet.
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  std::map<std::string, std::string> labels = {};
  std::string address = {};  ///< For gangs' members on other nodes to reach this one; empty: its name.
  std::vector<DeviceFacts> devices = {};
  DeviceTopology topology = {};  ///< How they are linked.
  LaunchDefaults launch = {};
  /// Ended attempts whose folders and tombstones are kept; the oldest that the scheduler knows all about go
  /// first.
  std::size_t finished_kept = 10'000;
  std::vector<std::string> features = {};  ///< Features of the node, for placement and for people.
  Duration check_every = minutes(5);       ///< Between checks that pass.
  Duration check_patience = seconds(70);   ///< Checks without an answer for so long have failed.
  Duration clock_skew_max = seconds(60);   ///< Against the scheduler's clock.
  Duration order_patience = seconds(60);   ///< A shim that did not do as it was told by then is ended.
  FaultTable faults = {};                  ///< Reactions to the faults of a device.
  /// An attempt that used more memory of a device than its share has for so long is ended; zero: none is.
  Duration share_memory_grace = {};
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
///
/// It wires its parts (namespace agent) and does what needs several of them: a new start of the agent, the
/// connection, what shims say, the order of things in a turn.
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
  /// Somebody wants this node to do that, and it may not be obeyed: whoever waits for it is told `why`. Only
  /// that a registration was taken counts, which hands no work out.
  void on_not_obeyed(const v1::SchedulerMessage& message, const std::string& why);

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
  void set_log_position(uint64_t position) { faults_.set_log_position(position); }

  /// Every record up to `position` is durable.
  void on_synced(uint64_t position);
  void on_reading(uint32_t index, DeviceReading reading);
  /// The answer to AttemptFiles::read.
  void on_output(v1::LogChunk chunk);
  void on_tick();
  void settle();
  Time next_deadline() const;

  /// The scheduler accepted the registration on this connection.
  bool registered() const { return leases_.registered(); }
  /// See agent::Leases::is_unanswered.
  bool is_unanswered(Time now) const { return leases_.is_unanswered(now); }
  std::size_t running_count() const { return attempts_.running_count(); }
  std::size_t unacknowledged_count() const { return reports_.unacknowledged_count(); }
  std::size_t known_count() const { return attempts_.size(); }
  /// The newest one of a registered device.
  const DeviceReading& last_reading(uint32_t index) const { return watch_.last_reading(index); }

 private:
  void restore(const StoreImage& image);
  std::vector<HeldDevice> devices_now(const StoredAttempt& stored) const;
  void send_register();
  void add_attempts(v1::Register& out);
  bool serves_mps() const;
  void on_registered(const v1::Registered& registered);
  void on_ack(const v1::Ack& ack);
  void on_report_acked(const v1::Report& report);

  /// False, and it is told, when what a shim says of it cannot be.
  bool take_word(agent::AttemptRow& attempt, agent::AttemptState to);
  agent::AttemptRow& add_found(const AttemptKey& key);
  void release_after_epilog(agent::AttemptRow& attempt);

  void beat(Time now);
  bool flush_records();

  NodeOptions options_;
  NodePorts ports_;
  agent::AttemptTable attempts_;
  agent::Records records_;
  agent::Reports reports_;
  agent::Endings endings_;
  DeviceWatch watch_;
  agent::Leases leases_;
  agent::Checks checks_;
  agent::ReleaseFence fence_;
  agent::Slices slices_;
  agent::Faults faults_;
  agent::Orders orders_;
  agent::Activity activity_;
  agent::Telemetry telemetry_;
  agent::Output output_;
  agent::Sessions sessions_;

  std::vector<AttemptKey> to_adopt_;
  bool adopted_ = false;
  bool link_up_ = false;
  Time next_look_;
};

}  // namespace gpusched
