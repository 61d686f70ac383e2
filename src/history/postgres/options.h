#pragma once

#include <cstdint>
#include <string>

namespace gpusched::history {

/// A database of a PostgreSQL server, as libpq takes it. Nothing prints the password.
struct PostgresServer {
  std::string host;  ///< Or the folder of its Unix socket.
  int64_t port = 5432;
  std::string user;      ///< Empty: the system's user of this process.
  std::string password;  ///< Empty: none, or what ~/.pgpass has.
  std::string database;
  std::string sslmode = "prefer";  ///< As libpq knows them.
};

}  // namespace gpusched::history
