#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/core/host_core.h"
#include "host/forecast/forecast_service.h"
#include "host/readers/observer.h"
#include "host/readers/snapshotter.h"
#include "journal/journal.h"

namespace gpusched {

struct HostOptions {
  std::string data_dir;
  EngineConfig engine;
  HostTuning tuning;
  ForecastService::Pace forecasts;
  int64_t segment_bytes = int64_t{16} << 20;
  int64_t snapshot_bytes = int64_t{256} << 20;  ///< A snapshot after so much journal.
  uint64_t term = 0;  ///< Term in which this one of several schedulers leads; 0: it is the only one.
};

/// Findings of recovery, for the log.
struct RecoveryReport {
  uint64_t snapshot_sequence = 0;  ///< 0: none.
  uint64_t snapshot_position = 0;
  uint64_t replayed_records = 0;
  uint64_t replayed_commands = 0;
  uint64_t replayed_bytes = 0;  ///< Size of records' payloads.
  uint64_t last_sequence = 0;
  uint64_t last_position = 0;
  uint64_t term = 0;  ///< Highest of HostOptions' and the journal's records'; 1: there never was another one.
  uint64_t digest = 0;
  int64_t waiting_jobs = 0;
  int64_t elapsed_ms = 0;
  std::vector<std::string> refused_snapshots;  ///< Passed over for an older one; a sentence each.
  std::string notes;                           ///< Such as a torn tail that was cut back.
};

/// How the scheduler itself is.
struct HostHealth {
  bool serving = true;                ///< Whether new work is accepted.
  std::string reason;                 ///< Why not.
  std::vector<std::string> concerns;  ///< Problems that do not keep it from serving; a sentence each.
  SnapshotStats snapshots;
  uint64_t refused_snapshots = 0;        ///< When it started.
  std::optional<uint64_t> free_bytes;    ///< On the volume of its folder.
  std::optional<Duration> snapshot_age;  ///< Age of the newest one that this process took.
  uint64_t journal_syncs = 0;            ///< Durable groups written.
  Duration journal_sync_time;            ///< Time that these took together.
  Duration clock_gap;                    ///< Lead of the wall clock over the journal's time.
};

/// The scheduler without its doors: recovers, runs the engine's thread, the journal's and the observer's.
/// All members are thread-safe but `open` and `stop`.
class Host {
 public:
  /// Recovers from `data_dir` (made if absent) and starts. kLocked names the process that holds it; kVersion
  /// and kCorrupt say what to do.
  static Result<std::unique_ptr<Host>> open(const HostOptions& options);
  virtual ~Host() = default;

  /// Queues a command; `decision` is called on the host's thread once it is durable and applied; at once, on
  /// the caller's, with kUnavailable when too much waits already.
  virtual void propose(Proposal proposal) = 0;
  void propose(Command command, Decision decision) {
    propose(Proposal{.command = std::move(command), .decision = std::move(decision)});
  }
  /// The same of edits that are made together or not at all.
  virtual void propose(EditSet set) = 0;
  /// Called on the host's thread after the last decision of each group. Add before serving begins.
  virtual void on_group_done(std::function<void()> hook) = 0;
  virtual Observer& observer() = 0;
  virtual ForecastService& forecasts() = 0;

  virtual SessionId node_opened(std::shared_ptr<NodeSession> session) = 0;
  /// `handled` is called when nothing of the message waits for the host's thread any more: who reads an
  /// agent's stream does not read on while much of it is unhandled. Dropped after the end.
  virtual void node_received(SessionId session, v1::AgentMessage message, std::function<void()> handled) = 0;
  virtual void node_closed(SessionId session) = 0;
  virtual void read_log(NodeId node, v1::ReadLog request, std::function<void(Result<v1::LogChunk>)> done) = 0;
  /// Has the node's agent run its reboot command. kUnavailable when it is not connected.
  virtual void reboot_node(NodeId node, std::string reason, std::function<void(Result<Unit>)> done) = 0;
  /// Runs `use` on the host's thread; with null when the scheduler shuts down.
  virtual void with_nodes(std::function<void(NodeHub*)> use) = 0;
  virtual std::shared_ptr<TelemetryTable> telemetry() const = 0;

  /// Calls `alive` on the host's thread, in its turn: a sign that the loop goes round. Dropped after the end.
  virtual void touch(std::function<void()> alive) = 0;

  virtual HostHealth health() const = 0;
  virtual HostStats stats() const = 0;
  virtual const RecoveryReport& recovery() const = 0;

  /// Finishes what is in flight, writes a snapshot, seals the journal. Nothing may be called after it.
  virtual void stop() = 0;
};

}  // namespace gpusched
