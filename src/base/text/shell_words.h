#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpusched {

/// Words of a line as a shell would part them: blanks, quotes, backslashes, and a comment behind " #".
/// Nothing is expanded. kInvalidArgument: a quote is not closed.
Result<std::vector<std::string>> shell_words(std::string_view line);

/// A line that a shell, and `shell_words`, parts into these words.
std::string shell_line(std::span<const std::string> words);

}  // namespace gpusched
