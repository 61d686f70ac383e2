#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "cli/framework/session.h"
#include "grammar/grammar.h"

namespace gpusched::cli {

/// Does what was asked for, prints, and returns the exit code.
using Action = std::function<int(Session&)>;

/// A command of gpu-cli. To add one: write its `define` in a file of its own, declare that in verbs.h, and
/// add a line to the table in verbs.cc. Help, completion, manual pages and docs/reference/cli.md follow from
/// it.
struct VerbDefinition {
  std::string_view path;     ///< "submit", "node drain"
  std::string_view group;    ///< Heading in the help, such as "Jobs".
  std::string_view summary;  ///< One sentence without its full stop.
  /// Declares the verb's options and arguments, and returns what to run once they have their values. The
  /// action owns what they were declared to fill.
  Action (*define)(Grammar& grammar);
  std::string_view alias = {};  ///< An older name of the whole path.
  bool offline = false;         ///< Needs no scheduler: contexts and token files are not read.
  bool anonymous = false;       ///< Shows the scheduler no credential.
};

/// All commands, in the order of the help.
std::span<const VerbDefinition> all_verbs();

/// The command of this path or alias, or null.
const VerbDefinition* find_verb(std::string_view path);
/// Whether commands such as "node drain" begin with this word.
bool is_verb_group(std::string_view word);

/// The options that every command has, filled into `options`.
void define_global_options(Grammar& grammar, Options& options);

}  // namespace gpusched::cli
