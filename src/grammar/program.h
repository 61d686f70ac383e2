#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

/// A program with commands that are each declared once: help, completion and its manual page are made of
/// that.
namespace gpusched {

/// Does what was asked for and returns the exit status. `words` are those behind the command's name.
using ProgramAction = std::function<int(const std::vector<std::string>& words)>;

struct ProgramCommand {
  std::string path;     ///< "journal verify"; empty: what the program does without a command.
  std::string summary;  ///< One sentence without its full stop.
  /// Declares the options, and returns what to run once they have their values. The action owns what they
  /// were declared to fill.
  std::function<ProgramAction(Grammar&)> define;
  std::string alias = {};  ///< An older name of the whole path.
};

struct Program {
  std::string name;
  std::string version;
  std::string
      summary;  ///< One sentence without its full stop, for the manual page: "run jobs on this machine".
  std::vector<ProgramCommand> commands;  ///< In the order of the help; the one without a path comes first.
  std::string exit_codes;                ///< A sentence about the meaning of its exit statuses.
  int manual_section = 8;                ///< Section of its manual page; 1: a program for all users.
};

/// The needs of a program from the process around it.
struct ProgramIo {
  std::function<void(std::string_view)> out;
  std::function<void(std::string_view)> err;
  std::function<std::string(const char* name)> environment;  ///< Empty: not set.
  int width = 80;
};

inline constexpr int kProgramUsage = 2;

/// Runs the command that `words`, those behind the program's name, ask for, and returns its exit status.
/// `--help`, `--version`, and the commands `help`, `man` and `completion` are every program's. A wrong
/// command line is one sentence on standard error and kProgramUsage.
int run_program(const Program& program, const std::vector<std::string>& words, const ProgramIo& io);

/// The manual page, of section `manual_section`.
std::string program_manual(const Program& program);

/// The process's own streams, environment and terminal.
ProgramIo process_program_io();

/// `argv` without the program's name.
std::vector<std::string> program_words(int argc, char** argv);

}  // namespace gpusched
