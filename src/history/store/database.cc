#include "history/store/database.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace gpusched::history {

Error database_error(int code, std::string_view what, std::string_view message) {
  ErrorCode kind = ErrorCode::kIo;
  switch (code & 0xff) {
    case SQLITE_FULL:
      kind = ErrorCode::kStorageFull;
      break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      kind = ErrorCode::kCorrupt;
      break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      kind = ErrorCode::kLocked;
      break;
    case SQLITE_INTERRUPT:
      kind = ErrorCode::kTimeout;
      break;
    default:
      break;
  }
  return {.code = kind, .message = std::string(what) + ": " + std::string(message)};
}

Statement& Statement::bind(int index, int64_t value) {
  CHECK(sqlite3_bind_int64(statement_.get(), index, value) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind(int index, std::string_view text) {
  CHECK(sqlite3_bind_text64(statement_.get(), index, text.data() == nullptr ? "" : text.data(), text.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind_or_null(int index, std::string_view text) {
  if (!text.empty()) return bind(index, text);
  CHECK(sqlite3_bind_null(statement_.get(), index) == SQLITE_OK);
  return *this;
}

Error Statement::error() const {
  sqlite3* const connection = sqlite3_db_handle(statement_.get());
  return database_error(sqlite3_extended_errcode(connection), sqlite3_sql(statement_.get()),
                        sqlite3_errmsg(connection));
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    reset();
    return false;
  }
  const Error failed = error();
  reset();
  return failed;
}

Result<Unit> Statement::run() {
  const Result<bool> row = step();
  if (!row.ok()) return row.error();
  CHECK(!*row);
  return Unit{};
}

void Statement::reset() { sqlite3_reset(statement_.get()); }

std::string Statement::text(int column) const {
  const auto* const bytes = sqlite3_column_text(statement_.get(), column);
  if (bytes == nullptr) return "";
  return {reinterpret_cast<const char*>(bytes),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Result<Database> Database::open(const std::string& path, Mode mode) {
  if (mode == Mode::kWriter) {
    // SQLite gives its other files the mode of this one.
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) {
      return Error{.code = errno == ENOSPC ? ErrorCode::kStorageFull : ErrorCode::kIo,
                   .message = "cannot open " + path + ": " + std::strerror(errno)};
    }
    ::close(file);
  }
  sqlite3* connection = nullptr;
  const int flags = mode == Mode::kWriter ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
  const int code = sqlite3_open_v2(path.c_str(), &connection, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(connection);
  if (code != SQLITE_OK)
    return database_error(code, "cannot open " + path,
                          connection == nullptr ? "no memory" : sqlite3_errmsg(connection));
  sqlite3_extended_result_codes(connection, 1);
  sqlite3_busy_timeout(connection, 2'000);
  const bool writes = mode == Mode::kWriter;
  if (!writes) sqlite3_db_config(connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  const Result<Unit> set = database.run(
      writes ? "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000; "
               "PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-32768; PRAGMA temp_store=MEMORY"
             : "PRAGMA wal_autocheckpoint=0; PRAGMA query_only=1; PRAGMA cache_size=-16384; "
               "PRAGMA temp_store=MEMORY");
  if (!set.ok()) return set.error();
  return database;
}

Result<Unit> Database::run(const std::string& sql) {
  char* message = nullptr;
  const int code = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, &message);
  if (code == SQLITE_OK) return Unit{};
  const Error failed = database_error(sqlite3_extended_errcode(connection_.get()), sql.substr(0, 80),
                                      message == nullptr ? sqlite3_errstr(code) : message);
  sqlite3_free(message);
  return failed;
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v2(connection_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return database_error(code, sql, sqlite3_errmsg(connection_.get()));
  return Statement(statement);
}

Result<int64_t> Database::integer(std::string_view sql) {
  Result<Statement> statement = prepare(sql);
  if (!statement.ok()) return statement.error();
  const Result<bool> row = statement->step();
  if (!row.ok()) return row.error();
  return *row ? statement->integer(0) : int64_t{0};
}

}  // namespace gpusched::history
