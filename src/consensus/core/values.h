#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Values that a consensus core takes and gives. Ids of replicas are never 0, and never used again.
namespace gpusched::consensus {

enum class EntryKind : uint8_t {
  kData = 0,     ///< Opaque to the core. Empty: the first entry of a new leader.
  kMembers = 1,  ///< A change of members, in the flat form of `core/members.h`.
};

/// One entry of the replicated log.
struct Entry {
  uint64_t index = 0;  ///< 1 for the first entry ever, then without a gap.
  uint64_t term = 0;   ///< Term of the leader that appended it; never decreases.
  EntryKind kind = EntryKind::kData;
  std::string data;

  friend bool operator==(const Entry&, const Entry&) = default;
};

/// State that a replica must never forget. Durable before any message that follows from it is sent.
struct HardState {
  uint64_t term = 0;
  uint64_t vote = 0;    ///< Replica that this one voted for in `term`; 0: none.
  uint64_t commit = 0;  ///< May be older than what is known; never newer than the log.

  friend bool operator==(const HardState&, const HardState&) = default;
};

/// The disk of a member, by the random number that it got when its log was made.
struct MemberStore {
  uint64_t id = 0;
  uint64_t store = 0;

  friend bool operator==(const MemberStore&, const MemberStore&) = default;
};

/// Members of the group; every list is sorted by id. While a change of several members is under way there
/// are two sets of voters, and both must agree to everything.
struct Members {
  std::vector<uint64_t> voters;
  std::vector<uint64_t> learners;         ///< They get the log and do not vote.
  std::vector<uint64_t> voters_outgoing;  ///< Empty unless a change is under way.
  std::vector<uint64_t> learners_next;    ///< Outgoing voters that become learners.
  bool auto_leave = false;
  std::vector<MemberStore> stores;  ///< One of each member.
  uint64_t id_max = 0;              ///< Highest id that a member ever had.

  friend bool operator==(const Members&, const Members&) = default;
};

enum class ChangeKind : uint8_t { kAddVoter = 0, kRemove = 1, kAddLearner = 2 };

/// One change of members; `kAddVoter` also makes a voter of a learner.
struct MemberChange {
  ChangeKind kind = ChangeKind::kAddVoter;
  uint64_t id = 0;
  uint64_t store = 0;  ///< 0 where the member is removed.

  friend bool operator==(const MemberChange&, const MemberChange&) = default;
};

/// The state of the log up to an entry, in place of those entries.
struct Snapshot {
  uint64_t index = 0;  ///< 0: there is none.
  uint64_t term = 0;
  Members members;
  std::string data;  ///< The owner's description of the state, small: it travels in one message.

  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

/// Types of messages between replicas, with Raft's own numbers.
enum class MessageKind : uint8_t {
  kPropose = 2,
  kAppend = 3,
  kAppendAnswer = 4,
  kVote = 5,
  kVoteAnswer = 6,
  kSnapshot = 7,
  kHeartbeat = 8,
  kHeartbeatAnswer = 9,
  kTransfer = 13,
  kCampaignNow = 14,
  kRead = 15,
  kReadAnswer = 16,
  kPreVote = 17,
  kPreVoteAnswer = 18,
};

/// A message between replicas.
struct PeerMessage {
  MessageKind kind = MessageKind::kHeartbeat;
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t term = 0;
  uint64_t log_term = 0;
  uint64_t index = 0;
  uint64_t commit = 0;
  uint64_t commit_term = 0;
  uint64_t request_snapshot = 0;
  uint64_t reject_hint = 0;
  bool reject = false;
  std::string context;
  std::vector<Entry> entries;
  std::optional<Snapshot> snapshot;

  friend bool operator==(const PeerMessage&, const PeerMessage&) = default;
};

/// A linearizable read that may be served once `index` is applied.
struct ReadyRead {
  uint64_t id = 0;
  uint64_t index = 0;

  friend bool operator==(const ReadyRead&, const ReadyRead&) = default;
};

/// Work for a core's owner, in this order: install `snapshot` or append `entries`, together with the hard
/// state; send `messages` unless they wait for the sync; `appended`; sync if `must_sync`; `persisted`; send
/// what waited; apply `committed`; `applied`.
struct Ready {
  uint64_t number = 0;
  HardState hard_state;
  bool hard_state_changed = false;
  bool must_sync = false;
  bool messages_wait = false;  ///< `messages` must not be sent before the sync.
  std::vector<Entry> entries;
  std::optional<Snapshot> snapshot;
  std::vector<Entry> committed;
  std::vector<PeerMessage> messages;
  std::vector<ReadyRead> reads;
};

enum class Role : uint8_t { kFollower = 0, kPreCandidate = 1, kCandidate = 2, kLeader = 3 };

/// A core at one instant.
struct CoreState {
  Role role = Role::kFollower;
  uint64_t leader = 0;  ///< 0: none is known.
  HardState hard_state;
  uint64_t applied = 0;
  uint64_t persisted = 0;  ///< Last entry that is known to be durable here.
  uint64_t last_index = 0;
  uint64_t transferring_to = 0;  ///< 0: no transfer is under way.
  uint64_t election_ticks = 0;   ///< Ticks without a leader after which this replica campaigns.
  bool members_pending = false;  ///< A change of members may be in the log and not applied.
  bool joint = false;            ///< Two sets of voters are in force.
  bool promotable = false;       ///< This replica may be elected.
  bool committed_in_term = false;

  friend bool operator==(const CoreState&, const CoreState&) = default;
};

/// A follower as the leader knows it.
struct Progress {
  uint64_t id = 0;
  uint64_t matched = 0;  ///< Last entry that it is known to have.
  uint64_t next = 0;
  bool active = false;  ///< It answered within the last election timeout.
  bool needs_snapshot = false;
  bool learner = false;
};

/// Place of a proposal in the log: committed when the entry of this index has this term.
struct Proposed {
  uint64_t index = 0;
  uint64_t term = 0;
};

}  // namespace gpusched::consensus
