#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "consensus/replica.h"
#include "journal/file_journal.h"
#include "replication/committed_records.h"
#include "replication/journal_log_store.h"
#include "replication/replica_folder.h"

namespace gpusched {

struct ReplicationOptions {
  std::string data_dir;
  uint64_t cluster = 0;  ///< The group's random number.
  uint64_t id = 0;       ///< This replica.
  Duration tick = milliseconds(20);
  uint64_t election_ticks = 8;  ///< A follower campaigns after 8 to 16 ticks without a leader.
  /// Entries that are kept for replicas that are away; half of them go when there are more bytes than that.
  uint64_t log_bytes_max = 256u << 20;
  uint64_t log_segment_bytes = kReplicaSegmentBytes;
  Disk* disk = nullptr;  ///< Null: the computer's own. Must outlive the thread.
};

/// A replica at one instant, for people and metrics.
struct ReplicaStatus {
  consensus::Role role = consensus::Role::kFollower;
  uint64_t leader = 0;  ///< 0: none is known.
  uint64_t term = 0;
  uint64_t commit = 0;      ///< Last entry that is known to be committed.
  uint64_t applied = 0;     ///< Last entry that was handed out.
  uint64_t last_index = 0;  ///< Last entry of the log.
  uint64_t position = 0;    ///< Last record of the ordinary journal.
  uint64_t elections = 0;   ///< Elections that this replica began since its start.
  uint64_t log_bytes = 0;   ///< Data of the entries that the log keeps.
  /// The other replicas, where this one leads: entries that they are known to have, and whether they answer.
  std::vector<consensus::Progress> peers;
  std::string trouble;  ///< Why this replica takes no part any more; empty: it does.
};

/// The world of a ReplicationThread. All calls come on its thread, must not block, and must not call its
/// `stop`.
class ReplicationClient {
 public:
  virtual ~ReplicationClient() = default;
  /// For another replica; may be lost.
  virtual void send(consensus::PeerFrame frame) = 0;
  /// This replica leads, and the ordinary journal holds all that was ever agreed on. From now on the journal
  /// is the client's to read, until its first `propose`.
  virtual void leads() = 0;
  /// It leads no more: nothing is appended to the ordinary journal until the next start, and every proposal
  /// is refused.
  virtual void lost_lead() = 0;
  /// Another replica leads, or none that is known (0).
  virtual void leader_changed(uint64_t leader) = 0;
  /// A record that another leader proposed is in the ordinary journal now. Inside `start`, too.
  virtual void appended(const JournalRecord& record) = 0;
  /// This replica takes no part any more. kOutcomeUnknown, kIo, kStorageFull: a write failed, and what is
  /// durable is unknown: end the process. Otherwise an operator has to make the folder again.
  virtual void failed(const Error& error) = 0;
};

/// One replica of a scheduler: the consensus, its log in `DATA/replica/log`, and the ordinary journal, into
/// which it appends what is committed (docs/adr/journal.md). Owns a thread, which alone uses both journals.
/// Public members are thread-safe.
///
/// The log is what makes an entry durable: the ordinary journal is written without a sync for each record,
/// and a start appends from the log what it lacks.
class ReplicationThread {
 public:
  /// Opens the log and starts; `journal`, the ordinary one, lacks nothing of what is known to be committed
  /// when it returns. `journal` and `client` must outlive the thread. kNotFound: there is no log here.
  /// kInvalidArgument: the log is another replica's or another group's. kCorrupt: a journal is damaged, or
  /// the two contradict each other. kLocked, kVersion, kStorageFull, kIo.
  static Result<std::unique_ptr<ReplicationThread>> start(const ReplicationOptions& options,
                                                          FileJournal& journal, ReplicationClient& client);
  /// Ends the thread without a seal, as a kill would.
  ~ReplicationThread();
  ReplicationThread(const ReplicationThread&) = delete;
  ReplicationThread& operator=(const ReplicationThread&) = delete;

  /// A message of another replica. Dropped when too many wait.
  void received(consensus::PeerFrame frame);
  /// Messages to this replica were lost.
  void unreachable(uint64_t id);

  /// Proposes the next record; `record.term` is set here. `done` is called once, on the thread, when it is
  /// committed and in the ordinary journal. kStorageFull and kTooLarge: nothing was written. kUnavailable:
  /// this replica is not the leader, and nothing was done. kOutcomeUnknown: it lost the lead, and the group
  /// may agree on the record or not. One at a time.
  void propose(JournalRecord record, std::string payload, std::function<void(Result<Unit>)> done);
  /// Records of the ordinary journal before `position` are in a snapshot.
  void compact_before(uint64_t position);
  /// Gives the lead to the replica that has the most, and returns when another one leads, or after
  /// `patience`. Nothing may be proposed any more. True: another one leads, or this one did not.
  bool hand_over(Duration patience);
  /// Ends the thread, makes both journals durable and seals them.
  Result<Unit> stop();

  ReplicaStatus status() const;
  /// Bytes of the largest payload that a record may have.
  std::size_t payload_max() const { return payload_max_; }
  JournalSpace space() const;
  std::string space_reason() const;
  /// How often the log was made durable for a proposal, and how long these took until they were committed.
  uint64_t commit_count() const { return commits_.load(std::memory_order_relaxed); }
  Duration commit_time() const { return {commit_ns_.load(std::memory_order_relaxed)}; }

 private:
  enum class Lead : uint8_t { kNone, kHeld, kLost };
  using Clock = std::chrono::steady_clock;

  struct Proposal {
    JournalRecord record;
    std::string payload;
    std::function<void(Result<Unit>)> done;
  };
  struct InFlight {
    consensus::Proposed place;
    std::function<void(Result<Unit>)> done;
    Clock::time_point begun;
    bool appended = false;
    std::optional<Error> refused;  ///< It was never in the log.
  };
  struct Kept {
    uint64_t index = 0;
    uint64_t position = 0;
    uint64_t bytes = 0;
  };
  struct Inbox {
    std::vector<consensus::PeerFrame> frames;
    std::vector<uint64_t> unreachable;
    std::optional<Proposal> proposal;
    uint64_t compact_before = 0;
    bool hand_over = false;
  };
  /// Hears the replica, on the thread.
  class Ear;

  ReplicationThread(const ReplicationOptions& options, FileJournal& journal, ReplicationClient& client);
  Result<Unit> open();
  void run();
  void turn(Inbox& inbox);
  /// Carries out what is due.
  void advance();
  void receive(const consensus::PeerFrame& frame);
  void tick(Clock::time_point now);
  void begin(Proposal proposal);
  void settle_proposal();
  void settle_role();
  Result<Unit> take(const consensus::Entry& entry);
  Result<Unit> compact_log();
  void compact_journal();
  void begin_hand_over();
  void give_up(const Error& error);
  void publish();

  const ReplicationOptions options_;
  FileJournal& journal_;
  ReplicationClient& client_;
  std::size_t payload_max_ = 0;

  // The thread's own.
  std::unique_ptr<FileJournal> log_journal_;
  std::unique_ptr<JournalLogStore> store_;
  std::unique_ptr<Ear> ear_;
  CommittedRecords records_;
  std::unique_ptr<consensus::Replica> replica_;
  std::optional<InFlight> in_flight_;
  Lead lead_ = Lead::kNone;
  bool journal_lent_ = false;    ///< The client may be reading the ordinary journal.
  uint64_t compact_before_ = 0;  ///< In the ordinary journal, when it is not lent; 0: nothing.
  bool lost_told_ = false;
  uint64_t leader_ = 0;
  bool given_up_ = false;
  std::optional<Error> fault_;  ///< Found inside a call of the replica.
  std::vector<uint64_t> sent_snapshots_;
  std::deque<Kept> kept_;  ///< Committed entries that the log keeps.
  uint64_t log_bytes_ = 0;
  uint64_t elections_ = 0;
  Clock::time_point next_tick_;
  std::map<uint64_t, Clock::time_point> refused_at_;  ///< When a peer's message was refused and logged.

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable changed_;  ///< The status did.
  Inbox inbox_;
  ReplicaStatus status_;
  bool stopping_ = false;
  std::atomic<uint64_t> commits_{0};
  std::atomic<int64_t> commit_ns_{0};
  std::thread thread_;
};

}  // namespace gpusched
