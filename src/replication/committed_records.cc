#include "replication/committed_records.h"

#include "base/bytes.h"
#include "base/crc32c.h"

namespace gpusched {
namespace {

/// The first byte of an entry's data. The number is for ever.
constexpr uint8_t kRecordVersion = 1;

Error corrupt(uint64_t position, const std::string& what) {
  return {
      .code = ErrorCode::kCorrupt,
      .message = "record " + std::to_string(position) + " of the journal " + what +
                 ": this replica's data folder is not a copy of its group's. Stop it, and make its folder "
                 "again from another replica (docs/operate/high-availability.md)"};
}

}  // namespace

std::string encode_record_entry(const JournalRecord& record) {
  std::string data;
  data.reserve(record.payload.size() + kRecordEntryBytes);
  ByteWriter out(data);
  out.u8(kRecordVersion);
  out.varint(record.position);
  out.varint(record.first_sequence);
  out.varint(record.command_count);
  out.bytes(record.payload);
  return data;
}

Result<JournalRecord> decode_record_entry(const consensus::Entry& entry) {
  ByteReader in(entry.data);
  const uint8_t version = in.u8();
  JournalRecord record{.term = entry.term};
  record.position = in.varint();
  record.first_sequence = in.varint();
  const uint64_t count = in.varint();
  if (version != kRecordVersion || count > UINT32_MAX) in.fail();
  record.command_count = static_cast<uint32_t>(count);
  record.payload = in.bytes();
  if (!in.ok() || !in.at_end() || record.position == 0) {
    return Error{.code = ErrorCode::kCorrupt,
                 .message = "entry " + std::to_string(entry.index) +
                            " of the replicated log stands for no record of the journal: it was written by a "
                            "newer version, or is damaged"};
  }
  return record;
}

CommittedRecords::Print CommittedRecords::print_of(const JournalRecord& record) {
  return {.position = record.position,
          .term = record.term,
          .first_sequence = record.first_sequence,
          .command_count = record.command_count,
          .bytes = record.payload.size(),
          .crc = crc32c(record.payload.data(), record.payload.size())};
}

Result<Unit> CommittedRecords::take(const consensus::Entry& entry) {
  const Result<JournalRecord> record = decode_record_entry(entry);
  if (!record) return record.error();
  if (record->position <= journal_.last_position()) return compare(*record);
  if (record->position > journal_.last_position() + 1) {
    return corrupt(
        journal_.last_position() + 1,
        "is missing before record " + std::to_string(record->position) + ", which the group agreed on");
  }
  return journal_.append(*record);
}

Result<Unit> CommittedRecords::compare(const JournalRecord& record) {
  if (record.position < journal_.first_position()) return Unit{};  // Compacted away: a snapshot has it.
  if (!read_) {
    read_ = true;
    const Result<Unit> read = journal_.read_from(record.position, [&](const JournalRecord& own) {
      prints_.push_back(print_of(own));
      return Result<Unit>(Unit{});
    });
    if (!read) return read;
  }
  // Each entry is handed out once, and a record that was appended here is never handed out again.
  if (prints_.empty() || prints_.front().position != record.position)
    return corrupt(record.position, "is handed out again");
  const bool same = prints_.front() == print_of(record);
  prints_.pop_front();
  if (!same) return corrupt(record.position, "is not the one that the group agreed on");
  return Unit{};
}

}  // namespace gpusched
