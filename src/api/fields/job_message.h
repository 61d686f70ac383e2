#pragma once

#include <google/protobuf/timestamp.pb.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/jobs.h"
#include "gpusched/v1/scheduler.pb.h"

/// Jobs in the native API's messages.
namespace gpusched::api {

/// Fills in whatever a job says about itself; checks everything.
Answer<JobRequest> read_job(const v1::JobRequest& message, bool containers_possible);

/// The packed specification with other texts in these fields.
std::string with_texts(std::string_view spec, const std::vector<TextChange>& texts);

Time read_time(const google::protobuf::Timestamp& time);
/// Refuses instants that are none, and spans beyond a year.
std::optional<ApiError> check_time(std::string_view field, bool is_given,
                                   const google::protobuf::Timestamp& time, int64_t after_ms);

}  // namespace gpusched::api
