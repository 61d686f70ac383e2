#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/result.h"

namespace gpusched {

/// Text of errno, such as "No such file or directory".
inline std::string errno_words() { return std::strerror(errno); }

/// Error of a system call that failed just now: `what`, and the text of errno.
inline Error io_error(const std::string& what) {
  return Error{.code = ErrorCode::kIo, .message = what + ": " + errno_words()};
}

/// Error for useless input; the message says what would be right.
inline Error invalid_argument(std::string message) {
  return Error{.code = ErrorCode::kInvalidArgument, .message = std::move(message)};
}

}  // namespace gpusched
