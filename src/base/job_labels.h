#pragma once

#include <cstdint>
#include <string_view>

/// Labels of jobs that mean something to the scheduler.
namespace gpusched {

/// Marks a lease: a job that holds its devices for somebody and runs no command of its own. Its holder is
/// told before its time is over.
inline constexpr std::string_view kLeaseLabel = "gpusched.lease";
/// Leads from an Idempotency-Key to its lease; see `api::request_label`.
inline constexpr std::string_view kLeaseRequestLabel = "gpusched.lease-request";

/// Names the service that a job is about: its record, a held job that says what the service is and never
/// starts, or one of its replicas.
inline constexpr std::string_view kServiceLabel = "gpusched.service";
/// Counts what the replicas of a service were told to run, from 1 on.
inline constexpr std::string_view kServiceGenerationLabel = "gpusched.service-generation";
/// Asks for one more than the newest.
inline constexpr std::string_view kNextGeneration = "next";
// Labels of a record.
inline constexpr std::string_view kServiceReplicasLabel = "gpusched.service-replicas";
inline constexpr std::string_view kServiceRestartLabel = "gpusched.service-restart";
inline constexpr std::string_view kServiceReadyLabel = "gpusched.service-ready-after-ms";
// The indexes that have done their work for good, with success or without: hexadecimal, a bit for each. Set
// by the scheduler, since their jobs are not kept for ever.
inline constexpr std::string_view kServiceCompletedLabel = "gpusched.service-completed";
inline constexpr std::string_view kServiceFailedLabel = "gpusched.service-failed";
// Labels of a record and its replicas: whether each has a port of its node ("1"), and the probe that tells
// whether it is ready ("tcp", "http:/PATH").
inline constexpr std::string_view kServicePortLabel = "gpusched.service-port";
inline constexpr std::string_view kServiceHasPort = "1", kServiceHasNoPort = "0";
inline constexpr std::string_view kServiceProbeLabel = "gpusched.service-probe";
inline constexpr std::string_view kServiceNoProbe = "none";
inline constexpr std::string_view kServiceProbePeriodLabel = "gpusched.service-probe-period-ms";
inline constexpr std::string_view kServiceProbeTimeoutLabel = "gpusched.service-probe-timeout-ms";
inline constexpr std::string_view kServiceProbeFailuresLabel = "gpusched.service-probe-failures";
// Label of a record: time that a rollout waits for a new replica before it is called stalled.
inline constexpr std::string_view kServiceDeadlineLabel = "gpusched.service-rollout-deadline-ms";
// Labels of a record whose replicas follow a queue: the label of the waiting jobs of its tenant that are the
// queue ("KEY=VALUE", "KEY"), the bounds of the replicas' number, the jobs for each replica, and how long
// fewer replicas must be enough.
inline constexpr std::string_view kServiceQueueLabel = "gpusched.service-scale-queue";
inline constexpr std::string_view kServiceNoQueue = "none";
inline constexpr std::string_view kServiceScaleMinLabel = "gpusched.service-scale-min";
inline constexpr std::string_view kServiceScaleMaxLabel = "gpusched.service-scale-max";
inline constexpr std::string_view kServiceScaleJobsLabel = "gpusched.service-scale-per-replica";
inline constexpr std::string_view kServiceScaleDownLabel = "gpusched.service-scale-down-after-ms";
inline constexpr int64_t kServiceScaleJobsMax = 1'000'000, kServiceScaleDownAfterMaxMs = 86'400'000;
inline constexpr int64_t kServiceProbePeriodMinMs = 100, kServiceProbePeriodMaxMs = 3'600'000;
inline constexpr int64_t kServiceProbeTimeoutMinMs = 10, kServiceProbeTimeoutMaxMs = 60'000;
inline constexpr int64_t kServiceProbeFailuresMax = 100, kServiceDeadlineMaxMs = 86'400'000;
inline constexpr int64_t kServiceReplicasMax = 1'000, kServiceReadyAfterMaxMs = 3'600'000;
/// A setting of a service: the label of its record, the field of the services API, the option of gpu-cli.
struct ServiceSettingName {
  std::string_view label, field, option;
};
inline constexpr ServiceSettingName kServiceSettingNames[] = {
    {kServiceReplicasLabel, "replicas", "--replicas"},
    {kServiceRestartLabel, "restart", "--restart"},
    {kServiceReadyLabel, "ready_after_ms", "--ready-after"},
    {kServicePortLabel, "port", "--port"},
    {kServiceProbeLabel, "ready_probe", "--ready-probe"},
    {kServiceProbePeriodLabel, "probe_period_ms", "--probe-period"},
    {kServiceProbeTimeoutLabel, "probe_timeout_ms", "--probe-timeout"},
    {kServiceProbeFailuresLabel, "probe_failures", "--probe-failures"},
    {kServiceDeadlineLabel, "rollout_deadline_ms", "--rollout-deadline"},
    {kServiceQueueLabel, "scale_queue", "--scale-queue"},
    {kServiceScaleMinLabel, "scale_min", "--min"},
    {kServiceScaleMaxLabel, "scale_max", "--max"},
    {kServiceScaleJobsLabel, "scale_per_replica", "--scale-per-replica"},
    {kServiceScaleDownLabel, "scale_down_after_ms", "--scale-down-after"},
};
// Labels of a replica, which the scheduler submits: its index, its starts after an end, and those in quick
// succession.
inline constexpr std::string_view kReplicaLabel = "gpusched.replica";
inline constexpr std::string_view kReplicaRestartsLabel = "gpusched.replica-restarts";
inline constexpr std::string_view kReplicaFailuresLabel = "gpusched.replica-failures";
/// When the first job of its index and generation was submitted, in milliseconds since 1970; absent: it is
/// that.
inline constexpr std::string_view kReplicaSinceLabel = "gpusched.replica-since-ms";

}  // namespace gpusched
