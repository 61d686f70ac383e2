#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"
#include "base/time.h"
#include "history/options.h"
#include "history/record/events.h"
#include "history/store/queries.h"

/// The history keeps finished jobs, attempts and the use of GPUs for years, in an SQLite database that nobody
/// else opens (docs/operate/history.md).
namespace gpusched::history {

class Store;

/// The database, the thread that writes it and the thread that reads it. All public members are thread-safe;
/// none but `stop` waits for the disk. What cannot be written is not waited for: the history falls behind,
/// says so, and reads the journal when it can write again.
class History {
 public:
  /// Takes one record's events; false: no more of them, now.
  using Sink = std::function<bool(Batch)>;
  /// Gives the sink what is to be kept of the durable journal records in (after, until], in their order; on
  /// the history's thread. When nothing is left of some, an Adopted stands for them.
  using Source = std::function<Result<Unit>(uint64_t after, uint64_t until, const Sink& sink)>;
  using Question = std::function<void(Result<Queries*>)>;

  /// Records behind `position` will be offered. The database is opened by the thread.
  History(HistoryOptions options, uint64_t position, Source source);
  ~History();

  /// Takes what a durable record led to. Every record is offered, in order, one without events, too.
  void offer(Batch batch);
  /// Position up to which the database has everything.
  uint64_t durable_position() const { return position_.load(std::memory_order_acquire); }
  HistoryStats stats() const;
  /// Calls `question` on the reading thread; at once, with an error, when too many wait or it cannot read.
  void ask(Question question);
  /// Writes a copy of the database beside it, in the place of an older copy, and tells its path.
  void copy(std::function<void(Result<std::string>)> done);
  /// Writes what waits, as far as it can be written now, and ends the threads.
  void stop();

 private:
  using Order = std::function<void(Store*)>;

  void run();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  bool has_store();
  void serve_orders();
  /// Each returns whether to go on at once.
  bool write_queue();
  bool catch_up();
  void keep_house();
  void look_for_damage();
  void set_aside();
  void note_failure(const Error& error);
  void note_written(uint64_t events);
  bool has_room();
  Result<std::string> make_copy(Store& store) const;
  void read();

  const HistoryOptions options_;
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
  std::deque<Order> orders_;
  HistoryStats stats_;
  bool stopping_ = false;

  std::atomic<uint64_t> position_{0};
  std::atomic<bool> damaged_{false};

  // For the writing thread alone.
  std::unique_ptr<Store> store_;
  int64_t retry_at_ns_ = 0;
  int64_t house_at_ns_ = 0;
  int64_t check_at_ns_ = 0;
  std::optional<Queries> checking_;  ///< The checking thread's, while `checks_`.
  std::atomic<bool> checks_{false};
  bool was_open_ = false;

  std::mutex read_mutex_;
  std::condition_variable read_wake_;
  std::deque<Question> questions_;
  std::atomic<uint64_t> opened_{0};  ///< Counts the databases that it opened; 0: none yet.
  bool reading_ends_ = false;
  std::thread checker_, writer_, reader_;
};

}  // namespace gpusched::history
