#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "history/record/questions.h"
#include "history/store/database.h"

/// Questions to the history. A page costs look-ups in an index, also when nothing matches.
namespace gpusched::history {

/// Reads the database. Each belongs to one thread.
class Queries {
 public:
  /// Opens a connection that can only read. kNotFound when there is no database yet.
  static Result<Queries> open(const std::string& path);

  Result<JobsPage> jobs(const JobsQuery& query);
  Result<UsageReport> usage(const UsageQuery& query);
  /// Checks the database's pages and indexes. Empty: it is whole.
  Result<std::string> check();
  void interrupt() { database_.interrupt(); }

 private:
  explicit Queries(Database database) : database_(std::move(database)) {}
  Result<Unit> page_of_tenant(const JobsQuery& query, std::optional<TenantId> tenant, JobsPage& page);

  Database database_;
};

}  // namespace gpusched::history
