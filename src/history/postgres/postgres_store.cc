#include "history/postgres/postgres_store.h"

#include <bit>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "base/check.h"
#include "base/overloaded.h"
#include "history/postgres/schema.h"
#include "model/types.h"

namespace gpusched::history {
namespace {

constexpr int64_t kForgottenAtOnce = 2'000;
constexpr int64_t kHourMs = 3'600'000;

struct Column {
  std::string_view name;
  std::string_view type = "bigint";
};

/// The fate of a row whose key is there.
enum class Known { kReplaced, kAddedTo, kKept };

struct Table {
  std::string_view name;
  std::vector<Column> columns;
  std::size_t keys = 0;  ///< As many columns from the first on are the key; 0: rows have none.
};

std::string list_of(std::span<const Column> columns) {
  std::string list;
  for (const Column& column : columns) list.append(list.empty() ? "" : ", ").append(column.name);
  return list;
}

/// INSERT of many rows, an array for each column.
std::string insert_into(const Table& table, Known known) {
  const std::string name(table.name);
  std::string sql = "INSERT INTO " + name + "(" + list_of(table.columns) + ") SELECT * FROM unnest(";
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    sql += (i == 0 ? "$" : ", $") + std::to_string(i + 1) + "::" + std::string(table.columns[i].type) + "[]";
  sql += ")";
  if (table.keys == 0) return sql;
  const std::span<const Column> columns(table.columns);
  sql += " ON CONFLICT (" + list_of(columns.first(table.keys)) + ") DO ";
  if (known == Known::kKept) return sql + "NOTHING";
  sql += "UPDATE SET ";
  for (std::size_t i = table.keys; i < columns.size(); ++i) {
    const std::string column(columns[i].name);
    sql += (i == table.keys ? "" : ", ") + column + " = ";
    if (known == Known::kAddedTo) sql += name + "." + column + " + ";
    sql += "excluded." + column;
  }
  return sql;
}

const Table& jobs_table() {
  static const Table table{.name = "jobs",
                           .columns = {{"job"},
                                       {"tenant"},
                                       {"tenant_name", "text"},
                                       {"user_name", "text"},
                                       {"owner", "text"},
                                       {"name", "text"},
                                       {"state", "text"},
                                       {"reason", "text"},
                                       {"cause", "text"},
                                       {"exit_code", "integer"},
                                       {"signal", "integer"},
                                       {"priority", "integer"},
                                       {"gpu_count"},
                                       {"gpu_milli"},
                                       {"gpu_model", "text"},
                                       {"gpu_memory_mb"},
                                       {"cpu_milli"},
                                       {"memory_mb"},
                                       {"submitted_ms"},
                                       {"scheduled_ms"},
                                       {"started_ms"},
                                       {"ended_ms"},
                                       {"attempts"},
                                       {"preemptions"},
                                       {"node", "text"},
                                       {"gpu_ms"},
                                       {"array_job"}},
                           .keys = 1};
  return table;
}

void add_job(Arrays& rows, const JobRow& job) {
  rows.integer(static_cast<int64_t>(job.id.value)).integer(static_cast<int64_t>(job.tenant.value));
  rows.text(job.tenant_name).text(job.user).text_or_null(job.owner).text_or_null(job.name);
  rows.text(job.state).text_or_null(job.reason).text_or_null(job.cause);
  rows.integer(job.exit_code).integer(job.signal).integer(job.priority);
  rows.integer(job.gpu_count).integer(job.gpu_milli).text_or_null(job.gpu_model);
  rows.integer(job.gpu_memory_mb).integer(job.cpu_milli).integer(job.memory_mb);
  rows.integer(job.submitted_at.ms()).integer_or_null(job.scheduled_at.ms());
  rows.integer_or_null(job.started_at.ms()).integer_or_null(job.ended_at.ms());
  rows.integer(job.attempts).integer(job.preemptions).text_or_null(job.node).integer(job.gpu_ms);
  rows.integer_or_null(static_cast<int64_t>(job.array.value));
}

const Table& tenants_table() {
  static const Table table{.name = "tenants",
                           .columns = {{"tenant"},
                                       {"name", "text"},
                                       {"organization", "text"},
                                       {"max_gp_us"},
                                       {"max_gpu_memory_mb"},
                                       {"max_cpu_milli"},
                                       {"max_memory_mb"},
                                       {"max_concurrent_jobs"},
                                       {"priority_tier", "integer"},
                                       {"fair_share_weight", "double precision"},
                                       {"current_gp_us"},
                                       {"current_gpu_milli"},
                                       {"current_gpu_memory"},
                                       {"current_cpu_milli"},
                                       {"current_memory"},
                                       {"current_jobs"},
                                       {"total_jobs"},
                                       {"successful_jobs"},
                                       {"failed_jobs"},
                                       {"active", "boolean"},
                                       {"created_ms"},
                                       {"updated_ms"}},
                           .keys = 1};
  return table;
}

void add_tenant(Arrays& rows, const TenantRow& tenant) {
  rows.integer(static_cast<int64_t>(tenant.id.value)).text(tenant.name).text_or_null(tenant.organization);
  for (const std::optional<int64_t>& limit : {tenant.max_gpus, tenant.max_gpu_memory_mb, tenant.max_cpu_milli,
                                              tenant.max_memory_mb, tenant.max_jobs}) {
    if (limit) {
      rows.integer(*limit);
    } else {
      rows.null();
    }
  }
  rows.integer(tenant.priority_tier).real(static_cast<double>(tenant.weight_milli) / 1'000);
  for (const int64_t use :
       {tenant.gpus, tenant.gpu_milli, tenant.gpu_memory_mb, tenant.cpu_milli, tenant.memory_mb, tenant.jobs,
        tenant.jobs_total, tenant.jobs_successful, tenant.jobs_failed})
    rows.integer(use);
  rows.boolean(tenant.active).integer_or_null(tenant.created_at.ms()).integer_or_null(tenant.updated_at.ms());
}

std::vector<Column> member_columns(std::initializer_list<Column> more) {
  std::vector<Column> columns = {{"job"},
                                 {"attempt"},
                                 {"member"},
                                 {"tenant"},
                                 {"user_name", "text"},
                                 {"node", "text"},
                                 {"device_mask"},
                                 {"model", "text"},
                                 {"gpu_milli", "integer"},
                                 {"is_slice", "integer"},
                                 {"cpu_milli", "integer"},
                                 {"memory_mb"},
                                 {"placed_ms"},
                                 {"started_ms"}};
  columns.insert(columns.end(), more);
  return columns;
}

void add_key(Arrays& rows, const AttemptKey& key) {
  rows.integer(static_cast<int64_t>(key.job.value)).integer(key.attempt).integer(key.member);
}

void add_member(Arrays& rows, const OpenMember& member) {
  const MemberPlace& place = member.place;
  add_key(rows, member.key);
  rows.integer(static_cast<int64_t>(member.tenant.value)).text(member.user).text(place.node);
  rows.integer(std::bit_cast<int64_t>(place.device_mask)).text(place.model).integer(place.gpu_milli);
  rows.integer(place.is_slice ? 1 : 0).integer(place.cpu_milli).integer(place.memory_mb);
  rows.integer(member.placed_ms).integer_or_null(member.started_ms);
}

std::vector<Column> usage_columns(std::vector<Column> columns) {
  for (const std::string_view name :
       {"gpu_us", "share_us", "slice_us", "lost_us", "cpu_us", "memory_mb_s", "attempts"})
    columns.push_back({name});
  return columns;
}

void add_sums(Arrays& rows, const UsageSums& sums) {
  for (const int64_t value : {sums.gpu_us, sums.share_us, sums.slice_us, sums.lost_us, sums.cpu_us,
                              sums.memory_mb_s, sums.attempts})
    rows.integer(value);
}

/// Two schedulers that write one database would mix their rows. The server ends the lock with the connection;
/// of a machine that is gone it notices within about a minute.
Result<Unit> lock(Connection& connection) {
  const Result<Answer> set = connection.run(
      "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3");
  if (!set.ok()) return set.error();
  const Result<Answer> locked = connection.run("SELECT pg_try_advisory_lock(hashtext('gpu-scheduler'))");
  if (!locked.ok()) return locked.error();
  if (locked->rows.at(0).at(0) == "t") return Unit{};
  return Error{.code = ErrorCode::kLocked,
               .message = "another scheduler writes this database: give each cluster one of its own"};
}

int64_t number(const std::string& text) { return std::atoll(text.c_str()); }

}  // namespace

Result<std::unique_ptr<PostgresStore>> PostgresStore::open(const PostgresServer& server, uint64_t term,
                                                           Duration patience, const Interrupt& interrupt) {
  Result<Connection> connection = Connection::open(server, patience, interrupt);
  if (!connection.ok()) return connection.error();
  if (const Result<Unit> locked = lock(*connection); !locked.ok()) return locked.error();
  if (const Result<Unit> migrated = migrate(*connection); !migrated.ok()) return migrated.error();
  std::unique_ptr<PostgresStore> store(new PostgresStore(std::move(*connection), term));
  if (const Result<Unit> loaded = store->load(); !loaded.ok()) return loaded.error();
  return store;
}

Result<Answer> PostgresStore::run(const std::string& sql, const std::vector<std::string>& parameters) {
  Result<Answer> answer = connection_.run(sql, parameters);
  if (!answer.ok()) is_usable_ = false;
  return answer;
}

Result<Unit> PostgresStore::insert(const std::string& sql, Arrays& rows) {
  if (rows.empty()) return Unit{};
  const Result<Answer> done = run(sql, rows.take());
  return done.ok() ? Result<Unit>(Unit{}) : done.error();
}

Result<Unit> PostgresStore::load() {
  const Result<Answer> position = run("SELECT position, term FROM position");
  if (!position.ok()) return position.error();
  if (position->rows.size() != 1) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "the table position has no row: give database.database an empty database"};
  }
  position_ = static_cast<uint64_t>(number(position->rows[0].at(0)));
  if (static_cast<uint64_t>(number(position->rows[0].at(1))) > term_) {
    return Error{.code = ErrorCode::kLocked,
                 .message = "a scheduler of term " + position->rows[0][1] +
                            " writes this database, and this "
                            "one has term " +
                            std::to_string(term_)};
  }
  const Result<Answer> open =
      run("SELECT job, attempt, member, tenant, user_name, node, device_mask, model, gpu_milli, is_slice,"
          " cpu_milli, memory_mb, placed_ms, COALESCE(started_ms, 0) FROM running");
  if (!open.ok()) return open.error();
  for (const std::vector<std::string>& row : open->rows) {
    const auto member = static_cast<uint32_t>(number(row.at(2)));
    ledger_.restore({.key = {.job = JobId{static_cast<uint64_t>(number(row.at(0)))},
                             .attempt = static_cast<uint32_t>(number(row.at(1))),
                             .member = member},
                     .tenant = TenantId{static_cast<uint64_t>(number(row.at(3)))},
                     .user = row.at(4),
                     .place = {.member = member,
                               .node = row.at(5),
                               .model = row.at(7),
                               .device_mask = std::bit_cast<uint64_t>(number(row.at(6))),
                               .gpu_milli = static_cast<int32_t>(number(row.at(8))),
                               .is_slice = number(row.at(9)) != 0,
                               .cpu_milli = static_cast<int32_t>(number(row.at(10))),
                               .memory_mb = number(row.at(11))},
                     .placed_ms = number(row.at(12)),
                     .started_ms = number(row.at(13))});
  }
  return Unit{};
}

Result<Unit> PostgresStore::write(std::span<const Batch> batches) {
  CHECK(is_usable_);
  while (!batches.empty() && batches.front().position <= position_) batches = batches.subspan(1);
  if (batches.empty()) return Unit{};
  if (const Result<Answer> begun = run("BEGIN"); !begun.ok()) return begun.error();
  Result<Unit> done = write_all(batches);
  if (done.ok()) {
    const Result<Answer> committed = run("COMMIT");
    if (!committed.ok()) done = committed.error();
  }
  if (done.ok()) {
    position_ = batches.back().position;
  } else {
    is_usable_ = false;  // Its memory is ahead of the database.
  }
  return done;
}

Result<Unit> PostgresStore::write_all(std::span<const Batch> batches) {
  // First, because it keeps everybody else from writing until the end.
  Result<Unit> done = move_position(batches.back().position, batches.back().at);
  uint64_t last = position_;
  for (const Batch& batch : batches) {
    if (!done.ok()) return done;
    CHECK(batch.position > last);
    last = batch.position;
    for (const Event& event : batch.events) {
      ledger_.apply(event);
      if (const auto* const adopted = std::get_if<Adopted>(&event)) {
        done = adopt(*adopted, batch);
        if (!done.ok()) return done;
      } else {
        take_event(event);
      }
    }
    for (const JobRow& job : batch.present.jobs) pending_.jobs.insert_or_assign(job.id, job);
    for (const TenantRow& tenant : batch.present.tenants)
      pending_.tenants.insert_or_assign(tenant.id, tenant);
  }
  if (done.ok()) done = write_changes(ledger_.take());
  if (done.ok()) done = write_pending();
  return done;
}

Result<Unit> PostgresStore::move_position(uint64_t position, Time at) {
  const Result<Answer> moved = run(
      "UPDATE position SET position = $1::bigint, term = $2::bigint, at_ms = $3::bigint"
      " WHERE position = $4::bigint AND term <= $2::bigint",
      {std::to_string(position), std::to_string(term_), std::to_string(at.ms()), std::to_string(position_)});
  if (!moved.ok()) return moved.error();
  if (moved->changed == 1) return Unit{};
  is_usable_ = false;
  return Error{
      .code = ErrorCode::kLocked,
      .message = "the position in the database was moved by somebody else: only the scheduler may write it"};
}

void PostgresStore::take_event(const Event& event) {
  std::visit(Overloaded{[&](const Preempted& e) { pending_.preemptions.push_back(e); },
                        [&](const QuotaChanged& e) { pending_.quota_changes.push_back(e); },
                        [&](const Finished& e) { pending_.jobs.insert_or_assign(e.job.id, e.job); },
                        Ignores<Placed, Started, Ended, Abandoned, Adopted>{}},
             event);
}

// Ends that it makes known stand before the jobs' own sums are compared with them. A job's missing use is
// booked in the hour of its end.
Result<Unit> PostgresStore::adopt(const Adopted& adopted, const Batch& batch) {
  Result<Unit> done = write_changes(ledger_.take());
  if (done.ok()) done = write_pending();
  if (done.ok() && batch.present.is_all) {
    const Result<Answer> removed =
        run("DELETE FROM jobs WHERE ended_ms IS NULL; UPDATE tenants SET active = false");
    if (!removed.ok()) return removed.error();
  }
  if (!done.ok()) return done;
  Arrays rows(jobs_table().columns.size());
  std::map<JobId, const JobRow*> jobs;
  for (const JobRow& job : adopted.jobs) {
    if (jobs.emplace(job.id, &job).second) add_job(rows, job);
  }
  int64_t found = 0;
  if (!rows.empty()) {
    const Result<Answer> written = run("WITH new AS (" + insert_into(jobs_table(), Known::kKept) +
                                           " RETURNING job) SELECT new.job, COALESCE(SUM(gpu_us), 0)"
                                           " FROM new LEFT JOIN attempts USING (job) GROUP BY new.job",
                                       rows.take());
    if (!written.ok()) return written.error();
    found = static_cast<int64_t>(written->rows.size());
    Usages usages;
    for (const std::vector<std::string>& row : written->rows) {
      const JobRow& job = *jobs.at(JobId{static_cast<uint64_t>(number(row.at(0)))});
      const int64_t missing = job.gpu_ms * 1'000 - number(row.at(1));
      if (missing <= 0) continue;
      usages[{.hour = job.ended_at.ms() / kHourMs,
              .tenant = job.tenant,
              .user = job.user,
              .node = job.node,
              .device = -1,
              .model = job.gpu_model}]
          .add({.gpu_us = missing, .lost_us = job.state == to_string(JobState::kCompleted) ? 0 : missing});
    }
    done = write_usages(usages);
    if (!done.ok()) return done;
  }
  const Result<Answer> noted = run("INSERT INTO gaps VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint)",
                                   {std::to_string(adopted.after), std::to_string(batch.position),
                                    std::to_string(batch.at.ms()), std::to_string(found)});
  return noted.ok() ? Result<Unit>(Unit{}) : noted.error();
}

Result<Unit> PostgresStore::write_pending() {
  static const std::string into_jobs = insert_into(jobs_table(), Known::kReplaced);
  static const std::string into_tenants = insert_into(tenants_table(), Known::kReplaced);
  static const std::string into_preemptions =
      insert_into({.name = "preemptions", .columns = {{"job"}, {"attempt"}, {"at_ms"}}}, Known::kKept);
  static const std::string into_changes = insert_into(
      {.name = "quota_changes",
       .columns = {{"at_ms"}, {"tenant"}, {"tenant_name", "text"}, {"by", "text"}, {"change", "text"}}},
      Known::kKept);
  const Pending pending = std::exchange(pending_, {});
  Arrays jobs(jobs_table().columns.size());
  for (const auto& [id, job] : pending.jobs) add_job(jobs, job);
  Arrays tenants(tenants_table().columns.size());
  for (const auto& [id, tenant] : pending.tenants) add_tenant(tenants, tenant);
  Arrays preemptions(3);
  for (const Preempted& e : pending.preemptions)
    preemptions.integer(static_cast<int64_t>(e.job.value)).integer(e.attempt).integer(e.at.ms());
  Arrays changes(5);
  for (const QuotaChanged& e : pending.quota_changes) {
    changes.integer(e.at.ms()).integer(static_cast<int64_t>(e.tenant.value)).text(e.tenant_name);
    changes.text_or_null(e.by).text(e.change);
  }
  Result<Unit> done = insert(into_jobs, jobs);
  if (done.ok()) done = insert(into_tenants, tenants);
  if (done.ok()) done = insert(into_preemptions, preemptions);
  if (done.ok()) done = insert(into_changes, changes);
  return done;
}

Result<Unit> PostgresStore::write_changes(Ledger::Changes changes) {
  Result<Unit> done = write_running(changes.touched);
  if (done.ok()) done = write_closed(changes.closed);
  if (done.ok()) done = write_usages(changes.usages);
  return done;
}

Result<Unit> PostgresStore::write_running(const std::set<AttemptKey>& touched) {
  static const Table table{.name = "running", .columns = member_columns({}), .keys = 3};
  static const std::string into = insert_into(table, Known::kReplaced);
  Arrays open(table.columns.size());
  Arrays gone(3);
  for (const AttemptKey& key : touched) {
    const auto member = ledger_.open().find(key);
    if (member != ledger_.open().end()) {
      add_member(open, member->second);
    } else {
      add_key(gone, key);
    }
  }
  const Result<Unit> removed = insert(
      "DELETE FROM running USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS gone(j, a, m)"
      " WHERE job = gone.j AND attempt = gone.a AND member = gone.m",
      gone);
  return removed.ok() ? insert(into, open) : removed;
}

Result<Unit> PostgresStore::write_closed(const std::vector<ClosedMember>& closed) {
  static const Table table{.name = "attempts",
                           .columns = member_columns({{"ended_ms"},
                                                      {"cause", "text"},
                                                      {"exit_code", "integer"},
                                                      {"signal", "integer"},
                                                      {"gpu_us"},
                                                      {"cpu_used_ms"},
                                                      {"peak_memory_bytes"}}),
                           .keys = 3};
  static const std::string into = insert_into(table, Known::kReplaced);
  static const std::string into_nodes =
      insert_into({.name = "job_nodes", .columns = {{"node", "text"}, {"job"}}, .keys = 2}, Known::kKept);
  std::map<AttemptKey, const ClosedMember*> newest;
  for (const ClosedMember& member : closed) newest.insert_or_assign(member.member.key, &member);
  Arrays rows(table.columns.size());
  Arrays nodes(2);
  for (const auto& [key, member] : newest) {
    add_member(rows, member->member);
    rows.integer(member->ended_ms).text_or_null(member->cause).integer(member->exit_code);
    rows.integer(member->signal).integer(gpu_us_of(*member)).integer(member->cpu_used_ms);
    rows.integer(member->peak_memory_bytes);
    nodes.text(member->member.place.node).integer(static_cast<int64_t>(key.job.value));
  }
  const Result<Unit> written = insert(into, rows);
  return written.ok() ? insert(into_nodes, nodes) : written;
}

Result<Unit> PostgresStore::write_usages(const Usages& usages) {
  static const Table hours{.name = "usage_hours",
                           .columns = usage_columns({{"hour"},
                                                     {"tenant"},
                                                     {"user_name", "text"},
                                                     {"node", "text"},
                                                     {"device", "integer"},
                                                     {"model", "text"}}),
                           .keys = 6};
  static const Table days{
      .name = "usage_days",
      .columns = usage_columns({{"day"}, {"tenant"}, {"user_name", "text"}, {"model", "text"}}),
      .keys = 4};
  static const std::string into_hours = insert_into(hours, Known::kAddedTo);
  static const std::string into_days = insert_into(days, Known::kAddedTo);
  Arrays hour_rows(hours.columns.size());
  for (const auto& [key, sums] : usages) {
    hour_rows.integer(key.hour).integer(static_cast<int64_t>(key.tenant.value)).text(key.user);
    hour_rows.text(key.node).integer(key.device).text(key.model);
    add_sums(hour_rows, sums);
  }
  Arrays day_rows(days.columns.size());
  for (const auto& [key, sums] : by_day(usages)) {
    day_rows.integer(key.day).integer(static_cast<int64_t>(key.tenant.value)).text(key.user).text(key.model);
    add_sums(day_rows, sums);
  }
  const Result<Unit> written = insert(into_hours, hour_rows);
  return written.ok() ? insert(into_days, day_rows) : written;
}

Result<Unit> PostgresStore::advance(uint64_t position, Time at) {
  Result<Unit> moved = move_position(position, at);
  if (moved.ok()) position_ = position;
  return moved;
}

Result<bool> PostgresStore::forget(Time before) {
  const std::string jobs = "(SELECT job FROM jobs WHERE ended_ms < " + std::to_string(before.ms()) +
                           " ORDER BY ended_ms LIMIT " + std::to_string(kForgottenAtOnce) + ")";
  const Result<Answer> done =
      run("BEGIN;"
          "DELETE FROM job_nodes USING attempts WHERE attempts.job IN " +
          jobs +
          " AND job_nodes.node = attempts.node AND job_nodes.job = attempts.job;"
          "DELETE FROM attempts WHERE job IN " +
          jobs + ";DELETE FROM preemptions WHERE job IN " + jobs + ";DELETE FROM usage_hours WHERE hour < " +
          std::to_string(before.ms() / kHourMs) +
          " AND hour <= (SELECT MIN(hour) FROM usage_hours);"
          "DELETE FROM jobs WHERE job IN " +
          jobs);
  if (!done.ok()) return done.error();
  const Result<Answer> committed = run("COMMIT");
  if (!committed.ok()) return committed.error();
  return done->changed == kForgottenAtOnce;
}

Result<int64_t> PostgresStore::gaps() {
  const Result<Answer> count = run("SELECT COUNT(*) FROM gaps");
  if (!count.ok()) return count.error();
  return number(count->rows.at(0).at(0));
}

}  // namespace gpusched::history
