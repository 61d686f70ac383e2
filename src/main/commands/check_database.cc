#include "main/commands/check_database.h"

#include <string>

#include "history/postgres/connection.h"

namespace gpusched {
namespace {

constexpr Duration kPatience = seconds(5);

bool is_local(const std::string& host) {
  return host.starts_with('/') || host.starts_with("127.") || host == "localhost" || host == "::1";
}

}  // namespace

Finding check_database(const history::PostgresServer& server) {
  const std::string name = server.database + " on " + server.host + ":" + std::to_string(server.port);
  Finding finding{.check = "database", .verdict = Verdict::kWarn};
  const history::Interrupt never;
  const Result<history::Connection> connection = history::Connection::open(server, kPatience, never);
  if (!connection.ok()) {
    finding.detail =
        "the database " + name +
        " takes no connection, so it gets no history; jobs run without it: " + connection.error().message;
    finding.fix =
        "gpu-scheduler doctor    # after you corrected database.* or the server; docs/operate/history.md";
    return finding;
  }
  finding.detail = "the database " + name + " (PostgreSQL " + connection->server_version() +
                   ") takes connections, " + (connection->is_encrypted() ? "with TLS" : "without TLS");
  if (connection->is_encrypted() || is_local(server.host)) {
    finding.verdict = Verdict::kOk;
  } else {
    finding.fix =
        "GPU_SCHEDULER_DATABASE_SSLMODE=verify-full gpu-scheduler doctor    # then set database.sslmode";
  }
  return finding;
}

}  // namespace gpusched
