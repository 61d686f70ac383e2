#include "history/store/queries.h"

#include <algorithm>
#include <bit>
#include <ctime>
#include <map>

#include "base/check.h"

namespace gpusched::history {
namespace {

/// Rows of an index that a page looks at before it ends short.
constexpr int64_t kRowsLookedAtMax = 20'000;
constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kDayMs = 24 * kHourMs;

constexpr std::string_view kColumns =
    "j.id, j.tenant, j.tenant_name, j.user, j.owner, j.name, j.state, j.reason, j.cause, j.exit_code, "
    "j.signal,"
    " j.priority, j.gpu_count, j.gpu_milli, j.gpu_model, j.gpu_memory_mb, j.cpu_milli, j.memory_mb,"
    " j.submitted_ms, j.scheduled_ms, j.started_ms, j.ended_ms, j.attempts, j.preemptions, j.node, j.gpu_ms,"
    " j.array";

Time time_of_ms(int64_t ms) { return Time{ms * 1'000'000}; }

JobRow row_of(const Statement& row) {
  const auto number = [&](int column) { return static_cast<int32_t>(row.integer(column)); };
  return {.id = JobId{static_cast<uint64_t>(row.integer(0))},
          .tenant = TenantId{static_cast<uint64_t>(row.integer(1))},
          .tenant_name = row.text(2),
          .user = row.text(3),
          .owner = row.text(4),
          .name = row.text(5),
          .state = row.text(6),
          .reason = row.text(7),
          .cause = row.text(8),
          .exit_code = number(9),
          .signal = number(10),
          .priority = number(11),
          .gpu_count = row.integer(12),
          .gpu_milli = row.integer(13),
          .gpu_model = row.text(14),
          .gpu_memory_mb = row.integer(15),
          .cpu_milli = row.integer(16),
          .memory_mb = row.integer(17),
          .submitted_at = time_of_ms(row.integer(18)),
          .scheduled_at = time_of_ms(row.integer(19)),
          .started_at = time_of_ms(row.integer(20)),
          .ended_at = time_of_ms(row.integer(21)),
          .attempts = static_cast<uint32_t>(row.integer(22)),
          .preemptions = static_cast<uint32_t>(row.integer(23)),
          .node = row.text(24),
          .gpu_ms = row.integer(25),
          .array = JobId{static_cast<uint64_t>(row.integer(26))}};
}

/// A condition's text with its values, numbered as they are added.
class Where {
 public:
  void add(std::string_view condition, int64_t value) {
    add(condition), numbers_.emplace_back(next(), value);
  }
  void add(std::string_view condition, const std::string& value) {
    add(condition), texts_.emplace_back(next(), value);
  }
  void add(std::string_view condition) {
    text_ += text_.empty() ? " WHERE " : " AND ";
    text_ += condition;
  }
  void value(int64_t value) { numbers_.emplace_back(next(), value); }
  const std::string& text() const { return text_; }
  void bind(Statement& statement) const {
    for (const auto& [index, number] : numbers_) statement.bind(index, number);
    for (const auto& [index, text] : texts_) statement.bind(index, text);
  }

 private:
  int next() { return ++count_; }

  std::string text_;
  int count_ = 0;
  std::vector<std::pair<int, int64_t>> numbers_;
  std::vector<std::pair<int, std::string>> texts_;
};

/// The index whose first columns the query names, most of them.
std::string_view index_of(const JobsQuery& query, bool of_tenant) {
  if (query.user) return query.state.empty() ? "jobs_by_user" : "jobs_by_user_state";
  if (of_tenant) return query.state.empty() ? "jobs_by_tenant" : "jobs_by_tenant_state";
  return query.state.empty() ? "jobs_by_time" : "jobs_by_state";
}

bool comes_first(const JobRow& a, const JobRow& b) {
  return a.submitted_at != b.submitted_at ? a.submitted_at > b.submitted_at : a.id > b.id;
}

bool is_in(const Scope& scope, TenantId tenant) {
  return scope.all || std::find(scope.tenants.begin(), scope.tenants.end(), tenant) != scope.tenants.end();
}

/// Conditions that no index serves: looked at row by row.
bool matches(const JobsQuery& query, std::optional<TenantId> tenant, const JobRow& job) {
  return (!tenant || job.tenant == *tenant) && is_in(query.scope, job.tenant) &&
         (query.scope.owner.empty() || job.owner == query.scope.owner) &&
         (!query.user || job.user == *query.user) && (query.state.empty() || job.state == query.state) &&
         (!query.since.valid() || job.submitted_at >= query.since) &&
         (!query.until.valid() || job.submitted_at < query.until);
}

/// First millisecond that is not before the time.
int64_t ms_up(Time time) { return (time.ns + 999'999) / 1'000'000; }

}  // namespace

std::optional<UsageBy> usage_by_named(std::string_view name) {
  constexpr std::pair<std::string_view, UsageBy> kNames[] = {
      {"tenant", UsageBy::kTenant}, {"user", UsageBy::kUser}, {"model", UsageBy::kModel},
      {"node", UsageBy::kNode},     {"day", UsageBy::kDay},   {"month", UsageBy::kMonth}};
  for (const auto& [known, by] : kNames) {
    if (known == name) return by;
  }
  return std::nullopt;
}

Result<Queries> Queries::open(const std::string& path) {
  Result<Database> database = Database::open(path, Database::Mode::kReader);
  if (!database.ok()) return database.error();
  return Queries(std::move(*database));
}

Result<Unit> Queries::page_of_tenant(const JobsQuery& query, std::optional<TenantId> tenant, JobsPage& page) {
  const bool by_node = !query.node.empty();
  Where where;
  std::string sql = "SELECT " + std::string(kColumns);
  if (by_node) {
    sql += " FROM job_nodes n JOIN jobs j ON j.id = n.job";
    where.add("n.node = ?", query.node);
    where.add("n.job < ?", query.before.id);
  } else {
    sql += " FROM jobs j INDEXED BY " + std::string(index_of(query, tenant.has_value()));
    if (query.user) where.add("j.user = ?", *query.user);
    if (tenant && !query.user) where.add("j.tenant = ?", static_cast<int64_t>(tenant->value));
    if (!query.state.empty()) where.add("j.state = ?", query.state);
    where.add("j.submitted_ms <= ?", query.until.valid()
                                         ? std::min(query.before.submitted_ms, ms_up(query.until) - 1)
                                         : query.before.submitted_ms);
    if (query.since.valid()) where.add("j.submitted_ms >= ?", ms_up(query.since));
    where.add("(j.submitted_ms, j.id) < (?, ?)", query.before.submitted_ms);
    where.value(query.before.id);
  }
  sql += where.text() + (by_node ? " ORDER BY n.job DESC" : " ORDER BY j.submitted_ms DESC, j.id DESC");
  Result<Statement> rows = database_.prepare(sql);
  if (!rows.ok()) return rows.error();
  where.bind(*rows);
  int64_t found = 0;
  for (int64_t looked_at = 0; found <= query.limit; ++looked_at) {
    const Result<bool> row = rows->step();
    if (!row.ok()) return row.error();
    if (!*row) return Unit{};
    const Cursor here{.submitted_ms = rows->integer(18), .id = rows->integer(0)};
    if (looked_at >= kRowsLookedAtMax) {
      // The page is short: the next one goes on here.
      if (!page.next || here.submitted_ms > page.next->submitted_ms ||
          (here.submitted_ms == page.next->submitted_ms && here.id > page.next->id))
        page.next = Cursor{here.submitted_ms, here.id + 1};
      return Unit{};
    }
    JobRow job = row_of(*rows);
    if (!matches(query, tenant, job)) continue;
    page.jobs.push_back(std::move(job));
    ++found;
  }
  return Unit{};
}

Result<JobsPage> Queries::jobs(const JobsQuery& query) {
  CHECK(query.limit > 0);
  JobsPage page;
  std::vector<std::optional<TenantId>> tenants;
  if (query.tenant) {
    if (!is_in(query.scope, *query.tenant)) return page;
    tenants.emplace_back(query.tenant);
  } else if (query.scope.all || query.user || !query.node.empty()) {
    tenants.emplace_back(std::nullopt);
  } else {
    for (const TenantId tenant : query.scope.tenants) tenants.emplace_back(tenant);
  }
  for (const std::optional<TenantId>& tenant : tenants) {
    const Result<Unit> read = page_of_tenant(query, tenant, page);
    if (!read.ok()) return read.error();
  }
  const bool by_node = !query.node.empty();
  std::sort(page.jobs.begin(), page.jobs.end(),
            [&](const JobRow& a, const JobRow& b) { return by_node ? a.id > b.id : comes_first(a, b); });
  // Behind a place where the search of one tenant ended short the others' jobs are the next page's, too.
  if (page.next) {
    std::erase_if(page.jobs, [&](const JobRow& job) {
      const Cursor at{.submitted_ms = job.submitted_at.ms(), .id = static_cast<int64_t>(job.id.value)};
      const Cursor& end = *page.next;
      if (by_node) return at.id < end.id;
      return at.submitted_ms < end.submitted_ms || (at.submitted_ms == end.submitted_ms && at.id < end.id);
    });
  }
  if (std::cmp_greater(page.jobs.size(), query.limit)) {
    page.jobs.resize(static_cast<std::size_t>(query.limit));
    const JobRow& last = page.jobs.back();
    page.next = Cursor{.submitted_ms = last.submitted_at.ms(), .id = static_cast<int64_t>(last.id.value)};
  }
  return page;
}

namespace {

std::string date_of(int64_t day, const char* format) {
  const std::time_t seconds = day * (kDayMs / 1'000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[16];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

/// Sums of one question, by the texts of its columns.
class UsageTable {
 public:
  explicit UsageTable(const UsageQuery& query) : query_(query) {}

  void name_tenant(TenantId tenant, std::string name) { names_[tenant] = std::move(name); }
  void add(const UsageKey& key, const UsageSums& sums) {
    std::vector<std::string> keys;
    for (const UsageBy by : query_.by) keys.push_back(text_of(by, key));
    sums_[std::move(keys)].add(sums);
  }
  std::vector<UsageRow> take() && {
    std::vector<UsageRow> rows;
    for (auto& [keys, sums] : sums_) rows.push_back({.keys = keys, .sums = sums});
    const bool by_time =
        !query_.by.empty() && (query_.by.front() == UsageBy::kDay || query_.by.front() == UsageBy::kMonth);
    if (!by_time) {
      std::stable_sort(rows.begin(), rows.end(),
                       [](const UsageRow& a, const UsageRow& b) { return a.sums.gpu_us > b.sums.gpu_us; });
    }
    return rows;
  }

 private:
  std::string text_of(UsageBy by, const UsageKey& key) const {
    switch (by) {
      case UsageBy::kTenant: {
        const auto name = names_.find(key.tenant);
        return name == names_.end() ? "tenant-" + std::to_string(key.tenant.value) : name->second;
      }
      case UsageBy::kUser:
        return key.user;
      case UsageBy::kModel:
        return key.model;
      case UsageBy::kNode:
        return key.node;
      case UsageBy::kDay:
        return date_of(key.hour / 24, "%Y-%m-%d");
      case UsageBy::kMonth:
        return date_of(key.hour / 24, "%Y-%m");
    }
    UNREACHABLE();
  }

  const UsageQuery& query_;
  std::map<TenantId, std::string> names_;
  std::map<std::vector<std::string>, UsageSums> sums_;
};

UsageSums sums_at(const Statement& row, int at) {
  return {.gpu_us = row.integer(at),
          .share_us = row.integer(at + 1),
          .slice_us = row.integer(at + 2),
          .lost_us = row.integer(at + 3),
          .cpu_us = row.integer(at + 4),
          .memory_mb_s = row.integer(at + 5),
          .attempts = row.integer(at + 6)};
}

TenantId tenant_at(const Statement& row, int column) {
  return TenantId{static_cast<uint64_t>(row.integer(column))};
}

/// A row of what runs.
OpenMember running_at(const Statement& row) {
  return {.key = {},
          .tenant = tenant_at(row, 0),
          .user = row.text(1),
          .place = {.node = row.text(2),
                    .model = row.text(4),
                    .device_mask = std::bit_cast<uint64_t>(row.integer(3)),
                    .gpu_milli = static_cast<int32_t>(row.integer(5)),
                    .is_slice = row.integer(6) != 0,
                    .cpu_milli = static_cast<int32_t>(row.integer(7)),
                    .memory_mb = row.integer(8)},
          .placed_ms = row.integer(9)};
}

bool asks_for(const UsageQuery& query, UsageBy what) {
  return std::find(query.by.begin(), query.by.end(), what) != query.by.end();
}

/// Bounds of the question in whole hours: the first hour, and the one behind the last.
struct Hours {
  int64_t begin = 0;
  int64_t end = INT64_MAX / kHourMs;
};
Hours hours_of(const UsageQuery& query) {
  Hours hours;
  if (query.since.valid()) hours.begin = query.since.ms() / kHourMs;
  if (query.until.valid()) hours.end = (ms_up(query.until) + kHourMs - 1) / kHourMs;
  return hours;
}

}  // namespace

Result<UsageReport> Queries::usage(const UsageQuery& query) {
  const Hours hours = hours_of(query);
  const bool by_hour = asks_for(query, UsageBy::kNode) || hours.begin % 24 != 0 ||
                       (query.until.valid() && hours.end % 24 != 0);
  const auto add_scope = [&](Where& where) {
    if (query.tenant) where.add("tenant = ?", static_cast<int64_t>(query.tenant->value));
    if (query.user) where.add("user = ?", *query.user);
  };
  UsageTable table(query);
  Result<Unit> begun = database_.run("BEGIN");  // One state of the database for all that follows.
  if (!begun.ok()) return begun.error();
  const auto read = [&](const std::string& sql, const Where& where, auto&& use) -> Result<Unit> {
    Result<Statement> rows = database_.prepare(sql + where.text());
    if (!rows.ok()) return rows.error();
    where.bind(*rows);
    while (true) {
      const Result<bool> row = rows->step();
      if (!row.ok()) return row.error();
      if (!*row) return Unit{};
      use(*rows);
    }
  };
  Result<Unit> done = read("SELECT id, name FROM tenants", Where(),
                           [&](const Statement& row) { table.name_tenant(tenant_at(row, 0), row.text(1)); });
  Where sums;
  if (query.since.valid())
    sums.add(by_hour ? "hour >= ?" : "day >= ?", by_hour ? hours.begin : hours.begin / 24);
  if (query.until.valid()) sums.add(by_hour ? "hour < ?" : "day < ?", by_hour ? hours.end : hours.end / 24);
  add_scope(sums);
  if (done.ok()) {
    done = read(by_hour
                    ? "SELECT hour, tenant, user, node, model, gpu_us, share_us, slice_us, lost_us, cpu_us,"
                      " memory_mb_s, attempts FROM usage_hours"
                    : "SELECT day * 24, tenant, user, '', model, gpu_us, share_us, slice_us, lost_us, cpu_us,"
                      " memory_mb_s, attempts FROM usage_days",
                sums, [&](const Statement& row) {
                  const TenantId tenant = tenant_at(row, 1);
                  if (!is_in(query.scope, tenant)) return;
                  table.add({.hour = row.integer(0),
                             .tenant = tenant,
                             .user = row.text(2),
                             .node = row.text(3),
                             .model = row.text(4)},
                            sums_at(row, 5));
                });
  }
  // Running attempts have used until now what they hold, within the same bounds.
  Where open;
  add_scope(open);
  Usages usages;
  if (done.ok()) {
    done = read(
        "SELECT tenant, user, node, device_mask, model, gpu_milli, is_slice, cpu_milli, memory_mb,"
        " placed_ms FROM running",
        open, [&](const Statement& row) {
          const OpenMember member = running_at(row);
          if (!is_in(query.scope, member.tenant)) return;
          add_usage(member, std::max(member.placed_ms, hours.begin * kHourMs),
                    std::min(query.now.ms(), hours.end * kHourMs), false, usages);
        });
  }
  static_cast<void>(database_.run("COMMIT"));
  if (!done.ok()) return done.error();
  for (const auto& [key, each] : usages) table.add(key, each);
  UsageReport report{.rows = std::move(table).take(), .since = {}, .until = {}};
  if (query.since.valid()) report.since = time_of_ms(hours.begin * kHourMs);
  if (query.until.valid()) report.until = time_of_ms(hours.end * kHourMs);
  return report;
}

Result<std::string> Queries::check() {
  Result<Statement> rows = database_.prepare("PRAGMA integrity_check(1)");
  if (!rows.ok()) return rows.error();
  const Result<bool> row = rows->step();
  if (!row.ok()) return row.error();
  const std::string found = *row ? rows->text(0) : "nothing";
  return found == "ok" ? std::string() : found;
}

}  // namespace gpusched::history
