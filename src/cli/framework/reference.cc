#include "grammar/reference.h"

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
([errors.md](errors.md)); `usage`, `unreachable`, `outcome_unknown`, `timeout`, `bad_answer`,
`lease_not_found` and `http_<status>` are gpu-cli's own.
)";

std::string verb_section(const VerbDefinition& verb) {
  Grammar grammar;
  const Action action = verb.define(grammar);
  std::string out = "\n### gpu-cli " + std::string(verb.path) + "\n\n" + std::string(verb.summary) + ".";
  if (!verb.alias.empty()) out += " Also `gpu-cli " + std::string(verb.alias) + "`.";
  return out + "\n" + reference_body(command_of(verb), grammar);
}

}  // namespace

std::string reference_page() {
  std::string out(kHead);
  Options ignored;
  Grammar global;
  define_global_options(global, ignored);
  out += reference_options(global.groups().front().options) + "\n| variable | meaning |\n|---|---|\n";
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
