#include <algorithm>

#include "cli/framework/help.h"
#include "cli/terminal/pages.h"
#include "cli/terminal/pages_text.h"

namespace gpusched::cli {
namespace {

constexpr std::string_view kHead =
    R"(<!-- Made from the commands' grammars in src/cli: `GPUSCHED_WRITE_REFERENCE=1 build/tests/cli_test`. -->
# The command line: gpu-cli

`gpu-cli` communicates with a scheduler over HTTP. It needs no configuration file.

```
gpu-cli submit --gpus 1 --wait -- nvidia-smi     # run a command, wait for it, exit with its code
gpu-cli submit --gpus 2 --time 2h --script train.sh
gpu-cli logs -f job-12                           # its output, while it runs
gpu-cli explain job-13                           # why it waits
gpu-cli list --state running
```

Options may precede or follow the command's name. Short ones may be joined (`-it`), values may follow a space or an equals
sign. SIZE is `512M`, `8G` or `1.5T`, by powers of 1024; a bare number is in MB. SPAN is `90s`, `45m`, `2h`, `1d` or a
sum such as `1h30m`.

Tables are as wide as the terminal, 80 columns when there is none. Long texts are cut with an ellipsis; when that is not
enough, lists of jobs go on in further lines, and other tables say which columns have no room. Programs should read `--json`. Times are relative to this machine's clock.

A submission carries a random `Idempotency-Key`, so that it is repeated safely when the connection breaks: there is
one job, whatever happens. A wait goes on over restarts of the scheduler of up to a minute, and an interrupted one leaves
the job alone.

## For every command: gpu-cli [options] COMMAND

)";

constexpr std::string_view kTail = R"(
A mistake is one line on standard error: `gpu-cli: <sentence> (<code>)`. Codes from the scheduler are stable
([errors.md](errors.md)); `usage`, `unreachable`, `outcome_unknown`, `timeout`, `bad_answer`, `waited_in_vain`,
`lease_not_found` and `http_<status>` are gpu-cli's own.
)";

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

std::string options_table(const std::vector<const OptionSpec*>& options) {
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

std::string verb_section(const VerbDefinition& verb) {
  Grammar grammar;
  const Action action = verb.define(grammar);
  std::string out = "\n### gpu-cli " + std::string(verb.path) + "\n\n" + std::string(verb.summary) + ".";
  if (!verb.alias.empty()) out += " Also `gpu-cli " + std::string(verb.alias) + "`.";
  out += "\n\n```\n" + usage_line(verb, grammar) + "\n```\n";
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
    out += "\n" + options_table(group.options);
  }
  if (!grammar.examples().empty()) {
    size_t widest = 0;
    for (const auto& example : grammar.examples()) widest = std::max(widest, example.command.size());
    out += "\n```\n";
    for (const auto& [command, meaning] : grammar.examples()) {
      out += command + std::string(widest - command.size() + 3, ' ') + "# " + meaning + "\n";
    }
    out += "```\n";
  }
  return out;
}

}  // namespace

std::string reference_page() {
  std::string out(kHead);
  Options ignored;
  Grammar global;
  define_global_options(global, ignored);
  out += options_table(global.groups().front().options) + "\n| variable | meaning |\n|---|---|\n";
  for (const auto& [name, text] : kEnvironmentTexts) {
    out += "| `" + std::string(name) + "` | " + std::string(text) + " |\n";
  }
  std::string_view group;
  for (const VerbDefinition& verb : all_verbs()) {
    if (verb.group != group) out += "\n## " + std::string(verb.group) + "\n";
    group = verb.group;
    out += verb_section(verb);
  }
  out += "\n## Exit codes\n\n| code | meaning |\n|---|---|\n";
  for (const auto& [name, text] : kExitCodeTexts)
    out += "| " + std::string(name) + " | " + std::string(text) + " |\n";
  return out + std::string(kTail);
}

}  // namespace gpusched::cli
