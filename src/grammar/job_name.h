#pragma once

#include <string>

namespace gpusched {

/// The id of a job as the scheduler has it, from what people write: "5" is job-5, and "5_3", "5[3]" and
/// "job-5_3" are job-5[3]. Any other text stays as it is, and so do indexes such as "5[1-3]".
std::string full_job_id(const std::string& text);

}  // namespace gpusched
