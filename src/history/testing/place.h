#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "history/record/ledger.h"
#include "history/store/database.h"
#include "history/store/queries.h"

/// For tests only: a folder with a database, and what a look into it gives.
namespace gpusched::history::testing {

class Place {
 public:
  Place() {
    std::string name = (std::filesystem::temp_directory_path() / "history-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    dir_ = name;
  }
  ~Place() { std::filesystem::remove_all(dir_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  std::string file(const std::string& name = "history.db") const { return dir_ + "/" + name; }

 private:
  std::string dir_;
};

/// The rows of a table as text, in the order of its key.
inline std::string rows_of(const std::string& path, const std::string& sql) {
  Result<Database> database = Database::open(path, Database::Mode::kReader);
  CHECK(database.ok());
  Result<Statement> rows = database->prepare(sql);
  CHECK(rows.ok());
  std::string text;
  while (true) {
    const Result<bool> row = rows->step();
    CHECK(row.ok());
    if (!*row) return text;
    for (int i = 0; i < rows->columns(); ++i) text += rows->text(i) + "|";
    text += "\n";
  }
}

/// Everything that is in it, but for the table of gaps.
inline std::string dump_of(const std::string& path) {
  std::string text;
  for (const char* const sql :
       {"SELECT * FROM jobs ORDER BY id", "SELECT * FROM attempts ORDER BY job, attempt, member",
        "SELECT * FROM running ORDER BY job, attempt, member", "SELECT * FROM job_nodes ORDER BY node, job",
        "SELECT * FROM preemptions ORDER BY at_ms, job, attempt",
        "SELECT * FROM quota_changes ORDER BY at_ms, tenant, change", "SELECT * FROM tenants ORDER BY id",
        "SELECT * FROM usage_hours ORDER BY 1, 2, 3, 4, 5, 6", "SELECT * FROM usage_days ORDER BY 1, 2, 3, 4",
        "SELECT position FROM position"})
    text += std::string(sql) + "\n" + rows_of(path, sql);
  return text;
}

/// GPU time, of a tenant or a user if one is given; what runs at `now` is included.
inline int64_t use_of(const std::string& path, Time now, std::optional<TenantId> tenant = {},
                      std::optional<std::string> user = {}) {
  Result<Queries> queries = Queries::open(path);
  CHECK(queries.ok());
  const Result<UsageReport> report = queries->usage({.scope = {.all = true, .tenants = {}, .owner = {}},
                                                     .tenant = tenant,
                                                     .user = std::move(user),
                                                     .by = {},
                                                     .since = {},
                                                     .until = {},
                                                     .now = now});
  CHECK(report.ok());
  int64_t sum = 0;
  for (const UsageRow& row : report->rows) sum += row.sums.gpu_us;
  return sum;
}

}  // namespace gpusched::history::testing
