#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "history/postgres/options.h"

namespace gpusched::history {

/// A PostgreSQL database that gets the same rows, and waiting and running jobs, too.
struct PostgresOptions {
  PostgresServer server;
  int64_t days = 730;                   ///< As the history's.
  std::size_t events_max = 200'000;     ///< As the history's.
  Duration linger = milliseconds(200);  ///< As the history's.
  Duration retry = seconds(5);          ///< As the history's.
  Duration lifetime;                    ///< A connection is replaced after that; 0: never.
  uint64_t term = 1;  ///< Term of the journal's leader: one of an older term writes nothing.
};

struct HistoryOptions {
  std::string path;                     ///< The database. Its folder is made when it is missing.
  int64_t days = 730;                   ///< Jobs, attempts and hours that ended before are removed; 0: never.
  std::size_t events_max = 200'000;     ///< Most events that wait to be written; then it catches up later.
  Duration linger = milliseconds(200);  ///< Events wait so long for others: they become one transaction.
  Duration retry = seconds(5);          ///< After an error it tries again so much later.
  Duration check_every = hours(24);     ///< How often the whole database is checked.
  uint64_t leaves_bytes = 0;            ///< Nothing is written while its volume has less room than that.
  std::optional<PostgresOptions> postgres = {};
};

/// How the history is.
struct HistoryStats {
  uint64_t position = 0;  ///< Journal record up to which the database has everything.
  uint64_t newest = 0;    ///< Newest durable record that it was told of.
  Duration lag;           ///< Age of the oldest event that is not in the database; 0: all are.
  uint64_t events_waiting = 0;
  uint64_t events_written = 0;  ///< Since the start, as the next four.
  uint64_t write_errors = 0;
  uint64_t overruns = 0;   ///< Times that more waited than may wait.
  uint64_t catch_ups = 0;  ///< Times that it read the journal to catch up.
  uint64_t gaps = 0;       ///< Times that records were gone before it had read them; kept in the database.
  uint64_t bytes = 0;      ///< Size of the database's files.
  std::string trouble;     ///< Why it cannot write now, a sentence; empty: it can.
};

}  // namespace gpusched::history
