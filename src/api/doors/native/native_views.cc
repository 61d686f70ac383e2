#include "api/doors/native/native_views.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "api/contract/names.h"
#include "api/fields/flow_fields.h"
#include "api/fields/place_words.h"
#include "base/limits.h"
#include "base/text.h"

namespace gpusched::api {

void write_time(Time time, google::protobuf::Timestamp& out) {
  out.set_seconds(time.ns / 1'000'000'000);
  out.set_nanos(static_cast<int32_t>(time.ns % 1'000'000'000));
}

void write_reservation(const ReservationView& reservation, v1::Reservation& out) {
  out.set_reservation_id(reservation.id);
  out.set_name(reservation.name);
  out.set_tenant_id(reservation.tenant);
  for (const std::string& user : reservation.users) out.add_users(user);
  for (const std::string& node : reservation.nodes) out.add_node_names(node);
  write_time(reservation.begin, *out.mutable_begin_at());
  write_time(reservation.end, *out.mutable_end_at());
  out.set_duration_ms((reservation.end - reservation.begin).ms());
  out.set_every_ms(reservation.every.ms());
  out.set_reason(reservation.reason);
  out.set_active(reservation.active);
}

namespace {

void write_array(const ArrayView& array, v1::Array& out) {
  out.set_indexes(array.indexes);
  out.set_unexpanded(array.unexpanded);
  out.set_count(array.count);
  out.set_waiting(array.waiting);
  out.set_running(array.running);
  out.set_completed(array.completed);
  out.set_failed(array.failed);
  out.set_cancelled(array.cancelled);
}

void write_flow(const JobView& job, v1::Job& out) {
  for (const std::string& word : retry_on_words(job.retry_causes, job.retry_exit_codes))
    out.mutable_retry()->add_on(word);
  if (job.begin_at.valid()) write_time(job.begin_at, *out.mutable_begin_at());
  if (job.deadline.valid()) write_time(job.deadline, *out.mutable_deadline());
  for (const JobDependency& one : job.dependencies) {
    out.add_dependencies(dependency_text(one));
    if (one.verdict != JobDependency::Verdict::kMet) out.add_unmet_dependencies(dependency_text(one));
  }
  if (job.array.valid()) out.set_array_id(job_name(job.array));
  if (job.array_index) out.set_array_index(*job.array_index);
  if (job.array_view) write_array(*job.array_view, *out.mutable_array());
}

}  // namespace

void write_place(const PlacementFields& words, v1::Resources& out) {
  for (const std::string& label : words.node_labels) out.add_node_labels(label);
  for (const std::string& label : words.without_labels) out.add_without_labels(label);
  out.set_exclusive(words.exclusive);
  out.set_gpu_layout(words.gpu_layout);
  for (const std::string& id : words.gpu_ids) out.add_gpu_ids(id);
  out.set_gpu_bandwidth_gbs(words.gpu_bandwidth_gbs);
}

namespace {

void write_gang(const JobView& job, v1::Job& out) {
  v1::Resources& resources = *out.mutable_resources();
  if (job.domain != DomainLevel::kAny) resources.set_domain(std::string(to_string(job.domain)));
  resources.set_domain_required(job.domain_required);
  if (job.parts.size() == 1 && job.one_member_per_node) {
    resources.set_nodes(job.parts.front().members);
    resources.set_nodes_max(job.parts.front().members_max);
  }
  for (const JobPart& part : job.parts) {
    v1::Part& shown = *out.add_parts();
    shown.set_members(part.members);
    shown.set_members_max(part.members_max);
    v1::Resources& needs = *shown.mutable_resources();
    needs.set_gpu_count(part.gpu_count);
    needs.set_gpu_milli(part.gpu_milli);
    needs.set_gpu_memory_mb(part.gpu_memory_mb);
    needs.set_gpu_model(part.gpu_model);
    needs.set_cpu_milli(static_cast<int32_t>(part.cpu_milli));
    needs.set_memory_mb(part.memory_mb);
  }
  for (const JobMember& member : job.members) {
    v1::JobMember& shown = *out.add_members();
    shown.set_part(member.part);
    shown.set_node_name(member.node_name);
    shown.set_state(member.state);
    for (const std::string& gpu : member.gpus) shown.add_allocated_gpus(gpu);
  }
}

}  // namespace

void write_job(const JobView& job, v1::Job& out) {
  out.set_job_id(job_name(job.id));
  out.set_tenant_id(tenant_name(job.tenant));
  if (!out.mutable_spec()->ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size()))) {
    out.clear_spec();
  }
  v1::Resources& resources = *out.mutable_resources();
  resources.set_gpu_count(job.gpu_count);
  resources.set_gpu_milli(job.gpu_milli);
  resources.set_mig_profile(job.mig_profile);
  if (job.mig_start) out.set_mig_start(*job.mig_start);
  resources.set_gpu_memory_mb(job.gpu_memory_mb);
  resources.set_gpu_model(job.gpu_model);
  resources.set_cpu_milli(static_cast<int32_t>(job.cpu_milli));
  resources.set_memory_mb(job.memory_mb);
  if (!job.place.empty()) write_place(words_of(job.place.front()), resources);
  out.set_state(static_cast<v1::JobState>(job.state));
  out.set_reason(job.wait_code.empty() ? std::string(to_string(job.reason)) : job.wait_code);
  out.set_message(job.message);
  out.set_priority(job.priority);
  out.set_max_runtime_ms(job.max_runtime.ms());
  out.mutable_retry()->set_exit_code_retries(job.exit_code_retries);
  out.mutable_retry()->set_system_retries(job.system_retries);
  out.mutable_retry()->set_overlap_allowed(job.overlap_allowed);
  out.mutable_retry()->set_kill_after_lost_contact_ms(job.kill_after_lost_contact.ms());
  out.mutable_retry()->set_on_node_loss(job.tolerates_node_loss ? "continue" : "end");
  if (job.submitted_at.valid()) write_time(job.submitted_at, *out.mutable_submitted_at());
  if (job.scheduled_at.valid()) write_time(job.scheduled_at, *out.mutable_scheduled_at());
  if (job.started_at.valid()) write_time(job.started_at, *out.mutable_started_at());
  if (job.completed_at.valid()) write_time(job.completed_at, *out.mutable_completed_at());
  if (job.exit_code) out.set_exit_code(*job.exit_code);
  out.set_signal(job.signal);
  out.set_attempts(job.attempts);
  out.set_node_name(job.node_name);
  for (const std::string& gpu : job.gpus) out.add_allocated_gpus(gpu);
  out.set_queue_position(job.queue_position);
  out.set_held(job.held);
  write_flow(job, out);
  out.set_preempt_count(job.preempted_count);
  if (job.checkpointed_at.valid()) write_time(job.checkpointed_at, *out.mutable_checkpointed_at());
  if (job.watch != WatchdogFinding::kNone) {
    v1::Warning& warning = *out.add_warnings();
    warning.set_kind(std::string(to_string(job.watch)));
    warning.set_message(job.watch_detail);
    if (job.watch_since.valid()) write_time(job.watch_since, *warning.mutable_since());
  }
  out.set_moved(job.move_detail);
  if (job.moved_at.valid()) write_time(job.moved_at, *out.mutable_moved_at());
  out.set_preemption_mode(std::string(to_string(job.preemption_mode)));
  out.set_work_class(std::string(to_string(job.work)));
  out.set_reservation(job.reservation);
  if (!job.parts.empty()) write_gang(job, out);
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

void write_tenant(const TenantView& tenant, v1::Tenant& out) {
  out.set_tenant_id(tenant_name(tenant.id));
  out.set_name(tenant.name);
  out.set_email(tenant.email);
  out.set_organization(tenant.organization);
  if (tenant.limits.gpus) out.set_max_gpus(*tenant.limits.gpus);
  if (tenant.limits.gpu_memory_mb) out.set_max_gpu_memory_mb(*tenant.limits.gpu_memory_mb);
  if (tenant.limits.cpu_cores) out.set_max_cpu_cores(*tenant.limits.cpu_cores);
  if (tenant.limits.memory_mb) out.set_max_memory_mb(*tenant.limits.memory_mb);
  if (tenant.limits.concurrent_jobs) out.set_max_concurrent_jobs(*tenant.limits.concurrent_jobs);
  if (tenant.limits.waiting_jobs) out.set_max_waiting_jobs(*tenant.limits.waiting_jobs);
  if (tenant.limits.soft_waiting_jobs) out.set_soft_waiting_jobs(*tenant.limits.soft_waiting_jobs);
  out.set_priority_tier(tenant.priority_tier);
  out.set_fair_share_weight(static_cast<double>(tenant.weight_milli) / 1'000.0);
  out.set_allow_preemption(tenant.allow_preemption);
  out.set_can_preempt_others(tenant.can_preempt_others);
  out.set_anonymous(tenant.anonymous);
  out.set_guaranteed_gpus(tenant.guaranteed_gpus);
  out.set_guaranteed_gpu_memory_mb(tenant.guaranteed_gpu_memory_mb);
  out.set_guaranteed_cpu_cores(tenant.guaranteed_cpu_milli / 1'000);
  out.set_guaranteed_memory_mb(tenant.guaranteed_memory_mb);
  out.set_guaranteed_jobs(tenant.guaranteed_jobs);
  if (tenant.gpu_window.ns > 0) {
    out.set_max_gpu_hours(static_cast<double>(tenant.gpu_ms_max) / 3'600'000.0);
    out.set_gpu_hours_window_seconds(tenant.gpu_window.ms() / 1'000);
    out.set_gpu_hours_used(static_cast<double>(tenant.gpu_ms_used) / 3'600'000.0);
    write_time(tenant.gpu_window_ends, *out.mutable_gpu_hours_window_ends());
  }
  out.set_reclaims(tenant.reclaims);
  out.set_reclaim_seconds_max(static_cast<double>(tenant.reclaim_ms_max) / 1'000.0);
  out.set_reclaim_seconds_total(static_cast<double>(tenant.reclaim_ms) / 1'000.0);
  if (tenant.parent.valid()) out.set_parent_id(tenant_name(tenant.parent));
  out.set_current_gpus(tenant.current_gpus);
  out.set_current_gpu_milli(tenant.current_gpu_milli);
  out.set_current_gpu_memory_mb(tenant.current_gpu_memory_mb);
  out.set_current_cpu_milli(tenant.current_cpu_milli);
  out.set_current_memory_mb(tenant.current_memory_mb);
  out.set_current_jobs(tenant.running_jobs);
  out.set_waiting_jobs(tenant.waiting_jobs);
  out.set_total_gpu_hours(static_cast<double>(tenant.gpu_milliseconds) / 3'600'000.0);
  out.set_total_jobs(tenant.total_jobs);
  out.set_successful_jobs(tenant.successful_jobs);
  out.set_failed_jobs(tenant.failed_jobs);
  if (tenant.created_at.valid()) write_time(tenant.created_at, *out.mutable_created_at());
  if (tenant.updated_at.valid()) write_time(tenant.updated_at, *out.mutable_updated_at());
}

void write_node(const NodeView& node, v1::Node& out) {
  out.set_node_id("node-" + std::to_string(node.id.value));
  out.set_name(node.name);
  out.set_state(node.state);
  out.set_contact(std::string(contact_name(node.contact)));
  out.set_state_by(node.state_by);
  out.set_state_reason(node.state_reason);
  out.set_suspect(node.suspect);
  if (node.suspect_since.valid()) write_time(node.suspect_since, *out.mutable_suspect_since());
  if (node.state_since.valid()) write_time(node.state_since, *out.mutable_state_since());
  for (const Label& label : node.labels) (*out.mutable_labels())[label.name] = label.value;
  for (const std::string& feature : node.features) out.add_features(feature);
  out.set_boot_id(node.boot_id);
  out.set_cpu_milli(node.cpu_milli);
  out.set_cpu_milli_free(node.cpu_milli_free);
  out.set_memory_mb(node.memory_mb);
  out.set_memory_mb_free(node.memory_mb_free);
  out.set_attempts(node.attempts);
  out.set_cpu_utilization(node.cpu_utilization);
  out.set_memory_utilization(node.memory_utilization);
  out.set_version(node.version);
  for (const DeviceView& device : node.devices) {
    v1::NodeDevice& shown = *out.add_devices();
    shown.set_id(gpu_name(node.name, device.index));
    shown.set_uuid(device.uuid);
    shown.set_model(device.model);
    shown.set_memory_mb(device.memory_mb);
    shown.set_state(device.state);
    shown.set_condition(device.condition);
    shown.set_detail(device.detail);
    shown.set_quarantined_by(device.quarantined_by);
    shown.set_quarantine_reason(device.quarantine_reason);
    if (device.fault != FaultClass::kNone) {
      shown.set_fault(std::string(to_string(device.fault)));
      shown.set_fault_code(device.fault_code);
      shown.set_fault_detail(device.fault_detail);
      write_time(device.fault_at, *shown.mutable_fault_at());
    }
    if (device.held_by.valid()) shown.set_held_by(job_name(device.held_by));
    shown.set_utilization_percent(device.utilization_percent);
    shown.set_memory_used_mb(device.memory_used_mb);
    shown.set_temperature_celsius(device.temperature_celsius);
    shown.set_shared_milli(device.milli_used);
    shown.set_shared_memory_mb(device.memory_mb_given);
    for (const JobId job : device.shared_by) shown.add_shared_by(job_name(job));
    if (device.numa_node) shown.set_numa_node(*device.numa_node);
    shown.set_pci_bus_id(device.pci_bus_id);
    if (device.island) shown.set_island(*device.island);
    shown.set_mig(device.mig);
    shown.set_mig_room(device.mig_room);
    for (const SliceView& slice : device.slices) {
      v1::MigSlice& one = *shown.add_slices();
      one.set_job_id(job_name(slice.job));
      one.set_profile(slice.profile);
      one.set_start(slice.start);
      one.set_draining(slice.draining);
    }
  }
  out.set_topology_note(node.topology_note);
  for (const LinkView& link : node.links) {
    v1::NodeLink& shown = *out.add_links();
    shown.set_from(link.from);
    shown.set_to(link.to);
    shown.set_kind(std::string(link.kind));
    shown.set_bandwidth_gbs(link.bandwidth_gbs);
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
}

}  // namespace gpusched::api
