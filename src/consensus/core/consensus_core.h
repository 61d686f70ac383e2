#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "consensus/core/values.h"

namespace gpusched::consensus {

/// The log as the core reads it: everything that was appended, synced or not. Called inside the core's own
/// calls; must not throw and must not call the core.
class LogReader {
 public:
  virtual ~LogReader() = default;
  /// Index behind the snapshot; `last_index() + 1` when there is no entry.
  virtual uint64_t first_index() const = 0;
  /// Index of the snapshot when there is no entry.
  virtual uint64_t last_index() const = 0;
  /// Term of an entry, or of the snapshot at its index; 0 when there is neither.
  virtual uint64_t term(uint64_t index) const = 0;
  /// The entries [low, high), at least one, and no more than `bytes_max` bytes of data unless the first one
  /// alone is larger. Nothing: `low` was compacted away.
  virtual std::vector<Entry> entries(uint64_t low, uint64_t high, uint64_t bytes_max) const = 0;
  /// The newest snapshot for a replica that needs one; nothing when there is none that knows it as a member:
  /// it would refuse every other one.
  virtual std::optional<Snapshot> snapshot(uint64_t to) const = 0;
};

struct CoreOptions {
  uint64_t id = 0;    ///< This replica, never 0.
  uint64_t boot = 0;  ///< Differs at each start of this replica, never 0: part of every read's context.
  uint64_t seed = 0;  ///< Seed of the election timeouts: the same calls then give the same results.
  uint64_t election_ticks = 10;  ///< An election begins after this many ticks without a leader, up to twice.
  uint64_t heartbeat_ticks = 1;
  uint64_t message_bytes_max = 1u << 20;  ///< Bytes of entries in one message; 0 is refused.
  uint64_t messages_in_flight_max = 256;  ///< Messages with entries that one follower has not answered.
  uint64_t uncommitted_bytes_max = 64u << 20;
  uint64_t committed_bytes_max = 8u << 20;  ///< Committed entries in one `Ready`.
};

/// Raft as a pure state machine: no clock, no thread, no socket, no file, and the same calls give the same
/// results. Pre-vote and check-quorum are on; reads go through a majority; a follower forwards nothing but
/// reads. Not thread-safe. A fault inside it, or a call out of order, is a failed CHECK.
class ConsensusCore {
 public:
  /// Starts from what is durable. `log` must outlive the core. kInvalidArgument: the options are impossible,
  /// or the hard state and the log contradict each other.
  static Result<std::unique_ptr<ConsensusCore>> start(const CoreOptions& options, const HardState& hard_state,
                                                      uint64_t applied, const Members& members,
                                                      const LogReader& log);
  ~ConsensusCore();
  ConsensusCore(const ConsensusCore&) = delete;
  ConsensusCore& operator=(const ConsensusCore&) = delete;

  /// One interval of time has passed.
  void tick();
  /// Takes a peer's message. kInvalidArgument: it contradicts the protocol, and nothing was changed; the
  /// message says why. kCorrupt: the leader knows entries of this replica that its log does not have; its
  /// disk forgot what it had acknowledged, and it must leave the group.
  Result<Unit> step(const PeerMessage& message);
  /// Begins an election, whatever the time.
  void campaign();
  /// Appends `data`, which is not empty. kUnavailable: this replica is not the leader, or hands over.
  /// kTooLarge: too much is proposed and not committed.
  Result<Proposed> propose(std::string_view data);
  /// Appends a change of members; several take effect together. Errors of `propose`; kAlreadyExists: an
  /// earlier change is not applied; kInvalidArgument: the members cannot change so.
  Result<Proposed> propose_members(const std::vector<MemberChange>& changes);
  /// Applies a committed entry of kind `kMembers`. The sets of members that hold then, without their disks.
  /// kInvalidArgument: they cannot change so, and did not; every replica comes to the same.
  Result<Members> apply_members(std::string_view data);
  /// Hands the leadership to a voter once it has every entry. Gives up after an election timeout.
  /// kUnavailable: this replica is not the leader. kInvalidArgument: `to` is no other voter.
  Result<Unit> transfer(uint64_t to);
  /// Begins a linearizable read; its id comes back in `Ready::reads`, or never when the leader changes or a
  /// message is lost. kUnavailable: no leader is known, or it has committed nothing in its term.
  Result<uint64_t> read();
  /// Messages to this replica were lost.
  void unreachable(uint64_t id);
  /// The snapshot for this replica arrived, or did not.
  void snapshot_sent(uint64_t id, bool received);

  bool has_ready() const;
  /// The next work. Until `appended` nothing else may be called but the questions below.
  Ready ready();
  void appended();
  void persisted(uint64_t number);
  /// Entries up to `index` are applied; at most the last committed one that was handed out.
  void applied(uint64_t index);

  CoreState state() const;
  /// The sets of members, without their disks.
  Members members() const;
  /// Followers and this replica itself, by id; empty unless it leads.
  std::vector<Progress> progress() const;

 private:
  class Handle;
  explicit ConsensusCore(std::unique_ptr<Handle> handle);

  std::unique_ptr<Handle> handle_;
};

}  // namespace gpusched::consensus
