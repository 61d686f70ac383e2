#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "consensus/core/consensus_core.h"
#include "consensus/core/peer_message.h"
#include "consensus/core/values.h"
#include "consensus/log/log_store.h"
#include "consensus/log/replica_log.h"

namespace gpusched::consensus {

/// Effects of a replica on the world. Called inside `Replica::run`, and must not call the replica.
class ReplicaClient {
 public:
  virtual ~ReplicaClient() = default;
  /// A message for another replica. It may be lost, repeated or late. What became of a snapshot must be told
  /// by `Replica::snapshot_sent`: until then its receiver is sent nothing else.
  virtual void send(PeerFrame frame) = 0;
  /// A committed entry with data, in order, each once after a start.
  virtual void committed(const Entry& entry) = 0;
  /// The owner's state is replaced by this snapshot. It must be durable when the call returns: the log before
  /// it is forgotten next.
  virtual Result<Unit> install(const Snapshot& snapshot) = 0;
  /// The read with this id may be served from what is applied now.
  virtual void readable(uint64_t read) = 0;
  /// The read with this id gets no answer: the leader or the term changed. Begin another one.
  virtual void read_lost(uint64_t read) = 0;
  /// Role, term or leader changed. A leader that is none any more: its open proposals may or may not commit.
  virtual void role_changed(const CoreState& state) = 0;
  /// Another set of members holds from here on.
  virtual void members_changed(const Members& members) = 0;
};

struct ReplicaOptions {
  uint64_t cluster = 0;  ///< The group's random number, never 0.
  CoreOptions core;
  /// Entries that a learner may lack when it is made a voter: with more, the group would wait for it.
  uint64_t behind_max = 10'000;
  uint64_t held = 0;  ///< Last entry that the owner's state holds: entries up to it are not handed out again.
};

/// One member of a group: a core, its log, and the order in which both must be used. No clock, thread or
/// socket: time comes as ticks. Not thread-safe.
///
/// Every call but the questions changes something that `run` then carries out. A failed `run` leaves the disk
/// unknown: end the process, and start again from the disk.
class Replica {
 public:
  /// Starts from a disk whose log was made before. `store` and `client` must outlive the replica. Errors of
  /// `ReplicaLog::open` and `ConsensusCore::start`.
  static Result<std::unique_ptr<Replica>> start(const ReplicaOptions& options, LogStore& store,
                                                ReplicaClient& client);

  void tick();
  /// Takes a peer's message. kPermissionDenied: it is of another group, or of a disk that is no member's.
  /// Other errors as those of `ConsensusCore::step`.
  Result<Unit> receive(const PeerFrame& frame);
  Result<Proposed> propose(std::string_view data);
  /// Errors of `ConsensusCore::propose_members`; kInvalidArgument also: a voter that is no learner before, or
  /// an id that was used before. kUnavailable also: the learner lacks too many entries.
  Result<Proposed> propose_members(const std::vector<MemberChange>& changes);
  Result<Unit> transfer(uint64_t to);
  Result<uint64_t> read();
  void campaign();
  void unreachable(uint64_t id);
  void snapshot_sent(uint64_t id, bool received);

  /// Carries out all that is due: writes, syncs, sends, applies.
  Result<Unit> run();
  /// Records a snapshot of the owner's state, which is durable and holds every entry that was handed out;
  /// forgets the entries before. `data` describes it. Nothing is done while there are no new entries, or
  /// while the owner's state is ahead of the log, as it may be after a start.
  Result<Unit> compact(std::string data) { return compact(std::move(data), applied_); }
  /// The same up to entry `index` only, which was handed out: later ones stay for replicas that are away.
  /// Nothing is done, either, when the members changed behind it: they are part of a snapshot.
  Result<Unit> compact(std::string data, uint64_t index);
  /// A new member waits for a snapshot: call `compact` soon.
  bool wants_snapshot() const {
    return log_->wants_snapshot() && applied_ > log_->snapshot_index() && applied_ >= held_;
  }

  CoreState state() const { return core_->state(); }
  const Members& members() const { return members_; }
  std::vector<Progress> progress() const { return core_->progress(); }
  const ReplicaLog& log() const { return *log_; }

 private:
  Replica(const ReplicaOptions& options, std::unique_ptr<ReplicaLog> log, ReplicaClient& client);
  Result<Unit> admit(const PeerFrame& frame) const;
  std::string behind_fault(const std::vector<MemberChange>& changes) const;
  Result<Unit> write(const Ready& ready);
  void send(std::vector<PeerMessage> messages);
  void apply(const std::vector<Entry>& committed);
  void apply_members(const Entry& entry);
  void serve_reads(const std::vector<ReadyRead>& ready);
  void note_role();

  const uint64_t cluster_;
  const uint64_t id_;
  ReplicaClient& client_;
  std::unique_ptr<ReplicaLog> log_;
  std::unique_ptr<ConsensusCore> core_;
  Members members_;
  const uint64_t behind_max_;
  const uint64_t held_;
  uint64_t applied_ = 0;
  uint64_t members_index_ = 0;  ///< Last applied entry that changed the members.
  CoreState known_;             ///< As the client was told.
  std::vector<uint64_t> open_reads_;
  std::vector<ReadyRead> waiting_reads_;  ///< Answered by the leader, not yet applied here.
};

}  // namespace gpusched::consensus
