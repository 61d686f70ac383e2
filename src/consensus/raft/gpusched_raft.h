#pragma once

#include <stddef.h>
#include <stdint.h>

/// C interface of the consensus core: Raft as a pure state machine, without clock, threads, sockets or files.
/// `core/consensus_core.h` is its only user.
///
/// Every function may be called from one thread at a time. Everything that is passed in is copied before the
/// call returns; everything that comes out stays valid until the next call on the same core. No panic leaves
/// a function: the core is poisoned then, every later call returns GPUSCHED_RAFT_POISONED, and
/// `gpusched_raft_reason` tells why.
#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpusched_raft gpusched_raft;

/// Version of this interface, which `gpusched_raft_version` returns.
#define GPUSCHED_RAFT_VERSION 1u

typedef enum gpusched_raft_status {
  GPUSCHED_RAFT_OK = 0,
  GPUSCHED_RAFT_NOT_LEADER = 1,       ///< Only a leader does that.
  GPUSCHED_RAFT_TRANSFERRING = 2,     ///< The leader hands over and takes no proposals.
  GPUSCHED_RAFT_FULL = 3,             ///< Too many bytes are proposed and not committed.
  GPUSCHED_RAFT_REFUSED = 4,          ///< The message is dropped; `gpusched_raft_reason` tells why.
  GPUSCHED_RAFT_MEMBERS_PENDING = 5,  ///< An earlier change of members is not applied.
  GPUSCHED_RAFT_NOT_READY = 6,        ///< No leader is known, or it has committed nothing in its term.
  GPUSCHED_RAFT_BAD_START = 7,        ///< The options or the log contradict themselves.
  GPUSCHED_RAFT_LOG_LOST = 8,      ///< The leader knows entries of this replica that its log does not have.
  GPUSCHED_RAFT_OUT_OF_ORDER = 9,  ///< A call that is not allowed between `ready` and `appended`.
  GPUSCHED_RAFT_POISONED = 10      ///< The core failed: end the process.
} gpusched_raft_status;

typedef struct gpusched_raft_bytes {
  const uint8_t* data;
  size_t size;
} gpusched_raft_bytes;

typedef struct gpusched_raft_ids {
  const uint64_t* data;
  size_t size;
} gpusched_raft_ids;

enum {
  GPUSCHED_RAFT_ENTRY_DATA = 0,    ///< Opaque to the core. Empty: a new leader's first entry.
  GPUSCHED_RAFT_ENTRY_MEMBERS = 1  ///< A change of members: see `gpusched_raft_propose_members`.
};

typedef struct gpusched_raft_entry {
  uint64_t index;
  uint64_t term;
  uint32_t kind;
  gpusched_raft_bytes data;
} gpusched_raft_entry;

/// Members of the group. Two sets of voters while a change of several is under way.
typedef struct gpusched_raft_members {
  gpusched_raft_ids voters;
  gpusched_raft_ids learners;
  gpusched_raft_ids voters_outgoing;
  gpusched_raft_ids learners_next;
  uint8_t auto_leave;
} gpusched_raft_members;

typedef struct gpusched_raft_snapshot {
  uint64_t index;
  uint64_t term;
  gpusched_raft_members members;
  gpusched_raft_bytes data;  ///< Opaque to the core.
} gpusched_raft_snapshot;

/// A message between replicas; the numbers of the types are Raft's own.
typedef struct gpusched_raft_message {
  uint32_t type;
  uint8_t reject;
  uint64_t to;
  uint64_t from;
  uint64_t term;
  uint64_t log_term;
  uint64_t index;
  uint64_t commit;
  uint64_t commit_term;
  uint64_t request_snapshot;
  uint64_t reject_hint;
  gpusched_raft_bytes context;
  const gpusched_raft_entry* entries;
  size_t entry_count;
  const gpusched_raft_snapshot* snapshot;  ///< Null: none.
} gpusched_raft_message;

/// Where the core reads the log that its owner writes: everything that was appended, synced or not. The
/// functions must not throw and must not call the core.
typedef struct gpusched_raft_log {
  void* owner;
  uint64_t (*first_index)(void* owner);  ///< Index behind the snapshot; last + 1 when there is no entry.
  uint64_t (*last_index)(void* owner);   ///< Index of the snapshot when there is no entry.
  /// Term of the entry, or of the snapshot at its index. Returns 0 when there is none.
  uint64_t (*term)(void* owner, uint64_t index);
  /// Hands the entries [low, high) to `gpusched_raft_take_entry`, at least one, at most `bytes_max` bytes of
  /// data unless the first one alone is larger. Returns 1 when it did, 0 when `low` was compacted away.
  uint8_t (*entries)(void* owner, uint64_t low, uint64_t high, uint64_t bytes_max, void* sink);
  /// Hands a snapshot of at least `index` for replica `to` to `gpusched_raft_take_snapshot`; returns 0 when
  /// there is none now.
  uint8_t (*snapshot)(void* owner, uint64_t index, uint64_t to, void* sink);
} gpusched_raft_log;

typedef struct gpusched_raft_options {
  uint64_t id;    ///< This replica, never 0.
  uint64_t boot;  ///< Differs at each start of this replica, never 0: part of every read's context.
  uint64_t seed;  ///< Seed of the election timeouts.
  uint64_t term;
  uint64_t vote;
  uint64_t commit;
  uint64_t applied;
  uint64_t election_ticks;
  uint64_t heartbeat_ticks;
  uint64_t message_bytes_max;       ///< Bytes of entries in one message; 0 is refused.
  uint64_t messages_in_flight_max;  ///< Messages with entries that one follower has not answered.
  uint64_t uncommitted_bytes_max;   ///< Proposals beyond that are refused as full.
  uint64_t committed_bytes_max;     ///< Committed entries in one `ready`.
  gpusched_raft_members members;
} gpusched_raft_options;

typedef struct gpusched_raft_read {
  uint64_t id;     ///< Number that `gpusched_raft_read_index` returned.
  uint64_t index;  ///< The read may be served once this is applied.
} gpusched_raft_read;

/// Work of the owner, in this order: append `entries` (removing what conflicts) or install `snapshot`,
/// together with the hard state; send `messages` at once, or, when `messages_wait`, after the sync; call
/// `appended`; sync; call `persisted`; apply `committed` and call `applied`.
typedef struct gpusched_raft_ready {
  uint64_t number;
  uint8_t has_hard_state;
  uint8_t must_sync;
  uint8_t messages_wait;
  uint64_t term;
  uint64_t vote;
  uint64_t commit;
  const gpusched_raft_entry* entries;
  size_t entry_count;
  const gpusched_raft_snapshot* snapshot;  ///< Null: none.
  const gpusched_raft_entry* committed;
  size_t committed_count;
  const gpusched_raft_message* messages;
  size_t message_count;
  const gpusched_raft_read* reads;
  size_t read_count;
} gpusched_raft_ready;

enum {
  GPUSCHED_RAFT_FOLLOWER = 0,
  GPUSCHED_RAFT_PRE_CANDIDATE = 1,
  GPUSCHED_RAFT_CANDIDATE = 2,
  GPUSCHED_RAFT_LEADER = 3
};

typedef struct gpusched_raft_state {
  uint32_t role;
  uint64_t leader;  ///< 0: none is known.
  uint64_t term;
  uint64_t vote;
  uint64_t commit;
  uint64_t applied;
  uint64_t persisted;  ///< Last entry that is known to be durable here.
  uint64_t last_index;
  uint64_t transferring_to;   ///< 0: no transfer is under way.
  uint64_t election_ticks;    ///< Ticks without a leader after which this replica campaigns.
  uint8_t members_pending;    ///< A change of members may be in the log and not applied.
  uint8_t joint;              ///< Two sets of voters are in force.
  uint8_t promotable;         ///< This replica may be elected.
  uint8_t committed_in_term;  ///< The leader's own term has a committed entry.
} gpusched_raft_state;

typedef struct gpusched_raft_progress {
  uint64_t id;
  uint64_t matched;  ///< Last entry that the replica is known to have.
  uint64_t next;
  uint8_t active;          ///< It answered within the last election timeout.
  uint8_t needs_snapshot;  ///< It waits for a snapshot.
  uint8_t learner;
} gpusched_raft_progress;

enum { GPUSCHED_RAFT_ADD_VOTER = 0, GPUSCHED_RAFT_REMOVE = 1, GPUSCHED_RAFT_ADD_LEARNER = 2 };

typedef struct gpusched_raft_change {
  uint32_t kind;
  uint64_t id;
  uint64_t store;  ///< Opaque to the core: which disk the member has. 0 where it is removed.
} gpusched_raft_change;

uint32_t gpusched_raft_version(void);

/// Starts a core. GPUSCHED_RAFT_BAD_START: `why` (of `why_size` bytes, ended by a zero) says what is wrong.
gpusched_raft_status gpusched_raft_start(const gpusched_raft_options* options, const gpusched_raft_log* log,
                                         gpusched_raft** core, char* why, size_t why_size);
void gpusched_raft_free(gpusched_raft* core);
/// Why the last call refused, or why the core is poisoned. UTF-8.
gpusched_raft_bytes gpusched_raft_reason(const gpusched_raft* core);

gpusched_raft_status gpusched_raft_tick(gpusched_raft* core);
/// Takes a message of another replica. Checks it first: bytes that contradict the protocol are refused, and
/// so are proposals and orders to transfer, which only the leader's own process gives.
gpusched_raft_status gpusched_raft_step(gpusched_raft* core, const gpusched_raft_message* message);
gpusched_raft_status gpusched_raft_campaign(gpusched_raft* core);
gpusched_raft_status gpusched_raft_propose(gpusched_raft* core, gpusched_raft_bytes data, uint64_t* index,
                                           uint64_t* term);
/// Proposes to change the members; several changes take effect together. None leaves a joint configuration.
/// The entry's data are in a flat form: version 1, a count, and kind (1 byte), id and store (8 bytes each,
/// little-endian) of each change.
gpusched_raft_status gpusched_raft_propose_members(gpusched_raft* core, const gpusched_raft_change* changes,
                                                   size_t count, uint64_t* index, uint64_t* term);
/// Applies a committed entry of kind GPUSCHED_RAFT_ENTRY_MEMBERS. The members that hold then.
gpusched_raft_status gpusched_raft_apply_members(gpusched_raft* core, gpusched_raft_bytes data,
                                                 gpusched_raft_members* members);
gpusched_raft_status gpusched_raft_transfer(gpusched_raft* core, uint64_t to);
/// Begins a linearizable read. Its context is made here, from (id, boot, counter), and never twice.
gpusched_raft_status gpusched_raft_read_index(gpusched_raft* core, uint64_t* id);
gpusched_raft_status gpusched_raft_unreachable(gpusched_raft* core, uint64_t id);
gpusched_raft_status gpusched_raft_snapshot_sent(gpusched_raft* core, uint64_t id, uint8_t received);

gpusched_raft_status gpusched_raft_has_ready(const gpusched_raft* core, uint8_t* has);
gpusched_raft_status gpusched_raft_take_ready(gpusched_raft* core, gpusched_raft_ready* ready);
/// The log's functions show what the last `ready` had; it need not be synced.
gpusched_raft_status gpusched_raft_appended(gpusched_raft* core);
/// Everything up to the `ready` of this number is durable.
gpusched_raft_status gpusched_raft_persisted(gpusched_raft* core, uint64_t number);
gpusched_raft_status gpusched_raft_applied(gpusched_raft* core, uint64_t index);

gpusched_raft_status gpusched_raft_get_state(const gpusched_raft* core, gpusched_raft_state* state);
gpusched_raft_status gpusched_raft_get_members(gpusched_raft* core, gpusched_raft_members* members);
/// Followers as the leader knows them; writes at most `room` and tells in `count` how many there are.
gpusched_raft_status gpusched_raft_get_progress(const gpusched_raft* core, gpusched_raft_progress* progress,
                                                size_t room, size_t* count);

/// For the functions of gpusched_raft_log only.
void gpusched_raft_take_entry(void* sink, const gpusched_raft_entry* entry);
void gpusched_raft_take_snapshot(void* sink, const gpusched_raft_snapshot* snapshot);

#ifdef __cplusplus
}
#endif
