#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/verbs/submit/submit.h"

/// The environment of a submission, from the caller's own and from its options.
namespace gpusched::cli {

/// Variables by their names.
using Variables = std::map<std::string, std::string>;

/// Returns the variables of --export, then of --env and --secret-env, which win in this order.
/// kInvalidArgument for a variable that was named and has no value in this shell, or one that cannot be sent.
/// `warnings` gets a sentence for each variable of --export ALL that cannot be sent, and one for the shell's
/// functions: they are left out.
Result<Variables> job_environment(const SubmitOptions& submit, const CliIo& io,
                                  std::vector<std::string>& warnings);

}  // namespace gpusched::cli
