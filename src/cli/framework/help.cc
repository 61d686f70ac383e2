#include "cli/framework/help.h"

#include <algorithm>

#include "grammar/help.h"

namespace gpusched::cli {
namespace {

std::string global_options_text(int width) {
  Options ignored;
  Grammar global;
  define_global_options(global, ignored);
  return options_text(global.groups().front().options, width);
}

std::string verbs_text(std::string_view prefix, int width) {
  std::string out;
  HelpRows rows;
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
    "refused, 5 no usable answer, 6 timed out, 8 the job is held; submit --wait and wait exit with the job's "
    "own code (124 at "
    "its time limit, 128 + N for signal N).";

}  // namespace

std::string main_help(int width) {
  width = std::min(width, kHelpWidthMax);
  return "gpu-cli submits jobs to gpu-scheduler and shows jobs, nodes and GPUs.\n"
         "\n"
         "Usage: gpu-cli [options] COMMAND [options]\n" +
         verbs_text({}, width) + "\nGlobal options\n" + global_options_text(width) + "\nFirst steps\n" +
         rows_text({{"gpu-scheduler dev", "run a scheduler and an agent on this machine, to try it out"},
                    {"gpu-cli submit --gpus 1 --wait --logs -- nvidia-smi",
                     "run a command, see its output, exit with its exit code"},
                    {"gpu-cli list", "waiting and running jobs"},
                    {"gpu-cli logs last", "output of your newest job; `last` stands for it in every command"},
                    {"gpu-cli help COMMAND", "all about one command"}},
                   width) +
         "\n" + wrapped_text(kExitCodes, 0, width) + "\n";
}

std::string group_help(const std::string& group, int width) {
  width = std::min(width, kHelpWidthMax);
  return "Usage: gpu-cli " + group + " COMMAND [options]\n" + verbs_text(group + " ", width) +
         "\ngpu-cli help " + group + " COMMAND explains one command.\n";
}

std::string verb_help(const VerbDefinition& verb, int width) {
  Grammar grammar;
  const Action action = verb.define(grammar);
  return command_help(verb.summary, command_of(verb), grammar, width) + "\nGlobal options: gpu-cli --help\n";
}

std::string command_of(const VerbDefinition& verb) { return "gpu-cli " + std::string(verb.path); }

}  // namespace gpusched::cli
