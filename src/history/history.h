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
#include "history/backlog.h"
#include "history/options.h"
#include "history/record/events.h"
#include "history/store/queries.h"

/// The history keeps finished jobs, attempts and the use of GPUs for years, in an SQLite database that nobody
/// else opens, and in a PostgreSQL database where one is configured (docs/operate/history.md).
namespace gpusched::history {

class PostgresHistory;
class Store;

/// The database, the thread that writes it and the thread that reads it. All public members are thread-safe;
/// none but `stop` waits for the disk. What cannot be written is not waited for: the history falls behind,
/// says so, and reads the journal when it can write again.
class History {
 public:
  using Sink = Backlog::Sink;
  using Source = Backlog::Source;
  using Question = std::function<void(Result<Queries*>)>;

  /// Records behind `position` will be offered. The databases are opened by their threads.
  History(HistoryOptions options, uint64_t position, Source source);
  ~History();

  /// Takes what a durable record led to. Every record is offered, in order, one without events, too.
  void offer(Batch batch);
  /// Position up to which the database has everything.
  uint64_t durable_position() const { return backlog_.durable_position(); }
  HistoryStats stats() const;
  /// How the PostgreSQL database is; nothing: none is configured.
  std::optional<HistoryStats> postgres_stats() const;
  /// Calls `question` on the reading thread; at once, with an error, when too many wait or it cannot read.
  void ask(Question question);
  /// Writes a copy of the database beside it, in the place of an older copy, and tells its path.
  void copy(std::function<void(Result<std::string>)> done);
  /// Writes what waits, as far as it can be written now, and ends the threads.
  void stop();

 private:
  using Order = std::function<void(Store*)>;

  void run();
  bool has_store();
  void serve_orders();
  /// Whether to go on at once.
  bool write_queue();
  void keep_house();
  void look_for_damage();
  void set_aside();
  bool has_room();
  Result<std::string> make_copy(Store& store) const;
  void read();

  const HistoryOptions options_;
  Backlog backlog_;
  std::unique_ptr<PostgresHistory> postgres_;  ///< Null: none is configured.

  std::mutex mutex_;
  std::deque<Order> orders_;
  bool stopping_ = false;

  std::atomic<uint64_t> bytes_{0};
  std::atomic<bool> damaged_{false};

  // For the writing thread alone.
  std::unique_ptr<Store> store_;
  int64_t house_at_ns_ = 0;
  int64_t check_at_ns_ = 0;
  std::optional<Queries> checking_;  ///< The checking thread's, while `checks_`.
  std::atomic<bool> checks_{false};

  std::mutex read_mutex_;
  std::condition_variable read_wake_;
  std::deque<Question> questions_;
  std::atomic<uint64_t> opened_{0};  ///< Counts the databases that it opened; 0: none yet.
  bool reading_ends_ = false;
  std::thread checker_, writer_, reader_;
};

}  // namespace gpusched::history
