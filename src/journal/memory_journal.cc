#include "journal/memory_journal.h"

#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {
namespace {

constexpr uint64_t kRecordOverheadBytes = 64;

uint64_t term_of_last(const MemoryJournal::Image& image) {
  return image.records.empty() ? image.last_term : image.records.back().term;
}

}  // namespace

MemoryJournal::MemoryJournal(Image image) : image_(std::move(image)) {
  CHECK(image_.first_position > 0);
  image_.sealed = false;
}

Result<Unit> MemoryJournal::append(const JournalRecord& record) {
  if (Result<Unit> ok = usable(); !ok) return ok;
  CHECK(record.position == last_position() + 1);
  CHECK(record.term >= term_of_last(image_));
  if (record.payload.size() > payload_max()) {
    return Error{.code = ErrorCode::kTooLarge, .message = "the group is larger than a journal record may be"};
  }
  if (space() == JournalSpace::kReserveOnly) {
    const uint64_t bytes = record.payload.size() + kRecordOverheadBytes;
    if (bytes > reserve_bytes_) {
      return Error{.code = ErrorCode::kStorageFull, .message = "the disk is full and the reserve is used up"};
    }
    reserve_bytes_ -= bytes;
  }
  image_.records.push_back({.position = record.position,
                            .term = record.term,
                            .first_sequence = record.first_sequence,
                            .command_count = record.command_count,
                            .payload = std::string(record.payload)});
  unsynced_ += 1;
  return Unit{};
}

Result<Unit> MemoryJournal::sync() {
  if (Result<Unit> ok = usable(); !ok) return ok;
  if (unsynced_ == 0) return Unit{};
  if (sync_fails_) {
    failed_ = true;
    return Error{.code = ErrorCode::kOutcomeUnknown, .message = "the sync was told to fail"};
  }
  unsynced_ = 0;
  return Unit{};
}

Result<Unit> MemoryJournal::read_from(uint64_t position, const Visitor& visit) {
  if (failed_) return usable();
  if (position < first_position()) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "the journal starts at record " + std::to_string(first_position()) + ", record " +
                            std::to_string(position) + " was compacted away"};
  }
  for (uint64_t index = position - first_position(); index < image_.records.size(); ++index) {
    const Record& record = image_.records[index];
    const Result<Unit> visited = visit({.position = record.position,
                                        .term = record.term,
                                        .first_sequence = record.first_sequence,
                                        .command_count = record.command_count,
                                        .payload = record.payload});
    if (!visited) return visited;
  }
  return Unit{};
}

Result<Unit> MemoryJournal::truncate_after(uint64_t position) {
  if (Result<Unit> ok = usable(); !ok) return ok;
  CHECK(position + 1 >= first_position());
  CHECK(position <= last_position());
  image_.records.resize(position + 1 - first_position());
  unsynced_ = 0;  // As in the file journal: what stays is durable when this returns.
  return Unit{};
}

Result<Unit> MemoryJournal::compact_before(uint64_t position) {
  if (Result<Unit> ok = usable(); !ok) return ok;
  while (image_.records.size() > unsynced_ && image_.first_position < position) {
    image_.last_term = image_.records.front().term;
    image_.records.pop_front();
    image_.first_position += 1;
  }
  return Unit{};
}

Result<Unit> MemoryJournal::seal() {
  if (Result<Unit> synced = sync(); !synced) return synced;
  image_.sealed = true;
  return Unit{};
}

MemoryJournal::Image MemoryJournal::durable() const {
  Image image = image_;
  image.records.resize(image.records.size() - unsynced_);
  return image;
}

MemoryJournal::Image MemoryJournal::crash(Prng& prng) const {
  Image image = image_;
  const uint64_t kept = prng.below(unsynced_ + 1);
  image.records.resize(image.records.size() - unsynced_ + kept);
  return image;
}

void MemoryJournal::set_full(uint64_t reserve_bytes) {
  reserve_bytes_ = reserve_bytes;
  space_.store(JournalSpace::kReserveOnly, std::memory_order_relaxed);
}

Result<Unit> MemoryJournal::usable() const {
  CHECK(!image_.sealed);  // Nothing may follow the seal.
  if (!failed_) return Unit{};
  return Error{.code = ErrorCode::kIo,
               .message = "the journal failed earlier: stop the process and start it again"};
}

}  // namespace gpusched
