#include "grammar/completion.h"

#include <algorithm>

namespace gpusched {
namespace {

/// The shells' side, for a program named gpu-cli.
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

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

void add_values(const std::vector<std::string>& words, bool commas, Complete kind, const LiveValues& live,
                Candidates& out) {
  if (commas) {
    const size_t comma = out.typed.rfind(',');
    const size_t kept = comma == std::string_view::npos ? 0 : comma + 1;
    out.prefix += out.typed.substr(0, kept);
    out.typed.remove_prefix(kept);
  }
  for (const std::string& word : words) out.add(word);
  if (!words.empty()) return;
  if (kind == Complete::kFile) {
    out.directive = ":files";
  } else if (kind == Complete::kFolder) {
    out.directive = ":folders";
  } else if (kind != Complete::kNothing && live) {
    live(kind, out);
  }
}

/// The place of the word that is typed, as a command's grammars read the words before it.
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

}  // namespace

std::string completion_script(std::string_view shell, std::string_view program) {
  std::string text(shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
  std::string plain(program);
  std::ranges::replace(plain, '-', '_');
  replace_all(text, "gpu-cli", program);
  replace_all(text, "gpu_cli", plain);
  return text;
}

void Candidates::add(std::string_view word, std::string_view meaning) {
  if (!word.starts_with(typed)) return;
  text += prefix;
  text += word;
  if (!meaning.empty()) text.append("\t").append(meaning);
  text += "\n";
}

void complete_word(const Grammar& own, const Grammar& global, const std::vector<std::string>& before,
                   const LiveValues& live, Candidates& out) {
  Position position(own, global);
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
  if (option != nullptr) return add_values(option->words, option->comma_list, option->complete, live, out);
  if (out.typed.starts_with('-')) {
    complete_options(own, out);
    return complete_options(global, out);
  }
  const auto& arguments = own.arguments();
  if (own.has_bare_command() && position.arguments == arguments.size()) out.directive = ":files";
  if (arguments.empty()) return;
  const ArgumentSpec& argument = arguments[std::min(position.arguments, arguments.size() - 1)];
  const bool repeats = std::holds_alternative<std::vector<std::string>*>(argument.target);
  if (position.arguments < arguments.size() || repeats)
    add_values(argument.words, false, argument.complete, live, out);
}

bool complete_value(const Grammar& grammar, const std::vector<std::string>& before, const LiveValues& live,
                    Candidates& out) {
  const Grammar none;
  Position position(none, grammar);
  for (const std::string& word : before) position.pass(word);
  if (position.pending == nullptr) return false;
  add_values(position.pending->words, false, position.pending->complete, live, out);
  return true;
}

void complete_options(const Grammar& grammar, Candidates& out) {
  for (const OptionSpec& option : grammar.options()) out.add(option.name, option.help);
}

}  // namespace gpusched
