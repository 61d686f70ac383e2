#pragma once

#include <cstdint>

#include "base/time.h"

/// How much and how long one answer of a list is, at every door.
namespace gpusched::api {

/// Entries of a page when the caller names no number, and at most.
constexpr int64_t kPageDefault = 50;
constexpr int64_t kPageMax = 1'000;
/// The longest that a call waits for a job to change.
constexpr Duration kWaitMax = minutes(10);

}  // namespace gpusched::api
