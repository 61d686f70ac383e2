#include "grammar/program_pages.h"

#include <algorithm>

#include "grammar/completion.h"
#include "grammar/help.h"
#include "grammar/manual.h"

namespace gpusched {
namespace {

const ProgramCommand* main_command(const std::vector<ProgramCommand>& commands) {
  return find_command(commands, "");
}

/// The option of this name of the first command that has one.
const OptionSpec* find_option(const std::deque<Grammar>& grammars, std::string_view name) {
  for (const Grammar& grammar : grammars) {
    if (const OptionSpec* const option = grammar.find(name)) return option;
  }
  return nullptr;
}

/// The names of all commands, or of those of a group.
HelpRows command_rows(const std::vector<ProgramCommand>& commands, const std::string& prefix) {
  HelpRows rows;
  for (const ProgramCommand& command : commands) {
    if (!command.path.empty() && command.path.starts_with(prefix))
      rows.emplace_back(command.path, command.summary);
  }
  return rows;
}

std::string groups_text(const Grammar& grammar, int width) {
  std::string out;
  for (const Grammar::Group& group : grammar.groups())
    out += "\n" + group.title + "\n" + options_text(group.options, width);
  return out;
}

std::string global_text(int width) {
  GlobalFlags ignored;
  Grammar global;
  global.heading("General");
  declare_global_flags(global, ignored);
  return groups_text(global, width);
}

void add_commands(const std::vector<ProgramCommand>& commands, const std::string& group, Candidates& out) {
  const std::string prefix = group.empty() ? "" : group + " ";
  std::string last;
  for (const ProgramCommand& command : commands) {
    if (!command.path.starts_with(prefix) || command.path.empty()) continue;
    const std::string rest = command.path.substr(prefix.size());
    const size_t blank = rest.find(' ');
    const std::string word = rest.substr(0, blank);
    if (word == last) continue;
    last = word;
    out.add(word, blank == std::string::npos ? std::string_view(command.summary) : std::string_view());
  }
}

std::string manual_part(const std::string& title, const std::string& text) {
  return text.empty() ? "" : ".SH " + title + "\n" + text;
}

std::string manual_of_command(const Program& program, const ProgramCommand& command) {
  Grammar grammar;
  const ProgramAction action = command.define(grammar);
  std::string out = ".SS " + roff(usage_line(program.name + " " + command.path, grammar)) + "\n" +
                    roff(command.summary) + ".\n";
  for (const std::string& paragraph : grammar.paragraphs()) out += manual_paragraph(paragraph);
  out += manual_arguments(grammar) + manual_options(grammar);
  return out + manual_examples(grammar);
}

}  // namespace

void declare_global_flags(Grammar& grammar, GlobalFlags& flags) {
  grammar.flag("-h,--help", flags.help, "Show this help");
  grammar.flag("--version", flags.version, "Print the version");
}

const ProgramCommand* find_command(const std::vector<ProgramCommand>& commands, const std::string& path) {
  const auto found = std::ranges::find_if(commands, [&](const ProgramCommand& command) {
    return command.path == path || (!command.alias.empty() && command.alias == path);
  });
  return found == commands.end() ? nullptr : &*found;
}

bool is_command_group(const std::vector<ProgramCommand>& commands, const std::string& word) {
  return std::ranges::any_of(
      commands, [&](const ProgramCommand& command) { return command.path.starts_with(word + " "); });
}

NamedCommand name_command(const std::vector<ProgramCommand>& commands,
                          const std::vector<std::string>& words) {
  NamedCommand named;
  std::deque<Grammar> grammars;
  std::vector<ProgramAction> actions;  // They own what the grammars fill.
  GlobalFlags ignored;
  size_t at = 0;
  for (; at < words.size() && named.command == nullptr; ++at) {
    const std::string& word = words[at];
    if (!word.starts_with('-') || word == "-") {
      const std::string path = named.group.empty() ? word : named.group + " " + word;
      named.command = find_command(commands, path);
      if (named.command != nullptr) continue;
      if (!is_command_group(commands, path)) {
        named.unknown = word;
        return named;
      }
      named.group = path;
      continue;
    }
    if (grammars.empty()) {
      for (const ProgramCommand& command : commands)
        actions.push_back(command.define(grammars.emplace_back()));
      declare_global_flags(grammars.emplace_back(), ignored);
    }
    const OptionSpec* const option = find_option(grammars, word.substr(0, word.find('=')));
    if (option == nullptr) break;  // The parser says so, whatever follows.
    named.words.push_back(word);
    const bool has_value = !option->value.empty() && word.find('=') == std::string::npos;
    if (has_value && at + 1 < words.size()) named.words.push_back(words[++at]);
  }
  named.words.insert(named.words.end(), words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  if (named.command == nullptr && named.group.empty()) named.command = main_command(commands);
  return named;
}

std::string program_help(const Program& program, const std::vector<ProgramCommand>& commands, int width) {
  width = std::min(width, kHelpWidthMax);
  Grammar grammar;
  ProgramAction action;
  const ProgramCommand* const main = main_command(commands);
  std::string out;
  if (main != nullptr) {
    action = main->define(grammar);
    out = wrapped_text(main->summary + ".", 0, width) + "\n\n";
  }
  out += "Usage: " + (main == nullptr ? "" : usage_line(program.name, grammar) + "\n       ") + program.name +
         " COMMAND [options]\n";
  for (const std::string& paragraph : grammar.paragraphs())
    out += "\n" + wrapped_text(paragraph, 0, width) + "\n";
  out += "\nCommands\n" + rows_text(command_rows(commands, ""), width) + groups_text(grammar, width) +
         global_text(width);
  if (!program.exit_codes.empty()) out += "\n" + wrapped_text(program.exit_codes, 0, width) + "\n";
  return out;
}

std::string program_group_help(const Program& program, const std::vector<ProgramCommand>& commands,
                               const std::string& group, int width) {
  width = std::min(width, kHelpWidthMax);
  return "Usage: " + program.name + " " + group + " COMMAND [options]\n\nCommands\n" +
         rows_text(command_rows(commands, group + " "), width) + "\n" + program.name + " help " + group +
         " COMMAND explains one command.\n";
}

std::string program_command_help(const Program& program, const ProgramCommand& command, int width) {
  Grammar grammar;
  const ProgramAction action = command.define(grammar);
  return command_help(command.summary, program.name + " " + command.path, grammar, width) +
         global_text(std::min(width, kHelpWidthMax));
}

std::string program_manual(const Program& program, const std::vector<ProgramCommand>& commands) {
  Grammar grammar;
  ProgramAction action;
  const ProgramCommand* const main = main_command(commands);
  if (main != nullptr) action = main->define(grammar);
  std::string out =
      manual_header({.page = program.name,
                     .section = program.manual_section,
                     .chapter = program.manual_section == 1 ? "User Commands" : "System Administration",
                     .version = program.version},
                    program.summary);
  out += ".SH SYNOPSIS\n";
  if (main != nullptr) out += "\\fB" + roff(program.name) + "\\fR [options]\n.br\n";
  out += "\\fB" + roff(program.name) + "\\fR COMMAND [options]\n";
  std::string description = main == nullptr ? "" : roff(main->summary) + ".\n";
  for (const std::string& paragraph : grammar.paragraphs()) description += manual_paragraph(paragraph);
  Grammar global;
  GlobalFlags ignored;
  global.heading("General");
  declare_global_flags(global, ignored);
  out += manual_part("DESCRIPTION", description) + ".SH OPTIONS\n" + manual_options(grammar) +
         (grammar.groups().size() > 1 ? ".SS General\n" : "") + manual_options(global) + ".SH COMMANDS\n";
  for (const ProgramCommand& command : commands) {
    if (!command.path.empty()) out += manual_of_command(program, command);
  }
  out += manual_part("EXAMPLES", manual_examples(grammar));
  return out + manual_part("EXIT STATUS", program.exit_codes.empty() ? "" : roff(program.exit_codes) + "\n");
}

std::string program_completions(const std::vector<ProgramCommand>& commands,
                                const std::vector<std::string>& words) {
  Candidates out;
  if (words.empty()) return out.lines();
  out.typed = words.back();
  const std::vector<std::string> before(words.begin(), words.end() - 1);
  const NamedCommand named = name_command(commands, before);
  if (!named.unknown.empty()) return out.lines();
  Grammar grammar;
  Grammar global;
  GlobalFlags ignored;
  declare_global_flags(global, ignored);
  ProgramAction action;
  if (named.command != nullptr) action = named.command->define(grammar);
  const LiveValues live = [&](Complete kind, Candidates& found) {
    if (kind != Complete::kCommand) return;
    std::string group;
    for (const std::string& word : named.words) group += (group.empty() ? "" : " ") + word;
    add_commands(commands, group, found);
  };
  const bool is_named = named.command != nullptr && !named.command->path.empty();
  if (is_named || out.typed.starts_with('-')) {
    complete_word(grammar, global, named.words, live, out);
  } else if (!complete_value(grammar, named.words, live, out)) {
    add_commands(commands, named.group, out);
  }
  return out.lines();
}

}  // namespace gpusched
