// The native API's history: finished jobs and use over all time.
#include <charconv>

#include "api/contract/history.h"
#include "api/contract/parse.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/native/native_views.h"
#include "gpusched/v1/history.pb.h"

namespace gpusched::api {
namespace {

constexpr int64_t kPageDefault = 50;
constexpr int64_t kPageMax = 1'000;

double seconds_of(int64_t us) { return static_cast<double>(us) / 1e6; }

void write_given(Time time, google::protobuf::Timestamp& out) { write_time(time, out); }

void write_job(const history::JobRow& job, v1::HistoryJob& out) {
  out.set_job_id(job_name(job.id));
  out.set_tenant_id(tenant_name(job.tenant));
  out.set_tenant_name(job.tenant_name);
  out.set_user(job.user);
  out.set_owner(job.owner);
  out.set_name(job.name);
  out.set_state(job.state);
  out.set_reason(job.reason);
  out.set_cause(job.cause);
  out.set_exit_code(job.exit_code);
  out.set_signal(job.signal);
  out.set_priority(job.priority);
  out.set_gpu_count(job.gpu_count);
  out.set_gpu_shares(static_cast<double>(job.gpu_milli) / 1e3);
  out.set_gpu_model(job.gpu_model);
  write_given(job.submitted_at, *out.mutable_submitted_at());
  if (job.scheduled_at.valid()) write_given(job.scheduled_at, *out.mutable_scheduled_at());
  if (job.started_at.valid()) write_given(job.started_at, *out.mutable_started_at());
  write_given(job.ended_at, *out.mutable_ended_at());
  out.set_attempts(job.attempts);
  out.set_preempted_count(job.preemptions);
  out.set_node_name(job.node);
  out.set_gpu_seconds(static_cast<double>(job.gpu_ms) / 1e3);
  if (job.array.valid()) out.set_array_job_id(job_name(job.array));
}

void write_page(const history::JobsPage& page, v1::ListHistoryJobsResponse& out) {
  for (const history::JobRow& job : page.jobs) write_job(job, *out.add_jobs());
  if (page.next)
    out.set_next_page_token(std::to_string(page.next->submitted_ms) + "-" + std::to_string(page.next->id));
}

void set_key(history::UsageBy by, const std::string& key, v1::UsageRow& out) {
  switch (by) {
    case history::UsageBy::kTenant:
      return out.set_tenant(key);
    case history::UsageBy::kUser:
      return out.set_user(key);
    case history::UsageBy::kModel:
      return out.set_model(key);
    case history::UsageBy::kNode:
      return out.set_node(key);
    case history::UsageBy::kDay:
      return out.set_day(key);
    case history::UsageBy::kMonth:
      return out.set_month(key);
  }
}

void write_report(const history::UsageReport& report, const std::vector<history::UsageBy>& by,
                  v1::UsageReport& out) {
  for (const history::UsageRow& row : report.rows) {
    v1::UsageRow& one = *out.add_rows();
    for (std::size_t i = 0; i < by.size(); ++i) set_key(by[i], row.keys[i], one);
    one.set_gpu_seconds(seconds_of(row.sums.gpu_us));
    one.set_share_gpu_seconds(seconds_of(row.sums.share_us));
    one.set_mig_gpu_seconds(seconds_of(row.sums.slice_us));
    one.set_lost_gpu_seconds(seconds_of(row.sums.lost_us));
    one.set_cpu_seconds(seconds_of(row.sums.cpu_us));
    one.set_memory_mb_seconds(static_cast<double>(row.sums.memory_mb_s));
    one.set_attempts(row.sums.attempts);
  }
  if (report.since.valid()) write_given(report.since, *out.mutable_since());
  if (report.until.valid()) write_given(report.until, *out.mutable_until());
}

std::optional<history::Cursor> parse_token(const std::string& text) {
  history::Cursor cursor;
  const char* const end = text.data() + text.size();
  const auto ms = std::from_chars(text.data(), end, cursor.submitted_ms);
  if (ms.ec != std::errc() || ms.ptr == end || *ms.ptr != '-') return std::nullopt;
  const auto id = std::from_chars(ms.ptr + 1, end, cursor.id);
  if (id.ec != std::errc() || id.ptr != end || cursor.submitted_ms < 0 || cursor.id < 0) return std::nullopt;
  return cursor;
}

Time read_bound(RestQuery& query, std::string_view name) {
  const auto text = query.text(name);
  if (!text) return {};
  const auto time = parse_since(*text);
  if (!time) query.fail(name, "must be a time such as 2025-01-31T09:00:00Z, or how long ago, such as 30d");
  return time.value_or(Time{});
}

std::vector<history::UsageBy> read_by(RestQuery& query) {
  std::vector<history::UsageBy> by;
  const std::string text = query.text("by").value_or("");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto one = history::usage_by_named(std::string_view(text).substr(at, end - at));
    if (!one) {
      query.fail("by", "must be some of tenant, user, model, node, day and month, separated by commas");
      return {};
    }
    if (std::find(by.begin(), by.end(), *one) == by.end()) by.push_back(*one);
    at = end + 1;
  }
  return by;
}

bool keeps_history(const HistoryBackend* history, const NativeCall& call) {
  if (history == nullptr) call.call->fail({ErrorKind::kUnavailable, "this scheduler keeps no history"});
  return history != nullptr;
}

}  // namespace

void NativeRest::list_history(NativeCall& call) {
  HistoryFilter filter{.tenant = call.query.text("tenant_id").value_or(""),
                       .user = call.query.text("user"),
                       .state = call.query.text("state").value_or(""),
                       .node = call.query.text("node").value_or(""),
                       .since = read_bound(call.query, "since"),
                       .until = read_bound(call.query, "until"),
                       .limit = std::min(call.query.count("page_size", kPageDefault, INT64_MAX), kPageMax),
                       .before = {}};
  if (filter.limit == 0) filter.limit = kPageDefault;
  if (const std::string& state = filter.state;
      !state.empty() && state != "completed" && state != "failed" && state != "cancelled")
    call.query.fail("state", "must be completed, failed or cancelled");
  if (const auto token = call.query.text("page_token")) {
    const auto before = parse_token(*token);
    if (!before) call.query.fail("page_token", "must be the next_page_token of the page before");
    filter.before = before.value_or(history::Cursor{});
  }
  if (call.refused() || !keeps_history(history_, call)) return;
  history_->list_history(call.call->caller(), std::move(filter),
                         answer_with<history::JobsPage>(call, write_page));
}

void NativeRest::get_usage(NativeCall& call) {
  UsageFilter filter{.tenant = call.query.text("tenant_id").value_or(""),
                     .user = call.query.text("user"),
                     .by = read_by(call.query),
                     .since = read_bound(call.query, "since"),
                     .until = read_bound(call.query, "until")};
  if (call.refused() || !keeps_history(history_, call)) return;
  history_->get_usage(call.call->caller(), filter,
                      [reply = call.call, by = filter.by](Answer<history::UsageReport> answer) {
                        if (!answer) return reply->fail(answer.error());
                        v1::UsageReport report;
                        write_report(*answer, by, report);
                        reply->send(200, native_json(report));
                      });
}

void NativeRest::copy_history(NativeCall& call) {
  if (!keeps_history(history_, call)) return;
  history_->copy_history(call.call->caller(), [reply = call.call](Answer<std::string> answer) {
    if (!answer) return reply->fail(answer.error());
    v1::CopyHistoryResponse out;
    out.set_path(*answer);
    reply->send(200, native_json(out));
  });
}

}  // namespace gpusched::api
