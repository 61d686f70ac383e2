#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>

#include "base/limits.h"
#include "base/prng.h"
#include "journal/journal.h"

namespace gpusched {

/// A journal that forgets with its process, for tests and the simulation: it knows what is durable, breaks on
/// demand, and says what a crash would leave. Compaction is exact here, record by record.
class MemoryJournal final : public Journal {
 public:
  struct Record {
    uint64_t position = 0;
    uint64_t term = 0;
    uint64_t first_sequence = 0;
    uint32_t command_count = 0;
    std::string payload;

    friend bool operator==(const Record&, const Record&) = default;
  };
  /// Durable content. A copy of it starts the next life.
  struct Image {
    std::deque<Record> records;
    uint64_t first_position = 1;  ///< Position of the oldest record, or of the next one if there is none.
    uint64_t last_term = 0;       ///< Term of the last record ever; kept after compaction.
    bool sealed = false;
  };

  MemoryJournal() = default;
  explicit MemoryJournal(Image image);

  Result<Unit> append(const JournalRecord& record) override;
  Result<Unit> sync() override;
  Result<Unit> read_from(uint64_t position, const Visitor& visit) override;
  Result<Unit> truncate_after(uint64_t position) override;
  Result<Unit> compact_before(uint64_t position) override;
  Result<Unit> seal() override;
  uint64_t first_position() const override { return image_.first_position; }
  uint64_t last_position() const override { return image_.first_position + image_.records.size() - 1; }
  JournalSpace space() const override { return space_.load(std::memory_order_relaxed); }
  std::size_t payload_max() const override { return limits::kGroupBytesMax; }

  /// Returns what is durable now, without unsynced records.
  Image durable() const;
  /// Image after a crash now: all that is durable and, by the draw, some unsynced records behind it, in order
  /// and without a gap. Each is whole or not there, as a reader of a torn file finds it.
  Image crash(Prng& prng) const;

  /// The disk is full, and so many bytes are left in the reserve; each record takes its payload and 64 bytes.
  void set_full(uint64_t reserve_bytes);
  /// The disk has room again.
  void set_open() { space_.store(JournalSpace::kOpen, std::memory_order_relaxed); }
  /// The next sync fails, and the journal then refuses everything, as the file journal does.
  void fail_next_sync() { sync_fails_ = true; }

 private:
  Result<Unit> usable() const;

  Image image_;            ///< Image with the unsynced records after the durable ones.
  uint64_t unsynced_ = 0;  ///< Number of unsynced records.
  uint64_t reserve_bytes_ = 0;
  std::atomic<JournalSpace> space_{JournalSpace::kOpen};
  bool sync_fails_ = false;
  bool failed_ = false;
};

}  // namespace gpusched
