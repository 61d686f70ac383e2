#pragma once

#include <cstdint>

#include "api/contract/sessions.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// Answers with a file's bytes, piece by piece as the client takes them; with headers `File-Size` and
/// `File-Mode` (octal). A file of more than `bytes_max` is refused; what turns out
/// to be longer, or breaks off, ends the connection in the middle.
void relay_file(SessionBackend& backend, const RestCallPtr& call, FileRequest request, int64_t bytes_max);

}  // namespace gpusched::api
