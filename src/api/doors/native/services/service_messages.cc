#include "api/doors/native/services/service_messages.h"

#include <map>
#include <utility>
#include <vector>

#include "api/doors/native/native_rest_bodies.h"
#include "api/fields/checks.h"
#include "api/fields/job_message.h"
#include "base/job_labels.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

void write_instant(Time time, google::protobuf::Timestamp& out) {
  out.set_seconds(time.ns / 1'000'000'000);
  out.set_nanos(static_cast<int32_t>(time.ns % 1'000'000'000));
}

void write_replica(const ReplicaView& replica, v1::ServiceReplica& out) {
  out.set_job_id(job_name(replica.job));
  out.set_index(replica.index);
  out.set_generation(replica.generation);
  out.set_state(std::string(replica.state));
  out.set_ready(replica.is_ready);
  out.set_restarts(replica.restarts);
  out.set_node_name(replica.node_name);
  out.set_message(replica.message);
  out.set_port(static_cast<int32_t>(replica.port));
  if (replica.started_at.valid()) write_instant(replica.started_at, *out.mutable_started_at());
  if (replica.starts_at.valid()) write_instant(replica.starts_at, *out.mutable_starts_at());
}

void write_scaling(const ServiceView& service, v1::Service& out) {
  if (const std::optional<ServiceScaling>& scaling = service.settings.scaling) {
    out.set_scale_queue(scaling->queue);
    out.set_scale_min(scaling->min);
    out.set_scale_max(scaling->max);
    out.set_scale_per_replica(scaling->per_replica);
    out.set_scale_down_after_ms(scaling->down_after.ms());
  }
  if (const std::optional<ScalingView>& now = service.scaling) {
    if (now->waiting) out.set_scale_waiting(*now->waiting);
    out.set_scale_wanted(now->wanted);
    out.set_scale_message(now->message);
  }
}

}  // namespace

void write_service(const ServiceView& service, v1::Service& out) {
  out.set_name(service.name);
  out.set_tenant_id(tenant_name(service.tenant));
  out.set_record_id(job_name(service.record));
  out.set_state(std::string(service.state));
  out.set_generation(service.settings.generation);
  out.set_replicas(service.settings.replicas);
  out.set_running(service.running);
  out.set_ready(service.ready);
  out.set_restart(std::string(to_string(service.settings.restart)));
  out.set_ready_after_ms(service.settings.ready_after.ms());
  out.set_owner(service.owner);
  out.set_message(service.message);
  out.set_port(service.settings.has_port);
  if (const std::optional<ReadyProbe>& probe = service.settings.probe) {
    out.set_ready_probe(to_string(*probe));
    out.set_probe_period_ms(probe->period.ms());
    out.set_probe_timeout_ms(probe->timeout.ms());
    out.set_probe_failures(probe->failures);
  }
  out.set_rollout_deadline_ms(service.settings.rollout_deadline.ms());
  write_scaling(service, out);
  if (service.created_at.valid()) write_instant(service.created_at, *out.mutable_created_at());
  for (const ReplicaView& replica : service.jobs) write_replica(replica, *out.add_jobs());
}

void write_services(const std::vector<ServiceView>& services, v1::ListServicesResponse& out) {
  for (const ServiceView& service : services) write_service(service, *out.add_services());
}

namespace {

void set_label(v1::JobRequest& job, std::string_view label, std::string value) {
  (*job.mutable_spec()->mutable_labels())[std::string(label)] = std::move(value);
}

/// Sets labels of the port and its probe, likewise. The record's own check tells if a number is in bounds.
template <typename Message>
std::optional<ApiError> label_port(const Message& message, v1::JobRequest& job) {
  if (message.has_port()) {
    if (!message.port() && !message.ready_probe().empty() && message.ready_probe() != kServiceNoProbe)
      return invalid("port", "port must not be false with a ready_probe");
    set_label(job, kServicePortLabel, std::string(message.port() ? kServiceHasPort : kServiceHasNoPort));
  }
  if (!message.ready_probe().empty()) {
    if (!parse_ready_probe(message.ready_probe()) && message.ready_probe() != kServiceNoProbe)
      return invalid("ready_probe", "ready_probe must be http:/PATH, tcp or none");
    set_label(job, kServiceProbeLabel, message.ready_probe());
  }
  if (message.has_probe_period_ms())
    set_label(job, kServiceProbePeriodLabel, std::to_string(message.probe_period_ms()));
  if (message.has_probe_timeout_ms())
    set_label(job, kServiceProbeTimeoutLabel, std::to_string(message.probe_timeout_ms()));
  if (message.has_probe_failures())
    set_label(job, kServiceProbeFailuresLabel, std::to_string(message.probe_failures()));
  if (message.has_rollout_deadline_ms())
    set_label(job, kServiceDeadlineLabel, std::to_string(message.rollout_deadline_ms()));
  return std::nullopt;
}

/// Labels of the record for the given settings of the queue that the replicas follow. The record's check says
/// whether a number is within its bounds.
template <typename Message>
std::map<std::string, std::string> scaling_labels(const Message& message) {
  std::map<std::string, std::string> labels;
  const auto add = [&labels](std::string_view label, std::string value) {
    labels.emplace(std::string(label), std::move(value));
  };
  if (!message.scale_queue().empty()) add(kServiceQueueLabel, message.scale_queue());
  if (message.has_scale_min()) add(kServiceScaleMinLabel, std::to_string(message.scale_min()));
  if (message.has_scale_max()) add(kServiceScaleMaxLabel, std::to_string(message.scale_max()));
  if (message.has_scale_per_replica())
    add(kServiceScaleJobsLabel, std::to_string(message.scale_per_replica()));
  if (message.has_scale_down_after_ms())
    add(kServiceScaleDownLabel, std::to_string(message.scale_down_after_ms()));
  return labels;
}

/// Sets the record's labels for the settings that creation and rollout have in common.
template <typename Message>
std::optional<ApiError> label_settings(const Message& message, v1::JobRequest& job) {
  if (!message.has_job()) return invalid("job", "job is missing; say what each replica runs");
  if (!message.restart().empty()) {
    if (!restart_policy_named(message.restart()))
      return invalid("restart", "restart must be always, on_failure or never");
    set_label(job, kServiceRestartLabel, message.restart());
  }
  if (message.has_replicas()) {
    if (message.replicas() < 0) return invalid("replicas", "replicas must not be negative");
    set_label(job, kServiceReplicasLabel, std::to_string(message.replicas()));
  }
  if (message.has_ready_after_ms()) {
    if (message.ready_after_ms() < 0) return invalid("ready_after_ms", "ready_after_ms must not be negative");
    set_label(job, kServiceReadyLabel, std::to_string(message.ready_after_ms()));
  }
  for (auto& [label, value] : scaling_labels(message)) set_label(job, label, value);
  return label_port(message, job);
}

/// The submission of the service's record.
Answer<SubmitRequest> record_of(v1::JobRequest& job, const std::string& service, const std::string& tenant,
                                std::string generation, bool containers_possible) {
  if (service.empty() || service.size() > limits::kNameBytesMax)
    return invalid("name", "name must have 1 to 64 letters, digits, '.', '_' or '-'");
  if (auto problem = check_length("tenant_id", tenant, limits::kNameBytesMax)) return std::move(*problem);
  set_label(job, kServiceLabel, service);
  set_label(job, kServiceGenerationLabel, std::move(generation));
  if (job.spec().name().empty()) job.mutable_spec()->set_name(service);
  job.set_held(true);
  Answer<JobRequest> read = read_job(job, containers_possible);
  if (!read) {
    ApiError error = read.error();
    place_job_field(error);
    if (!error.field.empty()) error.field.insert(0, "job.");
    return error;
  }
  SubmitRequest request{.tenant = tenant, .names_fields = true};
  request.jobs.push_back(std::move(*read));
  return request;
}

}  // namespace

Answer<SubmitRequest> read_creation(const v1::CreateServiceRequest& message, bool containers_possible) {
  v1::JobRequest job = message.job();
  if (auto problem = label_settings(message, job)) return std::move(*problem);
  return record_of(job, message.name(), message.tenant_id(), "1", containers_possible);
}

Answer<SubmitRequest> read_rollout(const v1::RollOutServiceRequest& message, bool containers_possible) {
  v1::JobRequest job = message.job();
  if (auto problem = label_settings(message, job)) return std::move(*problem);
  return record_of(job, message.service(), message.tenant_id(), std::string(kNextGeneration),
                   containers_possible);
}

void submit_record(Backend& backend, const CallerPtr& caller, SubmitRequest record, Done<ServiceView> shown) {
  backend.submit(caller, std::move(record),
                 [&backend, caller, shown = std::move(shown)](const Answer<Submitted>& answer) {
                   if (!answer) return shown(answer.error());
                   backend.get_service(caller, job_name(answer->first_job), "", shown);
                 });
}

void apply_scale(Backend& backend, const CallerPtr& caller, const v1::ScaleServiceRequest& message,
                 const std::string& by, Done<ServiceView> shown) {
  std::map<std::string, std::string> labels = scaling_labels(message);
  if (labels.empty()) {
    if (!message.has_replicas())
      return shown(invalid("replicas", "replicas is missing; give it, or one of scale_*"));
    return backend.scale_service(caller, message.service(), message.tenant_id(), message.replicas(), by,
                                 std::move(shown));
  }
  if (message.has_replicas())
    labels.emplace(std::string(kServiceReplicasLabel), std::to_string(message.replicas()));
  backend.scale_service_by_queue(caller, message.service(), message.tenant_id(), std::move(labels), by,
                                 std::move(shown));
}

}  // namespace gpusched::api
