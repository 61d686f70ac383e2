#include "grammar/program.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "grammar/completion.h"
#include "grammar/program_pages.h"
#include "grammar/version.h"

namespace gpusched {
namespace {

constexpr int kWidthUsual = 80;
constexpr int kWidthMin = 20;

std::string full_name(const Program& program, const std::string& path) {
  return path.empty() ? program.name : program.name + " " + path;
}

/// A wrong command line, and who explains the right one.
int usage_error(const Program& program, const std::string& path, const std::string& sentence,
                const ProgramIo& io) {
  const std::string name = full_name(program, path);
  io.err(name + ": " + sentence + " (see " + name + " --help)\n");
  return kProgramUsage;
}

int run_named(const Program& program, const std::vector<ProgramCommand>& commands, const NamedCommand& named,
              const ProgramIo& io) {
  const std::string path = named.command == nullptr ? named.group : named.command->path;
  Grammar grammar;
  ProgramAction action;
  if (named.command != nullptr) action = named.command->define(grammar);
  grammar.refuses_repetitions();
  Grammar global;
  GlobalFlags flags;
  declare_global_flags(global, flags);
  if (const Result<Unit> parsed = grammar.parse(named.words, &global); !parsed)
    return usage_error(program, path, parsed.error().message, io);
  if (flags.help) {
    io.out(path.empty() ? program_help(program, commands, io.width)
           : action     ? program_command_help(program, *named.command, io.width)
                        : program_group_help(program, commands, path, io.width));
    return 0;
  }
  if (flags.version) {
    io.out(version_line(program.name, program.version) + "\n");
    return 0;
  }
  if (!action) return usage_error(program, path, "a command is missing", io);
  if (const Result<Unit> taken = grammar.take_environment(io.environment); !taken)
    return usage_error(program, path, taken.error().message, io);
  if (const Result<Unit> complete = grammar.check_complete(); !complete)
    return usage_error(program, path, complete.error().message, io);
  return action(named.words);
}

ProgramCommand completion_command(const Program& program, const ProgramIo& io) {
  return {.path = "completion",
          .summary = "Print a shell's completion script",
          .define = [&program, &io](Grammar& grammar) -> ProgramAction {
            const auto shell = std::make_shared<std::string>();
            grammar.argument("SHELL", shell.get(), "bash, zsh or fish").of({"bash", "zsh", "fish"});
            grammar.example("source <(" + program.name + " completion bash)",
                            "in this shell, or in ~/.bashrc");
            return [&program, &io, shell](const std::vector<std::string>&) {
              io.out(completion_script(*shell, program.name));
              return 0;
            };
          }};
}

int write_manual(const Program& program, const std::string& folder, const ProgramIo& io) {
  const std::string path = folder + "/" + program.name + "." + std::to_string(program.manual_section);
  const auto fail = [&](const std::string& what) {
    io.err(program.name + " man: " + what + ": " + std::strerror(errno) + "\n");
    return 1;
  };
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return fail("cannot make the folder " + folder);
  std::ofstream file(path, std::ios::binary);
  file << program_manual(program);
  file.close();
  if (!file) return fail("cannot write " + path);
  io.out(path + "\n");
  return 0;
}

ProgramCommand manual_command(const Program& program, const ProgramIo& io) {
  return {.path = "man",
          .summary = "Write the manual page to a folder",
          .define = [&program, &io](Grammar& grammar) -> ProgramAction {
            const auto folder = std::make_shared<std::string>();
            grammar.argument("DIR", folder.get(), "The folder; created if it does not exist")
                .completes(Complete::kFolder);
            grammar.example(
                program.name + " man /usr/local/share/man/man" + std::to_string(program.manual_section),
                "then: man " + program.name);
            return [&program, &io, folder](const std::vector<std::string>&) {
              return write_manual(program, *folder, io);
            };
          }};
}

int explain(const Program& program, const std::vector<std::string>& words, const ProgramIo& io) {
  std::string path;
  for (const std::string& word : words) path += (path.empty() ? "" : " ") + word;
  const std::vector<ProgramCommand> commands = commands_of(program, io);
  const ProgramCommand* const command = find_command(commands, path);
  if (path.empty()) {
    io.out(program_help(program, commands, io.width));
  } else if (command != nullptr) {
    io.out(program_command_help(program, *command, io.width));
  } else if (is_command_group(commands, path)) {
    io.out(program_group_help(program, commands, path, io.width));
  } else {
    return usage_error(program, "", "there is no command " + path, io);
  }
  return 0;
}

ProgramCommand help_command(const Program& program, const ProgramIo& io) {
  return {.path = "help",
          .summary = "Show help for a command",
          .define = [&program, &io](Grammar& grammar) -> ProgramAction {
            const auto words = std::make_shared<std::vector<std::string>>();
            grammar.argument("COMMAND", words.get(), "A command").optional().completes(Complete::kCommand);
            return [&program, &io, words](const std::vector<std::string>&) {
              return explain(program, *words, io);
            };
          }};
}

int unknown_command(const Program& program, const std::vector<ProgramCommand>& commands,
                    const NamedCommand& named, const ProgramIo& io) {
  const std::string prefix = named.group.empty() ? "" : named.group + " ";
  std::vector<std::string> known;
  for (const ProgramCommand& command : commands) {
    if (!command.path.starts_with(prefix)) continue;
    const std::string rest = command.path.substr(prefix.size());
    known.push_back(rest.substr(0, rest.find(' ')));
  }
  const std::string near = nearest_of(named.unknown, known);
  return usage_error(program, named.group,
                     "there is no command " + named.unknown +
                         (near.empty() ? "" : "; did you mean " + full_name(program, prefix + near) + "?"),
                     io);
}

}  // namespace

std::vector<ProgramCommand> commands_of(const Program& program, const ProgramIo& io) {
  std::vector<ProgramCommand> all = program.commands;
  all.push_back(completion_command(program, io));
  all.push_back(manual_command(program, io));
  all.push_back(help_command(program, io));
  return all;
}

int run_program(const Program& program, const std::vector<std::string>& words, const ProgramIo& io) {
  const std::vector<ProgramCommand> commands = commands_of(program, io);
  if (!words.empty() && words.front() == "__complete") {
    io.out(program_completions(commands, {words.begin() + 1, words.end()}));
    return 0;
  }
  const NamedCommand named = name_command(commands, words);
  if (!named.unknown.empty()) return unknown_command(program, commands, named, io);
  return run_named(program, commands, named, io);
}

std::string program_manual(const Program& program) {
  const ProgramIo none;
  return program_manual(program, commands_of(program, none));
}

ProgramIo process_program_io() {
  ProgramIo io;
  io.out = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  io.err = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  io.environment = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  winsize size{};
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  io.width = is_terminal && size.ws_col > 0 ? std::max<int>(size.ws_col, kWidthMin) : kWidthUsual;
  return io;
}

std::vector<std::string> program_words(int argc, char** argv) {
  return {argv + std::min(argc, 1), argv + argc};
}

}  // namespace gpusched
