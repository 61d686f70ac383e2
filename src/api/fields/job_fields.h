#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/fields/values.h"
#include "base/time.h"

namespace gpusched::api {

/// A job's request as any door has read it, before its rules are checked; job_rows.h has a row for each
/// member. Not given: the default. Spans are in milliseconds, cores in thousandths.
struct JobFields {
  // Command and box: gpusched.v1.JobSpec.
  std::optional<std::string> name, comment, script, image, working_directory, submitter;
  std::optional<StringList> command, args, secret_variables;
  std::optional<StringMap> environment, labels;
  std::optional<bool> working_directory_optional, gang_scheduling, checkpoint_enabled, memory_unlimited;
  std::optional<std::string> user, stdout_path, stderr_path, stdin_path;
  std::optional<int64_t> umask;
  std::optional<IntegerMap> limits;
  std::optional<MountList> mounts;
  std::optional<StringList> mount_texts;  ///< The same as the jobs door writes it: "/data:/data:ro".
  std::optional<std::string> container_workdir_mount, pull, registry_credential, image_digest;
  std::optional<StringList> container_arguments;
  std::optional<std::string> preempt_signal, preempt_webhook, idle_action, hung_action, executor;
  std::optional<int64_t> preempt_grace_ms, idle_after_ms, hung_after_ms;

  // Needs: gpusched.v1.Resources.
  std::optional<int64_t> gpu_count, gpu_memory_mb, gpu_memory_each_mb, gpu_milli, gpu_bandwidth_gbs;
  std::optional<int64_t> cpu_milli, memory_mb, nodes, nodes_max;
  std::optional<int64_t> gpus_per_node;  ///< Then `gpu_count` and `gpu_memory_mb` are of all nodes together.
  std::optional<std::string> gpu_model, mig_profile, gpu_layout, domain;
  std::optional<StringList> node_labels, without_labels, gpu_ids;
  std::optional<bool> exclusive, domain_required;

  // When and how it runs: gpusched.v1.JobRequest and RetryPolicy.
  std::optional<NumberOrWord> priority;
  std::optional<int64_t> max_runtime_ms, begin_after_ms, deadline_after_ms;
  std::optional<int64_t> runtime_by_minutes_ms;  ///< Instead of `max_runtime_ms`.
  std::optional<Time> begin_at, deadline;
  std::optional<bool> require_feasible, held, interactive, overlap_allowed;
  std::optional<StringList> dependencies, retry_on;
  std::optional<std::string> on_parent_failure, array, preemption_mode, work_class, reservation, on_node_loss;
  std::optional<int64_t> retries, system_retries, kill_after_lost_contact_ms;
};

}  // namespace gpusched::api
