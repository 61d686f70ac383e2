#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "cli/framework/run.h"
#include "grammar/grammar.h"

namespace gpusched::cli {

struct VerbDefinition;

/// Options of every command. A command's own options are its own.
struct Options {
  std::string api_url;
  std::string tenant_id;
  std::string token_file;
  std::string ca_file;  ///< Certificates that https trusts; empty: the machine's.
  std::string context;  ///< A name of `gpu-cli context`; empty: the current one.
  std::string color;    ///< "auto", "always" or "never".
  std::string request_timeout;
  Duration call_timeout = seconds(30);  ///< Timeout of one request.
  bool json = false;
  bool help = false;
  bool version = false;
};

/// A command line that was taken apart: which command, and the words that are its own or global options.
struct CommandLine {
  const VerbDefinition* verb = nullptr;  ///< Null: none was named.
  std::string group;                     ///< "node" when only that was said.
  std::vector<std::string> words;
};

/// Finds the command among the words. kInvalidArgument when there is none of that name.
Result<CommandLine> split_command_line(const std::vector<std::string>& words);

/// Fills in what the command line left open: from the environment, the context, the defaults.
Result<Unit> complete_options(Options& options, const CliIo& io, bool offline);

inline constexpr const char* kDefaultUrl = "http://127.0.0.1:8080";

}  // namespace gpusched::cli
