#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace gpusched {

/// Refusal of a command in which unprintable_field names a field.
inline Error unprintable(std::string_view field) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = std::string(field) + " contains a control character, such as a line break; remove it",
          .field = std::string(field)};
}

}  // namespace gpusched
