#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "history/postgres/libpq.h"
#include "history/postgres/options.h"

/// PostgreSQL with values and Results.
namespace gpusched::history {

/// Ends the waits of connections, from another thread. Thread-safe; once fired it stays so.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  void fire() const;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// The result of a statement.
struct Answer {
  std::vector<std::vector<std::string>> rows;  ///< As text; NULL is empty.
  int64_t changed = 0;                         ///< Rows that it inserted, changed or removed.
};

/// One connection. Not thread-safe. No call waits longer than `patience` for the server to go on, and none
/// after the interrupt has fired; when it has, and after an error of the network, the connection is of no
/// use.
class Connection {
 public:
  /// kUnavailable, kPermissionDenied, kTimeout; kNotFound: no client library; kVersion: an old server.
  static Result<Connection> open(const PostgresServer& server, Duration patience, const Interrupt& interrupt);

  /// Runs one statement, or without parameters several; the answer is the last one's, or the first error.
  Result<Answer> run(const std::string& sql, const std::vector<std::string>& parameters = {});
  bool is_encrypted() const;
  /// "15.4"
  std::string server_version() const;

 private:
  struct Finish {
    const Libpq* pq;
    void operator()(pg_conn* connection) const { pq->finish(connection); }
  };

  Connection(const Libpq* pq, pg_conn* connection, Duration patience, const Interrupt& interrupt)
      : pq_(pq), connection_(connection, Finish{pq}), patience_(patience), interrupt_(&interrupt) {}

  Result<Unit> connect();
  /// Waits until the socket can be read, or written if wanted.
  Result<Unit> wait(bool reads, bool writes, int64_t deadline_ns) const;
  Result<Unit> send_all();

  const Libpq* pq_;
  std::unique_ptr<pg_conn, Finish> connection_;
  Duration patience_;
  const Interrupt* interrupt_;
};

}  // namespace gpusched::history
