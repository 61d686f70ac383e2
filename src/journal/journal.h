#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpusched {

/// One durable append: the commands that waited together, packed by the caller. Its record header carries
/// position, term, first sequence number, command count, length, and a CRC chained to the record before.
struct JournalRecord {
  uint64_t position = 0;        ///< 1 for the first record ever, then without a gap.
  uint64_t term = 0;            ///< Term of the leader that wrote it; never decreases.
  uint64_t first_sequence = 0;  ///< Sequence number of the first command inside.
  uint32_t command_count = 0;   ///< Sequence numbers that the commands inside take.
  std::string_view payload;     ///< Opaque here. Valid during the call only.
};

/// Free space of the journal, from the most to the least.
enum class JournalSpace : uint8_t {
  kOpen,       ///< Any work may be appended.
  kNoNewWork,  ///< What waits already may be started. No journal says this: whoever watches its volume does.
  kReserveOnly,  ///< The disk is full: only ends, cancels and releases may be, into the reserve.
};

/// Ordered bytes, durable by group. One writer. Not thread-safe: the owner's thread calls everything but
/// `space` and `payload_max`, which any thread may.
///
/// A failed `sync` leaves the durable state unknown: the caller must end the process, never retry.
class Journal {
 public:
  using Visitor = std::function<Result<Unit>(const JournalRecord&)>;

  virtual ~Journal() = default;

  /// Adds a record behind the last. It is durable, whole or not at all, once `sync` returned.
  /// `record.position` must be `last_position() + 1` and `record.term` not below the last one.
  /// kStorageFull: no room, and nothing was written. kTooLarge: the payload is over
  /// `payload_max()`, and nothing was written. kIo: the journal has failed before and takes nothing more.
  virtual Result<Unit> append(const JournalRecord& record) = 0;
  /// Makes everything appended durable. kOutcomeUnknown: the records since the last sync may or may not be.
  virtual Result<Unit> sync() = 0;
  /// Calls `visit` for each record from `position` on, in order, synced or not; stops at its first error and
  /// returns it. `visit` must not call the journal. kNotFound: records from `position` on were compacted
  /// away. Behind the last one there is nothing to visit, and that is no error.
  virtual Result<Unit> read_from(uint64_t position, const Visitor& visit) = 0;
  /// Forgets every record behind `position`, durably; it is at least `first_position() - 1` and at most
  /// `last_position()`. For a leader's change.
  virtual Result<Unit> truncate_after(uint64_t position) = 0;
  /// May forget records before `position`, now or a little later: a snapshot covers them. Whole segments
  /// only.
  virtual Result<Unit> compact_before(uint64_t position) = 0;
  /// Marks a clean end, so that the next opening can tell a torn tail from rot. Nothing may follow.
  virtual Result<Unit> seal() = 0;

  virtual uint64_t first_position() const = 0;  ///< Position of the oldest record; last + 1 if there is none.
  virtual uint64_t last_position() const = 0;   ///< 0 before the first record.
  virtual JournalSpace space() const = 0;
  /// Bytes of the largest payload that a record may have; at most `limits::kGroupBytesMax`, and always the
  /// same. Any thread may ask.
  virtual std::size_t payload_max() const = 0;
};

}  // namespace gpusched
