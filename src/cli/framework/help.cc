#include "cli/framework/help.h"

#include <algorithm>

#include "cli/terminal/text.h"

namespace gpusched::cli {
namespace {

constexpr int kTitleWidthMax = 26;
constexpr int kTextWidthMax = 100;
constexpr int kIndent = 2;

using Rows = std::vector<std::pair<std::string, std::string>>;

/// `text` in lines of at most `width` columns, each behind `indent` blanks; the first without them.
std::string wrapped(const std::string& text, int indent, int width) {
  const int room = std::max(20, width - indent);
  std::string out;
  int used = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find(' ', begin);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(begin, end - begin);
    const int columns = display_width(word);
    if (used > 0 && used + 1 + columns > room) {
      out += "\n" + std::string(static_cast<size_t>(indent), ' ');
      used = 0;
    } else if (used > 0) {
      out += ' ';
      ++used;
    }
    out += word;
    used += columns;
    begin = end + 1;
  }
  return out;
}

std::string rows_text(const Rows& rows, int width) {
  int widest = 0;
  for (const auto& row : rows) {
    const int columns = display_width(row.first);
    if (columns <= kTitleWidthMax) widest = std::max(widest, columns);
  }
  const int text_at = kIndent + widest + 2;
  std::string out;
  for (const auto& [title, text] : rows) {
    const int columns = display_width(title);
    out += std::string(kIndent, ' ') + title;
    if (columns > widest) {
      out += "\n" + std::string(static_cast<size_t>(text_at), ' ');
    } else {
      out += std::string(static_cast<size_t>(text_at - kIndent - columns), ' ');
    }
    out += wrapped(text, text_at, width) + "\n";
  }
  return out;
}

std::string options_text(const std::vector<const OptionSpec*>& options, int width) {
  Rows rows;
  for (const OptionSpec* const option : options) rows.emplace_back(option_title(*option), option->help);
  return rows_text(rows, width);
}

std::string global_options_text(int width) {
  Options ignored;
  Grammar global;
  define_global_options(global, ignored);
  return options_text(global.groups().front().options, width);
}

std::string verbs_text(std::string_view prefix, int width) {
  std::string out;
  Rows rows;
  std::string_view group;
  const auto flush = [&] {
    if (rows.empty()) return;
    out += "\n" + std::string(group) + "\n" + rows_text(rows, width);
    rows.clear();
  };
  for (const VerbDefinition& verb : all_verbs()) {
    if (!prefix.empty() && !verb.path.starts_with(prefix)) continue;
    if (verb.group != group) flush();
    group = verb.group;
    rows.emplace_back(verb.path, verb.summary);
  }
  flush();
  return out;
}

constexpr const char* kExitCodes =
    "Exit codes: 0 success, 1 the job ended without an exit code, 2 usage error, 3 no scheduler answers, 4 "
    "refused, 5 no usable answer, 6 timed out; submit --wait and wait exit with the job's own code (124 at "
    "its time limit, 128 + N for signal N).";

}  // namespace

std::string option_title(const OptionSpec& option) {
  std::string title = option.short_name.empty() ? option.name : option.short_name + ", " + option.name;
  return option.value.empty() ? title : title + " " + option.value;
}

std::string command_title(const Grammar& grammar) {
  return grammar.has_bare_command() ? "COMMAND..." : "-- COMMAND...";
}

std::string usage_line(const VerbDefinition& verb, const Grammar& grammar) {
  std::string out = "gpu-cli " + std::string(verb.path);
  if (!grammar.options().empty()) out += " [options]";
  for (const ArgumentSpec& argument : grammar.arguments()) {
    const bool many = std::holds_alternative<std::vector<std::string>*>(argument.target);
    const std::string name = argument.name + (many ? "..." : "");
    out += argument.required ? " " + name : " [" + name + "]";
  }
  if (!grammar.has_command()) return out;
  if (grammar.has_bare_command()) return out + " [--] COMMAND...";
  out += verb.path == "submit" ? " [-- COMMAND...]" : " -- COMMAND...";
  return out;
}

std::string main_help(int width) {
  width = std::min(width, kTextWidthMax);
  return "gpu-cli submits jobs to gpu-scheduler and shows jobs, nodes and GPUs.\n"
         "\n"
         "Usage: gpu-cli [options] COMMAND [options]\n" +
         verbs_text({}, width) + "\nGlobal options\n" + global_options_text(width) + "\nFirst steps\n" +
         rows_text({{"gpu-scheduler dev", "run a scheduler and an agent on this machine, to try it out"},
                    {"gpu-cli submit --gpus 1 --wait --logs -- nvidia-smi",
                     "run a command, see its output, exit with its exit code"},
                    {"gpu-cli list", "waiting and running jobs"},
                    {"gpu-cli help COMMAND", "all about one command"}},
                   width) +
         "\n" + wrapped(kExitCodes, 0, width) + "\n";
}

std::string group_help(const std::string& group, int width) {
  width = std::min(width, kTextWidthMax);
  return "Usage: gpu-cli " + group + " COMMAND [options]\n" + verbs_text(group + " ", width) +
         "\ngpu-cli help " + group + " COMMAND explains one command.\n";
}

std::string verb_help(const VerbDefinition& verb, int width) {
  width = std::min(width, kTextWidthMax);
  Grammar grammar;
  const Action action = verb.define(grammar);
  std::string out =
      wrapped(std::string(verb.summary) + ".", 0, width) + "\n\nUsage: " + usage_line(verb, grammar) + "\n";
  // Where there are many options the common ones come first, and the explanations behind them all.
  const std::vector<Grammar::Group> groups = grammar.groups();
  const std::vector<std::string>& paragraphs = grammar.paragraphs();
  const size_t first = groups.size() > 1 ? std::min<size_t>(1, paragraphs.size()) : paragraphs.size();
  const auto add_paragraphs = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) out += "\n" + wrapped(paragraphs[i], 0, width) + "\n";
  };
  add_paragraphs(0, first);
  Rows rows;
  for (const ArgumentSpec& argument : grammar.arguments()) rows.emplace_back(argument.name, argument.help);
  if (grammar.has_command()) rows.emplace_back(command_title(grammar), grammar.command_meaning());
  if (!rows.empty()) out += "\nArguments\n" + rows_text(rows, width);
  for (const Grammar::Group& group : groups)
    out += "\n" + group.title + "\n" + options_text(group.options, width);
  add_paragraphs(first, paragraphs.size());
  if (!grammar.examples().empty()) {
    out += "\nExamples\n";
    for (const auto& [command, meaning] : grammar.examples())
      out += "  # " + meaning + "\n  " + command + "\n";
  }
  return out + "\nGlobal options: gpu-cli --help\n";
}

}  // namespace gpusched::cli
