#include "grammar/manual.h"

#include <algorithm>

#include "grammar/help.h"

namespace gpusched {
namespace {

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

}  // namespace

std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c != '`') {
      if (out.empty() && (c == '.' || c == '\'')) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string manual_header(const ManualTitle& title, std::string_view summary) {
  return ".TH " + roff(upper(title.page)) + " " + std::to_string(title.section) + " \"\" \"gpu-scheduler " +
         title.version + "\" \"" + title.chapter + "\"\n.SH NAME\n" + roff(title.page) + " \\- " +
         roff(summary) + "\n";
}

std::string manual_paragraph(std::string_view text) { return ".PP\n" + roff(text) + "\n"; }

std::string manual_entry(std::string_view title, std::string_view text) {
  return ".TP\n\\fB" + roff(title) + "\\fR\n" + roff(text) + "\n";
}

std::string manual_arguments(const Grammar& grammar) {
  std::string out;
  for (const ArgumentSpec& argument : grammar.arguments()) {
    out += manual_entry(argument.name, argument.help + ".");
  }
  if (grammar.has_command()) out += manual_entry(command_title(grammar), grammar.command_meaning() + ".");
  return out;
}

std::string manual_options(const Grammar& grammar) {
  std::string out;
  const std::vector<Grammar::Group> groups = grammar.groups();
  for (const Grammar::Group& group : groups) {
    if (groups.size() > 1) out += ".SS " + roff(group.title) + "\n";
    for (const OptionSpec* const option : group.options) {
      std::string help = option->help;
      if (!option->words.empty()) {
        help += ":";
        for (const std::string& word : option->words) help += " " + word;
      }
      out += manual_entry(option_title(*option), help + ".");
    }
  }
  return out;
}

std::string manual_examples(const Grammar& grammar) {
  std::string out;
  for (const auto& [command, meaning] : grammar.examples()) {
    out += ".PP\n" + roff(meaning) + ":\n.PP\n.nf\n.RS\n" + roff(command) + "\n.RE\n.fi\n";
  }
  return out;
}

std::string manual_body(std::string_view summary, const std::string& command, const Grammar& grammar) {
  std::string out = ".SH SYNOPSIS\n\\fB" + roff(usage_line(command, grammar)) + "\\fR\n";
  out += ".SH DESCRIPTION\n" + roff(summary) + ".\n";
  for (const std::string& paragraph : grammar.paragraphs()) out += manual_paragraph(paragraph);
  const auto add_part = [&](const char* title, const std::string& text) {
    if (!text.empty()) out += std::string(".SH ") + title + "\n" + text;
  };
  add_part("ARGUMENTS", manual_arguments(grammar));
  add_part("OPTIONS", manual_options(grammar));
  add_part("EXAMPLES", manual_examples(grammar));
  return out;
}

}  // namespace gpusched
