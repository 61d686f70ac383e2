#pragma once

#include <functional>

#include "api/contract/errors.h"

namespace gpusched::api {

/// Called once with the answer. Writes: on the host's thread, after the command is durable; answers that
/// became durable together are followed by one call of the group hook (see Backend::on_group_done). Reads: on
/// the observer's thread. It must not block; it may be called before the asking call returns.
template <typename T>
using Done = std::function<void(Answer<T>)>;

}  // namespace gpusched::api
