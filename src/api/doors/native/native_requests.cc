#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/doors/native/native_views.h"
#include "base/limits.h"
#include "base/text.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kBatchBytesMax = 3u << 20;  // So that a batch fits into one record of the journal.

constexpr std::size_t kReasonBytesMax = 1'024;

std::optional<std::string> given(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

StringMap to_map(const google::protobuf::Map<std::string, std::string>& map) {
  return {map.begin(), map.end()};
}

ApiError invalid(std::string_view field, std::string message) {
  return {ErrorKind::kInvalidArgument, std::move(message), std::string(field)};
}

bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

/// Protocol Buffers carry NUL characters where a process cannot.
std::optional<ApiError> check_nul(const v1::JobSpec& spec) {
  const auto refused = [](std::string_view field) {
    return invalid(field, std::string(field) + " must not contain a NUL character");
  };
  for (const std::string& word : spec.command()) {
    if (has_nul(word)) return refused("command");
  }
  for (const std::string& word : spec.args()) {
    if (has_nul(word)) return refused("args");
  }
  for (const auto& [name, value] : spec.environment()) {
    if (has_nul(name) || has_nul(value)) return refused("environment");
  }
  for (const auto& [name, value] : spec.labels()) {
    if (has_nul(name) || has_nul(value)) return refused("labels");
  }
  if (has_nul(spec.name())) return refused("name");
  if (has_nul(spec.script())) return refused("script");
  if (has_nul(spec.image())) return refused("image");
  if (has_nul(spec.working_directory())) return refused("working_directory");
  for (const std::string& word : spec.container_arguments()) {
    if (has_nul(word)) return refused("container_arguments");
  }
  if (has_nul(spec.registry_credential())) return refused("registry_credential");
  return std::nullopt;  // Paths, users and names of limits have rules that no NUL passes.
}

BoxFields box_of(const v1::JobSpec& spec) {
  BoxFields box{.user = spec.user(),
                .stdout_path = spec.stdout_path(),
                .stderr_path = spec.stderr_path(),
                .stdin_path = spec.stdin_path(),
                .container_workdir_mount = spec.container_workdir_mount(),
                .pull = static_cast<Pull>(spec.pull()),
                .registry_credential = spec.registry_credential(),
                .image_digest = spec.image_digest()};
  if (spec.has_umask()) box.umask = spec.umask();
  box.limits.assign(spec.limits().begin(), spec.limits().end());
  for (const v1::Mount& mount : spec.mounts()) {
    box.mounts.push_back(
        {.source = mount.source(), .target = mount.target(), .read_only = mount.read_only()});
  }
  box.container_arguments.assign(spec.container_arguments().begin(), spec.container_arguments().end());
  return box;
}

bool has_nul(const google::protobuf::RepeatedPtrField<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) { return has_nul(word); });
}

/// Whether the map is one that packs as pack_spec would, and that no rule could be against.
bool is_plain(const google::protobuf::Map<std::string, std::string>& map, std::size_t count_max,
              std::size_t bytes_max) {
  if (map.size() > count_max) return false;
  return std::all_of(map.begin(), map.end(), [bytes_max](const auto& entry) {
    const auto& [name, value] = entry;
    if (name.empty() || value.empty() || name.size() > bytes_max || value.size() > bytes_max) return false;
    for (const char c : name) {
      if (c == '=' || static_cast<unsigned char>(c) <= 0x20 || c == 0x7F) return false;
    }
    return !has_nul(value);
  });
}

/// The specification as pack_spec packs it, when it is plain: no box, no image, and nothing that any rule is
/// against. Most are, and this costs a third of looking at each field.
std::optional<std::string> pack_plain(const v1::JobSpec& spec) {
  const bool boxed =
      !spec.user().empty() || !spec.stdout_path().empty() || !spec.stderr_path().empty() ||
      !spec.stdin_path().empty() || spec.has_umask() || !spec.limits().empty() || spec.mounts_size() > 0 ||
      !spec.container_workdir_mount().empty() || spec.pull() != 0 || !spec.registry_credential().empty() ||
      spec.container_arguments_size() > 0 || !spec.image_digest().empty() || !spec.preempt_signal().empty() ||
      spec.preempt_grace_ms() != 0 || !spec.preempt_webhook().empty() || spec.idle_after_ms() != 0 ||
      !spec.idle_action().empty() || spec.hung_after_ms() != 0 || !spec.hung_action().empty();
  if (boxed || !spec.image().empty() || !spec.submitter().empty()) return std::nullopt;
  if (!spec.GetReflection()->GetUnknownFields(spec).empty()) return std::nullopt;
  const int words = spec.command_size() + spec.args_size();
  if (words > static_cast<int>(limits::kCommandWordsMax)) return std::nullopt;
  const bool has_command = spec.command_size() > 0 && !spec.command(0).empty();
  if (has_command != spec.script().empty() || (spec.command_size() > 0) != has_command) return std::nullopt;
  if (spec.name().size() > limits::kNameBytesMax || has_nul(spec.name()) || has_nul(spec.script()))
    return std::nullopt;
  if (has_nul(spec.command()) || has_nul(spec.args())) return std::nullopt;
  if (!spec.working_directory().empty() || spec.working_directory_optional()) return std::nullopt;
  if (!is_plain(spec.labels(), limits::kLabelCountMax, limits::kLabelBytesMax)) return std::nullopt;
  if (std::any_of(spec.labels().begin(), spec.labels().end(),
                  [](const auto& label) { return has_control_character(label.second); }))
    return std::nullopt;
  if (!is_plain(spec.environment(), limits::kEnvironmentCountMax, limits::kSpecBytesMax)) return std::nullopt;
  std::string packed;
  if (spec.labels().size() < 2 && spec.environment().size() < 2) {
    spec.SerializeToString(&packed);
  } else {
    google::protobuf::io::StringOutputStream out(&packed);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);  // Maps by their keys.
    spec.SerializeToCodedStream(&coded);
  }
  if (packed.size() > limits::kSpecBytesMax) return std::nullopt;
  return packed;
}

bool has_flow(const v1::JobRequest& message) {
  return message.has_begin_at() || message.begin_after_ms() != 0 || message.has_deadline() ||
         message.deadline_after_ms() != 0 || message.dependencies_size() > 0 ||
         !message.on_parent_failure().empty() || !message.array().empty();
}

Time read_time(const google::protobuf::Timestamp& time) {
  return Time{time.seconds() * 1'000'000'000 + time.nanos()};
}

/// Instants that are none, and spans beyond a year.
std::optional<ApiError> check_time(std::string_view field, bool is_given,
                                   const google::protobuf::Timestamp& time, int64_t after_ms) {
  const bool good = time.seconds() >= 0 && time.seconds() < limits::kTimeMax.ns / 1'000'000'000 &&
                    time.nanos() >= 0 && time.nanos() < 1'000'000'000;
  if (is_given && (!good || !read_time(time).valid()))
    return invalid(field, std::string(field) + " must be an instant after 1970");
  if (after_ms < 0 || after_ms > limits::kBeginMax.ms())
    return invalid(field, std::string(field) + " must not lie more than a year ahead, nor in the past");
  return std::nullopt;
}

Answer<FlowFields> flow_of(const v1::JobRequest& message) {
  if (auto problem =
          check_time("begin_at", message.has_begin_at(), message.begin_at(), message.begin_after_ms()))
    return std::move(*problem);
  if (auto problem =
          check_time("deadline", message.has_deadline(), message.deadline(), message.deadline_after_ms()))
    return std::move(*problem);
  FlowFields flow{.begin_after = milliseconds(message.begin_after_ms()),
                  .deadline_after = milliseconds(message.deadline_after_ms()),
                  .dependencies = {message.dependencies().begin(), message.dependencies().end()},
                  .on_parent_failure = message.on_parent_failure(),
                  .array = message.array(),
                  .retry_on = {message.retry().on().begin(), message.retry().on().end()}};
  if (message.has_begin_at()) flow.begin_at = read_time(message.begin_at());
  if (message.has_deadline()) flow.deadline = read_time(message.deadline());
  return flow;
}

bool has_place(const v1::Resources& resources) {
  return resources.node_labels_size() > 0 || resources.without_labels_size() > 0 || resources.exclusive() ||
         !resources.gpu_layout().empty() || resources.gpu_ids_size() > 0 ||
         resources.gpu_bandwidth_gbs() != 0 || resources.gpu_memory_each_mb() != 0;
}

PlacementFields place_of(const v1::Resources& resources) {
  return {.node_labels = {resources.node_labels().begin(), resources.node_labels().end()},
          .without_labels = {resources.without_labels().begin(), resources.without_labels().end()},
          .exclusive = resources.exclusive(),
          .gpu_layout = resources.gpu_layout(),
          .gpu_ids = {resources.gpu_ids().begin(), resources.gpu_ids().end()},
          .gpu_bandwidth_gbs = resources.gpu_bandwidth_gbs()};
}

/// No memory named is a limit by the job's share of its node; a zero that was sent is none at all.
bool asks_no_limit(const v1::Resources& resources) {
  return resources.has_memory_mb() && resources.memory_mb() == 0;
}

/// A job in which there is nothing to find fault with; nothing when it has to be looked at closely.
std::optional<JobRequest> read_plain(const v1::JobRequest& message) {
  const v1::Resources& resources = message.resources();
  const auto in = [](int64_t number, int64_t least, int64_t most) {
    return number >= least && number <= most;
  };
  const bool plain =
      in(message.priority(), -limits::kPriorityMax, limits::kPriorityMax) &&
      in(message.max_runtime_ms(), 0, limits::kRuntimeMax.ms()) &&
      in(resources.gpu_count(), 0, limits::kGpusPerJobMax) &&
      in(resources.gpu_memory_mb(), 0, resources.gpu_count() > 0 ? limits::kMegabytesMax : 0) &&
      in(resources.memory_mb(), 0, limits::kMegabytesMax) && !asks_no_limit(resources) &&
      in(resources.cpu_milli(), 0, int64_t{limits::kCpuCoresMax} * 1'000) && resources.gpu_model().empty() &&
      resources.gpu_milli() == 0 && resources.mig_profile().empty() && !message.has_retry() &&
      !has_flow(message) && message.preemption_mode().empty() && !message.interactive() &&
      message.work_class().empty() && message.reservation().empty() && !has_place(resources) &&
      resources.nodes() == 0 && resources.nodes_max() == 0 && resources.domain().empty() &&
      !resources.domain_required() && message.parts().empty() && !message.own_nodes() &&
      !message.spec().gang_scheduling();
  if (!plain) return std::nullopt;
  std::optional<std::string> packed = pack_plain(message.spec());
  if (!packed) return std::nullopt;
  JobRequest job{.spec = std::move(*packed),
                 .name = message.spec().name(),
                 .gpu_count = resources.gpu_count(),
                 .gpu_memory_mb = resources.gpu_memory_mb(),
                 .cpu_milli = resources.has_cpu_milli() ? resources.cpu_milli() : 1'000,
                 .memory_mb = resources.memory_mb(),
                 .max_runtime = milliseconds(message.max_runtime_ms()),
                 .require_feasible = message.require_feasible(),
                 .held = message.held()};
  if (message.has_priority()) job.priority = message.priority();
  return job;
}

/// One part, as if it were a job by itself.
Answer<JobPart> read_part(const v1::Part& message, int index) {
  const std::string field = "parts[" + std::to_string(index) + "]";
  const v1::Resources& resources = message.resources();
  const auto wrong = [&](const char* name, const std::string& what) {
    return invalid(field + "." + name, field + "." + name + " " + what);
  };
  const auto within = [](int64_t number, int64_t most) { return number >= 0 && number <= most; };
  if (resources.nodes() != 0 || resources.nodes_max() != 0)
    return wrong("resources.nodes", "is given; a part has members");
  if (!within(message.members(), limits::kMembersMax) || !within(message.members_max(), limits::kMembersMax))
    return wrong("members", "must be from 0 to " + std::to_string(limits::kMembersMax));
  if (!within(resources.gpu_count(), int64_t{limits::kDevicesPerNodeMax}))
    return wrong("resources.gpu_count", "must be from 0 to " + std::to_string(limits::kDevicesPerNodeMax));
  if (!within(resources.gpu_memory_mb(), resources.gpu_count() > 0 ? limits::kMegabytesMax : 0))
    return wrong("resources.gpu_memory_mb", "is out of its range, or given without GPUs");
  if (!within(resources.memory_mb(), limits::kMegabytesMax))
    return wrong("resources.memory_mb", "is out of its range");
  if (!within(resources.cpu_milli(), int64_t{limits::kCpuCoresMax} * 1'000))
    return wrong("resources.cpu_milli", "is out of its range");
  if (resources.gpu_model().size() > limits::kNameBytesMax)
    return wrong("resources.gpu_model", "is too long");
  if (resources.gpu_milli() != 0)
    return wrong("resources.gpu_milli", "is given; of several parts each has whole GPUs");
  if (!resources.mig_profile().empty())
    return wrong("resources.mig_profile", "is given; of several parts each has whole GPUs");
  return JobPart{.members = std::max(message.members(), 1),
                 .members_max = message.members_max(),
                 .gpu_count = resources.gpu_count(),
                 .gpu_milli = 0,
                 .gpu_memory_mb = resources.gpu_memory_mb(),
                 .gpu_model = resources.gpu_model(),
                 .cpu_milli = resources.has_cpu_milli() ? resources.cpu_milli() : 1'000,
                 .memory_mb = resources.memory_mb()};
}

/// What stands in a job's own words; a node's GPUs and their memory are of that node alone.
void read_nodes(const v1::Resources& resources, JobFields& fields) {
  fields.domain = given(resources.domain());
  if (resources.domain_required()) fields.domain_required = true;
  if (resources.nodes() == 0 && resources.nodes_max() == 0) return;
  fields.nodes = resources.nodes();
  fields.nodes_max = resources.nodes_max();
  if (resources.nodes() <= 0) return;
  fields.gpus_per_node = resources.gpu_count();
  fields.gpu_count.reset();
  if (fields.gpu_milli.value_or(0) > 0) fields.gpus_per_node.reset();
  if (fields.gpu_memory_mb) *fields.gpu_memory_mb *= resources.nodes();
}

}  // namespace

Answer<JobRequest> read_job(const v1::JobRequest& message, bool containers_possible) {
  if (std::optional<JobRequest> plain = read_plain(message)) return std::move(*plain);
  const v1::JobSpec& spec = message.spec();
  const v1::Resources& resources = message.resources();
  bool no_limit = spec.memory_unlimited() || asks_no_limit(resources);
  if (auto problem = check_nul(spec)) return std::move(*problem);
  JobFields fields{
      .name = given(spec.name()),
      .script = given(spec.script()),
      .image = given(spec.image()),
      .working_directory = given(spec.working_directory()),
      .gpu_model = given(resources.gpu_model()),
      .gpu_count = resources.gpu_count(),
      .gpu_memory_mb = resources.gpu_memory_mb(),
      .memory_mb = resources.memory_mb() != 0 ? std::optional(resources.memory_mb()) : std::nullopt,
      .retries = message.retry().exit_code_retries(),
      .gpu_milli = resources.gpu_milli(),
      .gang_scheduling = spec.gang_scheduling(),
      .checkpoint_enabled = spec.checkpoint_enabled(),
      .require_feasible = message.require_feasible(),
      .held = message.held(),
      .working_directory_optional = spec.working_directory_optional(),
      .interactive = message.interactive(),
      .preemption_mode = given(message.preemption_mode()),
      .preempt_signal = given(spec.preempt_signal()),
      .preempt_webhook = given(spec.preempt_webhook()),
      .work_class = given(message.work_class()),
      .reservation = given(message.reservation()),
      .submitter = spec.submitter(),
      .place = place_of(resources),
      .gpu_memory_each_mb = resources.gpu_memory_each_mb(),
      .mig_profile = given(resources.mig_profile()),
      .box = box_of(spec)};
  read_nodes(resources, fields);
  if (spec.preempt_grace_ms() < 0 || spec.preempt_grace_ms() > limits::kPreemptGraceSecondsMax * 1'000) {
    return invalid("preempt_grace_ms", "preempt_grace_ms must be from 0 to " +
                                           std::to_string(limits::kPreemptGraceSecondsMax * 1'000));
  }
  fields.preempt_grace_seconds = static_cast<double>(spec.preempt_grace_ms()) / 1'000.0;
  if (spec.idle_after_ms() != 0)
    fields.idle_after_seconds = static_cast<double>(spec.idle_after_ms()) / 1'000.0;
  if (spec.hung_after_ms() != 0)
    fields.hung_after_seconds = static_cast<double>(spec.hung_after_ms()) / 1'000.0;
  fields.idle_action = given(spec.idle_action());
  fields.hung_action = given(spec.hung_action());
  if (!v1::PullPolicy_IsValid(spec.pull())) return invalid("pull", "pull is none that exists");
  if (spec.command_size() > 0) fields.command.emplace(spec.command().begin(), spec.command().end());
  if (spec.args_size() > 0) fields.args.emplace(spec.args().begin(), spec.args().end());
  if (!spec.environment().empty()) fields.environment = to_map(spec.environment());
  if (!spec.labels().empty()) fields.labels = to_map(spec.labels());
  if (message.has_priority()) fields.priority = message.priority();
  if (resources.has_cpu_milli()) fields.cpu_cores = static_cast<double>(resources.cpu_milli()) / 1'000.0;

  const v1::RetryPolicy& retry = message.retry();
  if (message.max_runtime_ms() < 0 || message.max_runtime_ms() > limits::kRuntimeMax.ms()) {
    return invalid("max_runtime_ms",
                   "max_runtime_ms must be from 0 to " + std::to_string(limits::kRuntimeMax.ms()));
  }
  if (retry.system_retries() < -1 || retry.system_retries() > limits::kRetriesMax) {
    return invalid("retry.system_retries",
                   "retry.system_retries must be from -1 to " + std::to_string(limits::kRetriesMax));
  }
  if (retry.kill_after_lost_contact_ms() < 0 ||
      retry.kill_after_lost_contact_ms() > limits::kRuntimeMax.ms()) {
    return invalid("retry.kill_after_lost_contact_ms",
                   "retry.kill_after_lost_contact_ms must not be negative, nor longer "
                   "than a year");
  }
  if (retry.exit_code_retries() < 0 || retry.exit_code_retries() > limits::kRetriesMax) {
    return invalid("retry.exit_code_retries",
                   "retry.exit_code_retries must be from 0 to " + std::to_string(limits::kRetriesMax));
  }
  constexpr int32_t kCpuMilliMax = limits::kCpuCoresMax * 1'000;
  if (resources.cpu_milli() < 0 || resources.cpu_milli() > kCpuMilliMax) {
    return invalid("cpu_milli", "cpu_milli must be from 0 to " + std::to_string(kCpuMilliMax));
  }
  Answer<FlowFields> flow = flow_of(message);
  if (!flow) return flow.error();
  fields.flow = std::move(*flow);
  Answer<JobRequest> job = check_job(std::move(fields), containers_possible);
  if (!job) return job;
  job->max_runtime = milliseconds(message.max_runtime_ms());
  job->system_retries = retry.system_retries();
  job->overlap_allowed = retry.overlap_allowed();
  job->kill_after_lost_contact = milliseconds(retry.kill_after_lost_contact_ms());
  for (int i = 0; i < message.parts_size(); ++i) {
    Answer<JobPart> part = read_part(message.parts(i), i);
    if (!part) return part.error();
    job->parts.push_back(std::move(*part));
    no_limit = no_limit || asks_no_limit(message.parts(i).resources());
  }
  if (no_limit) mark_memory_unlimited(job->spec);
  job->one_member_per_node = message.own_nodes();
  const bool twice = job->gpu_count > 0 || job->nodes > 0 || job->memory_mb > 0;
  if (!job->parts.empty() && twice) {
    return invalid("parts",
                   "both parts and resources say what it needs; leave all but the domain out of resources");
  }
  if (auto problem = read_node_loss(retry.on_node_loss(), "retry.on_node_loss", *job))
    return std::move(*problem);
  return job;
}

Answer<SubmitRequest> read_submit(const v1::SubmitJobsRequest& message, bool containers_possible) {
  if (message.jobs_size() == 0) return invalid("jobs", "jobs is empty; send at least one job");
  if (message.jobs_size() > static_cast<int>(limits::kBatchJobsMax)) {
    return invalid("jobs", "jobs has more than " + std::to_string(limits::kBatchJobsMax) +
                               " entries; send several batches");
  }
  if (message.tenant_id().size() > limits::kNameBytesMax)
    return invalid("tenant_id", "tenant_id is too long");
  if (auto problem = check_request_key(message.request_key(), "request_key")) return std::move(*problem);
  SubmitRequest request{.tenant = message.tenant_id(), .request_key = message.request_key()};
  request.jobs.reserve(static_cast<std::size_t>(message.jobs_size()));
  std::size_t bytes = 0;
  for (int i = 0; i < message.jobs_size(); ++i) {
    Answer<JobRequest> job = read_job(message.jobs(i), containers_possible);
    if (!job) {
      ApiError error = job.error();
      const std::string place = "jobs[" + std::to_string(i) + "]";
      error.message = place + ": " + error.message;
      error.field = error.field.empty() ? place : place + "." + error.field;
      return error;
    }
    bytes += job->spec.size();
    if (bytes > kBatchBytesMax) {
      return ApiError{ErrorKind::kTooLarge,
                      "the batch's specifications are larger than " + std::to_string(kBatchBytesMax) +
                          " bytes; send several batches",
                      "jobs"};
    }
    request.jobs.push_back(std::move(*job));
  }
  return request;
}

Answer<TenantRequest> read_tenant(const v1::Tenant& message, bool creating) {
  TenantRequest request{.name = given(message.name()),
                        .email = given(message.email()),
                        .organization = given(message.organization()),
                        .parent = message.parent_id(),
                        .request_key = message.request_key()};
  if (creating && !request.name) return invalid("name", "name is missing; a tenant needs one");
  if (auto problem = check_request_key(message.request_key(), "request_key")) return std::move(*problem);
  if (message.has_max_gpus()) request.limits.gpus = message.max_gpus();
  if (message.has_max_gpu_memory_mb()) request.limits.gpu_memory_mb = message.max_gpu_memory_mb();
  if (message.has_max_cpu_cores()) request.limits.cpu_cores = message.max_cpu_cores();
  if (message.has_max_memory_mb()) request.limits.memory_mb = message.max_memory_mb();
  if (message.has_max_concurrent_jobs()) request.limits.concurrent_jobs = message.max_concurrent_jobs();
  if (message.has_max_waiting_jobs()) request.limits.waiting_jobs = message.max_waiting_jobs();
  if (message.has_soft_waiting_jobs()) request.limits.soft_waiting_jobs = message.soft_waiting_jobs();
  if (message.priority_tier() < 0 || message.priority_tier() > limits::kPriorityMax) {
    return invalid("priority_tier",
                   "priority_tier must be from 0 to " + std::to_string(limits::kPriorityMax));
  }
  if (message.priority_tier() != 0) request.priority_tier = message.priority_tier();
  if (message.fair_share_weight() != 0) {
    if (!(message.fair_share_weight() >= 0.001 && message.fair_share_weight() <= 1e6)) {
      return invalid("fair_share_weight", "fair_share_weight must be from 0.001 to 1000000");
    }
    request.weight_milli = std::llround(message.fair_share_weight() * 1'000.0);
  }
  if (creating || message.allow_preemption()) request.allow_preemption = message.allow_preemption();
  if (creating || message.can_preempt_others()) request.can_preempt_others = message.can_preempt_others();
  if (message.anonymous()) request.anonymous = true;
  if (message.has_guaranteed_gpus()) request.guarantee.gpus = message.guaranteed_gpus();
  if (message.has_guaranteed_gpu_memory_mb())
    request.guarantee.gpu_memory_mb = message.guaranteed_gpu_memory_mb();
  if (message.has_guaranteed_cpu_cores()) request.guarantee.cpu_cores = message.guaranteed_cpu_cores();
  if (message.has_guaranteed_memory_mb()) request.guarantee.memory_mb = message.guaranteed_memory_mb();
  if (message.has_guaranteed_jobs()) request.guarantee.concurrent_jobs = message.guaranteed_jobs();
  const auto gpu_hours = message.has_max_gpu_hours() ? std::optional(message.max_gpu_hours()) : std::nullopt;
  const auto window = message.has_gpu_hours_window_seconds()
                          ? std::optional(message.gpu_hours_window_seconds())
                          : std::nullopt;
  if (auto problem = read_gpu_hours(gpu_hours, window, request)) return std::move(*problem);
  if (auto problem = check_tenant(request)) return std::move(*problem);
  return request;
}

namespace {

/// When it may run, and what it needs.
std::optional<ApiError> read_flow_update(const v1::UpdateJobRequest& message, JobUpdate& update) {
  if (auto problem =
          check_time("begin_at", message.has_begin_at(), message.begin_at(), message.begin_after_ms()))
    return problem;
  if (auto problem =
          check_time("deadline", message.has_deadline(), message.deadline(), message.deadline_after_ms()))
    return problem;
  update.moves_begin = message.has_begin_at() || message.has_begin_after_ms();
  update.moves_deadline = message.has_deadline() || message.has_deadline_after_ms();
  if (message.has_begin_at()) update.begin_at = read_time(message.begin_at());
  if (message.has_deadline()) update.deadline = read_time(message.deadline());
  update.begin_after = milliseconds(message.begin_after_ms());
  update.deadline_after = milliseconds(message.deadline_after_ms());
  const auto check = [](std::string_view field, int64_t number, int64_t most) -> std::optional<ApiError> {
    if (number >= 0 && number <= most) return std::nullopt;
    return invalid(field, std::string(field) + " must be from 0 to " + std::to_string(most));
  };
  if (auto problem = check("gpu_count", message.gpu_count(), limits::kGpusPerJobMax)) return problem;
  if (auto problem = check("gpu_memory_mb", message.gpu_memory_mb(), limits::kMegabytesMax)) return problem;
  if (auto problem = check("cpu_milli", message.cpu_milli(), int64_t{limits::kCpuCoresMax} * 1'000))
    return problem;
  if (auto problem = check("memory_mb", message.memory_mb(), limits::kMegabytesMax)) return problem;
  if (message.gpu_model().size() > limits::kNameBytesMax || has_nul(message.gpu_model()))
    return invalid("gpu_model", "gpu_model is too long or has a NUL character");
  if (message.has_gpu_count()) update.gpu_count = message.gpu_count();
  if (message.has_gpu_memory_mb()) update.gpu_memory_mb = message.gpu_memory_mb();
  if (message.has_gpu_model()) update.gpu_model = message.gpu_model();
  if (message.has_cpu_milli()) update.cpu_milli = message.cpu_milli();
  if (message.has_memory_mb()) update.memory_mb = message.memory_mb();
  return std::nullopt;
}

}  // namespace

Answer<JobUpdate> read_update(const v1::UpdateJobRequest& message) {
  JobUpdate update;
  if (message.has_priority()) {
    if (message.priority() < -limits::kPriorityMax || message.priority() > limits::kPriorityMax) {
      return invalid("priority", "priority must be from " + std::to_string(-limits::kPriorityMax) + " to " +
                                     std::to_string(limits::kPriorityMax));
    }
    update.priority = message.priority();
  }
  if (message.has_max_runtime_ms()) {
    if (message.max_runtime_ms() < 0 || message.max_runtime_ms() > limits::kRuntimeMax.ms()) {
      return invalid("max_runtime_ms",
                     "max_runtime_ms must be from 0 to " + std::to_string(limits::kRuntimeMax.ms()));
    }
    update.max_runtime = milliseconds(message.max_runtime_ms());
  }
  if (message.has_name()) {
    if (message.name().size() > limits::kNameBytesMax)
      return invalid("name",
                     "name is longer than " + std::to_string(limits::kNameBytesMax) + " bytes; shorten it");
    if (has_nul(message.name())) return invalid("name", "name must not contain a NUL character");
    update.name = message.name();
  }
  if (auto problem = read_flow_update(message, update)) return std::move(*problem);
  if (!update.priority && !update.max_runtime && !update.name && !update.moves_begin &&
      !update.moves_deadline && !update.changes_parts()) {
    return ApiError{
        ErrorKind::kUnprocessable,
        "nothing is to be changed; give priority, max_runtime_ms, name, begin_at, deadline or what "
        "the job needs"};
  }
  return update;
}

Answer<ReservationRequest> read_reservation(const v1::Reservation& message) {
  const auto good_name = [](const std::string& name) {
    return !name.empty() && name.size() <= limits::kNameBytesMax && !has_nul(name);
  };
  if (!good_name(message.name()))
    return invalid("name", "name must have 1 to " + std::to_string(limits::kNameBytesMax) + " bytes");
  if (message.tenant_id().size() > limits::kNameBytesMax)
    return invalid("tenant_id", "tenant_id is too long");
  if (message.users_size() > static_cast<int>(limits::kBookingUsersMax) ||
      !std::all_of(message.users().begin(), message.users().end(), good_name)) {
    return invalid("users", "users must be at most " + std::to_string(limits::kBookingUsersMax) + " names");
  }
  if (message.users_size() > 0 && message.tenant_id().empty())
    return invalid("users", "users are a tenant's; give its tenant_id too");
  if (message.node_names_size() == 0 || message.node_names_size() > 10'000 ||
      !std::all_of(message.node_names().begin(), message.node_names().end(), good_name)) {
    return invalid("node_names",
                   "node_names must name 1 to 10000 nodes; a pattern such as gpu-* stands for many");
  }
  if (auto problem =
          check_time("begin_at", message.has_begin_at(), message.begin_at(), message.begin_after_ms()))
    return std::move(*problem);
  if (message.duration_ms() <= 0 || message.duration_ms() > limits::kBookingMax.ms())
    return invalid("duration_ms", "duration_ms must be above 0 and at most a year");
  if (message.every_ms() < 0 || message.every_ms() > limits::kBookingMax.ms())
    return invalid("every_ms", "every_ms must not be negative, nor longer than a year");
  if (message.reason().size() > kReasonBytesMax)
    return invalid("reason",
                   "reason is longer than " + std::to_string(kReasonBytesMax) + " bytes; shorten it");
  ReservationRequest request{.name = message.name(),
                             .tenant = message.tenant_id(),
                             .users = {message.users().begin(), message.users().end()},
                             .nodes = {message.node_names().begin(), message.node_names().end()},
                             .begin_at = {},
                             .begin_after = milliseconds(message.begin_after_ms()),
                             .length = milliseconds(message.duration_ms()),
                             .every = milliseconds(message.every_ms()),
                             .reason = message.reason()};
  if (message.has_begin_at()) request.begin_at = read_time(message.begin_at());
  return request;
}

std::optional<ApiError> check_drain(const v1::DrainNodeRequest& message) {
  if (message.reason().size() > kReasonBytesMax)
    return invalid("reason",
                   "reason is longer than " + std::to_string(kReasonBytesMax) + " bytes; shorten it");
  if (message.by().size() > limits::kNameBytesMax)
    return invalid("by", "by is longer than " + std::to_string(limits::kNameBytesMax) + " bytes; shorten it");
  return std::nullopt;
}

Answer<LabelChange> read_labels(const v1::LabelNodeRequest& message) {
  LabelChange change{.remove = {message.remove().begin(), message.remove().end()}};
  for (const auto& [name, value] : message.set()) change.set.push_back({.name = name, .value = value});
  std::sort(change.set.begin(), change.set.end(),
            [](const Label& a, const Label& b) { return a.name < b.name; });
  if (change.set.size() > limits::kNodeLabelsMax || change.remove.size() > limits::kNodeLabelsMax) {
    return invalid("set", "a node has at most " + std::to_string(limits::kNodeLabelsMax) + " labels");
  }
  if (change.set.empty() && change.remove.empty()) {
    return ApiError{ErrorKind::kUnprocessable, "nothing is to be changed; give set or remove"};
  }
  const auto bad = [](const std::string& text) {
    return text.size() > limits::kLabelBytesMax || has_nul(text);
  };
  for (const Label& label : change.set) {
    if (label.name.empty()) return invalid("set", "a label has an empty name; name it");
    if (bad(label.name) || bad(label.value) || has_control_character(label.name) ||
        has_control_character(label.value)) {
      return invalid("set", "a label's name or value is longer than 253 bytes or has a control character");
    }
  }
  for (const std::string& name : change.remove) {
    if (name.empty() || bad(name)) return invalid("remove", "remove has a name that no label can have");
  }
  return change;
}

}  // namespace gpusched::api
