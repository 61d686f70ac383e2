#include "cli/verbs/submit/script_advice.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/text/slurm_script.h"

namespace gpusched::cli {
namespace {

constexpr std::string_view kBlank = " \t\r";

/// A command that is not there, or may not be, and what to write.
struct Command {
  std::string_view name;
  std::string_view advice;
};

constexpr Command kCommands[] = {
    {"srun", "write its command alone: the script runs once on each node (torchrun and mpirun start more)"},
    {"module", "a node may not have it; write first: source /etc/profile.d/modules.sh, or use --image"},
    {"ml", "a node may not have it; write first: source /etc/profile.d/modules.sh, or use --image"},
    {"scontrol", "$SLURM_JOB_NODELIST has the nodes with commas between, and gpu-cli get shows the job"},
    {"sbatch", "write gpu-cli submit"},
    {"salloc", "write gpu-cli run"},
    {"squeue", "write gpu-cli list"},
    {"scancel", "write gpu-cli cancel"},
    {"sacct", "write gpu-cli history"},
    {"sstat", "write gpu-cli get"},
    {"sinfo", "write gpu-cli node list"},
    {"sbcast", "write files where the nodes can read them, or use gpu-cli cp"}};

/// Words of a shell behind which a command begins.
constexpr std::string_view kBefore[] = {"then", "do",   "else", "elif", "if",    "while",  "until", "!",
                                        "{",    "time", "exec", "eval", "nohup", "env",    "sudo",  "&&",
                                        "||",   "|",    ";",    "&",    "(",     "command"};

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

/// Whether a shell reads the script: its first line names one, or no interpreter.
bool is_for_a_shell(std::string_view script) {
  if (!script.starts_with("#!")) return true;
  const std::string_view line = trimmed(script.substr(2, script.find('\n') - 2));
  return line.ends_with("sh") || line.find("sh ") != std::string_view::npos;
}

/// The words of a line that stand where a command does.
std::vector<std::string> commands_in(std::string_view line) {
  std::string parted;
  for (const char c : line) {
    const bool ends = c == ';' || c == '|' || c == '&' || c == '(' || c == '`';
    ends ? parted.append(" ; ") : parted.append(1, c);
  }
  std::vector<std::string> commands;
  bool expected = true;
  for (std::string_view rest = trimmed(parted); !rest.empty(); rest = trimmed(rest)) {
    const std::string word(rest.substr(0, rest.find_first_of(kBlank)));
    rest.remove_prefix(word.size());
    const bool is_before = std::ranges::find(kBefore, word) != std::end(kBefore);
    const std::size_t equals = word.find('=');
    const bool assigns =
        expected && equals != std::string::npos && equals > 0 && word.find_first_of("\"'$/-") > equals;
    if (expected && !is_before && !assigns) commands.push_back(word.substr(word.rfind('/') + 1));
    expected = is_before || assigns;
  }
  return commands;
}

/// Names, and the line that first has each.
using Uses = std::vector<std::pair<std::string, std::size_t>>;

void note(Uses& uses, const std::string& name, std::size_t line) {
  if (std::ranges::find(uses, name, &Uses::value_type::first) == uses.end()) uses.emplace_back(name, line);
}

/// Whether the line gives the variable a value, or takes it away.
bool assigns_itself(std::string_view line, const std::string& name) {
  return line.starts_with("unset ") || line.find(name + "=") != std::string_view::npos;
}

bool is_set(std::string_view name) {
  return std::ranges::find(kSlurmVariables, name) != std::end(kSlurmVariables) ||
         std::ranges::find(kSlurmArrayVariables, name) != std::end(kSlurmArrayVariables);
}

}  // namespace

std::vector<std::string> slurm_advice(const std::string& name, std::string_view script) {
  const bool sets = has_sbatch_lines(script);
  const bool is_shell = is_for_a_shell(script);
  Uses variables, commands;
  std::vector<std::string> own;
  std::size_t number = 0;
  for (std::string_view rest = script; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    line = trimmed(line);
    ++number;
    if (line.starts_with('#')) continue;
    for (const std::string& variable : slurm_variables_in(line)) {
      if (assigns_itself(line, variable)) own.push_back(variable);
      const bool has_value = (sets && is_set(variable)) || std::ranges::find(own, variable) != own.end();
      if (!has_value) note(variables, variable, number);
    }
    if (!is_shell) continue;
    for (const std::string& word : commands_in(line)) {
      if (std::ranges::find(kCommands, word, &Command::name) != std::end(kCommands))
        note(commands, word, number);
    }
  }
  std::vector<std::string> advice;
  if (!variables.empty()) {
    std::string list;
    for (const auto& [variable, line] : variables)
      list += (list.empty() ? "" : ", ") + variable + " (line " + std::to_string(line) + ")";
    advice.push_back(name + ": no value is set here for " + list +
                     (sets ? "; an empty value can change what a command does"
                           : "; a job has variables of Slurm when its script has #SBATCH lines"));
  }
  for (const auto& [command, line] : commands) {
    const auto* const known = std::ranges::find(kCommands, command, &Command::name);
    advice.push_back(name + ":" + std::to_string(line) + ": " + command + ": " + std::string(known->advice));
  }
  return advice;
}

}  // namespace gpusched::cli
