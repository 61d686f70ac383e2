#include "history/store/store.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "base/overloaded.h"
#include "history/store/schema.h"

namespace gpusched::history {
namespace {

constexpr int64_t kForgottenAtOnce = 2'000;
constexpr int64_t kHourMs = 3'600'000;

std::string job_insert(std::string_view how) {
  return std::string(how) +
         " INTO jobs(id, tenant, tenant_name, user, owner, name, state, reason, cause, exit_code, signal,"
         " priority, gpu_count, gpu_milli, gpu_model, gpu_memory_mb, cpu_milli, memory_mb, submitted_ms,"
         " scheduled_ms, started_ms, ended_ms, attempts, preemptions, node, gpu_ms, array)"
         " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,NULLIF(?,0),NULLIF(?,0),?,?,?,?,?,NULLIF(?,0))";
}

/// Binds the columns that `attempts` and `running` begin with; returns the number of the next parameter.
int bind_member(Statement& statement, const OpenMember& member) {
  const MemberPlace& place = member.place;
  int at = 0;
  statement.bind(++at, static_cast<int64_t>(member.key.job.value));
  statement.bind(++at, int64_t{member.key.attempt});
  statement.bind(++at, int64_t{member.key.member});
  statement.bind(++at, static_cast<int64_t>(member.tenant.value));
  statement.bind(++at, member.user);
  statement.bind(++at, place.node);
  statement.bind(++at, std::bit_cast<int64_t>(place.device_mask));
  statement.bind(++at, place.model);
  statement.bind(++at, int64_t{place.gpu_milli});
  statement.bind(++at, int64_t{place.is_slice ? 1 : 0});
  statement.bind(++at, int64_t{place.cpu_milli});
  statement.bind(++at, place.memory_mb);
  statement.bind(++at, member.placed_ms);
  statement.bind(++at, member.started_ms);
  return at + 1;
}

int bind_sums(Statement& statement, int at, const UsageSums& sums) {
  for (const int64_t value : {sums.gpu_us, sums.share_us, sums.slice_us, sums.lost_us, sums.cpu_us,
                              sums.memory_mb_s, sums.attempts})
    statement.bind(at++, value);
  return at;
}

constexpr std::string_view kAddSums =
    " DO UPDATE SET gpu_us = gpu_us + excluded.gpu_us, share_us = share_us + excluded.share_us,"
    " slice_us = slice_us + excluded.slice_us, lost_us = lost_us + excluded.lost_us,"
    " cpu_us = cpu_us + excluded.cpu_us, memory_mb_s = memory_mb_s + excluded.memory_mb_s,"
    " attempts = attempts + excluded.attempts";

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const std::string& path) {
  Result<Database> database = Database::open(path, Database::Mode::kWriter);
  if (!database.ok()) return database.error();
  const Result<Unit> migrated = migrate(*database);
  if (!migrated.ok()) return migrated.error();
  std::unique_ptr<Store> store(new Store(std::move(*database)));
  Result<Unit> ready = store->prepare();
  if (ready.ok()) ready = store->load();
  if (!ready.ok()) return ready.error();
  return store;
}

Result<Unit> Store::prepare() {
  const std::pair<Statement*, std::string> all[] = {
      {&insert_job_, job_insert("INSERT OR REPLACE")},
      {&keep_job_, job_insert("INSERT OR IGNORE")},
      {&insert_node_, "INSERT OR IGNORE INTO job_nodes VALUES(?,?)"},
      {&insert_attempt_,
       "INSERT OR REPLACE INTO attempts VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,NULLIF(?,0),?,?,?,?,?,?,?)"},
      {&insert_running_, "INSERT OR REPLACE INTO running VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,NULLIF(?,0))"},
      {&delete_running_, "DELETE FROM running WHERE job=? AND attempt=? AND member=?"},
      {&insert_preemption_, "INSERT INTO preemptions VALUES(?,?,?)"},
      {&insert_quota_, "INSERT INTO quota_changes VALUES(?,?,?,?,?)"},
      {&insert_tenant_, "INSERT OR REPLACE INTO tenants VALUES(?,?)"},
      {&add_hour_,
       "INSERT INTO usage_hours VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)"
       " ON CONFLICT(hour, tenant, user, node, device, model)" +
           std::string(kAddSums)},
      {&add_day_,
       "INSERT INTO usage_days VALUES(?,?,?,?,?,?,?,?,?,?,?)"
       " ON CONFLICT(day, tenant, user, model)" +
           std::string(kAddSums)},
      {&set_position_, "UPDATE position SET position=?, at_ms=?"},
      {&insert_gap_, "INSERT INTO gaps VALUES(?,?,?,?)"},
      {&recorded_, "SELECT IFNULL(SUM(gpu_us),0) FROM attempts WHERE job=?"}};
  for (const auto& [statement, sql] : all) {
    Result<Statement> prepared = database_.prepare(sql);
    if (!prepared.ok()) return prepared.error();
    *statement = std::move(*prepared);
  }
  return Unit{};
}

Result<Unit> Store::load() {
  const Result<int64_t> position = database_.integer("SELECT position FROM position");
  if (!position.ok()) return position.error();
  position_ = static_cast<uint64_t>(*position);
  ledger_.clear();
  static_cast<void>(ledger_.take());
  tenant_names_.clear();
  Result<Statement> rows = database_.prepare(
      "SELECT job, attempt, member, tenant, user, node, device_mask, model, gpu_milli, is_slice, cpu_milli,"
      " memory_mb, placed_ms, IFNULL(started_ms,0) FROM running");
  if (!rows.ok()) return rows.error();
  while (true) {
    const Result<bool> row = rows->step();
    if (!row.ok()) return row.error();
    if (!*row) return Unit{};
    ledger_.restore({.key = {.job = JobId{static_cast<uint64_t>(rows->integer(0))},
                             .attempt = static_cast<uint32_t>(rows->integer(1)),
                             .member = static_cast<uint32_t>(rows->integer(2))},
                     .tenant = TenantId{static_cast<uint64_t>(rows->integer(3))},
                     .user = rows->text(4),
                     .place = {.member = static_cast<uint32_t>(rows->integer(2)),
                               .node = rows->text(5),
                               .model = rows->text(7),
                               .device_mask = std::bit_cast<uint64_t>(rows->integer(6)),
                               .gpu_milli = static_cast<int32_t>(rows->integer(8)),
                               .is_slice = rows->integer(9) != 0,
                               .cpu_milli = static_cast<int32_t>(rows->integer(10)),
                               .memory_mb = rows->integer(11)},
                     .placed_ms = rows->integer(12),
                     .started_ms = rows->integer(13)});
  }
}

Result<Unit> Store::write(std::span<const Batch> batches) {
  while (!batches.empty() && batches.front().position <= position_) batches = batches.subspan(1);
  if (batches.empty()) return Unit{};
  Result<Unit> done = database_.run("BEGIN IMMEDIATE");
  if (!done.ok()) return done;
  done = write_all(batches);
  if (done.ok()) done = database_.run("COMMIT");
  if (done.ok()) {
    position_ = batches.back().position;
    return Unit{};
  }
  static_cast<void>(database_.run("ROLLBACK"));
  // The counts in memory go back with the transaction.
  const Result<Unit> loaded = load();
  return loaded.ok() ? done : loaded;
}

Result<Unit> Store::write_all(std::span<const Batch> batches) {
  uint64_t last = position_;
  for (const Batch& batch : batches) {
    CHECK(batch.position > last);
    last = batch.position;
    for (const Event& event : batch.events) {
      ledger_.apply(event);
      const Result<Unit> written = write_event(event, batch);
      if (!written.ok()) return written;
    }
  }
  Result<Unit> written = write_changes(ledger_.take());
  if (written.ok()) written = write_position(last, batches.back().at);
  return written;
}

Result<Unit> Store::write_event(const Event& event, const Batch& batch) {
  return std::visit(
      Overloaded{
          [&](const Placed& e) -> Result<Unit> { return write_tenant(e.tenant, e.tenant_name); },
          [&](const Preempted& e) -> Result<Unit> {
            insert_preemption_.bind(1, static_cast<int64_t>(e.job.value))
                .bind(2, int64_t{e.attempt})
                .bind(3, e.at.ms());
            return insert_preemption_.run();
          },
          [&](const Finished& e) -> Result<Unit> { return write_job(e.job, false); },
          [&](const QuotaChanged& e) -> Result<Unit> {
            insert_quota_.bind(1, e.at.ms())
                .bind(2, static_cast<int64_t>(e.tenant.value))
                .bind(3, e.tenant_name)
                .bind_or_null(4, e.by)
                .bind(5, e.change);
            const Result<Unit> written = insert_quota_.run();
            return written.ok() ? write_tenant(e.tenant, e.tenant_name) : written;
          },
          [&](const Adopted& e) -> Result<Unit> {
            // Ends that it made known stand before the jobs' own sums are compared with them.
            Result<Unit> written = write_changes(ledger_.take());
            Usages usages;
            int64_t found = 0;
            for (std::size_t i = 0; written.ok() && i < e.jobs.size(); ++i) {
              written = write_job(e.jobs[i], true);
              if (!written.ok() || database_.changes() == 0) continue;
              ++found;
              written = write_found(e.jobs[i], usages);
            }
            if (written.ok()) written = write_usages(usages);
            if (!written.ok()) return written;
            insert_gap_.bind(1, static_cast<int64_t>(e.after))
                .bind(2, static_cast<int64_t>(batch.position))
                .bind(3, batch.at.ms())
                .bind(4, found);
            return insert_gap_.run();
          },
          [](const Started&) -> Result<Unit> { return Unit{}; },
          [](const Ended&) -> Result<Unit> { return Unit{}; },
          [](const Abandoned&) -> Result<Unit> { return Unit{}; },
      },
      event);
}

Result<Unit> Store::write_job(const JobRow& job, bool keep_known) {
  Statement& into = keep_known ? keep_job_ : insert_job_;
  int at = 0;
  into.bind(++at, static_cast<int64_t>(job.id.value));
  into.bind(++at, static_cast<int64_t>(job.tenant.value));
  into.bind(++at, job.tenant_name);
  into.bind(++at, job.user);
  into.bind_or_null(++at, job.owner);
  into.bind_or_null(++at, job.name);
  into.bind(++at, job.state);
  into.bind_or_null(++at, job.reason);
  into.bind_or_null(++at, job.cause);
  for (const int64_t value :
       {int64_t{job.exit_code}, int64_t{job.signal}, int64_t{job.priority}, job.gpu_count, job.gpu_milli})
    into.bind(++at, value);
  into.bind_or_null(++at, job.gpu_model);
  for (const int64_t value :
       {job.gpu_memory_mb, job.cpu_milli, job.memory_mb, job.submitted_at.ms(), job.scheduled_at.ms(),
        job.started_at.ms(), job.ended_at.ms(), int64_t{job.attempts}, int64_t{job.preemptions}})
    into.bind(++at, value);
  into.bind_or_null(++at, job.node);
  into.bind(++at, job.gpu_ms);
  into.bind(++at, static_cast<int64_t>(job.array.value));
  return into.run();
}

// Its attempts are lost, as far as they are not recorded; what the engine counted is not. It is booked in the
// hour of the job's end.
Result<Unit> Store::write_found(const JobRow& job, Usages& usages) {
  recorded_.bind(1, static_cast<int64_t>(job.id.value));
  const Result<bool> row = recorded_.step();
  if (!row.ok()) return row.error();
  const int64_t missing = job.gpu_ms * 1'000 - recorded_.integer(0);
  recorded_.reset();
  if (missing <= 0) return Unit{};
  usages[{.hour = job.ended_at.ms() / kHourMs,
          .tenant = job.tenant,
          .user = job.user,
          .node = job.node,
          .device = -1,
          .model = job.gpu_model}]
      .add({.gpu_us = missing, .lost_us = job.state == to_string(JobState::kCompleted) ? 0 : missing});
  return Unit{};
}

Result<Unit> Store::write_tenant(TenantId tenant, const std::string& name) {
  std::string& known = tenant_names_[tenant];
  if (known == name) return Unit{};
  insert_tenant_.bind(1, static_cast<int64_t>(tenant.value)).bind(2, name);
  const Result<Unit> written = insert_tenant_.run();
  if (written.ok()) known = name;
  return written;
}

Result<Unit> Store::write_changes(Ledger::Changes changes) {
  for (const AttemptKey& key : changes.touched) {
    const auto open = ledger_.open().find(key);
    Result<Unit> written = Unit{};
    if (open != ledger_.open().end()) {
      bind_member(insert_running_, open->second);
      written = insert_running_.run();
    } else {
      delete_running_.bind(1, static_cast<int64_t>(key.job.value))
          .bind(2, int64_t{key.attempt})
          .bind(3, int64_t{key.member});
      written = delete_running_.run();
    }
    if (!written.ok()) return written;
  }
  for (const ClosedMember& closed : changes.closed) {
    const Result<Unit> written = write_closed(closed);
    if (!written.ok()) return written;
  }
  return write_usages(changes.usages);
}

Result<Unit> Store::write_closed(const ClosedMember& closed) {
  int at = bind_member(insert_attempt_, closed.member);
  insert_attempt_.bind(at++, closed.ended_ms);
  insert_attempt_.bind_or_null(at++, closed.cause);
  for (const int64_t value : {int64_t{closed.exit_code}, int64_t{closed.signal}, gpu_us_of(closed),
                              closed.cpu_used_ms, closed.peak_memory_bytes})
    insert_attempt_.bind(at++, value);
  const Result<Unit> written = insert_attempt_.run();
  if (!written.ok()) return written;
  insert_node_.bind(1, closed.member.place.node).bind(2, static_cast<int64_t>(closed.member.key.job.value));
  return insert_node_.run();
}

Result<Unit> Store::write_usages(const Usages& usages) {
  for (const auto& [key, sums] : usages) {
    add_hour_.bind(1, key.hour)
        .bind(2, static_cast<int64_t>(key.tenant.value))
        .bind(3, key.user)
        .bind(4, key.node)
        .bind(5, int64_t{key.device})
        .bind(6, key.model);
    bind_sums(add_hour_, 7, sums);
    const Result<Unit> written = add_hour_.run();
    if (!written.ok()) return written;
  }
  for (const auto& [key, sums] : by_day(usages)) {
    add_day_.bind(1, key.day)
        .bind(2, static_cast<int64_t>(key.tenant.value))
        .bind(3, key.user)
        .bind(4, key.model);
    bind_sums(add_day_, 5, sums);
    const Result<Unit> written = add_day_.run();
    if (!written.ok()) return written;
  }
  return Unit{};
}

Result<Unit> Store::write_position(uint64_t position, Time at) {
  set_position_.bind(1, static_cast<int64_t>(position)).bind(2, at.ms());
  return set_position_.run();
}

Result<Unit> Store::advance(uint64_t position, Time at) {
  const Result<Unit> written = write_position(position, at);
  if (written.ok()) position_ = position;
  return written;
}

Result<bool> Store::forget(Time before) {
  const std::string ms = std::to_string(before.ms());
  const std::string hour = std::to_string(before.ms() / kHourMs);
  const std::string most = std::to_string(kForgottenAtOnce);
  const std::string jobs = "SELECT id FROM jobs WHERE ended_ms < " + ms + " ORDER BY ended_ms LIMIT " + most;
  Result<Unit> done = database_.run("BEGIN IMMEDIATE");
  if (!done.ok()) return done.error();
  int64_t removed = 0;
  for (const std::string& sql :
       {"DELETE FROM job_nodes WHERE (node, job) IN (SELECT node, job FROM attempts WHERE job IN (" + jobs +
            "))",
        "DELETE FROM attempts WHERE job IN (" + jobs + ")",
        "DELETE FROM preemptions WHERE job IN (" + jobs + ")", "DELETE FROM jobs WHERE id IN (" + jobs + ")",
        "DELETE FROM usage_hours WHERE hour < " + hour +
            " AND hour <= (SELECT MIN(hour) FROM usage_hours)"}) {
    if (done.ok()) done = database_.run(sql);
    if (done.ok() && sql.starts_with("DELETE FROM jobs")) removed = database_.changes();
  }
  if (done.ok()) done = database_.run("COMMIT");
  if (done.ok()) return removed == kForgottenAtOnce;
  static_cast<void>(database_.run("ROLLBACK"));
  return done.error();
}

Result<Unit> Store::copy_to(const std::string& path) {
  Result<Statement> copy = database_.prepare("VACUUM INTO ?");
  if (!copy.ok()) return copy.error();
  copy->bind(1, path);
  return copy->run();
}

Result<Unit> Store::checkpoint() { return database_.run("PRAGMA wal_checkpoint(PASSIVE)"); }

Result<int64_t> Store::gaps() { return database_.integer("SELECT COUNT(*) FROM gaps"); }

}  // namespace gpusched::history
