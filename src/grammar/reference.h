#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

/// Parts of reference pages (Markdown), made of grammars.
namespace gpusched {

std::string reference_options(const std::vector<const OptionSpec*>& options);

/// Usage, arguments, paragraphs, options and examples of one command, below its heading and summary.
std::string reference_body(const std::string& command, const Grammar& grammar);

}  // namespace gpusched
