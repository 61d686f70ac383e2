#include "cli/framework/completion.h"

#include <algorithm>
#include <memory>

#include "cli/framework/context.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/text.h"
#include "cli/verbs/jobs/job_columns.h"

namespace gpusched::cli {
namespace {

constexpr Duration kPatience = seconds(1);
constexpr int kJobsMax = 200;

/// The shells' side: each asks `gpu-cli __complete` for every word.
constexpr std::string_view kBash = R"(# bash completion for gpu-cli: source <(gpu-cli completion bash)
_gpu_cli() {
  local line word="${COMP_WORDS[COMP_CWORD]}" rest=() prefix=
  COMPREPLY=()
  # Bash parts words at '=': what stands before it is put back.
  local words=() i
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == '=' && ${#words[@]} -gt 0 ]]; then
      words[-1]+='='
      ((i < COMP_CWORD)) && { i=$((i + 1)); words[-1]+="${COMP_WORDS[i]}"; }
    else
      words+=("${COMP_WORDS[i]}")
    fi
  done
  [[ $word == '=' ]] && word=
  [[ ${words[-1]} == --*=* ]] && prefix="${words[-1]%%=*}="
  while IFS= read -r line; do
    case $line in
      :files) mapfile -t rest < <(compgen -f -- "$word"); compopt -o filenames ;;
      :folders) mapfile -t rest < <(compgen -d -- "$word"); compopt -o filenames ;;
      :*) ;;
      *) line="${line%%$'\t'*}"; COMPREPLY+=("${line#"$prefix"}") ;;
    esac
  done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
  COMPREPLY+=("${rest[@]}")
}
complete -F _gpu_cli gpu-cli
)";

constexpr std::string_view kZsh = R"(#compdef gpu-cli
# zsh completion for gpu-cli: source <(gpu-cli completion zsh)
_gpu_cli() {
  local line files=
  local -a found
  while IFS= read -r line; do
    case $line in
      :*) files=$line ;;
      *$'\t'*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
      *) found+=("${line//:/\\:}") ;;
    esac
  done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#found} )) && _describe -V gpu-cli found
  [[ $files == :files ]] && _files
  [[ $files == :folders ]] && _files -/
}
compdef _gpu_cli gpu-cli
)";

constexpr std::string_view kFish = R"(# fish completion for gpu-cli: gpu-cli completion fish | source
function __gpu_cli_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  for line in ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    switch $line
      case ':files'
        __fish_complete_path "$current"
      case ':folders'
        __fish_complete_directories "$current"
      case ':*'
      case '*'
        echo $line
    end
  end
end
complete -c gpu-cli -f -a '(__gpu_cli_complete)'
)";

struct Candidates {
  std::string_view typed;
  std::string prefix;  ///< Stands before every candidate: "--state=", "name,".
  std::string text;
  std::string_view directive = ":";

  void add(std::string_view word, std::string_view meaning = {}) {
    if (!word.starts_with(typed)) return;
    text += prefix + printable(word);
    if (!meaning.empty()) text += "\t" + printable(meaning);
    text += "\n";
  }
};

/// One call that is given up soon; nothing when it fails.
Json asked(const Options& given, const CliIo& io, const std::string& path) {
  Options options = given;
  if (!complete_options(options, io, false)) return {};
  options.call_timeout = kPatience;
  Result<Session> session = Session::open(options, io);
  if (!session) return {};
  return session->get(path).json;
}

void add_live(Complete kind, const Options& options, const CliIo& io, Candidates& out) {
  switch (kind) {
    case Complete::kNothing:
      break;
    case Complete::kFile:
      out.directive = ":files";
      break;
    case Complete::kFolder:
      out.directive = ":folders";
      break;
    case Complete::kColumn:
      for (const std::string& key : job_column_keys()) out.add(key);
      break;
    case Complete::kJob: {
      const std::string path =
          "/jobs?limit=" + std::to_string(kJobsMax) +
          (options.tenant_id.empty() ? "" : "&tenant_id=" + url_encoded(options.tenant_id));
      for (const Json& job : asked(options, io, path)["jobs"].items()) {
        out.add(job_id_of(job), job["state"].text() + " " + job["name"].text());
      }
      break;
    }
    case Complete::kNode:
      for (const Json& node : asked(options, io, "/v1/nodes")["nodes"].items()) {
        out.add(node["name"].text(), node["state"].text());
      }
      break;
    case Complete::kGpu:
      for (const Json& node : asked(options, io, "/v1/nodes")["nodes"].items()) {
        for (const Json& gpu : node["devices"].items()) out.add(gpu["id"].text(), gpu["state"].text());
      }
      break;
    case Complete::kTenant:
      for (const Json& tenant : asked(options, io, "/tenants")["tenants"].items()) {
        out.add(tenant["name"].text(), tenant["id"].text());
      }
      break;
    case Complete::kContext: {
      const Result<Contexts> contexts = load_contexts(contexts_path(io));
      if (!contexts) break;
      for (const auto& [name, context] : contexts->all) out.add(name, context.api_url);
      break;
    }
  }
}

void add_values(const std::vector<std::string>& words, bool commas, Complete kind, const Options& options,
                const CliIo& io, Candidates& out) {
  if (commas) {
    const size_t comma = out.typed.rfind(',');
    const size_t kept = comma == std::string_view::npos ? 0 : comma + 1;
    out.prefix += out.typed.substr(0, kept);
    out.typed.remove_prefix(kept);
  }
  for (const std::string& word : words) out.add(word);
  if (words.empty()) add_live(kind, options, io, out);
}

void add_options(const Grammar& grammar, Candidates& out) {
  for (const OptionSpec& option : grammar.options()) out.add(option.name, option.help);
}

/// The commands, or those of a group.
void add_verbs(const std::string& group, Candidates& out) {
  std::string last;
  for (const VerbDefinition& verb : all_verbs()) {
    std::string_view path = verb.path;
    if (!group.empty()) {
      if (!path.starts_with(group + " ")) continue;
      path.remove_prefix(group.size() + 1);
    }
    const size_t blank = path.find(' ');
    const std::string word(path.substr(0, blank));
    if (word == last) continue;
    last = word;
    out.add(word, blank == std::string_view::npos ? verb.summary : std::string_view());
  }
}

/// What a command's grammars make of the words before the one that is typed.
class Position {
 public:
  Position(const Grammar& own, const Grammar& global) : own_(own), global_(global) {}

  void pass(const std::string& word) {
    if (behind_dashes) return;
    if (pending != nullptr) {
      pending = nullptr;
    } else if (word == "--") {
      behind_dashes = true;
    } else if (word.size() > 1 && word[0] == '-') {
      const OptionSpec* const option = find(word.substr(0, word.find('=')));
      if (option != nullptr && !option->value.empty() && word.find('=') == std::string::npos)
        pending = option;
    } else {
      arguments += 1;
      behind_dashes = own_.has_bare_command() && arguments > own_.arguments().size();
    }
  }
  const OptionSpec* find(std::string_view name) const {
    const OptionSpec* const option = own_.find(name);
    return option != nullptr ? option : global_.find(name);
  }

  const OptionSpec* pending = nullptr;  ///< Its value stands next.
  bool behind_dashes = false;
  size_t arguments = 0;

 private:
  const Grammar& own_;
  const Grammar& global_;
};

void add_for_verb(const VerbDefinition& verb, const std::vector<std::string>& before, const Grammar& global,
                  const Options& options, const CliIo& io, Candidates& out) {
  Grammar grammar;
  const Action action = verb.define(grammar);
  static_cast<void>(global.parse({}));
  Position position(grammar, global);
  for (const std::string& word : before) position.pass(word);
  if (position.behind_dashes) {
    out.directive = ":files";
    return;
  }
  const size_t equals = out.typed.find('=');
  const OptionSpec* option = position.pending;
  if (option == nullptr && out.typed.starts_with("--") && equals != std::string_view::npos) {
    option = position.find(out.typed.substr(0, equals));
    out.prefix = out.typed.substr(0, equals + 1);
    out.typed.remove_prefix(equals + 1);
    if (option == nullptr) return;
  }
  if (option != nullptr)
    return add_values(option->words, option->comma_list, option->complete, options, io, out);
  if (out.typed.starts_with('-')) {
    add_options(grammar, out);
    return add_options(global, out);
  }
  if (verb.path == "help") return add_verbs(before.empty() ? "" : before.back(), out);
  const auto& arguments = grammar.arguments();
  if (grammar.has_bare_command() && position.arguments == arguments.size()) out.directive = ":files";
  if (arguments.empty()) return;
  const ArgumentSpec& argument = arguments[std::min(position.arguments, arguments.size() - 1)];
  const bool repeats = std::holds_alternative<std::vector<std::string>*>(argument.target);
  if (position.arguments < arguments.size() || repeats)
    add_values(argument.words, false, argument.complete, options, io, out);
}

int print_script(Session& session, const std::string& shell) {
  session.io().out(shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
  return kExitOk;
}

}  // namespace

std::string completions(const std::vector<std::string>& words, const CliIo& io) {
  Candidates out;
  if (words.empty()) return ":\n";
  out.typed = words.back();
  const std::vector<std::string> before(words.begin(), words.end() - 1);
  Options options;
  Grammar global;
  define_global_options(global, options);
  const Result<CommandLine> line = split_command_line(before);
  if (!line) return ":\n";
  // Where the scheduler is may stand anywhere on the line; what else is wrong there does not matter here.
  for (size_t i = 0; i < line->words.size() && line->words[i] != "--"; ++i) {
    const std::string& word = line->words[i];
    const size_t equals = word.find('=');
    const OptionSpec* const option = global.find(word.substr(0, equals));
    if (option == nullptr || option->value.empty()) continue;
    if (equals == std::string::npos && i + 1 >= line->words.size()) continue;
    static_cast<void>(
        set_value(*option, equals == std::string::npos ? line->words[++i] : word.substr(equals + 1)));
  }
  if (line->verb != nullptr) {
    add_for_verb(*line->verb, line->words, global, options, io, out);
  } else {
    const Grammar none;
    Position position(none, global);
    for (const std::string& word : line->words) position.pass(word);
    if (position.pending != nullptr) {
      add_values(position.pending->words, false, position.pending->complete, options, io, out);
    } else if (out.typed.starts_with('-')) {
      add_options(global, out);
    } else {
      add_verbs(line->group, out);
    }
  }
  return out.text + std::string(out.directive) + "\n";
}

Action define_completion(Grammar& grammar) {
  const auto shell = std::make_shared<std::string>();
  grammar.argument("SHELL", shell.get(), "bash, zsh or fish").of({"bash", "zsh", "fish"});
  grammar.details(
      "Completes commands, options and their values, and the current ids and names of jobs, nodes, tenants "
      "and contexts.");
  grammar.example("source <(gpu-cli completion bash)", "in this shell, or in ~/.bashrc");
  grammar.example("gpu-cli completion fish > ~/.config/fish/completions/gpu-cli.fish", "for fish");
  return [shell](Session& session) { return print_script(session, *shell); };
}

}  // namespace gpusched::cli
