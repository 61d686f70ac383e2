#include "grammar/reference.h"

#include <algorithm>

#include "grammar/help.h"

namespace gpusched {
namespace {

/// Text for a cell of a table.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

/// "`-f`, `--follow` SPAN"
std::string option_cell(const OptionSpec& option) {
  std::string out = option.short_name.empty() ? "" : "`" + option.short_name + "`, ";
  out += "`" + option.name + "`";
  return cell(option.value.empty() ? out : out + " " + option.value);
}

}  // namespace

std::string reference_options(const std::vector<const OptionSpec*>& options) {
  std::string out = "| option | meaning |\n|---|---|\n";
  for (const OptionSpec* const option : options) {
    std::string help = option->help;
    if (!option->words.empty()) {
      help += ":";
      for (const std::string& word : option->words) help += " `" + word + "`";
    }
    out += "| " + option_cell(*option) + " | " + cell(help) + ". |\n";
  }
  return out;
}

std::string reference_body(const std::string& command, const Grammar& grammar) {
  std::string out = "\n```\n" + usage_line(command, grammar) + "\n```\n";
  for (const ArgumentSpec& argument : grammar.arguments()) {
    out += "\n* `" + argument.name + "`: " + argument.help + ".";
  }
  if (grammar.has_command())
    out += "\n* `" + command_title(grammar) + "`: " + grammar.command_meaning() + ".";
  if (!grammar.arguments().empty() || grammar.has_command()) out += "\n";
  for (const std::string& paragraph : grammar.paragraphs()) out += "\n" + paragraph + "\n";
  const std::vector<Grammar::Group> groups = grammar.groups();
  for (const Grammar::Group& group : groups) {
    if (groups.size() > 1) out += "\n**" + group.title + "**\n";
    out += "\n" + reference_options(group.options);
  }
  if (grammar.examples().empty()) return out;
  size_t widest = 0;
  for (const auto& example : grammar.examples()) widest = std::max(widest, example.command.size());
  out += "\n```\n";
  for (const auto& [example, meaning] : grammar.examples()) {
    out += example + std::string(widest - example.size() + 3, ' ') + "# " + meaning + "\n";
  }
  return out + "```\n";
}

}  // namespace gpusched
