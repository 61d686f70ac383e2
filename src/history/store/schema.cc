#include "history/store/schema.h"

#include <array>
#include <string>

namespace gpusched::history {
namespace {

// Schemas that were released never change: a change is one more entry. Times are milliseconds since the Unix
// epoch, NULL when there was none; ids of jobs and tenants are numbers.
constexpr std::array kMigrations = {R"sql(
CREATE TABLE position(
  one INTEGER PRIMARY KEY CHECK (one = 1),
  position INTEGER NOT NULL,
  at_ms INTEGER NOT NULL);
INSERT INTO position VALUES (1, 0, 0);
CREATE TABLE gaps(
  after_position INTEGER NOT NULL, until_position INTEGER NOT NULL, noted_ms INTEGER NOT NULL,
  jobs_found INTEGER NOT NULL);
CREATE TABLE tenants(id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, tenant_name TEXT NOT NULL, user TEXT, owner TEXT, name TEXT,
  state TEXT NOT NULL, reason TEXT, cause TEXT, exit_code INTEGER, signal INTEGER, priority INTEGER,
  gpu_count INTEGER, gpu_milli INTEGER, gpu_model TEXT, gpu_memory_mb INTEGER, cpu_milli INTEGER,
  memory_mb INTEGER, submitted_ms INTEGER NOT NULL, scheduled_ms INTEGER, started_ms INTEGER,
  ended_ms INTEGER NOT NULL, attempts INTEGER, preemptions INTEGER, node TEXT, gpu_ms INTEGER, array INTEGER);
CREATE INDEX jobs_by_time ON jobs(submitted_ms);
CREATE INDEX jobs_by_end ON jobs(ended_ms);
CREATE INDEX jobs_by_tenant ON jobs(tenant, submitted_ms);
CREATE INDEX jobs_by_user ON jobs(user, submitted_ms);
CREATE INDEX jobs_by_state ON jobs(state, submitted_ms);
CREATE INDEX jobs_by_tenant_state ON jobs(tenant, state, submitted_ms);
CREATE INDEX jobs_by_user_state ON jobs(user, state, submitted_ms);
CREATE TABLE job_nodes(
  node TEXT NOT NULL, job INTEGER NOT NULL, PRIMARY KEY (node, job)) WITHOUT ROWID;
CREATE TABLE attempts(
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, member INTEGER NOT NULL, tenant INTEGER NOT NULL, user TEXT,
  node TEXT NOT NULL, device_mask INTEGER NOT NULL, model TEXT, gpu_milli INTEGER, is_slice INTEGER,
  cpu_milli INTEGER, memory_mb INTEGER, placed_ms INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER NOT NULL,
  cause TEXT, exit_code INTEGER, signal INTEGER, gpu_us INTEGER NOT NULL, cpu_used_ms INTEGER,
  peak_memory_bytes INTEGER, PRIMARY KEY (job, attempt, member)) WITHOUT ROWID;
CREATE TABLE running(
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, member INTEGER NOT NULL, tenant INTEGER NOT NULL, user TEXT,
  node TEXT NOT NULL, device_mask INTEGER NOT NULL, model TEXT, gpu_milli INTEGER, is_slice INTEGER,
  cpu_milli INTEGER, memory_mb INTEGER, placed_ms INTEGER NOT NULL, started_ms INTEGER,
  PRIMARY KEY (job, attempt, member)) WITHOUT ROWID;
CREATE TABLE preemptions(job INTEGER NOT NULL, attempt INTEGER NOT NULL, at_ms INTEGER NOT NULL);
CREATE INDEX preemptions_by_job ON preemptions(job);
CREATE INDEX preemptions_by_time ON preemptions(at_ms);
CREATE TABLE quota_changes(
  at_ms INTEGER NOT NULL, tenant INTEGER NOT NULL, tenant_name TEXT, by TEXT, change TEXT NOT NULL);
CREATE INDEX quota_changes_by_time ON quota_changes(at_ms);
CREATE TABLE usage_hours(
  hour INTEGER NOT NULL, tenant INTEGER NOT NULL, user TEXT NOT NULL, node TEXT NOT NULL, device INTEGER NOT NULL,
  model TEXT NOT NULL, gpu_us INTEGER NOT NULL, share_us INTEGER NOT NULL, slice_us INTEGER NOT NULL,
  lost_us INTEGER NOT NULL, cpu_us INTEGER NOT NULL, memory_mb_s INTEGER NOT NULL, attempts INTEGER NOT NULL,
  PRIMARY KEY (hour, tenant, user, node, device, model)) WITHOUT ROWID;
CREATE TABLE usage_days(
  day INTEGER NOT NULL, tenant INTEGER NOT NULL, user TEXT NOT NULL, model TEXT NOT NULL,
  gpu_us INTEGER NOT NULL, share_us INTEGER NOT NULL, slice_us INTEGER NOT NULL, lost_us INTEGER NOT NULL,
  cpu_us INTEGER NOT NULL, memory_mb_s INTEGER NOT NULL, attempts INTEGER NOT NULL,
  PRIMARY KEY (day, tenant, user, model)) WITHOUT ROWID;
)sql"};

}  // namespace

int64_t schema_version() { return static_cast<int64_t>(kMigrations.size()); }

Result<Unit> migrate(Database& database) {
  const Result<int64_t> version = database.integer("PRAGMA user_version");
  if (!version.ok()) return version.error();
  if (*version > schema_version()) {
    return Error{.code = ErrorCode::kVersion,
                 .message = "the history's database has schema " + std::to_string(*version) +
                            ", and this program supports " + std::to_string(schema_version()) +
                            ": start the newer version, or set history.path to another file"};
  }
  for (int64_t next = *version; next < schema_version(); ++next) {
    const Result<Unit> done =
        database.run("BEGIN IMMEDIATE; " + std::string(kMigrations[static_cast<std::size_t>(next)]) +
                     "PRAGMA user_version=" + std::to_string(next + 1) + "; COMMIT");
    if (!done.ok()) {
      static_cast<void>(database.run("ROLLBACK"));
      return done.error();
    }
  }
  return Unit{};
}

}  // namespace gpusched::history
