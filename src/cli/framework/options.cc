#include "cli/framework/options.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cli/framework/context.h"
#include "cli/framework/verb.h"
#include "cli/terminal/units.h"
#include "client/http_client.h"

namespace gpusched::cli {
namespace {

Error usage_error(std::string sentence) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(sentence)};
}

/// The names that stand behind `group`, or all first words.
std::vector<std::string> names_behind(const std::string& group) {
  std::vector<std::string> names;
  for (const VerbDefinition& verb : all_verbs()) {
    std::string_view path = verb.path;
    if (!group.empty()) {
      if (!path.starts_with(group + " ")) continue;
      path.remove_prefix(group.size() + 1);
    }
    std::string name(path.substr(0, path.find(' ')));
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return names;
}

/// A command of another scheduler or of the shell, and ours.
struct ForeignVerb {
  std::string_view theirs;
  std::string_view ours;
  bool takes_words = false;  ///< What stands behind it may stand behind ours.
};

constexpr ForeignVerb kForeignVerbs[] = {
    {"squeue", "list"},
    {"queue", "list"},
    {"ps", "list"},
    {"ls", "list"},
    {"jobs", "list"},
    {"qstat", "list"},
    {"bjobs", "list"},
    {"scancel", "cancel", true},
    {"kill", "cancel", true},
    {"stop", "cancel", true},
    {"delete", "cancel", true},
    {"rm", "cancel", true},
    {"qdel", "cancel", true},
    {"bkill", "cancel", true},
    {"resubmit", "rerun", true},
    {"retry", "rerun", true},
    {"sacct", "history"},
    {"sreport", "usage"},
    {"sinfo", "node list"},
    {"pestat", "node list"},
    {"nvidia-smi", "device list"},
    {"sstat", "get", true},
    {"seff", "get", true},
    {"describe", "get", true},
    {"show", "get", true},
    {"info", "get", true},
    {"sbatch", "submit", true},
    {"qsub", "submit", true},
    {"bsub", "submit", true},
    {"srun", "submit --wait --logs", true},
    {"salloc", "submit --wait --logs", true},
    {"sattach", "attach", true},
    {"sprio", "explain", true},
    {"sacctmgr", "tenant list"},
    {"sshare", "tenant list"},
    {"scontrol", "get", false},
};

/// The words behind squeue that mean the same behind list.
std::string squeue_words(const std::vector<std::string>& behind) {
  std::string line;
  for (std::size_t i = 0; i < behind.size(); ++i) {
    const std::string& word = behind[i];
    if (word == "--me") line += " --me";
    if (word == "-r" || word == "--array") line += " --elements";
    if ((word == "-u" || word == "--user" || word == "--users") && i + 1 < behind.size())
      line += " --user " + behind[i + 1];
    if (word.starts_with("--user=")) line += " " + word;
  }
  return line;
}

/// "gpu-cli cancel 5", to copy; empty: nobody has such a command.
std::string foreign_line(const std::string& word, const std::vector<std::string>& behind) {
  const auto* const found = std::ranges::find(kForeignVerbs, word, &ForeignVerb::theirs);
  if (found == std::end(kForeignVerbs)) return "";
  if (word == "scontrol")
    return "gpu-cli get JOB (show job), node show NODE (show node), update, hold, release or requeue JOB";
  std::string line = "gpu-cli " + std::string(found->ours);
  if (word == "squeue") return line + squeue_words(behind);
  const bool runs = word == "srun" || word == "salloc";
  // A command of its own for what runs at a terminal, where there is one.
  if (runs && find_verb("run") != nullptr) line = "gpu-cli run";
  if (runs) line += behind.empty() || behind.front().starts_with('-') ? " [options] -- COMMAND" : " --";
  if (line.ends_with("COMMAND")) return line;
  for (const std::string& one : behind) {
    if (found->takes_words) line += " " + one;
  }
  return line;
}

Error unknown_verb(const std::string& group, const std::string& word,
                   const std::vector<std::string>& behind) {
  const std::string full = group.empty() ? word : group + " " + word;
  if (const std::string line = group.empty() ? foreign_line(word, behind) : ""; !line.empty())
    return usage_error("there is no command " + word + "; write: " + line);
  const std::string near = nearest_of(word, names_behind(group));
  if (!near.empty()) {
    return usage_error("there is no command " + full + "; did you mean " +
                       (group.empty() ? "" : group + " ") + near + "?");
  }
  return usage_error("there is no command " + full + "; gpu-cli " + (group.empty() ? "" : group + " ") +
                     "--help lists them");
}

Result<Unit> apply_context(Options& options, const CliIo& io) {
  const std::string path = contexts_path(io);
  const Result<Contexts> contexts = path.empty() ? Result<Contexts>(Contexts{}) : load_contexts(path);
  if (!contexts) return contexts.error();
  const std::string name = options.context.empty() ? contexts->current : options.context;
  if (name.empty()) return Unit{};
  const auto found = contexts->all.find(name);
  if (found == contexts->all.end()) {
    return usage_error("there is no context " + name + "; gpu-cli context list shows the contexts");
  }
  options.context = name;
  if (options.api_url.empty()) options.api_url = found->second.api_url;
  if (options.api_url == found->second.api_url) {
    if (options.token_file.empty()) options.token_file = found->second.token_file;
    if (options.ca_file.empty()) options.ca_file = found->second.ca_file;
  }
  if (options.tenant_id.empty()) options.tenant_id = found->second.tenant_id;
  return Unit{};
}

}  // namespace

void define_global_options(Grammar& grammar, Options& options) {
  grammar.option(
      "--api-url", "URLS", &options.api_url,
      std::string(
          "URL of the scheduler's REST API, or unix:///PATH of its Unix socket; of several schedulers "
          "that are one, all URLs, comma-separated (default: GPU_SCHEDULER_URL, then the context's, then "
          "this machine's socket if a scheduler answers "
          "there, then ") +
          kDefaultUrl + ")");
  grammar.option("--tenant-id", "ID", &options.tenant_id, "Tenant to act for, by id or name")
      .alias("--tenant")
      .alias("--account")
      .alias("-A")
      .completes(Complete::kTenant);
  grammar
      .option("--token-file", "FILE", &options.token_file,
              "File with an API key, or with the shared token, a copy of DATA_DIR/token (default: "
              "GPU_SCHEDULER_TOKEN_FILE, then the context's)")
      .completes(Complete::kFile);
  grammar
      .option(
          "--ca-file", "FILE", &options.ca_file,
          "File with the certificates (PEM) that an https URL is checked against, instead of this machine's "
          "authorities (default: GPU_SCHEDULER_CA_FILE, then the context's)")
      .completes(Complete::kFile);
  grammar
      .option("--context", "NAME", &options.context,
              "Context to use, one of gpu-cli context list (default: GPU_SCHEDULER_CONTEXT, then the current "
              "one)")
      .completes(Complete::kContext);
  grammar.option("--request-timeout", "SPAN", &options.request_timeout,
                 "Timeout of each request (default: 30s)");
  grammar
      .option("--color", "WHEN", &options.color,
              "Colours: auto (on a terminal, unless NO_COLOR is set), always or never")
      .of({"auto", "always", "never"});
  grammar.flag("--json", options.json, "Print the scheduler's JSON answer instead of text");
  grammar.flag("-h,--help", options.help, "Show this help");
  grammar.flag("--version", options.version, "Print gpu-cli's version");
}

Result<CommandLine> split_command_line(const std::vector<std::string>& words) {
  Options ignored;
  Grammar global;
  define_global_options(global, ignored);
  CommandLine line;
  size_t at = 0;
  for (; at < words.size() && line.verb == nullptr; ++at) {
    const std::string& word = words[at];
    if (word == "--") break;
    if (!word.starts_with('-')) {
      const std::string path = line.group.empty() ? word : line.group + " " + word;
      line.verb = find_verb(path);
      if (line.verb != nullptr) continue;
      if (!line.group.empty() || !is_verb_group(word)) {
        return unknown_verb(line.group, word,
                            {words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end()});
      }
      line.group = word;
      continue;
    }
    const OptionSpec* const option = global.find(word.substr(0, word.find('=')));
    if (option == nullptr) {
      return usage_error("there is no option " + word +
                         " before the command's name; gpu-cli --help lists the options");
    }
    line.words.push_back(word);
    const bool has_value = !option->value.empty() && word.find('=') == std::string::npos;
    if (has_value && at + 1 < words.size()) line.words.push_back(words[++at]);
  }
  line.words.insert(line.words.end(), words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return line;
}

std::string plain_url(const std::string& urls) {
  std::string plain;
  for (const std::string& url : split_urls(urls)) plain += (plain.empty() ? "" : ",") + url;
  return plain;
}

Result<Unit> complete_options(Options& options, const CliIo& io, bool offline) {
  if (!options.request_timeout.empty()) {
    const Result<int64_t> span = parse_duration_seconds(options.request_timeout);
    if (!span) return usage_error("--request-timeout: " + span.error().message);
    options.call_timeout = seconds(*span);
  }
  if (offline) return Unit{};
  const auto fill = [&](std::string& value, const char* variable) {
    if (value.empty()) value = io.environment(variable);
  };
  const bool wants_tls = !options.ca_file.empty();
  fill(options.api_url, "GPU_SCHEDULER_URL");
  options.api_url = plain_url(options.api_url);
  fill(options.ca_file, "GPU_SCHEDULER_CA_FILE");
  fill(options.token_file, "GPU_SCHEDULER_TOKEN_FILE");
  fill(options.context, "GPU_SCHEDULER_CONTEXT");
  // A URL that was given is not the context's scheduler: its token is not for that one.
  if (options.api_url.empty() || !options.context.empty()) {
    if (const Result<Unit> applied = apply_context(options, io); !applied) return applied;
  }
  // Whoever gives a credential means a call with that, where calls with it always went.
  const bool names_nothing = options.api_url.empty() && options.token_file.empty() && !wants_tls;
  if (names_nothing && io.find_socket) options.api_url = io.find_socket();
  if (options.api_url.empty()) options.api_url = kDefaultUrl;
  // Whoever names a certificate expects that nothing is sent in the clear.
  for (const std::string& url : split_urls(options.api_url)) {
    if (wants_tls && !url.starts_with("https://"))
      return usage_error("--ca-file needs a URL that begins with https://, and not " + url);
  }
  return Unit{};
}

}  // namespace gpusched::cli
