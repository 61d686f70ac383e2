#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace gpusched::sign {

/// A whole file of that mode that is on the disk, or the old one, whatever happens.
Result<Unit> write_whole(const std::string& path, const std::string& text, mode_t mode);

/// "cannot WHAT PATH: " and what the system said last.
Error file_error(const char* what, const std::string& path);

}  // namespace gpusched::sign
