#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "consensus/core/values.h"
#include "journal/file_journal.h"

namespace gpusched {

/// Data of the entry that stands for a record of the ordinary journal; the record's term is the entry's.
std::string encode_record_entry(const JournalRecord& record);
/// Bytes of that data beside the payload, at most.
inline constexpr std::size_t kRecordEntryBytes = 1 + 3 * 10 + 10;
/// Reads untrusted bytes; the payload is a view into `entry`. kCorrupt: it stands for no record.
Result<JournalRecord> decode_record_entry(const consensus::Entry& entry);

/// Puts committed entries into the ordinary journal, in order. Entries that it has already are compared with
/// its records: a journal that says something else than the group agreed on must not be used. Not
/// thread-safe.
class CommittedRecords {
 public:
  /// `journal` must outlive this; nobody else appends to it while `take` is called.
  explicit CommittedRecords(FileJournal& journal) : journal_(journal) {}

  /// Takes the next committed entry. It is in the file behind the next `write_out`. kCorrupt: the journal
  /// lacks records before it, or has another one in its place. Errors of `Journal::append`.
  Result<Unit> take(const consensus::Entry& entry);
  /// Lets readers of the files see what was taken. Errors of `FileJournal::sync`.
  Result<Unit> write_out() { return journal_.write_out(); }

 private:
  /// A record's content, but for where it is.
  struct Print {
    uint64_t position = 0;
    uint64_t term = 0;
    uint64_t first_sequence = 0;
    uint32_t command_count = 0;
    std::size_t bytes = 0;
    uint32_t crc = 0;

    friend bool operator==(const Print&, const Print&) = default;
  };
  static Print print_of(const JournalRecord& record);
  Result<Unit> compare(const JournalRecord& record);

  FileJournal& journal_;
  bool read_ = false;         ///< `prints_` were read from the journal.
  std::deque<Print> prints_;  ///< Records that the journal had before, not yet compared.
};

}  // namespace gpusched
