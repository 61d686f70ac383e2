#pragma once

#include <string>

#include "api/backend/tokens/token_verifier.h"
#include "base/result.h"

namespace gpusched {

/// The file of `api.jwt_rules_file`. kInvalidArgument: all that is wrong with it, one problem a line with
/// file and line number.
Result<api::JwtRules> parse_jwt_rules(const std::string& path, const std::string& text);

/// The same from the disk, and from nobody's hand but root's and this process's user: kPermissionDenied when
/// others may write it; kNotFound, kIo: it cannot be read.
Result<api::JwtRules> load_jwt_rules(const std::string& path);

}  // namespace gpusched
