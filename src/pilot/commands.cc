#include "pilot/commands.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>

#include "anticipate/plain_text.h"
#include "anticipate/redact.h"
#include "client/json.h"
#include "ops/machine.h"
#include "pilot/confinement.h"
#include "pilot/pilot.h"
#include "pilot/records.h"
#include "pilot/run.h"
#include "pilot/secret_files.h"
#include "pilot/settings.h"

namespace gpusched::pilot {
namespace {

using anticipate::Anticipator;
using anticipate::Decision;
using anticipate::Observation;
using anticipate::Reason;
using anticipate::Rule;

constexpr int kFailed = 1;
constexpr std::size_t kShownBytesMax = 120;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

int failed(const Error& error) {
  std::fprintf(stderr, "gpu-pilot: %s\n", error.message.c_str());
  return error.code == ErrorCode::kInvalidArgument ? kProgramUsage : kFailed;
}

void declare_config(Grammar& grammar, std::string& config) {
  grammar.option("--config", "FILE", &config, "Configuration (default: ~/.config/gpu-pilot/pilot.yaml)")
      .completes(Complete::kFile)
      .from_environment("GPU_PILOT_CONFIG");
}

void declare_passphrase(Grammar& grammar, std::string& file) {
  grammar
      .option(
          "--passphrase-file", "FILE", &file,
          "Passphrase of sealed secrets; only you may read it (default: the configuration's, else asked for)")
      .completes(Complete::kFile)
      .from_environment("GPU_PILOT_PASSPHRASE_FILE");
}

Result<PilotSettings> settings_of(const std::string& config, const std::string& passphrase_file = {}) {
  const std::string home = environment("HOME");
  Result<PilotSettings> settings =
      read_settings(config.empty() ? home + "/.config/gpu-pilot/pilot.yaml" : config, home);
  if (settings && !passphrase_file.empty()) settings->passphrase_file = passphrase_file;
  return settings;
}

ProgramCommand run_command() {
  return {
      .path = "run",
      .summary = "Watch, decide, and hold leases, until it is ended by Ctrl-C or SIGTERM",
      .define = [](Grammar& grammar) -> ProgramAction {
        const auto config = std::make_shared<std::string>();
        const auto passphrase_file = std::make_shared<std::string>();
        const auto dry_run = std::make_shared<bool>(false);
        declare_config(grammar, *config);
        declare_passphrase(grammar, *passphrase_file);
        grammar.flag("--dry-run", *dry_run, "Decide and write down, and send nothing to anybody");
        grammar.details(
            "Everything stays on this machine but the requests for leases, which have numbers and nothing of "
            "what was seen. `gpu-pilot audit` shows each byte that left. When the pilot ends, leases that "
            "nobody uses go back; one in use ends by itself after `decide.lease_minutes` at most.");
        grammar.example("gpu-pilot run --dry-run", "see what it would do");
        return [config, passphrase_file, dry_run](const std::vector<std::string>&) {
          const Result<PilotSettings> settings = settings_of(*config, *passphrase_file);
          if (!settings) return failed(settings.error());
          const Result<Unit> done = run_until_stopped(*settings, *dry_run);
          return done ? 0 : failed(done.error());
        };
      }};
}

std::string rule_line(const Rule& rule) {
  std::string sources;
  for (const anticipate::Source source : rule.sources)
    sources += (sources.empty() ? "" : ", ") + std::string(to_string(source));
  return "  " + rule.name + ": " +
         (rule.meaning == anticipate::Meaning::kOver ? "ends the need"
                                                     : "weighs " + std::to_string(rule.weight)) +
         (sources.empty() ? "" : ", in " + sources) + "\n";
}

int check(const std::string& config, const std::string& passphrase_file, bool with_rules) {
  const Result<PilotSettings> settings = settings_of(config, passphrase_file);
  if (!settings) return failed(settings.error());
  Passphrase passphrase(settings->passphrase_file);
  const Result<Destination> scheduler = scheduler_of(*settings, passphrase);
  print("configuration: " + settings->path + "\n");
  print("scheduler: " + (scheduler ? scheduler->url : scheduler.error().message) + "\n");
  const bool has_model = !settings->model.url.empty();
  const Result<Destination> model =
      has_model ? model_of(*settings, passphrase) : Result<Destination>(Destination{});
  if (has_model) print("model: " + (model ? model->url : model.error().message) + "\n");
  print("state: " + settings->state_dir + "\n");
  for (const MonitorSettings& monitor : settings->monitors) {
    std::string what;
    for (const std::string& path : monitor.paths) what += " " + path;
    for (const std::string& word : monitor.command) what += " " + word;
    print("monitor " + monitor.name + " (" + std::string(to_string(monitor.source)) + "):" + what + "\n");
  }
  const anticipate::Bounds& bounds = settings->decide.bounds;
  print("bounds: " + std::to_string(bounds.gpus_max) + " GPUs in a lease, " +
        std::to_string(bounds.leases_max) + " leases at a time, " +
        std::to_string(bounds.gpu_minutes_per_day) + " GPU minutes a day\n");
  print("rules: " + std::to_string(settings->rules.size()) + "\n");
  if (with_rules) {
    for (const Rule& rule : settings->rules) print(rule_line(rule));
  }
  return scheduler && model ? 0 : kFailed;
}

ProgramCommand check_command() {
  return {.path = "check",
          .summary = "Check the configuration and show what would be watched",
          .define = [](Grammar& grammar) -> ProgramAction {
            const auto config = std::make_shared<std::string>();
            const auto passphrase_file = std::make_shared<std::string>();
            const auto with_rules = std::make_shared<bool>(false);
            declare_config(grammar, *config);
            declare_passphrase(grammar, *passphrase_file);
            grammar.flag("--rules", *with_rules, "List the rules, too");
            return [config, passphrase_file, with_rules](const std::vector<std::string>&) {
              return check(*config, *passphrase_file, *with_rules);
            };
          }};
}

void print_reason(const std::string& rule, int64_t weight, const std::string& where,
                  const std::string& text) {
  print("    " + rule + " (" + std::to_string(weight) + ") " + where + ": " +
        anticipate::plain_text(text, kShownBytesMax) + "\n");
}

/// Shows the rules' word about one text.
int explain_text(const PilotSettings& settings, const std::string& source, const std::string& text) {
  const Result<PilotState> state = read_state(settings.state_dir);
  anticipate::Memory memory;
  if (state) memory.learning = state->memory.learning;
  Anticipator anticipator(settings.rules, settings.decide, memory);
  const Observation seen{
      .source = *anticipate::parse_source(source),
      .monitor = source,
      .origin = "the command line",
      .text = anticipate::redacted(anticipate::plain_text(text, anticipate::kFileTextBytesMax))};
  const std::vector<Decision> decisions = anticipator.observe(seen, Time{hours(24).ns});
  if (decisions.empty()) print("no rule matches\n");
  for (const Decision& decision : decisions) {
    print(std::string(to_string(decision.kind)) + ": " + decision.why + "\n");
    for (const Reason& reason : decision.reasons)
      print_reason(reason.rule, reason.weight, std::string(to_string(reason.source)), reason.text);
  }
  return 0;
}

std::vector<std::string> last_lines(const std::string& path, std::size_t count) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > count * 2)
      lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  }
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

int explain_decisions(const PilotSettings& settings, int64_t count, bool as_json) {
  for (const std::string& line :
       last_lines(settings.state_dir + "/decisions.jsonl", static_cast<std::size_t>(count))) {
    if (as_json) {
      print(line + "\n");
      continue;
    }
    const Result<Json> json = Json::parse(line);
    if (!json) continue;
    const std::string job = (*json)["job"].text();
    print((*json)["at"].text() + " " + (*json)["decision"].text() + (job.empty() ? "" : " " + job) + ": " +
          (*json)["why"].text() + "\n");
    for (const Json& reason : (*json)["reasons"].items())
      print_reason(reason["rule"].text(), reason["weight"].integer(), reason["origin"].text(),
                   reason["text"].text());
  }
  return 0;
}

ProgramCommand explain_command() {
  struct Words {
    std::string config, text, source = "shell";
    int64_t count = 20;
    bool as_json = false;
  };
  return {.path = "explain",
          .summary = "Show the newest decisions and their reasons, or what the rules say about a text",
          .define = [](Grammar& grammar) -> ProgramAction {
            const auto words = std::make_shared<Words>();
            declare_config(grammar, words->config);
            grammar.option("--text", "TEXT", &words->text, "Say what the rules find in this text instead");
            grammar
                .option("--source", "SOURCE", &words->source,
                        "Where the text would have been seen (default: shell)")
                .of({"log", "file", "process", "shell", "custom"});
            grammar.option("-n,--count", "N", &words->count, "Number of decisions (default: 20)")
                .range(1, 100'000);
            grammar.flag("--json", words->as_json, "One JSON object a line");
            grammar.example("gpu-pilot explain --text 'torchrun --nproc_per_node 2 train.py'",
                            "what would follow of that command");
            return [words](const std::vector<std::string>&) {
              const Result<PilotSettings> settings = settings_of(words->config);
              if (!settings) return failed(settings.error());
              return words->text.empty() ? explain_decisions(*settings, words->count, words->as_json)
                                         : explain_text(*settings, words->source, words->text);
            };
          }};
}

std::string lease_state(const anticipate::Lease& lease) {
  if (lease.is_released) return "being released";
  return lease.ready_at.valid() ? "ready" : "waits";
}

int status(const PilotSettings& settings, bool as_json, bool jobs_only) {
  const Result<PilotState> state = read_state(settings.state_dir);
  if (!state) return failed(state.error());
  if (as_json) {
    print(state_json(*state) + "\n");
    return 0;
  }
  bool any = false;
  for (const anticipate::Lease& lease : state->memory.leases) {
    const auto record = state->leases.find(lease.number);
    const std::string job = record == state->leases.end() ? "" : record->second.remote.job;
    if (jobs_only && (job.empty() || lease.is_released)) continue;
    any = true;
    if (jobs_only) {
      print(job + "\n");
    } else {
      print((job.empty() ? "(asked for)" : job) + ": " + std::to_string(lease.request.gpus) + " GPUs, " +
            lease_state(lease) + (job.empty() ? "" : "; gpu-cli run --in-lease " + job + " -- COMMAND") +
            "\n");
    }
  }
  if (!any && !jobs_only) print("no leases\n");
  return any || !jobs_only ? 0 : kFailed;
}

ProgramCommand status_command() {
  struct Words {
    std::string config;
    bool as_json = false, jobs_only = false;
  };
  return {.path = "status",
          .summary = "Show the leases that are held",
          .define = [](Grammar& grammar) -> ProgramAction {
            const auto words = std::make_shared<Words>();
            declare_config(grammar, words->config);
            grammar.flag("--json", words->as_json, "All that it remembers, as one JSON object");
            grammar.flag("--jobs", words->jobs_only,
                         "Only the jobs of the leases, one a line; fails if there are none");
            grammar.example(
                "gpu-cli run --in-lease \"$(gpu-pilot status --jobs | head -1)\" -- python train.py",
                "work in the lease");
            return [words](const std::vector<std::string>&) {
              const Result<PilotSettings> settings = settings_of(words->config);
              if (!settings) return failed(settings.error());
              return status(*settings, words->as_json, words->jobs_only);
            };
          }};
}

int audit(const PilotSettings& settings, bool as_json) {
  int64_t requests = 0, bytes = 0;
  for (const char* const suffix : {"/audit.jsonl.1", "/audit.jsonl"}) {
    std::ifstream file(settings.state_dir + suffix);
    for (std::string line; std::getline(file, line);) {
      const Result<Json> json = Json::parse(line);
      if (!json) continue;
      if (as_json) {
        print(line + "\n");
        continue;
      }
      if ((*json)["sent"].is_null()) {
        const std::string problem = (*json)["problem"].text();
        print("  answer: " + (problem.empty() ? std::to_string((*json)["status"].integer()) : problem) +
              "\n");
        continue;
      }
      requests += 1;
      bytes += (*json)["bytes"].integer();
      print((*json)["at"].text() + " to " + (*json)["to"].text() + ", " +
            std::to_string((*json)["bytes"].integer()) + " bytes\n");
      print("    " + anticipate::plain_text((*json)["sent"].text(), anticipate::kFileTextBytesMax) + "\n");
    }
  }
  if (!as_json)
    print(std::to_string(requests) + " requests, " + std::to_string(bytes) +
          " bytes left this machine or its pilot\n");
  return 0;
}

ProgramCommand audit_command() {
  return {
      .path = "audit",
      .summary = "Show every byte that the pilot sent, and to whom",
      .define = [](Grammar& grammar) -> ProgramAction {
        const auto config = std::make_shared<std::string>();
        const auto as_json = std::make_shared<bool>(false);
        declare_config(grammar, *config);
        grammar.flag("--json", *as_json, "One JSON object a line");
        grammar.details(
            "Requests are written down before they are sent; one that cannot be written down is not sent. "
            "API "
            "keys show as `[secret]`. Bytes are those inside TLS, whose handshake names the server besides.");
        return [config, as_json](const std::vector<std::string>&) {
          const Result<PilotSettings> settings = settings_of(*config);
          return settings ? audit(*settings, *as_json) : failed(settings.error());
        };
      }};
}

int seal(const std::string& out, const std::string& passphrase_file) {
  Passphrase passphrase(passphrase_file);
  const Result<std::string> secret = ask_secret("Secret: ");
  if (!secret) return failed(secret.error());
  const Result<std::string> words = passphrase.get_new();
  if (!words) return failed(words.error());
  const Result<Unit> written = write_sealed(out, *secret, *words);
  return written ? 0 : failed(written.error());
}

ProgramCommand seal_command() {
  return {
      .path = "seal",
      .summary = "Encrypt a secret with a passphrase, for token_file or model.key_file",
      .define = [](Grammar& grammar) -> ProgramAction {
        const auto out = std::make_shared<std::string>();
        const auto passphrase_file = std::make_shared<std::string>();
        grammar.option("--out", "FILE", out.get(), "The file for the sealed secret, of mode 0600")
            .completes(Complete::kFile)
            .must();
        declare_passphrase(grammar, *passphrase_file);
        grammar.details(
            "Reads one line, the secret, from the terminal or from its input. `gpu-pilot run` asks for the "
            "passphrase when it starts, unless it has --passphrase-file, and keeps both in memory alone.");
        grammar.example("gpu-pilot seal --out ~/.config/gpu-pilot/model-key", "then: gpu-pilot check");
        return
            [out, passphrase_file](const std::vector<std::string>&) { return seal(*out, *passphrase_file); };
      }};
}

int doctor(const std::string& config, bool as_json) {
  const Result<PilotSettings> settings = settings_of(config);
  if (!settings) return failed(settings.error());
  std::vector<Destination> destinations;
  destinations.push_back({.url = settings->api_url, .ca_file = settings->ca_file});
  destinations.push_back({.url = settings->model.url, .ca_file = settings->model.ca_file});
  std::erase_if(destinations, [](const Destination& one) { return one.url.empty(); });
  Diagnosis diagnosis;
  diagnosis.add_all(check_confinement(*settings, kernel_rules(*settings, destinations)));
  print(as_json ? diagnosis.json("gpu-pilot", ops::host_name()) + "\n" : diagnosis.text());
  return diagnosis.exit_code();
}

ProgramCommand doctor_command() {
  return {
      .path = "doctor",
      .summary = "Try whether the kernel keeps a running pilot to its files and ports",
      .define = [](Grammar& grammar) -> ProgramAction {
        const auto config = std::make_shared<std::string>();
        const auto as_json = std::make_shared<bool>(false);
        declare_config(grammar, *config);
        grammar.flag("--json", *as_json, "One JSON object");
        grammar.details(
            "A child process gives itself the rules of `gpu-pilot run` (Landlock), and opens a file and a "
            "port that they do not have. Exit status: 0: all is refused; 1: a part is not held; 2: the "
            "kernel "
            "did not refuse what it should.");
        return [config, as_json](const std::vector<std::string>&) { return doctor(*config, *as_json); };
      }};
}

ProgramCommand example_command() {
  return {.path = "example",
          .summary = "Print a configuration to begin with",
          .define = [](Grammar& grammar) -> ProgramAction {
            grammar.example("gpu-pilot example > ~/.config/gpu-pilot/pilot.yaml", "then: gpu-pilot check");
            return [](const std::vector<std::string>&) {
              print(example_settings());
              return 0;
            };
          }};
}

}  // namespace

std::vector<ProgramCommand> pilot_commands() {
  return {run_command(),   check_command(),  explain_command(), status_command(),
          audit_command(), doctor_command(), seal_command(),    example_command()};
}

}  // namespace gpusched::pilot
