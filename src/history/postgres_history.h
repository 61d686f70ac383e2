#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "history/backlog.h"
#include "history/options.h"
#include "history/postgres/connection.h"
#include "history/record/events.h"

namespace gpusched::history {

class PostgresStore;

/// A PostgreSQL database that gets what the history gets, and waiting and running jobs, too: the thread that
/// writes it. All public members are thread-safe; none but `stop` waits. A database that is away, slow or
/// full holds nobody up: it falls behind, says so, and catches up from the journal.
class PostgresHistory {
 public:
  /// Records behind `position` will be offered. The database is opened by the thread.
  PostgresHistory(PostgresOptions options, uint64_t position, Backlog::Source source);
  ~PostgresHistory();

  /// Takes what a durable record led to, and how that left jobs and tenants. Every record is offered, in
  /// order.
  void offer(Batch batch) { backlog_.offer(std::move(batch)); }
  /// How it is; `bytes` is 0: nobody asks the server.
  HistoryStats stats() const { return backlog_.stats(); }
  /// Writes what waits, if that can be done within two seconds, and ends the thread.
  void stop();

 private:
  void run();
  bool has_store();
  void keep_house();

  const PostgresOptions options_;
  Backlog backlog_;
  Interrupt interrupt_;

  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;

  // For the writing thread alone.
  std::unique_ptr<PostgresStore> store_;
  int64_t opened_ns_ = 0;
  int64_t house_at_ns_ = 0;
  int64_t forget_at_ns_ = 0;

  std::thread writer_;
};

}  // namespace gpusched::history
