#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/contract/backend.h"
#include "api/doors/jobs/flow_fields.h"
#include "api/doors/jobs/place_words.h"
#include "api/doors/json_fields.h"
#include "api/doors/pack_spec.h"

/// What the jobs door's REST bodies mean. Pure functions over untrusted bytes: tests and a fuzzer call them
/// as they are. Errors: 400 malformed, 413 too large, 422 well-formed but unprocessable.
namespace gpusched::api {

/// A job as any door has read it, before it is checked. Nothing given: the default.
struct JobFields {
  std::optional<std::string> name, script, image, working_directory, gpu_model;
  std::optional<StringList> command, args;
  std::optional<StringMap> environment, labels;
  std::optional<int64_t> priority, gpu_count, gpu_memory_mb, memory_mb, retries, gpu_milli;
  std::optional<double> cpu_cores, max_runtime_minutes, max_runtime_seconds;
  std::optional<bool> gang_scheduling, checkpoint_enabled, require_feasible, held, working_directory_optional;
  std::optional<bool> interactive;
  std::optional<std::string> preemption_mode;
  std::optional<std::string> preempt_signal, preempt_webhook;
  std::optional<double> preempt_grace_seconds, idle_after_seconds, hung_after_seconds;
  std::optional<std::string> idle_action, hung_action;
  std::optional<std::string> work_class;
  std::optional<std::string> reservation;
  std::optional<int64_t> nodes, nodes_max, gpus_per_node;
  std::optional<std::string> domain;
  std::optional<bool> domain_required;
  std::optional<std::string> on_node_loss;
  std::string submitter;
  PlacementFields place;
  std::optional<int64_t> gpu_memory_each_mb;
  std::optional<std::string> mig_profile;
  BoxFields box;
  FlowFields flow;
};

/// "rack" and so on; nothing for another word.
std::optional<DomainLevel> parse_domain(std::string_view word);

/// Checks every limit of base/limits.h and packs the specification.
Answer<JobRequest> check_job(JobFields fields, bool containers_possible);
/// What becomes of a gang that loses a node: "end" (also when empty), or "continue".
std::optional<ApiError> read_node_loss(std::string_view word, const char* field, JobRequest& job);

/// The body of POST /jobs. The request has one job; its key comes from a header.
Answer<SubmitRequest> parse_submit(std::string_view body, bool containers_possible);

/// What a tenant may have of GPU time, from hours and a window as bodies name them.
std::optional<ApiError> read_gpu_hours(std::optional<double> gpu_hours, std::optional<int64_t> window_seconds,
                                       TenantRequest& request);

/// The body of POST /tenants (`creating`: a name is needed) or PUT /tenants/{id}, where a limit that is null
/// is lifted.
Answer<TenantRequest> parse_tenant(std::string_view body, bool creating);

/// The rules that hold for a tenant from any door.
std::optional<ApiError> check_tenant(const TenantRequest& request);

struct ConditionRequest {
  DeviceCondition condition = DeviceCondition::kOk;
  std::string detail;
  std::string by;
};
/// The body of POST /nodes/{name}/gpus/{index}/condition. `caller`: who it is when the body does not say.
Answer<ConditionRequest> parse_condition(std::string_view body, std::string_view caller);

/// The rules for the box of a job from any door; nothing when they hold. `has_image`: it runs in a container.
std::optional<ApiError> check_box(const BoxFields& box, bool has_image);

/// A key that makes a request safe to repeat: at most 128 printable characters.
std::optional<ApiError> check_request_key(std::string_view key, std::string_view field);

/// "job-12" -> 12. Nothing when it is no job's name.
std::optional<JobId> parse_job_id(std::string_view text);
/// "pending" and so on.
std::optional<JobState> parse_job_state(std::string_view text);
/// A whole number without sign, at most `most`.
std::optional<int64_t> parse_count(std::string_view text, int64_t most);
/// "30s", "5m", "250ms", "2h", "7d", or a bare number of seconds.
std::optional<Duration> parse_duration(std::string_view text);

}  // namespace gpusched::api
