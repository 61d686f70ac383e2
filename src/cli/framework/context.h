#pragma once

#include <map>
#include <string>

#include "cli/framework/options.h"

namespace gpusched::cli {

/// One scheduler as a user wants to reach it.
struct Context {
  std::string api_url;
  std::string token_file;
  std::string ca_file;
  std::string tenant_id;
};

/// The file of contexts, `$XDG_CONFIG_HOME/gpu-scheduler/contexts.json`, else below `~/.config`. Only its
/// owner may read it.
struct Contexts {
  std::string current;
  std::map<std::string, Context> all;
};

/// The URL of a scheduler as it is compared and kept: without slashes at its end.
std::string plain_url(const std::string& urls);

/// Empty when neither XDG_CONFIG_HOME nor HOME is set.
std::string contexts_path(const CliIo& io);

/// The folder of `gpu-cli login`, beside the file of contexts; empty as that.
std::string logins_path(const CliIo& io);

/// No file is no context. kIo when it cannot be read or is no such file.
Result<Contexts> load_contexts(const std::string& path);

/// Writes the whole file again, mode 0600, and syncs it: whoever reads sees the old one or the new one.
Result<Unit> save_contexts(const std::string& path, const Contexts& contexts);

}  // namespace gpusched::cli
