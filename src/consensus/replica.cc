#include "consensus/replica.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "consensus/core/members.h"

namespace gpusched::consensus {

Result<std::unique_ptr<Replica>> Replica::start(const ReplicaOptions& options, LogStore& store,
                                                ReplicaClient& client) {
  CHECK(options.cluster != 0);
  Result<std::unique_ptr<ReplicaLog>> log = ReplicaLog::open(store, options.cluster, options.core.id);
  if (!log) return log.error();
  std::unique_ptr<Replica> replica(new Replica(options, std::move(*log), client));
  const ReplicaLog& read = *replica->log_;
  Result<std::unique_ptr<ConsensusCore>> core =
      ConsensusCore::start(options.core, read.hard_state(), read.snapshot_index(), read.members(), read);
  if (!core) return core.error();
  replica->core_ = std::move(*core);
  replica->known_ = replica->core_->state();
  return replica;
}

Replica::Replica(const ReplicaOptions& options, std::unique_ptr<ReplicaLog> log, ReplicaClient& client)
    : cluster_(options.cluster),
      id_(options.core.id),
      client_(client),
      log_(std::move(log)),
      members_(log_->members()),
      behind_max_(options.behind_max),
      held_(options.held),
      applied_(log_->snapshot_index()) {}

void Replica::tick() { core_->tick(); }

Result<Unit> Replica::receive(const PeerFrame& frame) {
  const Result<Unit> admitted = admit(frame);
  if (!admitted) return admitted.error();
  return core_->step(frame.message);
}

Result<Unit> Replica::admit(const PeerFrame& frame) const {
  const std::string sender = "Replica " + std::to_string(frame.message.from);
  if (frame.cluster != cluster_) {
    return Error{ErrorCode::kPermissionDenied, sender + " belongs to group " + std::to_string(frame.cluster) +
                                                   ", and this is group " + std::to_string(cluster_) +
                                                   ": correct the addresses of its peers."};
  }
  const std::optional<uint64_t> known = store_of(members_, frame.message.from);
  if (known && *known != frame.from_store) {
    return Error{ErrorCode::kPermissionDenied,
                 sender +
                     " came back with another disk, and forgot its votes with the old one: remove it from "
                     "the group, then add it with a new id."};
  }
  if (frame.to_store != 0 && frame.to_store != log_->identity().store) {
    return Error{ErrorCode::kPermissionDenied,
                 "This replica has another disk than " + sender +
                     " knows: remove it from the group, then add it with a new id."};
  }
  return Unit{};
}

Result<Proposed> Replica::propose(std::string_view data) { return core_->propose(data); }

Result<Proposed> Replica::propose_members(const std::vector<MemberChange>& changes) {
  std::string fault = changes_fault(members_, changes);
  if (!fault.empty()) {
    return Error{ErrorCode::kInvalidArgument, "The members cannot change so: " + fault + "."};
  }
  fault = behind_fault(changes);
  if (!fault.empty()) return Error{ErrorCode::kUnavailable, std::move(fault)};
  return core_->propose_members(changes);
}

std::string Replica::behind_fault(const std::vector<MemberChange>& changes) const {
  const uint64_t commit = core_->state().hard_state.commit;
  for (const Progress& follower : core_->progress()) {
    if (!follower.learner || follower.matched + behind_max_ >= commit) continue;
    for (const MemberChange& change : changes) {
      if (change.kind != ChangeKind::kAddVoter || change.id != follower.id) continue;
      return "Replica " + std::to_string(follower.id) + " has the log up to entry " +
             std::to_string(follower.matched) + " of " + std::to_string(commit) +
             ": wait until it has nearly all, then make it a voter.";
    }
  }
  return {};
}

Result<Unit> Replica::transfer(uint64_t to) { return core_->transfer(to); }

Result<uint64_t> Replica::read() {
  const Result<uint64_t> id = core_->read();
  if (id) open_reads_.push_back(*id);
  return id;
}

void Replica::campaign() { core_->campaign(); }
void Replica::unreachable(uint64_t id) { core_->unreachable(id); }
void Replica::snapshot_sent(uint64_t id, bool received) { core_->snapshot_sent(id, received); }

Result<Unit> Replica::run() {
  note_role();
  while (core_->has_ready()) {
    Ready ready = core_->ready();
    const Result<Unit> written = write(ready);
    if (!written) return written.error();
    // A leader's entries travel while its own disk syncs; what a follower answers must be durable first.
    if (!ready.messages_wait) send(std::move(ready.messages));
    core_->appended();
    if (ready.must_sync) {
      const Result<Unit> synced = log_->sync();
      if (!synced) return synced.error();
    }
    core_->persisted(ready.number);
    if (ready.messages_wait) send(std::move(ready.messages));
    apply(ready.committed);
    serve_reads(ready.reads);
    note_role();
  }
  return Unit{};
}

Result<Unit> Replica::write(const Ready& ready) {
  if (ready.snapshot) {
    if (ready.snapshot->index > held_) {
      const Result<Unit> installed = client_.install(*ready.snapshot);
      if (!installed) return installed.error();
    }
    // The commit index may name entries that only the next write has.
    HardState hard = ready.hard_state;
    hard.commit = ready.snapshot->index;
    const Result<Unit> put = log_->install(*ready.snapshot, hard);
    if (!put) return put.error();
    members_ = ready.snapshot->members;
    members_index_ = ready.snapshot->index;
    applied_ = ready.snapshot->index;
    client_.members_changed(members_);
  }
  std::optional<HardState> hard;
  if (ready.hard_state_changed) hard = ready.hard_state;
  if (ready.entries.empty() && !hard) return Unit{};
  return log_->append(ready.entries, hard);
}

void Replica::send(std::vector<PeerMessage> messages) {
  for (PeerMessage& message : messages) {
    const uint64_t to_store = store_of(members_, message.to).value_or(0);
    client_.send({.cluster = cluster_,
                  .from_store = log_->identity().store,
                  .to_store = to_store,
                  .message = std::move(message)});
  }
}

void Replica::apply(const std::vector<Entry>& committed) {
  for (const Entry& entry : committed) {
    CHECK(entry.index == applied_ + 1);
    switch (entry.kind) {
      case EntryKind::kData:
        if (!entry.data.empty() && entry.index > held_) client_.committed(entry);
        break;
      case EntryKind::kMembers:
        apply_members(entry);
        break;
    }
    applied_ = entry.index;
  }
  // A snapshot's entries count as applied once it is durable.
  if (applied_ > core_->state().applied) core_->applied(applied_);
}

void Replica::apply_members(const Entry& entry) {
  const std::optional<std::vector<MemberChange>> changes = parse_changes(entry.data);
  CHECK(changes.has_value());
  Result<Members> after = core_->apply_members(entry.data);
  if (!after) return;  // Refused alike everywhere: the members stay.
  carry_stores(members_, *changes, *after);
  members_ = std::move(*after);
  members_index_ = entry.index;
  client_.members_changed(members_);
}

void Replica::serve_reads(const std::vector<ReadyRead>& ready) {
  for (const ReadyRead& read : ready) {
    if (std::erase(open_reads_, read.id) > 0) waiting_reads_.push_back(read);
  }
  std::erase_if(waiting_reads_, [&](const ReadyRead& read) {
    if (read.index > applied_) return false;
    client_.readable(read.id);
    return true;
  });
}

void Replica::note_role() {
  const CoreState state = core_->state();
  const bool same = state.role == known_.role && state.leader == known_.leader &&
                    state.hard_state.term == known_.hard_state.term;
  known_ = state;
  if (same) return;
  // Questions to a leader that is none any more stay without an answer.
  for (const uint64_t read : std::exchange(open_reads_, {})) client_.read_lost(read);
  client_.role_changed(state);
}

Result<Unit> Replica::compact(std::string data, uint64_t index) {
  CHECK(index <= applied_);
  // After a start the owner's state may be ahead of what is known to be committed.
  if (index <= log_->snapshot_index() || index < members_index_ || applied_ < held_) return Unit{};
  return log_->compact(
      {.index = index, .term = log_->term(index), .members = members_, .data = std::move(data)});
}

}  // namespace gpusched::consensus
