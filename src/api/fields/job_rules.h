#pragma once

#include <optional>
#include <string_view>

#include "api/contract/jobs.h"
#include "api/fields/job_fields.h"

/// The rules for a job's request that are about more than one field, or more than a range; the same for every
/// door.
namespace gpusched::api {

/// Checks every rule and range and packs the specification. Errors name the field as the jobs door does.
Answer<JobRequest> check_job(JobFields fields, bool containers_possible);

/// Fate of a gang that loses a node: "end" (also when empty), or "continue".
std::optional<ApiError> read_node_loss(std::string_view word, const char* field, JobRequest& job);

/// The rules for the box of a job. `has_image`: it runs in a container.
std::optional<ApiError> check_box(const JobFields& fields, bool has_image);

/// GPUs and memory of all its nodes together as those of each, and what contradicts itself.
std::optional<ApiError> normalize_nodes(JobFields& fields);
/// Refuses properties of GPUs without their number.
std::optional<ApiError> check_gpus(const JobFields& fields);
/// A MIG slice says by its profile what it has; nothing else of GPUs can stand beside it but their model.
std::optional<ApiError> settle_slice(JobFields& fields);

/// "rack" and so on; nothing for another word.
std::optional<DomainLevel> parse_domain(std::string_view word);
/// A number, or what a tier's name stands for: "low" and so on.
std::optional<int64_t> tier_of(const NumberOrWord& given);
/// The word of a tier, or the digits of a number that has none.
std::string tier_text(int64_t number);

}  // namespace gpusched::api
