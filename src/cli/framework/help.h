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

/// "gpu-cli node drain"
std::string command_of(const VerbDefinition& verb);

}  // namespace gpusched::cli
