#include "api/doors/native/native_views.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "api/contract/names.h"
#include "base/limits.h"
#include "base/text.h"

namespace gpusched::api {

void write_time(Time time, google::protobuf::Timestamp& out) {
  out.set_seconds(time.ns / 1'000'000'000);
  out.set_nanos(static_cast<int32_t>(time.ns % 1'000'000'000));
}

namespace {

void write_estimate(const StartEstimateView& estimate, v1::StartEstimate& out) {
  const auto from_then = [&](Time at) { return static_cast<double>((at - estimate.made_at).ms()) / 1000.0; };
  if (estimate.p50.valid()) {
    write_time(estimate.p50, *out.mutable_p50());
    out.set_p50_seconds(from_then(estimate.p50));
  }
  if (estimate.p90.valid()) {
    write_time(estimate.p90, *out.mutable_p90());
    out.set_p90_seconds(from_then(estimate.p90));
  }
  if (estimate.at_latest.valid()) write_time(estimate.at_latest, *out.mutable_at_latest());
  if (estimate.later_than.valid()) write_time(estimate.later_than, *out.mutable_later_than());
  out.set_stuck(estimate.stuck);
  out.set_place(estimate.place);
  write_time(estimate.made_at, *out.mutable_made_at());
  out.set_runs(estimate.runs);
}

void write_change(const ChangeView& change, v1::RequestChange& out) {
  out.set_kind(change.kind);
  out.set_flags(change.flags);
  out.set_gpu_count(change.gpu_count);
  out.set_gpu_memory_mb(change.gpu_memory_mb);
  out.set_gpu_model(change.gpu_model);
  out.set_cpu_milli(change.cpu_milli);
  out.set_memory_mb(change.memory_mb);
  out.set_max_runtime_ms(change.max_runtime.ms());
  out.set_node_name(change.node_name);
  for (const std::string& gpu : change.gpus) out.add_gpus(gpu);
}

}  // namespace

void write_explanation(const ExplainView& explain, v1::Explanation& out) {
  out.set_job_id(job_name(explain.id));
  out.set_state(static_cast<v1::JobState>(explain.state));
  out.set_reason(explain.reason);
  out.set_message(explain.message);
  for (const std::string& event : explain.lifted_by) out.add_lifted_by(event);
  out.set_queue_position(explain.queue_position);
  if (explain.estimated_start.valid()) write_time(explain.estimated_start, *out.mutable_estimated_start());
  for (const auto& [name, number] : explain.evidence) (*out.mutable_evidence())[std::string(name)] = number;
  if (explain.estimate) write_estimate(*explain.estimate, *out.mutable_estimate());
  for (const ChangeView& change : explain.changes) write_change(change, *out.add_changes());
}

void write_quality(const QualityView& quality, v1::Quality& out) {
  const auto write = [](const QualityView::Score& score, v1::Quality::Score& to) {
    to.set_tenant_id(score.tenant);
    to.set_count(score.count);
    if (score.count == 0) return;
    const auto count = static_cast<double>(score.count);
    to.set_p50_coverage(static_cast<double>(score.p50_covered) / count);
    to.set_p90_coverage(static_cast<double>(score.p90_covered) / count);
    to.set_p50_pinball_seconds(score.p50_pinball_sum / count);
    to.set_p90_pinball_seconds(score.p90_pinball_sum / count);
    to.set_mean_error_seconds(score.error_sum / count);
    to.set_mean_early_seconds(score.early_sum / count);
  };
  for (const QualityView::Score& score : quality.run_times) write(score, *out.add_run_times());
  for (const QualityView::Score& score : quality.starts) write(score, *out.add_starts());
  for (const QualityView::MemoryScore& score : quality.task_memory) {
    v1::Quality::MemoryScore& to = *out.add_task_memory();
    to.set_tenant_id(score.tenant);
    to.set_count(score.count);
    if (score.count == 0) continue;
    const auto count = static_cast<double>(score.count);
    to.set_within(static_cast<double>(score.within) / count);
    to.set_mean_given_mb(static_cast<double>(score.given_mb_sum) / count);
    to.set_mean_peak_mb(static_cast<double>(score.peak_mb_sum) / count);
  }
  out.set_forecasts(quality.forecasts);
  out.set_forecast_seconds(quality.forecast_seconds);
  out.set_copy_seconds(quality.copy_seconds);
}

void write_plan(const PlanView& plan, v1::PlanResponse& out) {
  out.set_tenant_id(tenant_name(plan.tenant));
  out.set_starts_now(plan.starts_now);
  out.set_node_name(plan.node_name);
  for (const std::string& gpu : plan.gpus) out.add_gpus(gpu);
  for (const PlanView::Displaced& one : plan.displaces) {
    v1::PlanResponse::Displaced& displaced = *out.add_displaces();
    if (one.job.valid()) displaced.set_job_id(job_name(one.job));
    displaced.set_gpu_count(one.gpu_count);
  }
  out.set_reason(plan.reason);
  out.set_message(plan.message);
  for (const std::string& event : plan.lifted_by) out.add_lifted_by(event);
  for (const auto& [name, number] : plan.evidence) (*out.mutable_evidence())[std::string(name)] = number;
  if (plan.estimate) write_estimate(*plan.estimate, *out.mutable_estimate());
  for (const ChangeView& change : plan.changes) write_change(change, *out.add_changes());
  if (plan.run_p50) out.set_run_p50_ms(plan.run_p50->ms());
  if (plan.run_p90) out.set_run_p90_ms(plan.run_p90->ms());
  if (plan.gpu_seconds_reserved) out.set_gpu_seconds_reserved(*plan.gpu_seconds_reserved);
  if (plan.gpu_seconds_expected) out.set_gpu_seconds_expected(*plan.gpu_seconds_expected);
  for (const PlanView::Quota& one : plan.quota) {
    v1::PlanResponse::Quota& quota = *out.add_quota();
    quota.set_tenant_id(tenant_name(one.tenant));
    quota.set_resource(std::string(one.resource));
    quota.set_used_after(one.used_after);
    quota.set_limit(one.limit);
  }
}

void write_tenant_page(const std::vector<TenantView>& tenants, int64_t after, int size,
                       v1::ListTenantsResponse& out) {
  out.set_total(static_cast<int64_t>(tenants.size()));
  for (const TenantView& tenant : tenants) {  // In the order of their ids.
    if (tenant.id.value <= static_cast<uint64_t>(after)) continue;
    if (out.tenants_size() == size) {
      const std::string& last = out.tenants(size - 1).tenant_id();
      out.set_next_page_token(last == "default" ? "1" : last.substr(7));
      break;
    }
    write_tenant(tenant, *out.add_tenants());
  }
}

namespace {

void write_usage(const UsageView& usage, v1::Usage& out) {
  if (usage.peak_memory_bytes) out.set_peak_memory_bytes(*usage.peak_memory_bytes);
  out.set_peak_memory_of(std::string(usage.peak_memory_of));
  if (usage.cpu_ms) out.set_cpu_ms(*usage.cpu_ms);
  if (usage.gpu_use_permille) out.set_gpu_use_permille(*usage.gpu_use_permille);
  out.set_members_unknown(usage.members_unknown);
  if (usage.peak_gpu_memory_mb) out.set_peak_gpu_memory_mb(*usage.peak_gpu_memory_mb);
}

}  // namespace

void write_history(const HistoryView& history, v1::JobHistory& out) {
  out.set_job_id(job_name(history.id));
  out.set_dropped(history.dropped);
  for (const HistoryLine& line : history.lines) {
    v1::JobHistory::Line& to = *out.add_lines();
    write_time(line.at, *to.mutable_at());
    to.set_event(line.event);
    to.set_message(line.message);
    to.set_attempt(line.attempt);
    to.set_node_name(line.node);
    to.set_members(line.members);
    to.set_cause(line.cause);
    to.set_exit_code(line.exit_code);
    to.set_signal(line.signal);
    to.set_by(line.by);
    if (line.usage.is_known()) write_usage(line.usage, *to.mutable_usage());
  }
}

void write_cluster(const ClusterView& cluster, v1::Cluster& out) {
  out.set_total_nodes(cluster.total_nodes);
  out.set_online_nodes(cluster.online_nodes);
  out.set_total_gpus(cluster.total_gpus);
  out.set_available_gpus(cluster.available_gpus);
  out.set_total_jobs(cluster.total_jobs);
  out.set_running_jobs(cluster.running_jobs);
  out.set_pending_jobs(cluster.pending_jobs);
  out.set_sequence(cluster.sequence);
  out.set_average_gpu_utilization(cluster.average_gpu_utilization);
  if (!cluster.paused_since.valid()) return;
  write_time(cluster.paused_since, *out.mutable_paused_since());
  out.set_paused_by(cluster.paused_by);
  out.set_pause_reason(cluster.pause_reason);
}

}  // namespace gpusched::api
