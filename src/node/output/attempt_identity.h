#pragma once

#include <string>

#include "base/result.h"
#include "node/ports/ports.h"

namespace gpusched {

/// User that an attempt runs or ran as: by the agent's record; for attempts from before there was one, by the
/// name of the user or by the owner of its folder. Never by what a process of the attempt shows. kNotFound:
/// unknown.
Result<shim::Credentials> identity_of(const AttemptKey& key, const AttemptProcess& process,
                                      const std::string& data_folder);

}  // namespace gpusched
