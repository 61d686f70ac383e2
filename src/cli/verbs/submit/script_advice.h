#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Warnings about what a script uses that only Slurm has. Pure.
namespace gpusched::cli {

/// What the script `name` uses and its job will not have: variables of Slurm that are not set in it, with the
/// lines that use them, and commands of Slurm, with what to write instead. A sentence each.
std::vector<std::string> slurm_advice(const std::string& name, std::string_view script);

}  // namespace gpusched::cli
