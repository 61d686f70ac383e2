#pragma once

#include <string>
#include <string_view>

namespace gpusched {

/// Why a text is no YAML, in words that help: "FILE:LINE: ...". `line` is the parser's (from 0) and `message`
/// its own; a tab in the indentation, which parsers report as something else further down, is named with its
/// line.
std::string yaml_problem(const std::string& path, std::string_view text, int line,
                         const std::string& message);

}  // namespace gpusched
