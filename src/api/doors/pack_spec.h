#pragma once

#include <string>

#include "api/doors/json_fields.h"

namespace gpusched::api {

/// What a job runs, as gpusched.v1.JobSpec has it.
struct SpecFields {
  std::string name;
  StringList command, args;
  std::string script, image;
  StringMap environment, labels;  ///< Sorted by key, without a key twice.
  std::string working_directory;
  bool gang_scheduling = false;
  bool checkpoint_enabled = false;
  std::string submitter;
};

/// Sorts by key and keeps of each the last.
void make_canonical(StringMap& map);

/// The serialized gpusched.v1.JobSpec. Equal fields give equal bytes, which protobuf's own writer does not
/// promise for maps: a repeated request must look like the first one.
std::string pack_spec(const SpecFields& spec);

}  // namespace gpusched::api
