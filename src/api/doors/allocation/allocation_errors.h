#pragma once

#include <string_view>

#include "api/http/rest_gate.h"

/// Errors as clients of the allocation door read them: {"detail": ...}.
namespace gpusched::api {

/// An organization has as many GPUs as it may.
inline constexpr std::string_view kGpuQuotaReached =
    "GPU quota reached. Please deallocate an existing GPU before requesting a new one.";

/// What is wrong with a request is a list of {"loc","msg","type"} with status 422; all else one sentence.
ErrorAnswer allocation_error(const ApiError& error);

}  // namespace gpusched::api
