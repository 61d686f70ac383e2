#include "host/core/decoded_records.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/limits.h"

namespace gpusched {
namespace {

/// Records on their way from the thread that decodes to the one that applies.
class RecordQueue {
 public:
  /// Waits for room; false when nobody takes any more.
  bool put(DecodedRecord record) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return closed_ || bytes_ < limits::kDecodedAheadBytesMax; });
    if (closed_) return false;
    bytes_ += record.payload_bytes;
    records_.push_back(std::move(record));
    if (records_.size() == 1) filled_.notify_one();
    return true;
  }
  /// No more come, for this reason.
  void end(Result<Unit> read) {
    const std::lock_guard lock(mutex_);
    ended_ = std::move(read);
    filled_.notify_one();
  }
  /// Takes all that are there, and waits while there are none; empty: that was the last.
  std::vector<DecodedRecord> take() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return ended_.has_value() || !records_.empty(); });
    bytes_ = 0;
    room_.notify_one();
    return std::exchange(records_, {});
  }
  /// Takes no more.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    room_.notify_one();
  }
  /// After the last.
  const Result<Unit>& result() const { return *ended_; }

 private:
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::vector<DecodedRecord> records_;
  uint64_t bytes_ = 0;
  bool closed_ = false;
  std::optional<Result<Unit>> ended_;
};

Result<Unit> read_ahead(Journal& journal, uint64_t position,
                        const std::function<Result<Unit>(DecodedRecord&)>& visit) {
  RecordQueue queue;
  std::jthread reader([&] {
    queue.end(journal.read_from(position, [&](const JournalRecord& record) -> Result<Unit> {
      if (queue.put(decode_record(record))) return Unit{};
      return Error{.code = ErrorCode::kInternal, .message = "nobody takes records any more"};
    }));
  });
  for (std::vector<DecodedRecord> records = queue.take(); !records.empty(); records = queue.take()) {
    for (DecodedRecord& record : records) {
      Result<Unit> visited = visit(record);
      if (visited.ok()) continue;
      queue.close();
      reader.join();
      return visited;
    }
  }
  reader.join();
  return queue.result();
}

}  // namespace

DecodedRecord decode_record(const JournalRecord& record) {
  return {.position = record.position,
          .first_sequence = record.first_sequence,
          .payload_bytes = record.payload.size(),
          .group = decode_group(record.payload)};
}

Result<Unit> read_decoded(Journal& journal, uint64_t position, Threads threads,
                          const std::function<Result<Unit>(DecodedRecord&)>& visit) {
  if (threads == Threads::kTwo) return read_ahead(journal, position, visit);
  return journal.read_from(position, [&](const JournalRecord& record) {
    DecodedRecord decoded = decode_record(record);
    return visit(decoded);
  });
}

}  // namespace gpusched
