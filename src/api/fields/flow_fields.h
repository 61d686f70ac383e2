#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/contract/jobs.h"
#include "api/fields/job_fields.h"

/// When a job may run, after what, how often and what for again, as every door spells it. Pure functions over
/// untrusted text; errors name the field.
namespace gpusched::api {

/// Puts what the fields say into the job.
std::optional<ApiError> read_flow(const JobFields& fields, JobRequest& job);

struct ArraySpec {
  std::vector<IndexRange> ranges;
  int64_t at_once = 0;
};
/// "1-100", "0-20:5", "1,3,7-9", each with "%50" behind it.
Answer<ArraySpec> parse_array(std::string_view text);

/// "0-999", "0-20:5,30"; of the positions from `from` on only, and of those not the ones in `without`, which
/// ascend. At most some 200 bytes; "..." stands for the rest.
std::string ranges_text(const std::vector<IndexRange>& ranges, int64_t from = 0,
                        const std::vector<int64_t>& without = {});
/// "after_ok:job-12"
std::string dependency_text(const JobDependency& dependency);
/// Causes and exit codes of a retry policy, as `retry_on` has them; nothing when it is the default.
std::vector<std::string> retry_on_words(uint32_t causes, std::string_view exit_codes);

}  // namespace gpusched::api
