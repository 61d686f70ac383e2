#pragma once

#include <map>
#include <string>

/// Pages made from the commands' grammars, so that they cannot say anything else than the program does.
namespace gpusched::cli {

/// docs/reference/cli.md
std::string reference_page();

/// Manual pages by file name: "gpu-cli.1", "gpu-cli-node-drain.1". `version` goes into their footers.
std::map<std::string, std::string> manual_pages(const std::string& version);

}  // namespace gpusched::cli
