#include <algorithm>

#include "cli/framework/help.h"
#include "cli/terminal/pages.h"
#include "cli/terminal/pages_text.h"

namespace gpusched::cli {
namespace {

/// Text as roff wants it: its own signs escaped, backquotes dropped.
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

std::string page_name(std::string_view path) {
  std::string name = "gpu-cli" + (path.empty() ? "" : "-" + std::string(path));
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string header(std::string_view path, std::string_view summary, const std::string& version) {
  std::string title = page_name(path);
  std::ranges::transform(title, title.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return ".TH " + roff(title) + " 1 \"\" \"gpu-scheduler " + version + "\" \"User Commands\"\n.SH NAME\n" +
         roff(page_name(path)) + " \\- " + roff(summary) + "\n";
}

std::string entry(const std::string& title, const std::string& text) {
  return ".TP\n\\fB" + roff(title) + "\\fR\n" + roff(text) + ".\n";
}

std::string options_part(std::string_view heading, const Grammar& grammar) {
  std::string out = ".SH " + std::string(heading) + "\n";
  const std::vector<Grammar::Group> groups = grammar.groups();
  for (const Grammar::Group& group : groups) {
    if (groups.size() > 1) out += ".SS " + roff(group.title) + "\n";
    for (const OptionSpec* const option : group.options) {
      std::string help = option->help;
      if (!option->words.empty()) {
        help += ":";
        for (const std::string& word : option->words) help += " " + word;
      }
      out += entry(option_title(*option), help);
    }
  }
  return out;
}

std::string verb_page(const VerbDefinition& verb, const std::string& version) {
  Grammar grammar;
  const Action action = verb.define(grammar);
  std::string out = header(verb.path, verb.summary, version) + ".SH SYNOPSIS\n\\fB" +
                    roff(usage_line(verb, grammar)) + "\\fR\n";
  out += ".SH DESCRIPTION\n" + roff(verb.summary) + ".\n";
  for (const std::string& paragraph : grammar.paragraphs()) out += ".PP\n" + roff(paragraph) + "\n";
  if (!grammar.arguments().empty() || grammar.has_command()) out += ".SH ARGUMENTS\n";
  for (const ArgumentSpec& argument : grammar.arguments()) out += entry(argument.name, argument.help);
  if (grammar.has_command()) out += entry(command_title(grammar), grammar.command_meaning());
  if (!grammar.options().empty()) out += options_part("OPTIONS", grammar);
  if (!grammar.examples().empty()) out += ".SH EXAMPLES\n";
  for (const auto& [command, meaning] : grammar.examples()) {
    out += ".PP\n" + roff(meaning) + ":\n.PP\n.nf\n.RS\n" + roff(command) + "\n.RE\n.fi\n";
  }
  return out +
         ".SH SEE ALSO\n"
         "\\fBgpu\\-cli\\fR(1) describes the global options, the environment and the exit codes.\n";
}

std::string main_page(const std::string& version) {
  Options ignored;
  Grammar global;
  define_global_options(global, ignored);
  std::string out = header({}, "submit jobs to gpu-scheduler and show jobs, nodes and GPUs", version);
  out += ".SH SYNOPSIS\n\\fBgpu\\-cli\\fR [options] COMMAND [options]\n.SH COMMANDS\n";
  for (const VerbDefinition& verb : all_verbs()) {
    out += ".TP\n\\fB" + roff(page_name(verb.path)) + "\\fR(1)\n" + roff(verb.summary) + ".\n";
  }
  out += options_part("GLOBAL OPTIONS", global) + ".SH ENVIRONMENT\n";
  for (const auto& [name, text] : kEnvironmentTexts)
    out += ".TP\n\\fB" + roff(name) + "\\fR\n" + roff(text) + "\n";
  out += ".SH EXIT STATUS\n";
  for (const auto& [name, text] : kExitCodeTexts)
    out += ".TP\n\\fB" + roff(name) + "\\fR\n" + roff(text) + "\n";
  return out;
}

}  // namespace

std::map<std::string, std::string> manual_pages(const std::string& version) {
  std::map<std::string, std::string> pages = {{"gpu-cli.1", main_page(version)}};
  for (const VerbDefinition& verb : all_verbs())
    pages[page_name(verb.path) + ".1"] = verb_page(verb, version);
  return pages;
}

}  // namespace gpusched::cli
