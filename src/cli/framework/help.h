#pragma once

#include <string>

#include "cli/framework/verb.h"

/// Everything that tells people what there is, made from the verbs' grammars.
namespace gpusched::cli {

/// Returns the output of `gpu-cli --help`. `width` in columns.
std::string main_help(int width);
/// The commands of a group, such as "node".
std::string group_help(const std::string& group, int width);
std::string verb_help(const VerbDefinition& verb, int width);

/// "gpu-cli node drain [options] NODE"
std::string usage_line(const VerbDefinition& verb, const Grammar& grammar);
/// "-- COMMAND...", or without the dashes where they may be left out.
std::string command_title(const Grammar& grammar);
/// "-f, --follow SPAN"
std::string option_title(const OptionSpec& option);

}  // namespace gpusched::cli
