#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "api/fields/checks.h"
#include "base/job_labels.h"
#include "base/limits.h"

/// Rules for fields in requests of the native API, as far as neither a field's type nor its row says them.
/// The OpenAPI document tells them; a test of others' making holds it against the server.
namespace gpusched::api {

inline constexpr std::string_view kPrintable = R"(^[^\x00-\x1f\x7f]*$)";
inline constexpr std::string_view kTenantName = R"(^(?!default$|tenant-[0-9]+$)[^\x00-\x1f\x7f]*$)";
inline constexpr std::string_view kText = R"(^[^\x00]*$)";
inline constexpr std::string_view kLabelText = R"(^[^\x00-\x1f\x7f]{0,63}$)";
inline constexpr std::string_view kPath = R"(^(/[^\x00]*)?$)";
inline constexpr std::string_view kFile = R"(^(/([^\x00-\x1f\x7f%]|%[jAatxuN%])*)?$)";
inline constexpr std::string_view kMountPath = R"(^/[^\x00-\x1f\x7f:,]*$)";
/// The door of jobs has it as one text, SOURCE:TARGET.
inline constexpr std::string_view kMountText = R"(^/[^\x00-\x1f\x7f:,]*:/[^\x00-\x1f\x7f:,]*(:r[ow])?$)";
/// At most ten minutes.
inline constexpr std::string_view kWaitSpan = "^([0-9]{1,5}ms|([0-9]{1,2}|[1-5][0-9]{2}|600)s?|([0-9]|10)m)$";
inline constexpr std::string_view kAction = "^(warn|requeue|cancel)?$";
inline constexpr std::string_view kKeyPattern = "^[!-~]{0,128}$";
inline constexpr std::string_view kSignal =
    "^(([sS][iI][gG])?([hH][uU][pP]|[iI][nN][tT]|[qQ][uU][iI][tT]|[uU][sS][rR][12]|[aA][lL][rR][mM]|"
    "[tT][eE][rR][mM]|[cC][oO][nN][tT]|[uU][rR][gG]|[xX][cC][pP][uU]|[wW][iI][nN][cC][hH]|"
    "1|2|3|10|12|14|15|18|23|24|28))?$";
inline constexpr std::string_view kWebhook =
    R"(^([hH][tT][tT][pP]://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,251}\]))"
    "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
    R"(([/?][!$-;=?-\[\]-~]*)?)?$)";
/// An element is named by its index, an earlier job of the same submission by its place there.
inline constexpr std::string_view kDependency =
    "^after_(ok|any|start):(#0*[0-9]{1,3}|job-[1-9][0-9]{0,17}|"
    R"(job-[1-9][0-9]{0,11}\[(0|[1-9][0-9]{0,5}|[1-3][0-9]{6}|4000000)\])$)";
/// No pattern can say that a range runs backwards, that two overlap, and how many elements there are.
inline constexpr std::string_view kArray =
    "^(0*([0-9]{1,6}|[1-3][0-9]{6}|4000000)"
    "(-0*([0-9]{1,6}|[1-3][0-9]{6}|4000000)(:0*([1-9][0-9]{0,5}|[1-3][0-9]{6}|4000000))?)?"
    "(,0*([0-9]{1,6}|[1-3][0-9]{6}|4000000)"
    "(-0*([0-9]{1,6}|[1-3][0-9]{6}|4000000)(:0*([1-9][0-9]{0,5}|[1-3][0-9]{6}|4000000))?)?){0,1023}"
    "(%0*([1-9][0-9]{0,5}|1000000))?)?$";
inline constexpr std::string_view kRetryCause =
    "^(exit_code(:0*([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5]))?|signal|out_of_memory|over_limit|"
    "timeout)$";
inline constexpr std::string_view kRole = "^(viewer|user|tenant_admin|operator|admin|metrics)$";
inline constexpr std::string_view kServiceName = "^(?!job-[1-9][0-9]*$)[A-Za-z0-9._-]{1,64}$";
inline constexpr std::string_view kRestartPolicy = "^(always|on_failure|never)?$";
inline constexpr std::string_view kReadyProbe = "^(http:/[!-~]{0,199}|tcp|none)?$";
inline constexpr std::string_view kLabelTerm = R"(^[^=\x00-\x1f\x7f]{1,253}(=[^\x00-\x1f\x7f]{0,253})?$)";
inline constexpr std::string_view kGpuId = R"(^(0*([0-9]|[1-5][0-9]|6[0-3])|[0-9]*[^0-9\x00][^\x00]*)$)";
static_assert(limits::kArrayIndexMax == 4'000'000 && limits::kArrayElementsMax == 1'000'000 &&
              limits::kArrayRangesMax == 1'024 && limits::kDevicesPerNodeMax == 64 &&
              limits::kLabelBytesMax == 253 && limits::kBatchJobsMax == 1'000);

/// Schemas of a part in a request: what it is shown with is more than what it takes.
inline constexpr std::string_view kAskedPart = "JobRequest.Part";
inline constexpr std::string_view kAskedPartResources = "JobRequest.Part.Resources";
/// Likewise of a tenant in a request that makes several changes together.
inline constexpr std::string_view kEditedTenant = "EditClusterRequest.Tenant";
/// Most entries of any list in a body, as its reader takes them.
inline constexpr int64_t kMessagesMax = 1'000;  ///< For lists of messages.
inline constexpr int64_t kTextsMax = 4'096;     ///< For lists of texts.

struct FieldShape {
  std::string_view field;         ///< "JobSpec.umask"
  std::string_view pattern = {};  ///< For a text, each text of a list, or each value of a map.
  std::string_view keys = {};     ///< For a map: all keys that it may have, separated by blanks.
  int64_t least = INT64_MIN, most = INT64_MAX;  ///< For a number.
  int64_t items_min = -1, items_max = -1;       ///< For a list or map.
  std::string_view schema = {};                 ///< For a message, or a list of them: where it is another.
  std::string_view words = {};                  ///< For an enumeration: all that are taken.
  int64_t bytes_min = -1, bytes_max = -1;       ///< For a text.
};
inline constexpr FieldShape kFieldShapes[] = {
    {.field = "SubmitJobsRequest.jobs", .items_min = 1, .items_max = limits::kBatchJobsMax},
    {.field = "SubmitJobsRequest.plan_job.jobs", .items_min = 1, .items_max = 1},
    {.field = "SubmitJobsRequest.request_key", .pattern = kKeyPattern},
    {.field = "CreateServiceRequest.name", .pattern = kServiceName},
    {.field = "CreateServiceRequest.tenant_id", .bytes_max = limits::kNameBytesMax},
    {.field = "CreateServiceRequest.replicas", .least = 0, .most = kServiceReplicasMax},
    {.field = "CreateServiceRequest.restart", .pattern = kRestartPolicy},
    {.field = "CreateServiceRequest.ready_after_ms", .least = 0, .most = kServiceReadyAfterMaxMs},
    {.field = "CreateServiceRequest.ready_probe", .pattern = kReadyProbe},
    {.field = "CreateServiceRequest.probe_period_ms",
     .least = kServiceProbePeriodMinMs,
     .most = kServiceProbePeriodMaxMs},
    {.field = "CreateServiceRequest.probe_timeout_ms",
     .least = kServiceProbeTimeoutMinMs,
     .most = kServiceProbeTimeoutMaxMs},
    {.field = "CreateServiceRequest.probe_failures", .least = 1, .most = kServiceProbeFailuresMax},
    {.field = "CreateServiceRequest.rollout_deadline_ms", .least = 0, .most = kServiceDeadlineMaxMs},
    {.field = "CreateServiceRequest.scale_queue", .bytes_max = limits::kLabelBytesMax},
    {.field = "CreateServiceRequest.scale_min", .least = 0, .most = kServiceReplicasMax},
    {.field = "CreateServiceRequest.scale_max", .least = 1, .most = kServiceReplicasMax},
    {.field = "CreateServiceRequest.scale_per_replica", .least = 1, .most = kServiceScaleJobsMax},
    {.field = "CreateServiceRequest.scale_down_after_ms", .least = 0, .most = kServiceScaleDownAfterMaxMs},
    {.field = "RollOutServiceRequest.tenant_id", .bytes_max = limits::kNameBytesMax},
    {.field = "RollOutServiceRequest.replicas", .least = 0, .most = kServiceReplicasMax},
    {.field = "RollOutServiceRequest.restart", .pattern = kRestartPolicy},
    {.field = "RollOutServiceRequest.ready_after_ms", .least = 0, .most = kServiceReadyAfterMaxMs},
    {.field = "RollOutServiceRequest.ready_probe", .pattern = kReadyProbe},
    {.field = "RollOutServiceRequest.probe_period_ms",
     .least = kServiceProbePeriodMinMs,
     .most = kServiceProbePeriodMaxMs},
    {.field = "RollOutServiceRequest.probe_timeout_ms",
     .least = kServiceProbeTimeoutMinMs,
     .most = kServiceProbeTimeoutMaxMs},
    {.field = "RollOutServiceRequest.probe_failures", .least = 1, .most = kServiceProbeFailuresMax},
    {.field = "RollOutServiceRequest.rollout_deadline_ms", .least = 0, .most = kServiceDeadlineMaxMs},
    {.field = "RollOutServiceRequest.scale_queue", .bytes_max = limits::kLabelBytesMax},
    {.field = "RollOutServiceRequest.scale_min", .least = 0, .most = kServiceReplicasMax},
    {.field = "RollOutServiceRequest.scale_max", .least = 1, .most = kServiceReplicasMax},
    {.field = "RollOutServiceRequest.scale_per_replica", .least = 1, .most = kServiceScaleJobsMax},
    {.field = "RollOutServiceRequest.scale_down_after_ms", .least = 0, .most = kServiceScaleDownAfterMaxMs},
    {.field = "ScaleServiceRequest.replicas", .least = 0, .most = kServiceReplicasMax},
    {.field = "ScaleServiceRequest.scale_queue", .bytes_max = limits::kLabelBytesMax},
    {.field = "ScaleServiceRequest.scale_min", .least = 0, .most = kServiceReplicasMax},
    {.field = "ScaleServiceRequest.scale_max", .least = 1, .most = kServiceReplicasMax},
    {.field = "ScaleServiceRequest.scale_per_replica", .least = 1, .most = kServiceScaleJobsMax},
    {.field = "ScaleServiceRequest.scale_down_after_ms", .least = 0, .most = kServiceScaleDownAfterMaxMs},
    {.field = "SubmitJobsRequest.tenant_id", .bytes_max = limits::kNameBytesMax},
    {.field = "Tenant.request_key", .pattern = kKeyPattern},
    {.field = "CancelJobsRequest.job_ids", .items_max = limits::kBatchJobsMax},
    {.field = "JobSpec.command", .pattern = kText, .items_max = limits::kCommandWordsMax},
    {.field = "JobSpec.args", .pattern = kText, .items_max = limits::kCommandWordsMax},
    {.field = "JobSpec.environment", .items_max = limits::kEnvironmentCountMax},
    {.field = "JobSpec.secret_variables", .items_max = limits::kEnvironmentCountMax},
    {.field = "JobSpec.labels",
     .pattern = kPrintable,
     .items_max = limits::kLabelCountMax,
     .bytes_max = limits::kLabelBytesMax},
    {.field = "JobSpec.submitter", .pattern = kPrintable},
    {.field = "JobSpec.working_directory", .pattern = kPath},
    {.field = "JobSpec.user", .pattern = R"(^([A-Za-z0-9._$@\\][-A-Za-z0-9._$@\\]{0,63})?$)"},
    {.field = "JobSpec.stdout_path", .pattern = kFile, .bytes_max = kPathBytesMax},
    {.field = "JobSpec.stderr_path", .pattern = kFile, .bytes_max = kPathBytesMax},
    {.field = "JobSpec.stdin_path", .pattern = kFile, .bytes_max = kPathBytesMax},
    {.field = "JobSpec.umask", .least = 0, .most = 511},
    {.field = "JobSpec.limits",
     .keys = "as core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio sigpending stack",
     .least = -1},
    {.field = "JobSpec.mounts", .items_max = 64},
    {.field = "Mount.source", .pattern = kMountPath, .bytes_max = kPathBytesMax},
    {.field = "Mount.target", .pattern = kMountPath, .bytes_max = kPathBytesMax},
    {.field = "JobSpec.container_workdir_mount",
     .pattern = R"(^(/[^\x00-\x1f\x7f]*)?$)",
     .bytes_max = kPathBytesMax},
    {.field = "JobSpec.pull", .pattern = "^(if_missing|always|never)?$"},
    {.field = "JobSpec.registry_credential", .bytes_max = 253},
    {.field = "JobSpec.container_arguments", .items_max = 64, .bytes_max = 4'096},
    {.field = "JobSpec.image_digest", .pattern = "^(sha256:[0-9a-f]{64})?$"},
    {.field = "JobSpec.preempt_signal", .pattern = kSignal},
    {.field = "JobSpec.preempt_webhook", .pattern = kWebhook},
    {.field = "JobSpec.idle_action", .pattern = kAction},
    {.field = "JobSpec.hung_action", .pattern = kAction},
    {.field = "JobSpec.executor", .pattern = "^(process|external)?$"},
    {.field = "JobRequest.parts", .items_max = limits::kPartsMax, .schema = kAskedPart},
    {.field = "JobRequest.Part.resources", .schema = kAskedPartResources},
    {.field = "JobRequest.Part.members", .least = 0, .most = limits::kMembersMax},
    {.field = "JobRequest.Part.members_max", .least = 0, .most = limits::kMembersMax},
    {.field = "JobRequest.Part.Resources.gpu_count", .least = 0, .most = limits::kDevicesPerNodeMax},
    {.field = "JobRequest.Part.Resources.nodes", .least = 0, .most = 0},
    {.field = "JobRequest.Part.Resources.nodes_max", .least = 0, .most = 0},
    {.field = "JobRequest.Part.Resources.gpu_milli", .least = 0, .most = 0},
    {.field = "JobRequest.Part.Resources.mig_profile", .pattern = "^$"},
    {.field = "RetryPolicy.kill_after_lost_contact_ms", .least = 0, .most = limits::kRuntimeMax.ms()},
    {.field = "UpdateJobRequest.priority", .least = -limits::kPriorityMax, .most = limits::kPriorityMax},
    {.field = "UpdateJobRequest.max_runtime_ms", .least = 0, .most = limits::kRuntimeMax.ms()},
    {.field = "UpdateJobRequest.begin_after_ms", .least = 0, .most = limits::kBeginMax.ms()},
    {.field = "UpdateJobRequest.deadline_after_ms", .least = 0, .most = limits::kBeginMax.ms()},
    {.field = "UpdateJobRequest.gpu_count", .least = 0, .most = limits::kGpusPerJobMax},
    {.field = "UpdateJobRequest.gpu_memory_mb", .least = 0, .most = limits::kMegabytesMax},
    {.field = "UpdateJobRequest.cpu_milli", .least = 0, .most = int64_t{limits::kCpuCoresMax} * 1'000},
    {.field = "UpdateJobRequest.memory_mb", .least = 0, .most = limits::kMegabytesMax},
    {.field = "UpdateJobRequest.name", .bytes_max = limits::kNameBytesMax},
    {.field = "UpdateJobRequest.gpu_model", .bytes_max = limits::kNameBytesMax},
    {.field = "Tenant.create_tenant.name", .pattern = kTenantName, .bytes_min = 1},
    {.field = "Tenant.update_tenant.name", .pattern = kTenantName, .bytes_min = 1},
    {.field = "EditClusterRequest.Tenant.name", .pattern = kTenantName, .bytes_min = 1},
    {.field = "EditClusterRequest.Tenant.request_key", .pattern = "^$"},
    {.field = "Tenant.email", .pattern = kPrintable},
    {.field = "Tenant.organization", .pattern = kPrintable},
    {.field = "EditClusterRequest.tenants", .items_max = kMessagesMax, .schema = kEditedTenant},
    {.field = "LabelNodeRequest.set", .pattern = kLabelText, .items_max = limits::kNodeLabelsMax},
    {.field = "LabelNodeRequest.remove",
     .items_max = limits::kNodeLabelsMax,
     .bytes_min = 1,
     .bytes_max = limits::kLabelBytesMax},
    {.field = "CreateKeyRequest.name", .pattern = "^[A-Za-z0-9._@-]{1,64}$"},
    {.field = "CreateKeyRequest.tenant_id", .bytes_max = limits::kNameBytesMax},
    {.field = "CreateKeyRequest.kind", .pattern = "^(service|person)?$"},
    {.field = "CreateKeyRequest.roles", .items_max = limits::kKeyBindingsMax},
    {.field = "CreateKeyRequest.unix_users",
     .pattern = R"(^(\*|[A-Za-z0-9._$@\\][-A-Za-z0-9._$@\\]{0,63})$)",
     .items_max = limits::kKeyUnixUsersMax},
    {.field = "CreateKeyRequest.expires_after_ms", .least = 1, .most = int64_t{3'660} * 86'400'000},
    {.field = "CreateNodeTokenRequest.node_name",
     .pattern =
         R"(^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*$)",
     .bytes_min = 1,
     .bytes_max = limits::kNameBytesMax},
    {.field = "CreateNodeTokenRequest.expires_after_ms", .least = 1, .most = int64_t{30} * 86'400'000},
    {.field = "KeyRole.role", .pattern = kRole},
    {.field = "KeyRole.tenant_id", .bytes_max = limits::kNameBytesMax},
    {.field = "BindRoleRequest.role", .pattern = kRole},
    {.field = "BindRoleRequest.tenant_id", .bytes_max = limits::kNameBytesMax},
    {.field = "ApplyMovesRequest.id", .pattern = "^[0-9a-f-]{1,64}$"},
    {.field = "Reservation.name", .pattern = kPrintable, .bytes_min = 1},
    {.field = "Reservation.node_names", .items_min = 1, .bytes_min = 1},
    {.field = "Reservation.users",
     .pattern = kPrintable,
     .items_max = limits::kBookingUsersMax,
     .bytes_min = 1},
    {.field = "SetDeviceConditionRequest.condition", .words = "ok unhealthy"},
    {.field = "JobRequest.dependencies", .pattern = kDependency, .items_max = limits::kDependenciesMax},
    {.field = "JobRequest.on_parent_failure", .pattern = "^(cancel|wait)?$"},
    {.field = "JobRequest.array", .pattern = kArray},
    {.field = "JobRequest.reservation", .pattern = kPrintable},
    {.field = "JobRequest.preemption_mode", .pattern = "^(requeue|cancel)?$"},
    {.field = "JobRequest.work_class", .pattern = "^(online|batch)?$"},
    {.field = "RetryPolicy.on", .pattern = kRetryCause},
    {.field = "RetryPolicy.on_node_loss", .pattern = "^(end|continue)?$"},
    {.field = "Resources.domain", .pattern = "^(node|rack|block|zone)?$"},
    {.field = "Resources.gpu_layout", .pattern = "^(pack|spread|contiguous)?$"},
    {.field = "Resources.gpu_model", .pattern = kPrintable},
    {.field = "Resources.node_labels", .pattern = kLabelTerm, .items_max = limits::kLabelTermsMax},
    {.field = "Resources.without_labels", .pattern = kLabelTerm, .items_max = limits::kLabelTermsMax},
    {.field = "Resources.gpu_ids",
     .pattern = kGpuId,
     .items_max = limits::kDevicesPerNodeMax,
     .bytes_max = limits::kLabelBytesMax},
    {.field = "Resources.gpu_bandwidth_gbs", .least = 0, .most = limits::kLinkGbsMax},
    {.field = "SetDeviceConditionRequest.detail", .pattern = kPrintable, .bytes_max = 1'024},
    {.field = "SetDeviceConditionRequest.by", .pattern = kPrintable, .bytes_max = limits::kNameBytesMax},
    {.field = "PauseStartsRequest.by", .pattern = kPrintable, .bytes_max = limits::kNameBytesMax},
    {.field = "PauseStartsRequest.reason", .pattern = kPrintable, .bytes_max = 1'024},
    {.field = "DrainNodeRequest.by", .pattern = kPrintable, .bytes_max = limits::kNameBytesMax},
    {.field = "DrainNodeRequest.reason", .pattern = kPrintable, .bytes_max = 1'024},
};

/// Null when there is none.
inline const FieldShape* shape_of(std::string_view field) {
  const auto* const found = std::ranges::find(kFieldShapes, field, &FieldShape::field);
  return found == std::end(kFieldShapes) ? nullptr : found;
}

}  // namespace gpusched::api
