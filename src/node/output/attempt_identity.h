#pragma once

#include <string>

#include "base/result.h"
#include "node/ports/ports.h"

namespace gpusched {

/// Whom an attempt runs or ran as: by the agent's record; of attempts from before there was one, by the name
/// of the user or by whose its folder is. Never by what a process of the attempt shows. kNotFound: nobody can
/// tell.
Result<shim::Credentials> identity_of(const AttemptKey& key, const AttemptProcess& process,
                                      const std::string& data_folder);

}  // namespace gpusched
