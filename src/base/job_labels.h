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
// Of a record.
inline constexpr std::string_view kServiceReplicasLabel = "gpusched.service-replicas";
inline constexpr std::string_view kServiceRestartLabel = "gpusched.service-restart";
inline constexpr std::string_view kServiceReadyLabel = "gpusched.service-ready-after-ms";
// Which indexes have done their work for good, with success or without: hexadecimal, a bit for each. Set by
// the scheduler, since their jobs are not kept for ever.
inline constexpr std::string_view kServiceCompletedLabel = "gpusched.service-completed";
inline constexpr std::string_view kServiceFailedLabel = "gpusched.service-failed";
inline constexpr int64_t kServiceReplicasMax = 1'000, kServiceReadyAfterMaxMs = 3'600'000;
// Of a replica, which the scheduler submits: its index, its starts after an end, and those in quick
// succession.
inline constexpr std::string_view kReplicaLabel = "gpusched.replica";
inline constexpr std::string_view kReplicaRestartsLabel = "gpusched.replica-restarts";
inline constexpr std::string_view kReplicaFailuresLabel = "gpusched.replica-failures";

}  // namespace gpusched
