#include "grammar/help.h"

#include <algorithm>

namespace gpusched {
namespace {

constexpr int kTitleWidthMax = 26;
constexpr int kTextWidthMin = 20;
constexpr int kIndent = 2;

/// Columns of text without double-width characters.
int columns_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string blanks(int count) { return std::string(static_cast<size_t>(count), ' '); }

}  // namespace

std::string wrapped_text(std::string_view text, int indent, int width) {
  const int room = std::max(kTextWidthMin, width - indent);
  std::string out;
  int used = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const int columns = columns_of(word);
    if (used > 0 && used + 1 + columns > room) {
      out += "\n" + blanks(indent);
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

std::string rows_text(const HelpRows& rows, int width) {
  int widest = 0;
  for (const auto& row : rows) {
    const int columns = columns_of(row.first);
    if (columns <= kTitleWidthMax) widest = std::max(widest, columns);
  }
  const int text_at = kIndent + widest + 2;
  std::string out;
  for (const auto& [title, text] : rows) {
    const int columns = columns_of(title);
    out += blanks(kIndent) + title;
    out += columns > widest ? "\n" + blanks(text_at) : blanks(text_at - kIndent - columns);
    out += wrapped_text(text, text_at, width) + "\n";
  }
  return out;
}

std::string options_text(const std::vector<const OptionSpec*>& options, int width) {
  HelpRows rows;
  for (const OptionSpec* const option : options) rows.emplace_back(option_title(*option), option->help);
  return rows_text(rows, width);
}

std::string option_title(const OptionSpec& option) {
  std::string title = option.short_name.empty() ? option.name : option.short_name + ", " + option.name;
  return option.value.empty() ? title : title + " " + option.value;
}

std::string command_title(const Grammar& grammar) {
  return grammar.has_bare_command() ? "COMMAND..." : "-- COMMAND...";
}

std::string usage_line(const std::string& command, const Grammar& grammar) {
  std::string out = command;
  if (!grammar.options().empty()) out += " [options]";
  for (const ArgumentSpec& argument : grammar.arguments()) {
    const bool many = std::holds_alternative<std::vector<std::string>*>(argument.target);
    const std::string name = argument.name + (many ? "..." : "");
    out += argument.required ? " " + name : " [" + name + "]";
  }
  if (!grammar.has_command()) return out;
  if (grammar.has_bare_command()) return out + " [--] COMMAND...";
  return out + (grammar.has_optional_command() ? " [-- COMMAND...]" : " -- COMMAND...");
}

std::string command_help(std::string_view summary, const std::string& command, const Grammar& grammar,
                         int width) {
  width = std::min(width, kHelpWidthMax);
  std::string out = wrapped_text(std::string(summary) + ".", 0, width) +
                    "\n\nUsage: " + usage_line(command, grammar) + "\n";
  // The common options come first where there are many, and the explanations behind them all.
  const std::vector<Grammar::Group> groups = grammar.groups();
  const std::vector<std::string>& paragraphs = grammar.paragraphs();
  const size_t first = groups.size() > 1 ? std::min<size_t>(1, paragraphs.size()) : paragraphs.size();
  const auto add_paragraphs = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) out += "\n" + wrapped_text(paragraphs[i], 0, width) + "\n";
  };
  add_paragraphs(0, first);
  HelpRows rows;
  for (const ArgumentSpec& argument : grammar.arguments()) rows.emplace_back(argument.name, argument.help);
  if (grammar.has_command()) rows.emplace_back(command_title(grammar), grammar.command_meaning());
  if (!rows.empty()) out += "\nArguments\n" + rows_text(rows, width);
  for (const Grammar::Group& group : groups)
    out += "\n" + group.title + "\n" + options_text(group.options, width);
  add_paragraphs(first, paragraphs.size());
  if (grammar.examples().empty()) return out;
  out += "\nExamples\n";
  for (const auto& [example, meaning] : grammar.examples()) out += "  # " + meaning + "\n  " + example + "\n";
  return out;
}

}  // namespace gpusched
