#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/doors/json_fields.h"

namespace gpusched::api {

struct MountFields {
  std::string source, target;
  bool read_only = false;
};

/// As gpusched.v1.PullPolicy numbers it.
enum class Pull : uint8_t { kDefault = 0, kIfMissing = 1, kAlways = 2, kNever = 3 };

/// The part of a specification that says in which box a job runs, as gpusched.v1.JobSpec has it.
struct BoxFields {
  std::string user;
  std::string stdout_path, stderr_path, stdin_path;
  std::optional<int64_t> umask;
  IntegerMap limits;
  std::vector<MountFields> mounts;
  std::string container_workdir_mount;
  Pull pull = Pull::kDefault;
  std::string registry_credential;
  StringList container_arguments;
  std::string image_digest;
};

/// What a job runs, as gpusched.v1.JobSpec has it.
struct SpecFields {
  std::string name;
  StringList command, args;
  std::string script, image;
  StringMap environment, labels;  ///< Sorted by key, without a key twice.
  std::string working_directory;
  bool working_directory_optional = false;
  bool gang_scheduling = false;
  bool checkpoint_enabled = false;
  std::string submitter;
  BoxFields box;               ///< Its limits sorted by name, without a name twice.
  std::string preempt_signal;  ///< "USR1"
  int64_t preempt_grace_ms = 0;
  std::string preempt_webhook;
  int64_t idle_after_ms = 0;
  std::string idle_action;
  int64_t hung_after_ms = 0;
  std::string hung_action;
};

/// Sorts by key and keeps of each the last.
void make_canonical(StringMap& map);
void make_canonical(IntegerMap& map);

/// The serialized gpusched.v1.JobSpec. Equal fields give equal bytes, which protobuf's own writer does not
/// promise for maps: a repeated request must look like the first one.
std::string pack_spec(const SpecFields& spec);

}  // namespace gpusched::api
