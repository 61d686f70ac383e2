#pragma once

#include <string_view>

/// Labels of jobs that mean something to the scheduler.
namespace gpusched {

/// Marks a lease: a job that holds its devices for somebody and runs no command of its own. Its holder is
/// told before its time is over.
inline constexpr std::string_view kLeaseLabel = "gpusched.lease";
/// Leads from an Idempotency-Key to its lease; see `api::request_label`.
inline constexpr std::string_view kLeaseRequestLabel = "gpusched.lease-request";

}  // namespace gpusched
