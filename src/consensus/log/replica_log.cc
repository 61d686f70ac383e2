#include "consensus/log/replica_log.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "consensus/core/members.h"

namespace gpusched::consensus {
namespace {

Error forgot(const std::string& what) {
  return {ErrorCode::kCorrupt,
          "The replica's log " + what +
              ". Its disk forgot what it had acknowledged: remove this replica from the group, then add it "
              "with a new id on an empty disk."};
}

std::string number(uint64_t value) { return std::to_string(value); }

}  // namespace

Result<std::unique_ptr<ReplicaLog>> ReplicaLog::open(LogStore& store, uint64_t cluster, uint64_t replica) {
  Result<std::optional<StoredLog>> stored = store.load();
  if (!stored) return stored.error();
  if (!*stored) {
    return Error{ErrorCode::kNotFound,
                 "There is no log of replica " + number(replica) +
                     " here. If it was a member before, its votes are lost with its disk: remove it from the "
                     "group, then add it with a new id."};
  }
  const Identity& identity = (*stored)->identity;
  if (identity.cluster != cluster || identity.replica != replica) {
    return Error{ErrorCode::kInvalidArgument,
                 "This disk holds the log of replica " + number(identity.replica) + " of group " +
                     number(identity.cluster) + ", and this is replica " + number(replica) + " of group " +
                     number(cluster) + ": start it with its own disk."};
  }
  std::unique_ptr<ReplicaLog> log(new ReplicaLog(store));
  const Result<Unit> taken = log->take(std::move(**stored));
  if (!taken) return taken.error();
  return log;
}

Result<Unit> ReplicaLog::take(StoredLog stored) {
  identity_ = stored.identity;
  hard_state_ = stored.hard_state;
  snapshot_ = std::move(stored.snapshot);
  uint64_t term = snapshot_.term;
  for (Entry& entry : stored.entries) {
    if (entry.index <= snapshot_.index) continue;
    if (entry.index != last_index() + 1) return forgot("has a gap before entry " + number(entry.index));
    if (entry.term < term) return forgot("goes back to an older term at entry " + number(entry.index));
    term = entry.term;
    entries_.push_back(std::move(entry));
  }
  if (hard_state_.term < term) {
    return forgot("has entries of term " + number(term) + ", and knows of term " + number(hard_state_.term) +
                  " only");
  }
  // The commit index is written seldom, a snapshot when it is made: the newer of the two holds.
  hard_state_.commit = std::max(hard_state_.commit, snapshot_.index);
  if (hard_state_.commit > last_index()) {
    return forgot("ends at entry " + number(last_index()) + ", and entry " + number(hard_state_.commit) +
                  " was committed");
  }
  durable_ = last_index();
  return Unit{};
}

uint64_t ReplicaLog::term(uint64_t index) const {
  if (index == snapshot_.index) return snapshot_.term;
  if (index < first_index() || index > last_index()) return 0;
  return entries_[index - first_index()].term;
}

std::vector<Entry> ReplicaLog::entries(uint64_t low, uint64_t high, uint64_t bytes_max) const {
  CHECK(low < high);
  CHECK(high <= last_index() + 1);
  std::vector<Entry> range;
  if (low < first_index()) return range;
  uint64_t bytes = 0;
  for (uint64_t index = low; index < high; ++index) {
    const Entry& entry = entries_[index - first_index()];
    bytes += entry.data.size();
    if (!range.empty() && bytes > bytes_max) break;
    range.push_back(entry);
  }
  return range;
}

std::optional<Snapshot> ReplicaLog::snapshot(uint64_t to) const {
  if (snapshot_.index > 0 && store_of(snapshot_.members, to)) return snapshot_;
  wants_snapshot_ = true;
  return std::nullopt;
}

Result<Unit> ReplicaLog::append(const std::vector<Entry>& entries, const std::optional<HardState>& hard) {
  if (!entries.empty() && entries.front().index <= last_index()) {
    const uint64_t kept = entries.front().index - 1;
    CHECK(kept >= snapshot_.index);
    CHECK(kept >= hard_state_.commit);  // A committed entry is never removed.
    const Result<Unit> truncated = store_.truncate_after(kept);
    if (!truncated) return truncated.error();
    entries_.resize(kept - snapshot_.index);
    durable_ = std::min(durable_, kept);
  }
  // The hard state goes first, so that no entry is of a term that the disk does not know.
  std::optional<HardState> written = hard;
  if (written) written->commit = std::min(written->commit, last_index());
  const Result<Unit> appended = store_.append(written, entries);
  if (!appended) return appended.error();
  for (const Entry& entry : entries) {
    CHECK(entry.index == last_index() + 1);
    entries_.push_back(entry);
  }
  if (hard) hard_state_ = *hard;
  return Unit{};
}

Result<Unit> ReplicaLog::sync() {
  const Result<Unit> synced = store_.sync();
  if (!synced) return synced.error();
  durable_ = last_index();
  return Unit{};
}

Result<Unit> ReplicaLog::compact(const Snapshot& own) {
  CHECK(own.index > snapshot_.index);
  CHECK(own.index <= hard_state_.commit);
  CHECK(own.term == term(own.index));
  const Result<Unit> put = store_.put_snapshot(own, hard_state_, true);
  if (!put) return put.error();
  entries_.erase(entries_.begin(),
                 entries_.begin() + static_cast<std::ptrdiff_t>(own.index - snapshot_.index));
  snapshot_ = own;
  wants_snapshot_ = false;
  return Unit{};
}

Result<Unit> ReplicaLog::install(const Snapshot& received, const HardState& hard) {
  CHECK(received.index > snapshot_.index);
  CHECK(hard.commit == received.index);
  const Result<Unit> put = store_.put_snapshot(received, hard, false);
  if (!put) return put.error();
  entries_.clear();
  snapshot_ = received;
  hard_state_ = hard;
  durable_ = received.index;
  return Unit{};
}

}  // namespace gpusched::consensus
