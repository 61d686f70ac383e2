#include "grammar/manual.h"

#include <algorithm>

#include "cli/framework/help.h"
#include "cli/terminal/pages.h"
#include "cli/terminal/pages_text.h"

namespace gpusched::cli {
namespace {

std::string page_name(std::string_view path) {
  std::string name = "gpu-cli" + (path.empty() ? "" : "-" + std::string(path));
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string header(std::string_view path, std::string_view summary, const std::string& version) {
  return manual_header(
      {.page = page_name(path), .section = 1, .chapter = "User Commands", .version = version}, summary);
}

std::string verb_page(const VerbDefinition& verb, const std::string& version) {
  Grammar grammar;
  const Action action = verb.define(grammar);
  return header(verb.path, verb.summary, version) + manual_body(verb.summary, command_of(verb), grammar) +
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
  out += ".SH GLOBAL OPTIONS\n" + manual_options(global) + ".SH ENVIRONMENT\n";
  for (const auto& [name, text] : kEnvironmentTexts) out += manual_entry(name, text);
  out += ".SH EXIT STATUS\n";
  for (const auto& [name, text] : kExitCodeTexts) out += manual_entry(name, text);
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
