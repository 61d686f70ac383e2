#include "api/fields/job_rules.h"

#include <set>

#include "api/fields/checks.h"
#include "api/fields/flow_fields.h"
#include "api/fields/job_rows.h"
#include "api/fields/pack_spec.h"
#include "api/fields/place_words.h"
#include "base/job_signals.h"
#include "base/limits.h"
#include "base/net/webhook_url.h"
#include "base/text.h"
#include "base/text/task_worker.h"

namespace gpusched::api {
namespace {

/// Linux starts no program with a longer argument or variable.
constexpr std::size_t kArgumentBytesMax = 128 * 1024 - 1;

/// The limit of a whole specification is told first.
bool is_too_long(std::size_t bytes) { return bytes > kArgumentBytesMax && bytes < limits::kSpecBytesMax; }

/// Checks the words of a command that a node could not pass on.
std::optional<ApiError> check_words(const char* field, const StringList& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_too_long(words[i].size())) continue;
    return invalid(field, std::string(field) + "[" + std::to_string(i) + "] has " +
                              std::to_string(words[i].size()) +
                              " bytes, and no program starts with more than " +
                              std::to_string(kArgumentBytesMax) + " in one argument; put them into a file");
  }
  return std::nullopt;
}

/// Checks how a script is run: as a file by the interpreter of its first line, else as an argument of
/// /bin/sh.
std::optional<ApiError> check_script(const std::string& script) {
  const std::string_view line = std::string_view(script).substr(0, script.find('\n'));
  const bool is_file = line.starts_with("#!") && line.find_first_not_of(" \t", 2) != std::string_view::npos;
  if (is_file && line.ends_with('\r')) {
    return invalid("script",
                   "script's first line ends with a carriage return, which would belong to the interpreter's "
                   "name; send line feeds alone");
  }
  if (is_file || !is_too_long(script.size())) return std::nullopt;
  return invalid("script", "script has " + std::to_string(script.size()) +
                               " bytes and is an argument of /bin/sh, which has at most " +
                               std::to_string(kArgumentBytesMax) +
                               "; begin it with a line that names its interpreter, such as #!/bin/sh");
}

std::optional<ApiError> check_command(const JobFields& fields) {
  const StringList none;
  const StringList& command = fields.command ? *fields.command : none;
  const StringList& args = fields.args ? *fields.args : none;
  const bool has_script = fields.script && !fields.script->empty();
  const bool has_image = fields.image && !fields.image->empty();
  if (command.size() + args.size() > limits::kCommandWordsMax) {
    return invalid("command", "command and args have in total more than " +
                                  std::to_string(limits::kCommandWordsMax) + " words; put them into a file");
  }
  if (!command.empty() && command.front().empty()) {
    return invalid("command", "command[0] is empty; it names the program to run");
  }
  if (auto problem = check_words("command", command)) return problem;
  if (auto problem = check_words("args", args)) return problem;
  if (auto problem = has_script ? check_script(*fields.script) : std::nullopt) return problem;
  if (!command.empty() && has_script) {
    return unprocessable("script", "both command and script are given; send one of them");
  }
  const std::string executor = fields.executor.value_or("");
  if (!executor.empty() && executor != "process" && executor != "external")
    return invalid("executor", "executor must be process or external");
  if (executor == "external") {
    if (command.empty() && args.empty() && !has_script && !has_image) return std::nullopt;
    return unprocessable("executor",
                         "an external job is started by another program; remove command, args, script and "
                         "image, or executor");
  }
  if (command.empty() && !has_script && !has_image) {
    return unprocessable("command", "the job has nothing to run; give a command, a script or an image");
  }
  return std::nullopt;
}

std::optional<ApiError> check_environment(const StringMap& environment) {
  if (environment.size() > limits::kEnvironmentCountMax) {
    return invalid("environment", "environment has more than " +
                                      std::to_string(limits::kEnvironmentCountMax) +
                                      " variables; put them into a file");
  }
  for (const auto& [name, value] : environment) {
    bool good = !name.empty();
    for (const char c : name) good = good && c != '=' && static_cast<unsigned char>(c) > 0x20 && c != 0x7F;
    if (!good) {
      return invalid("environment",
                     "environment has a variable whose name is empty or contains '=', a space or a "
                     "control character; rename it");
    }
    if (is_too_long(name.size() + 1 + value.size())) {
      return invalid("environment", "environment's " + name.substr(0, limits::kNameBytesMax) + " has " +
                                        std::to_string(value.size()) +
                                        " bytes, and no program starts with a " + "variable of more than " +
                                        std::to_string(kArgumentBytesMax) +
                                        " with its name; put them into a file");
    }
    if (is_worker_variable(name)) {
      return invalid("environment", "environment names '" + name.substr(0, limits::kNameBytesMax) +
                                        "', and variables that begin with " + std::string(kWorkerVariables) +
                                        " are set by the scheduler alone, for tasks of agents; rename it");
    }
  }
  return std::nullopt;
}

/// Checks that secret variables exist: if one is misspelt, the real one is shown.
std::optional<ApiError> check_secrets(const JobFields& fields) {
  if (!fields.secret_variables) return std::nullopt;
  std::set<std::string_view> variables;
  if (fields.environment) {
    for (const auto& [name, value] : *fields.environment) variables.insert(name);
  }
  for (const std::string& name : *fields.secret_variables) {
    if (variables.contains(name)) continue;
    return invalid("secret_variables", "secret_variables names '" + name.substr(0, limits::kNameBytesMax) +
                                           "', which environment does not have; give its value there");
  }
  return std::nullopt;
}

std::optional<ApiError> check_labels(const StringMap& labels) {
  if (labels.size() > limits::kLabelCountMax) {
    return invalid("labels",
                   "there are more than " + std::to_string(limits::kLabelCountMax) + " labels; send fewer");
  }
  for (const auto& [name, value] : labels) {
    if (name.empty()) return invalid("labels", "a label has an empty name; give it a name");
    if (has_control_character(name) || has_control_character(value)) {
      return invalid("labels",
                     "a label's name or value contains a control character, such as a line break; remove it");
    }
    if (name.size() > limits::kLabelBytesMax || value.size() > limits::kLabelBytesMax) {
      return invalid("labels", "a label's name or value is longer than " +
                                   std::to_string(limits::kLabelBytesMax) + " bytes; shorten it");
    }
  }
  return std::nullopt;
}

/// Checks the wishes to the watchdog.
std::optional<ApiError> check_watchdog(const JobFields& fields) {
  for (const auto& [name, value] :
       {std::pair{"idle_action", &fields.idle_action}, std::pair{"hung_action", &fields.hung_action}}) {
    const std::string word = value->value_or("");
    if (!word.empty() && word != "warn" && word != "requeue" && word != "cancel")
      return invalid(name, std::string(name) + " must be warn, requeue or cancel");
  }
  return std::nullopt;
}

/// Checks the wishes for being ended for another job.
std::optional<ApiError> check_preemption(JobFields& fields) {
  if (fields.preemption_mode && !fields.preemption_mode->empty() && *fields.preemption_mode != "requeue" &&
      *fields.preemption_mode != "cancel") {
    return invalid("preemption_mode", "preemption_mode must be requeue or cancel");
  }
  if (fields.preempt_signal && !fields.preempt_signal->empty()) {
    const auto signal = parse_job_signal(*fields.preempt_signal);
    if (!signal) {
      return invalid("preempt_signal",
                     "preempt_signal must be one of HUP, INT, QUIT, USR1, USR2, ALRM, TERM, CONT, URG, XCPU "
                     "and WINCH");
    }
    fields.preempt_signal = signal->name;
  }
  if (auto problem = check_watchdog(fields)) return problem;
  if (!fields.preempt_webhook || fields.preempt_webhook->empty()) return std::nullopt;
  if (!parse_webhook_url(*fields.preempt_webhook)) {
    return invalid("preempt_webhook",
                   "preempt_webhook must be a URL such as http://hooks.example.com:8088/preempted");
  }
  return std::nullopt;
}

/// "/source:/target" or "/source:/target:ro".
std::optional<MountFields> parse_mount(std::string_view text) {
  MountFields mount;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  mount.source = text.substr(0, colon);
  text.remove_prefix(colon + 1);
  if (text.ends_with(":ro")) {
    mount.read_only = true;
    text.remove_suffix(3);
  } else if (text.ends_with(":rw")) {
    text.remove_suffix(3);
  }
  mount.target = text;
  return mount;
}

/// Takes over fields that the jobs door says in other words than the native API.
std::optional<ApiError> settle_words(JobFields& fields) {
  for (const std::string& text : fields.mount_texts ? *fields.mount_texts : StringList{}) {
    auto mount = parse_mount(text);
    if (!mount) return invalid("mounts", "mounts must be texts such as \"/data:/data:ro\"");
    if (!fields.mounts) fields.mounts.emplace();
    fields.mounts->push_back(std::move(*mount));
  }
  if (!fields.priority) return std::nullopt;
  const std::optional<int64_t> number = tier_of(*fields.priority);
  if (!number) return invalid("priority", "priority must be low, medium, high, critical or a number");
  fields.priority = *number;
  return std::nullopt;
}

std::optional<ApiError> check_runtime(JobFields& fields) {
  if (!fields.runtime_by_minutes_ms) return std::nullopt;
  if (fields.max_runtime_ms) {
    return unprocessable("max_runtime_seconds",
                         "both max_runtime_minutes and max_runtime_seconds are given; send one of them");
  }
  fields.max_runtime_ms = fields.runtime_by_minutes_ms;
  return std::nullopt;
}

std::optional<ApiError> check_directory(JobFields& fields) {
  if (fields.working_directory.value_or("").empty()) {
    fields.working_directory_optional.reset();
  } else if (!fields.working_directory->starts_with('/')) {
    return invalid("working_directory", "working_directory must be an absolute path");
  }
  return std::nullopt;
}

std::optional<ApiError> check_class(const JobFields& fields) {
  const std::string word = fields.work_class.value_or("");
  if (word.empty() || word == "online" || word == "batch") return std::nullopt;
  return invalid("work_class", "work_class must be online or batch");
}

std::optional<ApiError> check_image(JobFields& fields, bool containers_possible) {
  const bool has_image = fields.image && !fields.image->empty();
  if (fields.limits) make_canonical(*fields.limits);
  if (auto refused = check_box(fields, has_image)) return refused;
  // Nodes come and go: it waits for one, unless the caller wants to know at once.
  if (!has_image || containers_possible || !fields.require_feasible.value_or(false)) return std::nullopt;
  return ApiError{ErrorKind::kImageUnsupported,
                  "no registered node can run container images; remove image, add a node that runs "
                  "containers, or drop require_feasible to let the job wait for one",
                  "image"};
}

PlacementFields place_of(JobFields& fields) {
  return {.node_labels = std::move(fields.node_labels).value_or(StringList{}),
          .without_labels = std::move(fields.without_labels).value_or(StringList{}),
          .exclusive = fields.exclusive.value_or(false),
          .gpu_layout = std::move(fields.gpu_layout).value_or(""),
          .gpu_ids = std::move(fields.gpu_ids).value_or(StringList{}),
          .gpu_bandwidth_gbs = fields.gpu_bandwidth_gbs.value_or(0)};
}

/// The request of fields that are within their ranges and contradict each other in nothing.
JobRequest to_request(JobFields& fields) {
  const auto number = [](const std::optional<int64_t>& given) {
    return static_cast<int32_t>(given.value_or(0));
  };
  JobRequest job{.spec = pack_spec(fields),
                 .name = std::move(fields.name).value_or(""),
                 .gpu_count = number(fields.gpu_milli) > 0 ? 1 : number(fields.gpu_count),
                 .gpu_milli = number(fields.gpu_milli),
                 .mig_profile = std::move(fields.mig_profile).value_or(""),
                 .gpu_memory_mb = fields.gpu_memory_mb.value_or(0),
                 .gpu_model = std::move(fields.gpu_model).value_or(""),
                 .cpu_milli = fields.cpu_milli.value_or(1'000),
                 .memory_mb = fields.memory_mb.value_or(0),
                 .max_runtime = milliseconds(fields.max_runtime_ms.value_or(0)),
                 .exit_code_retries = number(fields.retries),
                 .system_retries = number(fields.system_retries),
                 .overlap_allowed = fields.overlap_allowed.value_or(false),
                 .kill_after_lost_contact = milliseconds(fields.kill_after_lost_contact_ms.value_or(0)),
                 .require_feasible = fields.require_feasible.value_or(false),
                 .wants_container = fields.image && !fields.image->empty(),
                 .external = fields.executor == "external",
                 .held = fields.held.value_or(false),
                 .interactive = fields.interactive.value_or(false),
                 .reservation = std::move(fields.reservation).value_or(""),
                 .gpu_memory_each_mb = fields.gpu_memory_each_mb.value_or(0),
                 .preempt_grace = milliseconds(fields.preempt_grace_ms.value_or(0)),
                 .preempt_webhook = std::move(fields.preempt_webhook).value_or(""),
                 .nodes = number(fields.nodes),
                 .nodes_max = number(fields.nodes_max),
                 .domain = parse_domain(fields.domain.value_or("")).value_or(DomainLevel::kAny),
                 .domain_required = fields.domain_required.value_or(false)};
  if (fields.priority) job.priority = static_cast<int32_t>(std::get<int64_t>(*fields.priority));
  if (fields.work_class == "online") job.work = WorkClass::kOnline;
  if (fields.work_class == "batch") job.work = WorkClass::kBatch;
  if (fields.preemption_mode == "cancel") job.preemption_mode = PreemptionMode::kCancel;
  job.gpus_over_nodes = fields.gang_scheduling.value_or(false) && job.nodes == 0 && job.gpu_milli == 0;
  return job;
}

}  // namespace

namespace {

struct TierWord {
  std::string_view word;
  int64_t number;
};
constexpr TierWord kTierWords[] = {{"low", 100}, {"medium", 500}, {"high", 1'000}, {"critical", 5'000}};

}  // namespace

std::optional<int64_t> tier_of(const NumberOrWord& given) {
  if (const int64_t* number = std::get_if<int64_t>(&given)) return *number;
  const std::string& word = std::get<std::string>(given);
  for (const TierWord& tier : kTierWords) {
    if (word == tier.word) return tier.number;
  }
  return std::nullopt;
}

std::string tier_text(int64_t number) {
  for (const TierWord& tier : kTierWords) {
    if (number == tier.number) return std::string(tier.word);
  }
  return std::to_string(number);
}

std::optional<DomainLevel> parse_domain(std::string_view word) {
  for (const DomainLevel level :
       {DomainLevel::kNode, DomainLevel::kRack, DomainLevel::kBlock, DomainLevel::kZone}) {
    if (word == to_string(level)) return level;
  }
  return std::nullopt;
}

std::optional<ApiError> read_node_loss(std::string_view word, const char* field, JobRequest& job) {
  if (word.empty() || word == "end") return std::nullopt;
  if (word != "continue")
    return invalid(field,
                   std::string(field) + " must be end, or continue: a gang continues without lost members");
  if (!job.is_gang())
    return unprocessable(field,
                         std::string(field) + " is continue for a job of one member; request several nodes");
  job.tolerates_node_loss = true;
  return std::nullopt;
}

Answer<JobRequest> check_job(JobFields fields, bool containers_possible) {
  if (fields.environment) make_canonical(*fields.environment);
  if (fields.labels) make_canonical(*fields.labels);
  const StringMap none;
  auto refused = first_of([&] { return settle_words(fields); }, [&] { return normalize_nodes(fields); },
                          [&] { return check_rows(fields); }, [&] { return check_command(fields); },
                          [&] { return check_gpus(fields); },
                          [&] { return check_environment(fields.environment ? *fields.environment : none); },
                          [&] { return check_secrets(fields); },
                          [&] { return check_labels(fields.labels ? *fields.labels : none); },
                          [&] { return settle_slice(fields); }, [&] { return check_directory(fields); },
                          [&] { return check_preemption(fields); }, [&] { return check_class(fields); },
                          [&] { return check_runtime(fields); },
                          [&] { return check_image(fields, containers_possible); });
  if (refused) return std::move(*refused);

  if (fields.memory_mb == 0) fields.memory_unlimited = true;
  JobRequest job = to_request(fields);
  if (auto wrong = read_flow(fields, job)) return std::move(*wrong);
  Answer<std::vector<PlaceRequest>> place = read_place(place_of(fields), job.gpu_model);
  if (!place) return place.error();
  job.place = std::move(*place);
  if (auto wrong = read_node_loss(fields.on_node_loss.value_or(""), "on_node_loss", job))
    return std::move(*wrong);
  if (job.spec.size() > limits::kSpecBytesMax) {
    return ApiError{ErrorKind::kTooLarge, "the job's specification is larger than " +
                                              std::to_string(limits::kSpecBytesMax) +
                                              " bytes; put large data into a file that the job reads"};
  }
  return job;
}

}  // namespace gpusched::api
