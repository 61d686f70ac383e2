#pragma once

#include <string>

#include "grammar/program.h"

/// Texts that tell people of a program, made of its commands' grammars.
namespace gpusched {

/// Declares the options of every command.
struct GlobalFlags {
  bool help = false;
  bool version = false;
};
void declare_global_flags(Grammar& grammar, GlobalFlags& flags);

/// All commands, those that every program has among them.
std::vector<ProgramCommand> commands_of(const Program& program, const ProgramIo& io);

std::string program_help(const Program& program, const std::vector<ProgramCommand>& commands, int width);
/// The commands of a group, such as "journal".
std::string program_group_help(const Program& program, const std::vector<ProgramCommand>& commands,
                               const std::string& group, int width);
std::string program_command_help(const Program& program, const ProgramCommand& command, int width);

std::string program_manual(const Program& program, const std::vector<ProgramCommand>& commands);

/// The words that a shell offers for the last of `words`.
std::string program_completions(const std::vector<ProgramCommand>& commands,
                                const std::vector<std::string>& words);

/// The command that words name, and the words that are its options and arguments.
struct NamedCommand {
  const ProgramCommand* command = nullptr;  ///< Null: `group` alone was named.
  std::string group;
  std::vector<std::string> words;
  std::string unknown;  ///< Stands where a command's name should; empty: nothing does.
};
/// Options may stand before the command's name.
NamedCommand name_command(const std::vector<ProgramCommand>& commands, const std::vector<std::string>& words);

const ProgramCommand* find_command(const std::vector<ProgramCommand>& commands, const std::string& path);
bool is_command_group(const std::vector<ProgramCommand>& commands, const std::string& word);

}  // namespace gpusched
