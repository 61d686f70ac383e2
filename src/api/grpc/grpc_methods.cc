#include "api/grpc/grpc_methods.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::api {
namespace {

using enum access::Action;

constexpr std::string_view kNative = "gpusched.v1.Scheduler", kServices = "gpusched.v1.Services",
                           kJobs = "scheduler.SchedulerService", kTasks = "algogpu.GPUScheduler",
                           kNodes = "gpusched.v1.NodeProtocol", kHealth = "grpc.health.v1.Health",
                           kReflection = "grpc.reflection.v1.ServerReflection",
                           kOldReflection = "grpc.reflection.v1alpha.ServerReflection";

constexpr GrpcMethodRow kMethods[] = {
    {kNative, "SubmitJobs", kSubmitJob},
    {kNative, "SubmitJobStream", kSubmitJob},
    {kNative, "CancelJobs", kCancelJob},
    {kNative, "GetJob", kSeeJob},
    {kNative, "ListJobs", kSeeJob},
    {kNative, "WatchJob", kSeeJob},
    {kNative, "Watch", kSeeJob},
    {kNative, "ExplainJob", kDescribeJob},
    {kNative, "GetJobHistory", kDescribeJob},
    {kNative, "PlanJob", kPlanJob},
    {kNative, "UpdateJob", kUpdateJob},
    {kNative, "HoldJob", kHoldJob},
    {kNative, "ReleaseJob", kHoldJob},
    {kNative, "RequeueJob", kRequeueJob},
    {kNative, "ReadLog", kReadJobOutput},
    {kNative, "CreateTenant", kCreateTenant},
    {kNative, "UpdateTenant", kUpdateTenant},
    {kNative, "DeleteTenant", kDeleteTenant},
    {kNative, "GetTenant", kSeeTenant},
    {kNative, "ListTenants", kSeeTenant},
    {kNative, "CreateReservation", kMakeReservation},
    {kNative, "ListReservations", kSeeReservation},
    {kNative, "CancelReservation", kCancelReservation},
    {kNative, "ListNodes", kSeeNode},
    {kNative, "ConfirmNodeDead", kConfirmNodeDead},
    {kNative, "RemoveNode", kRemoveNode},
    {kNative, "DrainNode", kDrainNode},
    {kNative, "ResumeNode", kResumeNode},
    {kNative, "RebootNode", kRebootNode},
    {kNative, "LabelNode", kLabelNode},
    {kNative, "SetDeviceCondition", kSetDevice},
    {kNative, "GetQuality", kSeeQuality},
    {kNative, "GetMoves", kSeeMoves},
    {kNative, "ApplyMoves", kMoveJobs},
    {kNative, "GetCluster", kSeeCluster},
    {kNative, "PauseStarts", kPauseStarts},
    {kNative, "ResumeStarts", kPauseStarts},
    {kNative, "CreateKey", kCreateKey},
    {kNative, "ListKeys", kSeeKey},
    {kNative, "RevokeKey", kRevokeKey},
    {kNative, "BindRole", kBindRole},
    {kNative, "CreateNodeToken", kAdmitNode},
    {kNative, "ListNodeIdentities", kSeeIdentity},
    {kNative, "RevokeNode", kRevokeNode},
    {kServices, "CreateService", kSubmitJob},
    {kServices, "ListServices", kSeeJob},
    {kServices, "GetService", kSeeJob},
    {kServices, "ScaleService", kUpdateJob},
    {kServices, "RollOutService", kSubmitJob},
    {kServices, "DeleteService", kCancelJob},
    {kJobs, "SubmitJob", kSubmitJob},
    {kJobs, "CancelJob", kCancelJob},
    {kJobs, "GetJobStatus", kSeeJob},
    {kJobs, "ListJobs", kSeeJob},
    {kJobs, "UpdateTenantQuota", kUpdateTenant},
    {kJobs, "GetMetrics", kSeeMetrics},
    {kJobs, "GetClusterStatus", kSeeCluster},
    {kTasks, "SubmitTask", kSubmitJob},
    {kTasks, "GetTaskStatus", kSeeJob},
    {kTasks, "CancelTask", kCancelJob},
    {kTasks, "GetGPUStatus", kSeeNode},
    {kTasks, "TaskEvents", kSeeJob},
    {kNodes, "Connect", kSpeakForNode},
    {kHealth, "Check", kSeeHealth},
    {kReflection, "ServerReflectionInfo", kSeeHealth},
    {kOldReflection, "ServerReflectionInfo", kSeeHealth},
};

}  // namespace

std::span<const GrpcMethodRow> grpc_methods() { return kMethods; }

const GrpcMethodRow& grpc_method(std::string_view service, std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kMethods, [&](const GrpcMethodRow& row) { return row.service == service && row.name == name; });
  CHECK(found != std::end(kMethods));
  return *found;
}

}  // namespace gpusched::api
