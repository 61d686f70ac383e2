#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"
#include "host/core/journal_writer.h"
#include "host/core/recovery.h"
#include "journal/journal.h"
#include "journal/snapshot_store.h"

namespace gpusched {

/// The state of a scheduler while another one leads, brought up to date with each record that was agreed on:
/// when it is elected it recovers nothing. Each record's digest is compared with the state's. Takes
/// snapshots, so that its journal stays short. Owns a thread; all members are thread-safe.
class Standby {
 public:
  struct Hooks {
    /// The state is not what the record's writer had: this scheduler must not lead.
    std::function<void(const Error&)> differs;
    /// Nothing older than this journal record is needed any more.
    std::function<void(uint64_t position)> committed;
  };

  /// Recovers from the journal, to which nobody appends meanwhile. Errors as Host::open.
  static Result<std::unique_ptr<Standby>> open(const HostOptions& options, SharedJournal& journal,
                                               Hooks hooks);
  ~Standby();
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  /// The next record of the journal. Never blocks. When too many wait, the state is given up.
  void follow(const JournalRecord& record);

  struct Warm {
    Recovered recovered;
    RecoveryReport report;
  };
  /// The state behind the last record that was followed, and the end of this. Nothing: it was given up, and
  /// the journal has to be read.
  std::optional<Warm> take();

 private:
  struct Record {
    JournalRecord record;  ///< Its payload is the one below.
    std::string payload;
  };

  Standby(const HostOptions& options, Hooks hooks, std::unique_ptr<SnapshotStore> store)
      : hooks_(std::move(hooks)),
        snapshot_bytes_(static_cast<uint64_t>(options.snapshot_bytes)),
        store_(std::move(store)) {}
  void run();
  bool apply(Record& next);
  void take_snapshot();
  void end();

  const Hooks hooks_;
  const uint64_t snapshot_bytes_;
  std::unique_ptr<SnapshotStore> store_;

  // The thread's own.
  Recovered state_;
  RecoveryReport report_;
  Events events_;
  uint64_t bytes_since_ = 0;  ///< Payloads behind the newest snapshot.

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Record> waiting_;
  std::size_t waiting_bytes_ = 0;
  bool ending_ = false;
  bool given_up_ = false;
  std::thread thread_;
};

}  // namespace gpusched
