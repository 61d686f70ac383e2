#include "history/postgres/schema.h"

#include <array>
#include <cstdlib>
#include <string>

namespace gpusched::history {
namespace {

// Schemas that were released never change: a change is one more entry. The columns are those of the SQLite
// database, but for `user_name`, because `user` is a word of the language here, and `job`, which is the
// number that the other tables have. Columns that are generated are what clients of REST call the same
// things.
constexpr std::array kMigrations = {R"sql(
CREATE TABLE position(
  one INTEGER PRIMARY KEY CHECK (one = 1),
  position BIGINT NOT NULL, term BIGINT NOT NULL, at_ms BIGINT NOT NULL);
INSERT INTO position VALUES (1, 0, 0, 0);
CREATE TABLE gaps(
  after_position BIGINT NOT NULL, until_position BIGINT NOT NULL, noted_ms BIGINT NOT NULL,
  jobs_found BIGINT NOT NULL);
CREATE TABLE tenants(
  tenant BIGINT PRIMARY KEY,
  id TEXT GENERATED ALWAYS AS ('tenant-' || tenant::text) STORED,
  name TEXT NOT NULL, organization TEXT,
  max_gp_us BIGINT, max_gpu_memory_mb BIGINT, max_cpu_milli BIGINT, max_memory_mb BIGINT,
  max_concurrent_jobs BIGINT, priority_tier INTEGER NOT NULL, fair_share_weight DOUBLE PRECISION NOT NULL,
  current_gp_us BIGINT NOT NULL, current_gpu_milli BIGINT NOT NULL, current_gpu_memory BIGINT NOT NULL,
  current_cpu_milli BIGINT NOT NULL, current_memory BIGINT NOT NULL, current_jobs BIGINT NOT NULL,
  total_jobs BIGINT NOT NULL, successful_jobs BIGINT NOT NULL, failed_jobs BIGINT NOT NULL,
  active BOOLEAN NOT NULL, created_ms BIGINT, updated_ms BIGINT,
  created_at TIMESTAMPTZ GENERATED ALWAYS AS (to_timestamp(created_ms / 1000.0::double precision)) STORED,
  updated_at TIMESTAMPTZ GENERATED ALWAYS AS (to_timestamp(updated_ms / 1000.0::double precision)) STORED);
CREATE INDEX tenants_by_id ON tenants(id);
CREATE TABLE jobs(
  job BIGINT PRIMARY KEY,
  id TEXT GENERATED ALWAYS AS ('job-' || job::text) STORED,
  tenant BIGINT NOT NULL,
  tenant_id TEXT GENERATED ALWAYS AS ('tenant-' || tenant::text) STORED,
  tenant_name TEXT NOT NULL, user_name TEXT, owner TEXT, name TEXT,
  state TEXT NOT NULL, reason TEXT, cause TEXT, exit_code INTEGER, signal INTEGER, priority INTEGER,
  gpu_count BIGINT, gpu_milli BIGINT, gpu_model TEXT, gpu_memory_mb BIGINT, cpu_milli BIGINT,
  memory_mb BIGINT, submitted_ms BIGINT NOT NULL, scheduled_ms BIGINT, started_ms BIGINT,
  ended_ms BIGINT, attempts BIGINT, preemptions BIGINT, node TEXT, gpu_ms BIGINT, array_job BIGINT,
  submitted_at TIMESTAMPTZ GENERATED ALWAYS AS (to_timestamp(submitted_ms / 1000.0::double precision)) STORED,
  scheduled_at TIMESTAMPTZ GENERATED ALWAYS AS (to_timestamp(scheduled_ms / 1000.0::double precision)) STORED,
  started_at TIMESTAMPTZ GENERATED ALWAYS AS (to_timestamp(started_ms / 1000.0::double precision)) STORED,
  completed_at TIMESTAMPTZ GENERATED ALWAYS AS (to_timestamp(ended_ms / 1000.0::double precision)) STORED);
CREATE INDEX jobs_by_id ON jobs(id);
CREATE INDEX jobs_by_time ON jobs(submitted_ms);
CREATE INDEX jobs_by_end ON jobs(ended_ms);
CREATE INDEX jobs_by_tenant ON jobs(tenant, submitted_ms);
CREATE INDEX jobs_by_user ON jobs(user_name, submitted_ms);
CREATE INDEX jobs_by_state ON jobs(state, submitted_ms);
CREATE TABLE job_nodes(node TEXT NOT NULL, job BIGINT NOT NULL, PRIMARY KEY (node, job));
CREATE TABLE attempts(
  job BIGINT NOT NULL, attempt BIGINT NOT NULL, member BIGINT NOT NULL, tenant BIGINT NOT NULL, user_name TEXT,
  node TEXT NOT NULL, device_mask BIGINT NOT NULL, model TEXT, gpu_milli INTEGER, is_slice INTEGER,
  cpu_milli INTEGER, memory_mb BIGINT, placed_ms BIGINT NOT NULL, started_ms BIGINT, ended_ms BIGINT NOT NULL,
  cause TEXT, exit_code INTEGER, signal INTEGER, gpu_us BIGINT NOT NULL, cpu_used_ms BIGINT,
  peak_memory_bytes BIGINT, PRIMARY KEY (job, attempt, member));
CREATE TABLE running(
  job BIGINT NOT NULL, attempt BIGINT NOT NULL, member BIGINT NOT NULL, tenant BIGINT NOT NULL, user_name TEXT,
  node TEXT NOT NULL, device_mask BIGINT NOT NULL, model TEXT, gpu_milli INTEGER, is_slice INTEGER,
  cpu_milli INTEGER, memory_mb BIGINT, placed_ms BIGINT NOT NULL, started_ms BIGINT,
  PRIMARY KEY (job, attempt, member));
CREATE TABLE preemptions(job BIGINT NOT NULL, attempt BIGINT NOT NULL, at_ms BIGINT NOT NULL);
CREATE INDEX preemptions_by_job ON preemptions(job);
CREATE INDEX preemptions_by_time ON preemptions(at_ms);
CREATE TABLE quota_changes(
  at_ms BIGINT NOT NULL, tenant BIGINT NOT NULL, tenant_name TEXT, by TEXT, change TEXT NOT NULL);
CREATE INDEX quota_changes_by_time ON quota_changes(at_ms);
CREATE TABLE usage_hours(
  hour BIGINT NOT NULL, tenant BIGINT NOT NULL, user_name TEXT NOT NULL, node TEXT NOT NULL,
  device INTEGER NOT NULL, model TEXT NOT NULL, gpu_us BIGINT NOT NULL, share_us BIGINT NOT NULL,
  slice_us BIGINT NOT NULL, lost_us BIGINT NOT NULL, cpu_us BIGINT NOT NULL, memory_mb_s BIGINT NOT NULL,
  attempts BIGINT NOT NULL, PRIMARY KEY (hour, tenant, user_name, node, device, model));
CREATE TABLE usage_days(
  day BIGINT NOT NULL, tenant BIGINT NOT NULL, user_name TEXT NOT NULL, model TEXT NOT NULL,
  gpu_us BIGINT NOT NULL, share_us BIGINT NOT NULL, slice_us BIGINT NOT NULL, lost_us BIGINT NOT NULL,
  cpu_us BIGINT NOT NULL, memory_mb_s BIGINT NOT NULL, attempts BIGINT NOT NULL,
  PRIMARY KEY (day, tenant, user_name, model));
)sql"};

/// Its row is the version; the name says whose the tables are.
constexpr const char* kVersionTable = "gpu_scheduler_schema";

Result<bool> exists(Connection& connection, const std::string& table) {
  const Result<Answer> found = connection.run("SELECT to_regclass($1) IS NOT NULL", {table});
  if (!found.ok()) return found.error();
  return found->rows.at(0).at(0) == "t";
}

Result<int64_t> version_of(Connection& connection) {
  const Result<bool> known = exists(connection, kVersionTable);
  if (!known.ok()) return known.error();
  if (*known) {
    const Result<Answer> version = connection.run("SELECT version FROM " + std::string(kVersionTable));
    if (!version.ok()) return version.error();
    return version->rows.empty() ? 0 : std::atoll(version->rows[0].at(0).c_str());
  }
  for (const char* const table : {"jobs", "tenants", "position"}) {
    const Result<bool> taken = exists(connection, table);
    if (!taken.ok()) return taken.error();
    if (*taken) {
      return Error{.code = ErrorCode::kAlreadyExists,
                   .message = "the database has a table " + std::string(table) +
                              " that this program did not make, and nothing was changed in it: give "
                              "database.database an empty database"};
    }
  }
  const Result<Answer> made =
      connection.run("CREATE TABLE " + std::string(kVersionTable) +
                     "(one INTEGER PRIMARY KEY CHECK (one = 1), version BIGINT NOT NULL);"
                     "INSERT INTO " +
                     kVersionTable + " VALUES (1, 0)");
  if (!made.ok()) return made.error();
  return 0;
}

}  // namespace

int64_t postgres_schema_version() { return static_cast<int64_t>(kMigrations.size()); }

Result<Unit> migrate(Connection& connection) {
  const Result<Answer> encoding = connection.run("SHOW server_encoding");
  if (!encoding.ok()) return encoding.error();
  if (encoding->rows.at(0).at(0) != "UTF8") {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "the database's encoding is " + encoding->rows[0][0] +
                            ", which has no place for all names: make one with ENCODING 'UTF8'"};
  }
  const Result<int64_t> version = version_of(connection);
  if (!version.ok()) return version.error();
  if (*version > postgres_schema_version()) {
    return Error{.code = ErrorCode::kVersion,
                 .message = "the database has schema " + std::to_string(*version) +
                            ", and this program supports " + std::to_string(postgres_schema_version()) +
                            ": start the newer version, or set database.database to another database"};
  }
  for (int64_t next = *version; next < postgres_schema_version(); ++next) {
    // Statements that are sent together are one transaction.
    const Result<Answer> done = connection.run(
        std::string(kMigrations[static_cast<std::size_t>(next)]) + "UPDATE " + kVersionTable +
        " SET version = " + std::to_string(next + 1) + " WHERE version = " + std::to_string(next));
    if (!done.ok()) return done.error();
  }
  return Unit{};
}

}  // namespace gpusched::history
