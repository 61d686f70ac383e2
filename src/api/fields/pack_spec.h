#pragma once

#include <string>

#include "api/fields/job_fields.h"

namespace gpusched::api {

/// Sorts by key and keeps of each the last.
void make_canonical(StringMap& map);
void make_canonical(IntegerMap& map);

/// The serialized gpusched.v1.JobSpec, whose maps must be canonical. Equal fields give equal bytes, which
/// protobuf's own writer does not promise for maps: a repeated request must look like the first one.
std::string pack_spec(const JobFields& fields);

}  // namespace gpusched::api
