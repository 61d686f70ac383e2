// The one file that includes CLI11.
#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

namespace gpusched::cli {
namespace {

constexpr const char* kDefaultUrl = "http://127.0.0.1:8080";
constexpr const char* kVersion = GPUSCHED_VERSION;

constexpr const char* kFooter =
    "Exit codes: 0 ok, 1 the job failed without an exit code, 2 usage, 3 no scheduler answers, 4 refused or "
    "not\n"
    "found, 5 no usable answer; `submit --wait` ends with the job's own (124 at its time limit, 128 + N for "
    "signal "
    "N).";

/// The parser with the place that it writes to.
class Parser {
 public:
  explicit Parser(const CliIo* io);

  CLI::App& app() { return app_; }
  Options& options() { return options_; }
  bool verb_was_given() const { return verb_given_; }

 private:
  CLI::App* add_verb(CLI::App& parent, const char* name, const char* what, Verb verb);
  void add_submit();
  void add_list();
  void add_jobs();
  void add_logs();
  void add_cluster();
  void add_tenants();
  void add_tenant_limits(CLI::App& verb);

  CLI::App app_{"gpu-cli: submit jobs to gpu-scheduler, watch them, and see the GPUs.", "gpu-cli"};
  Options options_;
  bool verb_given_ = false;
};

Parser::Parser(const CliIo* io) {
  if (io != nullptr) {
    options_.api_url = io->environment("GPU_SCHEDULER_URL");
    options_.token_file = io->environment("GPU_SCHEDULER_TOKEN_FILE");
  }
  if (options_.api_url.empty()) options_.api_url = kDefaultUrl;
  app_.footer(kFooter);
  app_.set_version_flag("--version", std::string("gpu-cli ") + kVersion);
  app_.add_option("--api-url", options_.api_url,
                  std::string("The scheduler's REST API (or GPU_SCHEDULER_URL), else ") + kDefaultUrl);
  app_.add_option("--tenant-id", options_.tenant_id,
                  "The tenant to act for; else the scheduler's default one");
  app_.add_option("--token-file", options_.token_file,
                  "File with the shared token (or GPU_SCHEDULER_TOKEN_FILE): a copy of DATA_DIR/token");
  app_.add_flag("--json", options_.json, "Print the scheduler's JSON instead of text");
  app_.require_subcommand(0, 1);
  add_submit();
  add_list();
  add_jobs();
  add_logs();
  add_cluster();
  add_tenants();
}

CLI::App* Parser::add_verb(CLI::App& parent, const char* name, const char* what, Verb verb) {
  CLI::App* const app = parent.add_subcommand(name, what);
  app->fallthrough();  // Global options may stand behind the verb.
  app->callback([this, verb] {
    options_.verb = verb;
    verb_given_ = true;
  });
  return app;
}

void Parser::add_submit() {
  SubmitOptions& submit = options_.submit;
  CLI::App& verb =
      *add_verb(app_, "submit", "Submit a job: gpu-cli submit [options] -- command args", Verb::kSubmit);
  verb.add_option("--name", submit.name, "Name for people; else the command's");
  verb.add_option("--gpus", submit.gpus, "GPUs that it needs");
  verb.add_option("--gpu-model", submit.gpu_model, "Only this model: A100 fits NVIDIA A100-SXM4-80GB");
  verb.add_option("--gpu-memory", submit.gpu_memory, "Memory of all its GPUs together, such as 80G");
  verb.add_option("--cpus", submit.cpus, "CPU cores, also parts such as 0.5");
  verb.add_option("--mem", submit.memory, "Memory, such as 8G");
  verb.add_option("--priority", submit.priority, "Higher starts earlier");
  verb.add_option("--image", submit.image, "Container image to run it in");
  verb.add_option("--script", submit.script,
                  "Run by /bin/sh instead of a command: a file, - for standard input, or the text itself");
  verb.add_option("--time", submit.time_limit, "End it after so long, such as 90s, 2h or 1d12h");
  verb.add_option("--workdir", submit.working_directory, "Folder on the node to run in");
  verb.add_option("--env", submit.environment, "K=V, or K for its value here; repeatable")
      ->allow_extra_args(false);
  verb.add_option("--label", submit.labels, "K=V; repeatable")->allow_extra_args(false);
  verb.add_option("--retries", submit.retries, "Run it again so often when it exits with a failure");
  verb.add_flag("--require-feasible", submit.require_feasible,
                "Refuse it when no registered node could run it");
  verb.add_flag("--wait", submit.wait, "Wait for its end and exit with its exit code");
  verb.add_flag("--logs", submit.logs, "With --wait: show its output while it runs");
}

void Parser::add_list() {
  CLI::App& verb = *add_verb(app_, "list", "List jobs, newest first", Verb::kList);
  verb.add_option(
      "--state", options_.list.state,
      "Only jobs that are pending, scheduled, running, completed, failed, cancelled or preempted");
  verb.add_option("--limit", options_.list.limit, "At most so many (50)")->check(CLI::Range(1, 1'000'000));
  verb.add_flag("--all", options_.list.all, "All that there are");
}

void Parser::add_jobs() {
  CLI::App& get = *add_verb(app_, "get", "Show one job", Verb::kGet);
  get.add_option("job", options_.jobs, "Its id, such as job-12")->required()->expected(1);
  CLI::App& cancel = *add_verb(app_, "cancel", "Cancel jobs", Verb::kCancel);
  cancel.add_option("jobs", options_.jobs, "Their ids")->required();
  CLI::App& explain =
      *add_verb(app_, "explain", "Say why a job waits, and what would start it", Verb::kExplain);
  explain.add_option("job", options_.jobs, "Its id")->required()->expected(1);
}

void Parser::add_logs() {
  LogsOptions& logs = options_.logs;
  CLI::App& verb = *add_verb(app_, "logs", "Print a job's output", Verb::kLogs);
  verb.add_option("job", logs.job, "Its id")->required();
  verb.add_flag("-f,--follow", logs.follow, "Go on until the job ends");
  verb.add_flag("--stderr", logs.from_stderr, "Its standard error instead of its standard output");
  verb.add_option("--attempt", logs.attempt, "Of this attempt, 1 for the first; else the latest")
      ->check(CLI::Range(1, 1'000'000'000));
}

void Parser::add_cluster() {
  add_verb(app_, "cluster", "Count nodes, GPUs and jobs", Verb::kCluster);
  add_verb(app_, "nodes", "List the nodes", Verb::kNodes);
  add_verb(app_, "gpus", "List the GPUs", Verb::kGpus);
  CLI::App& node = *app_.add_subcommand("node", "Tell the scheduler about a node");
  node.fallthrough();
  node.require_subcommand(1);
  CLI::App& dead = *add_verb(node, "confirm-dead", "The node is certainly off: retry its jobs elsewhere",
                             Verb::kNodeConfirmDead);
  dead.add_option("node", options_.node.name, "Its name")->required();
  CLI::App& condition =
      *add_verb(node, "condition", "Take a GPU out of service, or back into it", Verb::kNodeCondition);
  condition.add_option("node", options_.node.name, "The node's name")->required();
  condition.add_option("gpu", options_.node.index, "The GPU's index")
      ->required()
      ->check(CLI::Range(0, 1'000));
  condition.add_option("condition", options_.node.condition, "ok or unhealthy")
      ->required()
      ->check(CLI::IsMember({"ok", "unhealthy"}));
  condition.add_option("--detail", options_.node.detail, "Why, for those who look later");
}

void Parser::add_tenant_limits(CLI::App& verb) {
  TenantOptions& tenant = options_.tenant;
  verb.add_option("--email", tenant.email, "Whom to write to");
  verb.add_option("--organization", tenant.organization, "What it belongs to");
  verb.add_option("--max-gpus", tenant.max_gpus, "GPUs at a time; none for no limit, as in the next four");
  verb.add_option("--max-gpu-memory", tenant.max_gpu_memory, "GPU memory at a time, such as 320G");
  verb.add_option("--max-cpus", tenant.max_cpus, "CPU cores at a time");
  verb.add_option("--max-mem", tenant.max_memory, "Memory at a time");
  verb.add_option("--max-jobs", tenant.max_jobs, "Running jobs at a time");
  verb.add_option("--priority", tenant.priority, "Tier: low, medium, high, critical, or its number");
  verb.add_option("--weight", tenant.weight, "Share among tenants (1.0)");
}

void Parser::add_tenants() {
  TenantOptions& tenant = options_.tenant;
  CLI::App& parent = *app_.add_subcommand("tenant", "Create, list, show, change and delete tenants");
  parent.fallthrough();
  parent.require_subcommand(1);
  CLI::App& create = *add_verb(parent, "create", "Create a tenant", Verb::kTenantCreate);
  create.add_option("--name", tenant.name, "Its name")->required();
  add_tenant_limits(create);
  add_verb(parent, "list", "List the tenants", Verb::kTenantList);
  CLI::App& get = *add_verb(parent, "get", "Show a tenant", Verb::kTenantGet);
  get.add_option("tenant", tenant.id, "Its id, such as tenant-3")->required();
  CLI::App& update = *add_verb(parent, "update", "Change what is given of a tenant", Verb::kTenantUpdate);
  update.add_option("tenant", tenant.id, "Its id")->required();
  update.add_option("--name", tenant.name, "Its new name");
  add_tenant_limits(update);
  CLI::App& remove = *add_verb(parent, "delete", "Delete a tenant that has no jobs", Verb::kTenantDelete);
  remove.add_option("tenant", tenant.id, "Its id")->required();
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  while (text.ends_with(' ') || text.ends_with('.')) text.pop_back();
  return text;
}

/// What the parser's own words leave open.
std::string usage_sentence(const CLI::ParseError& error, bool is_submit) {
  if (is_submit && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    return one_line(error.what()) +
           "; write the job's command behind --, as in: gpu-cli submit -- python train.py";
  }
  return one_line(error.what());
}

void collect_names(const CLI::App& app, const std::string& path,
                   std::map<std::string, std::vector<std::string>>& names) {
  for (const CLI::App* const verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string full = path.empty() ? verb->get_name() : path + " " + verb->get_name();
    auto& own = names[full];
    for (const CLI::Option* const option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) own.push_back("--" + name);
    }
    collect_names(*verb, full, names);
  }
}

}  // namespace

std::variant<Options, ParseEnd> parse_options(int argument_count, const char* const* arguments,
                                              const CliIo& io) {
  Parser parser(&io);
  int own_count = 0;
  while (own_count < argument_count && std::string_view(arguments[own_count]) != "--") ++own_count;
  for (int i = own_count + 1; i < argument_count; ++i)
    parser.options().submit.command.emplace_back(arguments[i]);
  // CLI11 takes them from the end of the vector.
  std::vector<std::string> own;
  for (int i = own_count - 1; i >= 0; --i) own.emplace_back(arguments[i]);
  try {
    parser.app().parse(own);
  } catch (const CLI::CallForHelp&) {
    std::string help = parser.app().help();
    if (!help.ends_with('\n')) help += '\n';
    return ParseEnd{.text = std::move(help)};
  } catch (const CLI::CallForVersion& version) {
    return ParseEnd{.text = std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return ParseEnd{kExitUsage, usage_sentence(error, parser.app().got_subcommand("submit"))};
  }
  if (!parser.verb_was_given()) return ParseEnd{kExitUsage, "say what to do; gpu-cli --help lists it"};
  const bool is_submit = parser.options().verb == Verb::kSubmit;
  if (own_count < argument_count && !is_submit) {
    return ParseEnd{kExitUsage, "only submit takes a command behind --"};
  }
  return std::move(parser.options());
}

std::map<std::string, std::vector<std::string>> option_names() {
  Parser parser(nullptr);
  std::map<std::string, std::vector<std::string>> names;
  for (const CLI::Option* const option : parser.app().get_options()) {
    for (const std::string& name : option->get_lnames()) names[""].push_back("--" + name);
  }
  collect_names(parser.app(), "", names);
  return names;
}

}  // namespace gpusched::cli
