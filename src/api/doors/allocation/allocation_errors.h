#pragma once

#include <string_view>

#include "api/http/rest_gate.h"

/// Errors as clients of the allocation door read them: {"detail": ...}.
namespace gpusched::api {

/// An organization has as many GPUs as it may.
inline constexpr std::string_view kGpuQuotaReached =
    "GPU quota reached. Please deallocate an existing GPU before requesting a new one.";
/// One above it has, counting all below. It begins as the other does, for clients that look for that.
inline constexpr std::string_view kQuotaAboveReached =
    "GPU quota reached. Please deallocate an existing GPU before requesting a new one. The quota is that of "
    "an organization above yours, which counts the GPUs of all below it: if none of yours is left to "
    "deallocate, ask its administrator.";

/// Problems of a request are a list of {"loc","msg","type"} with status 422; all else is one sentence.
ErrorAnswer allocation_error(const ApiError& error);

}  // namespace gpusched::api
