#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

/// SQLite with values and Results. None of it is thread-safe: a connection belongs to one thread.
namespace gpusched::history {

/// One prepared statement. Bind all parameters, then step.
class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement, &sqlite3_finalize) {}

  Statement& bind(int index, int64_t value);
  Statement& bind(int index, std::string_view text);
  /// NULL for a text that is empty, so that an index has no place for it.
  Statement& bind_or_null(int index, std::string_view text);
  /// True: a row is there. False: no more. The statement may be bound again afterwards.
  Result<bool> step();
  /// For a statement without rows; it may be bound again.
  Result<Unit> run();
  void reset();

  int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  std::string text(int column) const;
  int columns() const { return sqlite3_column_count(statement_.get()); }
  bool is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

 private:
  Error error() const;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_{nullptr, &sqlite3_finalize};
};

class Database {
 public:
  enum class Mode { kWriter, kReader };
  /// Opens the file. The writer makes it when it is absent, readable by its owner alone, and keeps it in WAL
  /// mode with every commit synced; it is the one connection that checkpoints. A reader can change nothing
  /// and never checkpoints. kCorrupt: it is no database, or a damaged one. kIo, kStorageFull.
  static Result<Database> open(const std::string& path, Mode mode);

  Result<Unit> run(const std::string& sql);
  Result<Statement> prepare(std::string_view sql);
  /// The first column of the first row; 0 without a row.
  Result<int64_t> integer(std::string_view sql);
  int64_t changes() const { return sqlite3_changes64(connection_.get()); }
  /// Ends a statement under way on another thread. Thread-safe while the connection lives.
  void interrupt() { sqlite3_interrupt(connection_.get()); }

 private:
  explicit Database(sqlite3* connection) : connection_(connection, &sqlite3_close_v2) {}
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> connection_;
};

/// The error of an SQLite result code.
Error database_error(int code, std::string_view what, std::string_view message);

}  // namespace gpusched::history
