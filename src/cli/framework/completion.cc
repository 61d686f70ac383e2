#include "cli/framework/completion.h"

#include <algorithm>
#include <memory>

#include "cli/framework/context.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/text.h"
#include "cli/verbs/jobs/job_columns.h"
#include "grammar/completion.h"

namespace gpusched::cli {
namespace {

constexpr Duration kPatience = seconds(1);
constexpr int kJobsMax = 200;

/// One call that is given up soon; nothing when it fails.
Json asked(const Options& given, const CliIo& io, const std::string& path) {
  Options options = given;
  if (!complete_options(options, io, false)) return {};
  options.call_timeout = kPatience;
  Result<Session> session = Session::open(options, io);
  if (!session) return {};
  return session->get(path).json;
}

/// Names come from the scheduler: they shall not move the cursor.
void add_name(std::string_view word, std::string_view meaning, Candidates& out) {
  out.add(printable(word), printable(meaning));
}

void add_live(Complete kind, const Options& options, const CliIo& io, Candidates& out) {
  switch (kind) {
    case Complete::kNothing:
    case Complete::kFile:
    case Complete::kFolder:
    case Complete::kCommand:
      break;
    case Complete::kColumn:
      for (const std::string& key : job_column_keys()) out.add(key);
      break;
    case Complete::kJob: {
      const std::string path =
          "/jobs?limit=" + std::to_string(kJobsMax) +
          (options.tenant_id.empty() ? "" : "&tenant_id=" + url_encoded(options.tenant_id));
      for (const Json& job : asked(options, io, path)["jobs"].items()) {
        add_name(job_id_of(job), job["state"].text() + " " + job["name"].text(), out);
      }
      break;
    }
    case Complete::kNode:
      for (const Json& node : asked(options, io, "/v1/nodes")["nodes"].items()) {
        add_name(node["name"].text(), node["state"].text(), out);
      }
      break;
    case Complete::kGpu:
      for (const Json& node : asked(options, io, "/v1/nodes")["nodes"].items()) {
        for (const Json& gpu : node["devices"].items()) add_name(gpu["id"].text(), gpu["state"].text(), out);
      }
      break;
    case Complete::kTenant:
      for (const Json& tenant : asked(options, io, "/tenants")["tenants"].items()) {
        add_name(tenant["name"].text(), tenant["id"].text(), out);
      }
      break;
    case Complete::kContext: {
      const Result<Contexts> contexts = load_contexts(contexts_path(io));
      if (!contexts) break;
      for (const auto& [name, context] : contexts->all) add_name(name, context.api_url, out);
      break;
    }
  }
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

void add_for_verb(const VerbDefinition& verb, const std::vector<std::string>& before, const Grammar& global,
                  const Options& options, const CliIo& io, Candidates& out) {
  Grammar grammar;
  const Action action = verb.define(grammar);
  static_cast<void>(global.parse({}));
  const LiveValues live = [&](Complete kind, Candidates& found) {
    if (kind == Complete::kCommand) return add_verbs(before.empty() ? "" : before.back(), found);
    add_live(kind, options, io, found);
  };
  complete_word(grammar, global, before, live, out);
}

int print_script(Session& session, const std::string& shell) {
  session.io().out(completion_script(shell, "gpu-cli"));
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
  // The scheduler's address may stand anywhere on the line; other faults there do not matter here.
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
    const LiveValues live = [&](Complete kind, Candidates& found) { add_live(kind, options, io, found); };
    if (complete_value(global, line->words, live, out)) return out.lines();
    if (out.typed.starts_with('-')) {
      complete_options(global, out);
    } else {
      add_verbs(line->group, out);
    }
  }
  return out.lines();
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
