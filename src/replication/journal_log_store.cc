#include "replication/journal_log_store.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "consensus/core/members.h"

namespace gpusched {

using consensus::Entry;
using consensus::EntryKind;
using consensus::HardState;
using consensus::Identity;
using consensus::Members;
using consensus::Snapshot;
using consensus::StoredLog;

namespace {

/// The first byte of a record's payload. The numbers are for ever.
enum class Record : uint8_t { kBegin = 1, kEntry = 2, kHardState = 3, kRemoval = 4, kSnapshot = 5 };

/// Bytes of an entry's record beside its data, at most.
constexpr std::size_t kEntryBytes = 2 + 3 * 10;

void write_identity(const Identity& identity, ByteWriter& out) {
  out.fixed64(identity.cluster);
  out.varint(identity.replica);
  out.fixed64(identity.store);
}

Identity read_identity(ByteReader& in) {
  Identity identity;
  identity.cluster = in.fixed64();
  identity.replica = in.varint();
  identity.store = in.fixed64();
  return identity;
}

void write_hard_state(const HardState& hard, ByteWriter& out) {
  out.varint(hard.term);
  out.varint(hard.vote);
  out.varint(hard.commit);
}

HardState read_hard_state(ByteReader& in) {
  HardState hard;
  hard.term = in.varint();
  hard.vote = in.varint();
  hard.commit = in.varint();
  return hard;
}

Error corrupt(uint64_t position, const char* what) {
  return {ErrorCode::kCorrupt,
          "Record " + std::to_string(position) + " of the replica's journal " + what + "."};
}

}  // namespace

std::size_t JournalLogStore::entry_bytes_max() const { return journal_.payload_max() - kEntryBytes; }

Result<Unit> JournalLogStore::put(const std::string& payload) {
  return journal_.append({.position = journal_.last_position() + 1, .term = term_, .payload = payload});
}

Result<std::optional<StoredLog>> JournalLogStore::load() {
  std::optional<StoredLog> log;
  places_.clear();
  term_ = 0;
  if (journal_.last_position() == 0) return log;
  log.emplace();
  const Result<Unit> read = journal_.read_from(
      journal_.first_position(), [&](const JournalRecord& record) { return replay(record, log); });
  if (!read) return read.error();
  if (log->identity == Identity{}) {
    return Error{ErrorCode::kCorrupt,
                 "The replica's journal holds neither its beginning nor a snapshot: it is no replica's."};
  }
  identity_ = log->identity;
  return log;
}

Result<Unit> JournalLogStore::replay(const JournalRecord& record, std::optional<StoredLog>& log) {
  ByteReader in(record.payload);
  switch (static_cast<Record>(in.u8())) {
    case Record::kBegin:
      log->identity = read_identity(in);
      log->snapshot.members = consensus::read_members(in);
      break;
    case Record::kEntry: {
      Entry entry;
      const uint8_t kind = in.u8();
      if (kind > static_cast<uint8_t>(EntryKind::kMembers)) in.fail();
      entry.kind = static_cast<EntryKind>(kind);
      entry.index = in.varint();
      entry.term = in.varint();
      entry.data = in.bytes();
      // Entries before the first one that is left were compacted away, and a snapshot follows that has them.
      if (!log->entries.empty() && entry.index != log->entries.back().index + 1) {
        return corrupt(record.position, "does not follow the entry before it");
      }
      places_.push_back({.index = entry.index, .position = record.position});
      log->entries.push_back(std::move(entry));
      break;
    }
    case Record::kHardState:
      log->hard_state = read_hard_state(in);
      break;
    case Record::kRemoval: {
      const uint64_t index = in.varint();
      std::erase_if(log->entries, [&](const Entry& entry) { return entry.index > index; });
      forget_places_behind(index);
      break;
    }
    case Record::kSnapshot: {
      log->identity = read_identity(in);
      log->hard_state = read_hard_state(in);
      const bool keep_suffix = in.u8() != 0;
      Snapshot& snapshot = log->snapshot;
      snapshot.index = in.varint();
      snapshot.term = in.varint();
      snapshot.members = consensus::read_members(in);
      snapshot.data = in.bytes();
      const uint64_t last = keep_suffix ? snapshot.index : UINT64_MAX;
      std::erase_if(log->entries, [&](const Entry& entry) { return entry.index <= last; });
      forget_places_up_to(last);
      break;
    }
    default:
      return corrupt(record.position,
                     "is of an unknown kind: it was written by a newer version, or is no replica's");
  }
  if (!in.ok() || !in.at_end()) return corrupt(record.position, "is not readable");
  term_ = std::max(term_, record.term);
  return Unit{};
}

Result<Unit> JournalLogStore::create(const Identity& identity, const Members& members) {
  CHECK(journal_.last_position() == 0);
  CHECK(identity != Identity{});
  std::string payload;
  ByteWriter out(payload);
  out.u8(static_cast<uint8_t>(Record::kBegin));
  write_identity(identity, out);
  consensus::write_members(members, out);
  const Result<Unit> written = put(payload);
  if (!written) return written.error();
  identity_ = identity;
  return journal_.sync();
}

Result<Unit> JournalLogStore::truncate_after(uint64_t index) {
  std::string payload;
  ByteWriter out(payload);
  out.u8(static_cast<uint8_t>(Record::kRemoval));
  out.varint(index);
  const Result<Unit> written = put(payload);
  if (!written) return written.error();
  forget_places_behind(index);
  return journal_.sync();
}

Result<Unit> JournalLogStore::append(const std::optional<HardState>& hard,
                                     const std::vector<Entry>& entries) {
  if (hard) {
    CHECK(hard->term >= term_);
    term_ = hard->term;
    std::string payload;
    ByteWriter out(payload);
    out.u8(static_cast<uint8_t>(Record::kHardState));
    write_hard_state(*hard, out);
    const Result<Unit> written = put(payload);
    if (!written) return written.error();
  }
  for (const Entry& entry : entries) {
    CHECK(entry.term <= term_);
    CHECK(places_.empty() || entry.index == places_.back().index + 1);
    std::string payload;
    payload.reserve(entry.data.size() + kEntryBytes);
    ByteWriter out(payload);
    out.u8(static_cast<uint8_t>(Record::kEntry));
    out.u8(static_cast<uint8_t>(entry.kind));
    out.varint(entry.index);
    out.varint(entry.term);
    out.bytes(entry.data);
    const Result<Unit> written = put(payload);
    if (!written) return written.error();
    places_.push_back({.index = entry.index, .position = journal_.last_position()});
  }
  return Unit{};
}

Result<Unit> JournalLogStore::put_snapshot(const Snapshot& snapshot, const HardState& hard,
                                           bool keep_suffix) {
  CHECK(hard.term >= term_);
  term_ = hard.term;
  std::string payload;
  ByteWriter out(payload);
  out.u8(static_cast<uint8_t>(Record::kSnapshot));
  write_identity(identity_, out);
  write_hard_state(hard, out);
  out.u8(keep_suffix ? 1 : 0);
  out.varint(snapshot.index);
  out.varint(snapshot.term);
  consensus::write_members(snapshot.members, out);
  out.bytes(snapshot.data);
  const Result<Unit> written = put(payload);
  if (!written) return written.error();
  const Result<Unit> synced = journal_.sync();
  if (!synced) return synced.error();
  forget_places_up_to(keep_suffix ? snapshot.index : UINT64_MAX);
  // The kept entries lie before the snapshot's record, which holds all that the records before them said.
  return journal_.compact_before(places_.empty() ? journal_.last_position() : places_.front().position);
}

void JournalLogStore::forget_places_behind(uint64_t index) {
  while (!places_.empty() && places_.back().index > index) places_.pop_back();
}

void JournalLogStore::forget_places_up_to(uint64_t index) {
  while (!places_.empty() && places_.front().index <= index) places_.pop_front();
}

}  // namespace gpusched
