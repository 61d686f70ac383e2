#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "history/options.h"
#include "history/record/events.h"
#include "history/store/batch_store.h"

namespace gpusched::history {

struct BacklogOptions {
  std::string subject;         ///< The database in the log: "history" begins its events, too.
  std::size_t events_max = 0;  ///< Most events that wait to be written; then they are read from the journal.
  Duration linger;             ///< Events wait so long for others: they become one transaction.
  Duration retry;              ///< After an error it tries again so much later.
};

/// Batches on their way to one database: those that wait, in bounds, and how what found no place there is
/// read from the journal again. What cannot be written is not waited for. `offer`, `wake`, `end` and the
/// numbers are thread-safe and wait for nothing; all else belongs to the one thread that writes the database.
class Backlog {
 public:
  /// Takes one record's events; false: no more of them, now.
  using Sink = std::function<bool(Batch)>;
  /// Gives the sink what is to be kept of the durable journal records in (after, until], in their order; on
  /// the writing thread. When nothing is left of some, an Adopted stands for them.
  using Source = std::function<Result<Unit>(uint64_t after, uint64_t until, const Sink& sink)>;

  /// Records behind `position` will be offered.
  Backlog(BacklogOptions options, uint64_t position, Source source);

  /// Takes what a durable record led to. Every record is offered, in order, one without events, too.
  void offer(Batch batch);
  /// Ends the present wait, or the next one.
  void wake();
  /// From now on it waits for nothing.
  void end();
  bool ends() const;
  /// Position up to which the database has everything.
  uint64_t durable_position() const { return position_.load(std::memory_order_acquire); }
  /// Without the size of the database.
  HistoryStats stats() const;

  /// Waits for events, for others beside them, or for the next try.
  void wait(bool is_open);
  /// Whether the last failure is long enough ago.
  bool may_try() const;
  /// The database was opened: learns its position and its gaps. Once in a run, a position beyond the journal
  /// is set back: it is from another time of the data folder.
  Result<Unit> begin(BatchStore& store);
  /// Reads the journal if the database lacks records that are not in the queue. True: it has; go on at once.
  bool catch_up(BatchStore& store);
  /// Writes a part of the queue. True: go on at once. An error was noted, and the events still wait.
  Result<bool> write_queue(BatchStore& store);
  /// Records that led to nothing count, too, when all others are written: the journal may forget them.
  Result<Unit> advance(BatchStore& store);
  /// The next try is later; the log has it when it is new.
  void note_failure(const Error& error);
  /// Nothing that waits is of use: all is to be read from the journal.
  void start_over();

 private:
  void note_written(const BatchStore& store, uint64_t events);
  void note_batch(const Batch& batch, uint64_t& gaps) const;
  void put_back(std::deque<Batch> batches, std::deque<int64_t> came_ns);

  const BacklogOptions options_;
  const Source source_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Batch> queue_;  ///< All that came behind `base_` and is to be kept.
  std::deque<int64_t> came_ns_;
  std::size_t queued_events_ = 0;
  const uint64_t start_;
  uint64_t base_;
  uint64_t seen_;
  Time seen_at_;
  int64_t behind_since_ns_ = 0;  ///< Monotonic; 0: all is written.
  HistoryStats stats_;
  bool woken_ = false;
  bool ending_ = false;

  std::atomic<uint64_t> position_{0};

  // For the writing thread alone.
  int64_t retry_at_ns_ = 0;
  bool was_open_ = false;
};

}  // namespace gpusched::history
