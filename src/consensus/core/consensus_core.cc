#include "consensus/core/consensus_core.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "consensus/core/members.h"
#include "consensus/raft/gpusched_raft.h"

namespace gpusched::consensus {
namespace {

static_assert(static_cast<uint32_t>(EntryKind::kMembers) == GPUSCHED_RAFT_ENTRY_MEMBERS);
static_assert(static_cast<uint32_t>(ChangeKind::kAddLearner) == GPUSCHED_RAFT_ADD_LEARNER);
static_assert(static_cast<uint32_t>(Role::kLeader) == GPUSCHED_RAFT_LEADER);

gpusched_raft_bytes to_c(std::string_view bytes) {
  return {.data = reinterpret_cast<const uint8_t*>(bytes.data()), .size = bytes.size()};
}

std::string from_c(gpusched_raft_bytes bytes) {
  return bytes.size == 0 ? std::string{} : std::string(reinterpret_cast<const char*>(bytes.data), bytes.size);
}

gpusched_raft_ids to_c(const std::vector<uint64_t>& ids) { return {.data = ids.data(), .size = ids.size()}; }

std::vector<uint64_t> from_c(gpusched_raft_ids ids) {
  std::vector<uint64_t> list;
  if (ids.size > 0) list.assign(ids.data, ids.data + ids.size);
  std::sort(list.begin(), list.end());
  return list;
}

gpusched_raft_members to_c(const Members& members) {
  return {.voters = to_c(members.voters),
          .learners = to_c(members.learners),
          .voters_outgoing = to_c(members.voters_outgoing),
          .learners_next = to_c(members.learners_next),
          .auto_leave = static_cast<uint8_t>(members.auto_leave ? 1 : 0)};
}

Members from_c(const gpusched_raft_members& members) {
  Members sets;
  sets.voters = from_c(members.voters);
  sets.learners = from_c(members.learners);
  sets.voters_outgoing = from_c(members.voters_outgoing);
  sets.learners_next = from_c(members.learners_next);
  sets.auto_leave = members.auto_leave != 0;
  return sets;
}

gpusched_raft_entry to_c(const Entry& entry) {
  return {.index = entry.index,
          .term = entry.term,
          .kind = static_cast<uint32_t>(entry.kind),
          .data = to_c(entry.data)};
}

Entry from_c(const gpusched_raft_entry& entry) {
  CHECK(entry.kind <= GPUSCHED_RAFT_ENTRY_MEMBERS);
  return {.index = entry.index,
          .term = entry.term,
          .kind = static_cast<EntryKind>(entry.kind),
          .data = from_c(entry.data)};
}

/// A snapshot for the core, which knows sets of ids only: the disks travel with its data.
class SnapshotForCore {
 public:
  explicit SnapshotForCore(const Snapshot& snapshot) {
    ByteWriter out(data_);
    write_members(snapshot.members, out);
    out.bytes(snapshot.data);
    c_ = {.index = snapshot.index,
          .term = snapshot.term,
          .members = to_c(snapshot.members),
          .data = to_c(data_)};
  }
  SnapshotForCore(const SnapshotForCore&) = delete;
  SnapshotForCore& operator=(const SnapshotForCore&) = delete;

  const gpusched_raft_snapshot* get() const { return &c_; }

 private:
  std::string data_;
  gpusched_raft_snapshot c_;
};

Snapshot from_c(const gpusched_raft_snapshot& snapshot) {
  const std::string data = from_c(snapshot.data);
  ByteReader in(data);
  Snapshot value{.index = snapshot.index, .term = snapshot.term};
  value.members = read_members(in);
  value.data = in.bytes();
  CHECK(in.ok());
  CHECK(in.at_end());
  return value;
}

PeerMessage from_c(const gpusched_raft_message& message) {
  PeerMessage value;
  value.kind = static_cast<MessageKind>(message.type);
  value.to = message.to;
  value.from = message.from;
  value.term = message.term;
  value.log_term = message.log_term;
  value.index = message.index;
  value.commit = message.commit;
  value.commit_term = message.commit_term;
  value.request_snapshot = message.request_snapshot;
  value.reject_hint = message.reject_hint;
  value.reject = message.reject != 0;
  value.context = from_c(message.context);
  for (std::size_t i = 0; i < message.entry_count; ++i) value.entries.push_back(from_c(message.entries[i]));
  if (message.snapshot != nullptr) value.snapshot = from_c(*message.snapshot);
  return value;
}

const LogReader& log_of(void* owner) { return *static_cast<const LogReader*>(owner); }

uint64_t log_first_index(void* owner) noexcept { return log_of(owner).first_index(); }
uint64_t log_last_index(void* owner) noexcept { return log_of(owner).last_index(); }
uint64_t log_term(void* owner, uint64_t index) noexcept { return log_of(owner).term(index); }

uint8_t log_entries(void* owner, uint64_t low, uint64_t high, uint64_t bytes_max, void* sink) noexcept {
  const std::vector<Entry> entries = log_of(owner).entries(low, high, bytes_max);
  for (const Entry& entry : entries) {
    const gpusched_raft_entry c = to_c(entry);
    gpusched_raft_take_entry(sink, &c);
  }
  return entries.empty() ? 0 : 1;
}

uint8_t log_snapshot(void* owner, uint64_t index, uint64_t to, void* sink) noexcept {
  const std::optional<Snapshot> snapshot = log_of(owner).snapshot(to);
  if (!snapshot || snapshot->index < index) return 0;
  const SnapshotForCore c(*snapshot);
  gpusched_raft_take_snapshot(sink, c.get());
  return 1;
}

}  // namespace

/// Owns the C handle, and turns its statuses into errors.
class ConsensusCore::Handle {
 public:
  explicit Handle(gpusched_raft* core) : core_(core) {}
  ~Handle() { gpusched_raft_free(core_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  gpusched_raft* get() const { return core_; }
  std::string reason() const { return from_c(gpusched_raft_reason(core_)); }

  /// A poisoned core may have done half of something: nothing of it can be used any more.
  gpusched_raft_status checked(gpusched_raft_status status) const {
    if (status == GPUSCHED_RAFT_POISONED) {
      std::fprintf(stderr, "The consensus core failed: %s\n", reason().c_str());
    }
    CHECK(status != GPUSCHED_RAFT_POISONED);
    CHECK(status != GPUSCHED_RAFT_OUT_OF_ORDER);
    return status;
  }
  void must(gpusched_raft_status status) const { CHECK(checked(status) == GPUSCHED_RAFT_OK); }

  Error error(gpusched_raft_status status) const {
    switch (status) {
      case GPUSCHED_RAFT_NOT_LEADER:
        return {ErrorCode::kUnavailable, "This replica is not the leader."};
      case GPUSCHED_RAFT_TRANSFERRING:
        return {ErrorCode::kUnavailable, "The leader hands over to another replica: try again in a moment."};
      case GPUSCHED_RAFT_FULL:
        return {ErrorCode::kTooLarge, "Too much is proposed and not yet committed: try again in a moment."};
      case GPUSCHED_RAFT_REFUSED:
        return {ErrorCode::kInvalidArgument, reason()};
      case GPUSCHED_RAFT_MEMBERS_PENDING:
        return {ErrorCode::kAlreadyExists, "An earlier change of members is not finished: try again later."};
      case GPUSCHED_RAFT_NOT_READY:
        return {ErrorCode::kUnavailable, "No leader is known that has committed in its term: try again."};
      case GPUSCHED_RAFT_LOG_LOST:
        return {ErrorCode::kCorrupt,
                reason() +
                    ". Its disk forgot what it had acknowledged: remove this replica, then add it with "
                    "a new id on an empty disk."};
      case GPUSCHED_RAFT_OK:
      case GPUSCHED_RAFT_BAD_START:
      case GPUSCHED_RAFT_OUT_OF_ORDER:
      case GPUSCHED_RAFT_POISONED:
        break;
    }
    UNREACHABLE();
  }

 private:
  gpusched_raft* core_;
};

Result<std::unique_ptr<ConsensusCore>> ConsensusCore::start(const CoreOptions& options,
                                                            const HardState& hard_state, uint64_t applied,
                                                            const Members& members, const LogReader& log) {
  CHECK(gpusched_raft_version() == GPUSCHED_RAFT_VERSION);
  const gpusched_raft_log c_log = {.owner = const_cast<LogReader*>(&log),
                                   .first_index = log_first_index,
                                   .last_index = log_last_index,
                                   .term = log_term,
                                   .entries = log_entries,
                                   .snapshot = log_snapshot};
  const gpusched_raft_options c = {.id = options.id,
                                   .boot = options.boot,
                                   .seed = options.seed,
                                   .term = hard_state.term,
                                   .vote = hard_state.vote,
                                   .commit = hard_state.commit,
                                   .applied = applied,
                                   .election_ticks = options.election_ticks,
                                   .heartbeat_ticks = options.heartbeat_ticks,
                                   .message_bytes_max = options.message_bytes_max,
                                   .messages_in_flight_max = options.messages_in_flight_max,
                                   .uncommitted_bytes_max = options.uncommitted_bytes_max,
                                   .committed_bytes_max = options.committed_bytes_max,
                                   .members = to_c(members)};
  gpusched_raft* core = nullptr;
  std::array<char, 256> why{};
  if (gpusched_raft_start(&c, &c_log, &core, why.data(), why.size()) != GPUSCHED_RAFT_OK) {
    return Error{ErrorCode::kInvalidArgument,
                 "The consensus core cannot start: " + std::string(why.data()) + "."};
  }
  return std::unique_ptr<ConsensusCore>(new ConsensusCore(std::make_unique<Handle>(core)));
}

ConsensusCore::ConsensusCore(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
ConsensusCore::~ConsensusCore() = default;

void ConsensusCore::tick() { handle_->must(gpusched_raft_tick(handle_->get())); }

Result<Unit> ConsensusCore::step(const PeerMessage& message) {
  std::vector<gpusched_raft_entry> entries;
  entries.reserve(message.entries.size());
  for (const Entry& entry : message.entries) entries.push_back(to_c(entry));
  std::optional<SnapshotForCore> snapshot;
  if (message.snapshot) snapshot.emplace(*message.snapshot);
  const gpusched_raft_message c = {.type = static_cast<uint32_t>(message.kind),
                                   .reject = static_cast<uint8_t>(message.reject ? 1 : 0),
                                   .to = message.to,
                                   .from = message.from,
                                   .term = message.term,
                                   .log_term = message.log_term,
                                   .index = message.index,
                                   .commit = message.commit,
                                   .commit_term = message.commit_term,
                                   .request_snapshot = message.request_snapshot,
                                   .reject_hint = message.reject_hint,
                                   .context = to_c(message.context),
                                   .entries = entries.data(),
                                   .entry_count = entries.size(),
                                   .snapshot = snapshot ? snapshot->get() : nullptr};
  const gpusched_raft_status status = handle_->checked(gpusched_raft_step(handle_->get(), &c));
  if (status != GPUSCHED_RAFT_OK) return handle_->error(status);
  return Unit{};
}

void ConsensusCore::campaign() { (void)handle_->checked(gpusched_raft_campaign(handle_->get())); }

Result<Proposed> ConsensusCore::propose(std::string_view data) {
  CHECK(!data.empty());
  Proposed place;
  const gpusched_raft_status status =
      handle_->checked(gpusched_raft_propose(handle_->get(), to_c(data), &place.index, &place.term));
  if (status != GPUSCHED_RAFT_OK) return handle_->error(status);
  return place;
}

Result<Proposed> ConsensusCore::propose_members(const std::vector<MemberChange>& changes) {
  std::vector<gpusched_raft_change> c;
  for (const MemberChange& change : changes) {
    c.push_back({.kind = static_cast<uint32_t>(change.kind), .id = change.id, .store = change.store});
  }
  Proposed place;
  const gpusched_raft_status status = handle_->checked(
      gpusched_raft_propose_members(handle_->get(), c.data(), c.size(), &place.index, &place.term));
  if (status != GPUSCHED_RAFT_OK) return handle_->error(status);
  return place;
}

Result<Members> ConsensusCore::apply_members(std::string_view data) {
  gpusched_raft_members members{};
  const gpusched_raft_status status =
      handle_->checked(gpusched_raft_apply_members(handle_->get(), to_c(data), &members));
  if (status != GPUSCHED_RAFT_OK) return handle_->error(status);
  return from_c(members);
}

Result<Unit> ConsensusCore::transfer(uint64_t to) {
  const gpusched_raft_status status = handle_->checked(gpusched_raft_transfer(handle_->get(), to));
  if (status != GPUSCHED_RAFT_OK) return handle_->error(status);
  return Unit{};
}

Result<uint64_t> ConsensusCore::read() {
  uint64_t id = 0;
  const gpusched_raft_status status = handle_->checked(gpusched_raft_read_index(handle_->get(), &id));
  if (status != GPUSCHED_RAFT_OK) return handle_->error(status);
  return id;
}

void ConsensusCore::unreachable(uint64_t id) { handle_->must(gpusched_raft_unreachable(handle_->get(), id)); }

void ConsensusCore::snapshot_sent(uint64_t id, bool received) {
  handle_->must(gpusched_raft_snapshot_sent(handle_->get(), id, received ? 1 : 0));
}

bool ConsensusCore::has_ready() const {
  uint8_t has = 0;
  handle_->must(gpusched_raft_has_ready(handle_->get(), &has));
  return has != 0;
}

Ready ConsensusCore::ready() {
  gpusched_raft_ready c{};
  handle_->must(gpusched_raft_take_ready(handle_->get(), &c));
  Ready ready;
  ready.number = c.number;
  ready.hard_state = {.term = c.term, .vote = c.vote, .commit = c.commit};
  ready.hard_state_changed = c.has_hard_state != 0;
  ready.must_sync = c.must_sync != 0;
  ready.messages_wait = c.messages_wait != 0;
  for (std::size_t i = 0; i < c.entry_count; ++i) ready.entries.push_back(from_c(c.entries[i]));
  if (c.snapshot != nullptr) ready.snapshot = from_c(*c.snapshot);
  for (std::size_t i = 0; i < c.committed_count; ++i) ready.committed.push_back(from_c(c.committed[i]));
  for (std::size_t i = 0; i < c.message_count; ++i) ready.messages.push_back(from_c(c.messages[i]));
  for (std::size_t i = 0; i < c.read_count; ++i) {
    ready.reads.push_back({.id = c.reads[i].id, .index = c.reads[i].index});
  }
  return ready;
}

void ConsensusCore::appended() { handle_->must(gpusched_raft_appended(handle_->get())); }

void ConsensusCore::persisted(uint64_t number) {
  handle_->must(gpusched_raft_persisted(handle_->get(), number));
}

void ConsensusCore::applied(uint64_t index) { handle_->must(gpusched_raft_applied(handle_->get(), index)); }

CoreState ConsensusCore::state() const {
  gpusched_raft_state c{};
  handle_->must(gpusched_raft_get_state(handle_->get(), &c));
  return {.role = static_cast<Role>(c.role),
          .leader = c.leader,
          .hard_state = {.term = c.term, .vote = c.vote, .commit = c.commit},
          .applied = c.applied,
          .persisted = c.persisted,
          .last_index = c.last_index,
          .transferring_to = c.transferring_to,
          .election_ticks = c.election_ticks,
          .members_pending = c.members_pending != 0,
          .joint = c.joint != 0,
          .promotable = c.promotable != 0,
          .committed_in_term = c.committed_in_term != 0};
}

Members ConsensusCore::members() const {
  gpusched_raft_members c{};
  handle_->must(gpusched_raft_get_members(handle_->get(), &c));
  return from_c(c);
}

std::vector<Progress> ConsensusCore::progress() const {
  std::array<gpusched_raft_progress, 4 * kMembersMax> c{};
  std::size_t count = 0;
  handle_->must(gpusched_raft_get_progress(handle_->get(), c.data(), c.size(), &count));
  CHECK(count <= c.size());
  std::vector<Progress> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back({.id = c[i].id,
                   .matched = c[i].matched,
                   .next = c[i].next,
                   .active = c[i].active != 0,
                   .needs_snapshot = c[i].needs_snapshot != 0,
                   .learner = c[i].learner != 0});
  }
  return all;
}

}  // namespace gpusched::consensus
