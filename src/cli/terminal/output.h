#pragma once

#include <string>

#include "client/json.h"
#include "grammar/grammar.h"

namespace gpusched::cli {

/// Format requested by -o.
enum class Format { kTable, kWide, kJson, kYaml, kName };

/// Declares "-o,--output" for a command that shows things; "" is a table.
OptionSpec& declare_format(Grammar& grammar, std::string& format);
/// The format; --json is -o json.
Format format_of(const std::string& word, bool json);

/// The same as YAML. Texts that YAML could take for something else are quoted.
std::string yaml_text(const Json& value);

/// "a,b" in parts.
std::vector<std::string> comma_list(const std::string& text);

/// Splits "a,b[1,3]" at its commas outside of brackets; parts may be empty. Empty: a bracket is missing, or
/// brackets stand within brackets.
std::vector<std::string> split_outside_brackets(const std::string& text);

}  // namespace gpusched::cli
