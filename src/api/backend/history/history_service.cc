#include "api/backend/history/history_service.h"

#include <chrono>
#include <memory>
#include <utility>

#include "api/views/rights.h"
#include "api/views/state_views.h"
#include "base/queue_limits.h"

namespace gpusched::api {
namespace {

using access::Action;
using access::Verdict;

constexpr std::size_t kQuestionsMax = 1'024;

ApiError not_kept() {
  return {ErrorKind::kUnavailable,
          "this scheduler keeps no history; an administrator can set history.enabled: true"};
}

ApiError not_readable(const Error& error) {
  return {ErrorKind::kUnavailable, "the history cannot be read: " + error.message};
}

/// The jobs that the caller may see: those whose description it may read. Deleted tenants that the state has
/// forgotten are seen only by those who see all.
history::Scope scope_of(const State& state, const access::Caller& caller) {
  if (may_always(caller, Action::kDescribeJob)) return {.all = true, .tenants = {}, .owner = {}};
  history::Scope scope;
  const bool anonymous = caller.kind == access::CallerKind::kAnonymous;
  if (anonymous) scope.owner = std::string(to_string(access::CallerKind::kAnonymous));
  const Action action = anonymous ? Action::kSeeJob : Action::kDescribeJob;
  for (const auto& [id, tenant] : state.tenants) {
    if (decide(state, caller, action, tenant) == Verdict::kAllowed) scope.tenants.push_back(id);
  }
  return scope;
}

/// Fills in what a question may ask about; an error: the caller names a tenant that it may not know.
template <typename Query>
std::optional<ApiError> restrict_query(const State& state, const access::Caller& caller,
                                       const std::string& tenant, Query& query) {
  query.scope = scope_of(state, caller);
  if (tenant.empty()) return std::nullopt;
  const Answer<const Tenant*> found = find_tenant(state, caller, tenant);
  if (!found) return found.error();
  query.tenant = (*found)->id;
  return std::nullopt;
}

Time wall_now() {
  return Time{std::chrono::duration_cast<std::chrono::nanoseconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count()};
}

template <typename View, typename Query, typename Read>
void answer_from(history::History& history, const std::shared_ptr<Query>& query, Done<View> done, Read read) {
  history.ask([query, done = std::move(done), read](Result<history::Queries*> queries) {
    if (!queries.ok()) return done(not_readable(queries.error()));
    Result<View> answer = read(**queries, *query);
    if (!answer.ok()) return done(not_readable(answer.error()));
    done(std::move(*answer));
  });
}

}  // namespace

template <typename View>
bool HistoryService::is_busy(const Done<View>& done) const {
  if (history_ == nullptr) return done(not_kept()), true;
  if (host_.observer().reads_waiting() < kQuestionsMax) return false;
  done(ApiError{ErrorKind::kUnavailable, "too many questions wait; try again later"});
  return true;
}

void HistoryService::list_history(const CallerPtr& caller, HistoryFilter filter,
                                  Done<history::JobsPage> done) {
  if (is_busy(done)) return;
  host_.observer().read(
      0, [this, caller, filter = std::move(filter), done = std::move(done)](const Observer::View& view) {
        const auto query = std::make_shared<history::JobsQuery>(history::JobsQuery{.scope = {},
                                                                                   .tenant = {},
                                                                                   .user = filter.user,
                                                                                   .state = filter.state,
                                                                                   .node = filter.node,
                                                                                   .since = filter.since,
                                                                                   .until = filter.until,
                                                                                   .limit = filter.limit,
                                                                                   .before = filter.before});
        if (auto refused = restrict_query(view.state, *caller, filter.tenant, *query))
          return done(std::move(*refused));
        answer_from(*history_, query, done, [](history::Queries& queries, const history::JobsQuery& asked) {
          return queries.jobs(asked);
        });
      });
}

void HistoryService::get_usage(const CallerPtr& caller, UsageFilter filter, Done<history::UsageReport> done) {
  if (caller->kind == access::CallerKind::kAnonymous)
    return done(not_allowed(*caller, Action::kDescribeJob, "see who has used how much"));
  if (is_busy(done)) return;
  host_.observer().read(
      0, [this, caller, filter = std::move(filter), done = std::move(done)](const Observer::View& view) {
        const auto query = std::make_shared<history::UsageQuery>(history::UsageQuery{.scope = {},
                                                                                     .tenant = {},
                                                                                     .user = filter.user,
                                                                                     .by = filter.by,
                                                                                     .since = filter.since,
                                                                                     .until = filter.until,
                                                                                     .now = wall_now()});
        if (auto refused = restrict_query(view.state, *caller, filter.tenant, *query))
          return done(std::move(*refused));
        answer_from(*history_, query, done, [](history::Queries& queries, const history::UsageQuery& asked) {
          return queries.usage(asked);
        });
      });
}

void HistoryService::copy_history(const CallerPtr& caller, Done<std::string> done) {
  if (auto refused = refuse(*caller, Action::kReadAudit, "copy the history"))
    return done(std::move(*refused));
  if (history_ == nullptr) return done(not_kept());
  history_->copy([done = std::move(done)](Result<std::string> path) {
    if (!path.ok()) {
      return done(ApiError{
          path.error().code == ErrorCode::kStorageFull ? ErrorKind::kStorageFull : ErrorKind::kUnavailable,
          "the copy was not made: " + path.error().message});
    }
    done(std::move(*path));
  });
}

void HistoryService::add_metrics(MetricsView& metrics) const {
  if (history_ == nullptr) return;
  const history::HistoryStats stats = history_->stats();
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help, uint64_t value) {
    metrics.counters.push_back(
        {.name = name, .type = type, .help = help, .value = static_cast<int64_t>(value)});
  };
  metrics.counters.push_back({.name = "history_lag_seconds",
                              .type = "gauge",
                              .help = "Age of the oldest event that is not in the history's database.",
                              .real = static_cast<double>(stats.lag.ms()) / 1e3});
  add("history_events_waiting", "gauge", "Events that wait to be written to the history.",
      stats.events_waiting);
  add("history_events_total", "counter", "Events written to the history.", stats.events_written);
  add("history_errors_total", "counter", "Writes of the history that failed and are repeated.",
      stats.write_errors);
  add("history_overruns_total", "counter",
      "Times that the history fell so far behind that it has to read the journal.", stats.overruns);
  add("history_catch_ups_total", "counter", "Times that the history read the journal to catch up.",
      stats.catch_ups);
  add("history_gaps", "gauge", "Gaps in the history, ever: records were gone before it had read them.",
      stats.gaps);
  add("history_bytes", "gauge", "Size of the history's database.", stats.bytes);
  const std::optional<history::HistoryStats> database = history_->postgres_stats();
  if (!database) return;
  metrics.counters.push_back({.name = "database_lag_seconds",
                              .type = "gauge",
                              .help = "Age of the oldest event that is not in the PostgreSQL database.",
                              .real = static_cast<double>(database->lag.ms()) / 1e3});
  add("database_events_waiting", "gauge", "Events that wait to be written to the PostgreSQL database.",
      database->events_waiting);
  add("database_events_total", "counter", "Events written to the PostgreSQL database.",
      database->events_written);
  add("database_errors_total", "counter", "Connections and writes of the PostgreSQL database that failed.",
      database->write_errors);
  add("database_catch_ups_total", "counter",
      "Times that the journal was read for the PostgreSQL database to catch up.", database->catch_ups);
  add("database_gaps", "gauge",
      "Gaps in the PostgreSQL database, ever: records were gone before it had them.", database->gaps);
}

}  // namespace gpusched::api
