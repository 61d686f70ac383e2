#include "api/doors/jobs/jobs_json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/doors/rfc3339.h"
#include "base/job_signals.h"
#include "base/limits.h"
#include "base/net/webhook_url.h"
#include "base/text.h"
#include "model/mig.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kImageBytesMax = 1'024;
constexpr std::size_t kPathBytesMax = 4'096;
constexpr std::size_t kEmailBytesMax = 320;
constexpr double kWeightMax = 1'000'000.0;
constexpr std::size_t kDetailBytesMax = 1'024;

ApiError invalid(std::string_view field, std::string message) {
  return {ErrorKind::kInvalidArgument, std::move(message), std::string(field)};
}
ApiError unprocessable(std::string_view field, std::string message) {
  return {ErrorKind::kUnprocessable, std::move(message), std::string(field)};
}

std::optional<ApiError> check_length(std::string_view field, std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::nullopt;
  return invalid(field,
                 std::string(field) + " is longer than " + std::to_string(most) + " bytes; shorten it");
}

std::optional<ApiError> check_range(std::string_view field, const std::optional<int64_t>& number,
                                    int64_t least, int64_t most) {
  if (!number || (*number >= least && *number <= most)) return std::nullopt;
  std::string message(field);
  if (*number < 0 && least == 0) {
    message.append(" must not be negative");
  } else {
    message.append(" must be from ")
        .append(std::to_string(least))
        .append(" to ")
        .append(std::to_string(most));
  }
  return invalid(field, message + "; it is " + std::to_string(*number));
}

std::optional<ApiError> check_range(std::string_view field, const std::optional<double>& number,
                                    double most) {
  if (!number || (*number >= 0 && *number <= most)) return std::nullopt;  // NaN is in no range.
  if (*number < 0) return invalid(field, std::string(field) + " must not be negative");
  return invalid(field,
                 std::string(field) + " must be at most " + std::to_string(static_cast<int64_t>(most)));
}

/// The first problem of several checks.
template <typename... Checks>
std::optional<ApiError> first_of(Checks&&... checks) {
  std::optional<ApiError> found;
  static_cast<void>(((found = checks()) || ...));
  return found;
}

std::optional<ApiError> check_command(const JobFields& fields) {
  const StringList none;
  const StringList& command = fields.command ? *fields.command : none;
  const StringList& args = fields.args ? *fields.args : none;
  const bool has_script = fields.script && !fields.script->empty();
  const bool has_image = fields.image && !fields.image->empty();
  if (command.size() + args.size() > limits::kCommandWordsMax) {
    return invalid("command", "command and args together have more than " +
                                  std::to_string(limits::kCommandWordsMax) + " words; put them into a file");
  }
  if (!command.empty() && command.front().empty()) {
    return invalid("command", "command[0] is empty; it names the program to run");
  }
  if (!command.empty() && has_script) {
    return unprocessable("script", "both command and script are given; send one of them");
  }
  if (command.empty() && !has_script && !has_image) {
    return unprocessable("command", "there is nothing to run; give a command, a script or an image");
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
  }
  return std::nullopt;
}

std::optional<ApiError> check_labels(const StringMap& labels) {
  if (labels.size() > limits::kLabelCountMax) {
    return invalid("labels",
                   "there are more than " + std::to_string(limits::kLabelCountMax) + " labels; send fewer");
  }
  for (const auto& [name, value] : labels) {
    if (name.empty()) return invalid("labels", "a label has an empty name; name it");
    if (has_control_character(name) || has_control_character(value)) {
      return invalid("labels",
                     "a label's name or value has a control character, such as a line break; leave it out");
    }
    if (name.size() > limits::kLabelBytesMax || value.size() > limits::kLabelBytesMax) {
      return invalid("labels", "a label's name or value is longer than " +
                                   std::to_string(limits::kLabelBytesMax) + " bytes; shorten it");
    }
  }
  return std::nullopt;
}

std::optional<ApiError> check_gpus(const JobFields& fields) {
  if (!fields.mig_profile.value_or("").empty()) return std::nullopt;  // See settle_slice.
  if (fields.gpu_milli.value_or(0) > 0) {
    if (fields.gpu_count.value_or(0) <= 1) return std::nullopt;
    return unprocessable("gpu_milli",
                         "gpu_milli is given with more than one GPU; a share is of one GPU: leave "
                         "gpu_count out, or gpu_milli");
  }
  if (fields.gpu_count.value_or(0) > 0) return std::nullopt;
  if (fields.gpu_memory_each_mb.value_or(0) > 0) {
    return unprocessable("gpu_memory_each_mb",
                         "gpu_memory_each_mb is given without a gpu_count; say how many GPUs need as much");
  }
  if (fields.gpu_memory_mb.value_or(0) > 0) {
    return unprocessable("gpu_memory_mb",
                         "gpu_memory_mb is given without a gpu_count; say how many GPUs share it");
  }
  if (fields.gpu_model && !fields.gpu_model->empty()) {
    return unprocessable("gpu_model", "gpu_model is given without a gpu_count; say how many of them");
  }
  return std::nullopt;
}

/// A MIG slice says by its profile what it has; nothing else of GPUs can stand beside it but their model.
std::optional<ApiError> settle_slice(JobFields& fields) {
  const std::string profile = fields.mig_profile.value_or("");
  if (profile.empty()) return std::nullopt;
  const auto beside = [](const char* field, const char* why) {
    return unprocessable(
        field, std::string(field) + " is given with mig_profile; " + why + ": leave one of them out");
  };
  if (!mig::is_profile(profile)) {
    return unprocessable("mig_profile", "no GPU has a MIG profile \"" +
                                            profile.substr(0, limits::kMigProfileMax) + "\"; there are " +
                                            mig::all_names());
  }
  if (fields.gpu_milli.value_or(0) > 0) return beside("gpu_milli", "a slice is a share by itself");
  if (fields.gpu_count.value_or(0) > 1) return beside("gpu_count", "a slice is of one GPU");
  if (fields.nodes.value_or(0) > 0 || fields.gpus_per_node)
    return beside("nodes", "jobs on several nodes have whole GPUs or shares");
  if (fields.gpu_memory_mb.value_or(0) > 0)
    return beside("gpu_memory_mb", "a slice has the memory of its profile");
  if (fields.gpu_memory_each_mb.value_or(0) > 0)
    return beside("gpu_memory_each_mb", "a slice has the memory of its profile");
  const PlacementFields& place = fields.place;
  if (!place.gpu_ids.empty())
    return beside("gpu_ids", "which GPU a slice is cut from is the scheduler's to choose");
  if (!place.gpu_layout.empty()) return beside("gpu_layout", "a layout is of two GPUs or more");
  if (place.gpu_bandwidth_gbs != 0)
    return beside("gpu_bandwidth_gbs", "a bandwidth is between two GPUs or more");
  if (place.exclusive) return beside("exclusive", "a slice leaves the rest of its GPU to others");
  const std::string models = fields.gpu_model.value_or("");
  bool possible = models.empty();
  for (std::size_t begin = 0; begin < models.size() && !possible;) {
    const std::size_t end = std::min(models.find(',', begin), models.size());
    possible = mig::may_have(std::string_view(models).substr(begin, end - begin), profile);
    begin = end + 1;
  }
  if (!possible) {
    return unprocessable("mig_profile", "no GPU of model " + models.substr(0, limits::kNameBytesMax) +
                                            " has a MIG profile " + profile + "; its profiles are " +
                                            mig::names_of_model(models.substr(0, models.find(','))));
  }
  fields.gpu_count = 1;
  fields.gpu_milli = mig::milli_of(profile);
  fields.gpu_memory_mb = mig::named_mb_of(profile);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> read_node_loss(std::string_view word, const char* field, JobRequest& job) {
  if (word.empty() || word == "end") return std::nullopt;
  if (word != "continue")
    return invalid(field,
                   std::string(field) + " must be end, or continue: a gang goes on without lost members");
  if (!job.is_gang())
    return unprocessable(field,
                         std::string(field) + " is continue for a job of one member; ask for several nodes");
  job.tolerates_node_loss = true;
  return std::nullopt;
}

namespace {

/// GPUs of all its nodes together as those of each, and what contradicts itself.
std::optional<ApiError> normalize_nodes(JobFields& fields) {
  auto problem = first_of(
      [&] { return check_range("nodes", fields.nodes, 0, limits::kMembersMax); },
      [&] { return check_range("nodes_max", fields.nodes_max, 0, limits::kMembersMax); },
      [&] { return check_range("gpus_per_node", fields.gpus_per_node, 0, limits::kDevicesPerNodeMax); });
  if (problem) return problem;
  if (fields.domain && !fields.domain->empty() && !parse_domain(*fields.domain))
    return invalid("domain", "domain must be node, rack, block or zone");
  if (fields.domain_required.value_or(false) && fields.domain.value_or("").empty())
    return unprocessable("domain_required", "domain_required is given without a domain; say which");
  const int64_t nodes = fields.nodes.value_or(0);
  if (nodes == 0) {
    if (fields.nodes_max.value_or(0) > 0)
      return unprocessable("nodes_max", "nodes_max is given without nodes; say how many it needs at least");
    if (fields.gpus_per_node)
      return unprocessable("gpus_per_node",
                           "gpus_per_node is given without nodes; say how many, or send gpu_count");
    return std::nullopt;
  }
  if (fields.nodes_max.value_or(0) > 0 && *fields.nodes_max < nodes)
    return unprocessable("nodes_max", "nodes_max is less than nodes; send them the other way round");
  if (fields.gpu_milli.value_or(0) > 0 && fields.gpus_per_node)
    return unprocessable("gpus_per_node",
                         "gpus_per_node is given with gpu_milli; a share is of one GPU: leave one out");
  if (fields.gpus_per_node && fields.gpu_count)
    return unprocessable("gpu_count", "both gpu_count and gpus_per_node are given; send one of them");
  if (fields.gpu_count.value_or(0) % nodes != 0) {
    return unprocessable("gpu_count",
                         "gpu_count is of all nodes together and cannot be shared out evenly over " +
                             std::to_string(nodes) + " nodes; send gpus_per_node");
  }
  if (!fields.gpus_per_node) fields.gpus_per_node = fields.gpu_count.value_or(0) / nodes;
  if (*fields.gpus_per_node > int64_t{limits::kDevicesPerNodeMax}) {
    return unprocessable("gpu_count", "a node has at most " + std::to_string(limits::kDevicesPerNodeMax) +
                                          " GPUs; ask for more nodes");
  }
  if (fields.gpu_count || fields.gpu_milli.value_or(0) == 0) fields.gpu_count = fields.gpus_per_node;
  if (fields.gpu_memory_mb) fields.gpu_memory_mb = (*fields.gpu_memory_mb + nodes - 1) / nodes;
  return std::nullopt;
}

std::optional<ApiError> check_numbers(const JobFields& fields) {
  constexpr double kMinutes = static_cast<double>(limits::kRuntimeMax.ns) / 60e9;
  const auto text = [](const std::optional<std::string>& value) {
    return value ? std::string_view(*value) : std::string_view();
  };
  return first_of(
      [&] { return check_length("name", text(fields.name), limits::kNameBytesMax); },
      [&] { return check_length("reservation", text(fields.reservation), limits::kNameBytesMax); },
      [&] { return check_range("priority", fields.priority, -limits::kPriorityMax, limits::kPriorityMax); },
      [&] { return check_range("gpu_count", fields.gpu_count, 0, limits::kGpusPerJobMax); },
      [&] { return check_range("gpu_milli", fields.gpu_milli, 0, kMilliPerGpu - 1); },
      [&] { return check_range("gpu_memory_mb", fields.gpu_memory_mb, 0, limits::kMegabytesMax); },
      [&] { return check_range("gpu_memory_each_mb", fields.gpu_memory_each_mb, 0, limits::kMegabytesMax); },
      [&] { return check_range("cpu_cores", fields.cpu_cores, limits::kCpuCoresMax); },
      [&] { return check_range("memory_mb", fields.memory_mb, 0, limits::kMegabytesMax); },
      [&] { return check_range("retries", fields.retries, 0, limits::kRetriesMax); },
      [&] { return check_range("max_runtime_minutes", fields.max_runtime_minutes, kMinutes); },
      [&] { return check_range("max_runtime_seconds", fields.max_runtime_seconds, kMinutes * 60); },
      [&] { return check_length("gpu_model", text(fields.gpu_model), limits::kNameBytesMax); },
      [&] { return check_length("image", text(fields.image), kImageBytesMax); },
      [&] { return check_length("working_directory", text(fields.working_directory), kPathBytesMax); });
}

Duration runtime_of(const JobFields& fields) {
  if (fields.max_runtime_seconds) return {static_cast<int64_t>(*fields.max_runtime_seconds * 1e9)};
  if (fields.max_runtime_minutes) return {static_cast<int64_t>(*fields.max_runtime_minutes * 60e9)};
  return {};
}

}  // namespace

namespace {

/// What the job asks for when it is to be ended for another one.
/// What it asks of the watchdog.
std::optional<ApiError> check_watchdog(const JobFields& fields) {
  const auto longest = static_cast<double>(limits::kRuntimeMax.ms() / 1'000);
  for (const auto& [name, value] : {std::pair{"idle_after_seconds", &fields.idle_after_seconds},
                                    std::pair{"hung_after_seconds", &fields.hung_after_seconds}}) {
    if (auto problem = check_range(name, *value, longest)) return problem;
  }
  for (const auto& [name, value] :
       {std::pair{"idle_action", &fields.idle_action}, std::pair{"hung_action", &fields.hung_action}}) {
    const std::string word = value->value_or("");
    if (!word.empty() && word != "warn" && word != "requeue" && word != "cancel")
      return invalid(name, std::string(name) + " must be warn, requeue or cancel");
  }
  return std::nullopt;
}

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
  if (auto problem = check_range("preempt_grace_seconds", fields.preempt_grace_seconds,
                                 static_cast<double>(limits::kPreemptGraceSecondsMax)))
    return problem;
  if (auto problem = check_watchdog(fields)) return problem;
  if (!fields.preempt_webhook || fields.preempt_webhook->empty()) return std::nullopt;
  if (auto problem = check_length("preempt_webhook", *fields.preempt_webhook, limits::kPreemptUrlBytesMax))
    return problem;
  if (!parse_webhook_url(*fields.preempt_webhook)) {
    return invalid("preempt_webhook",
                   "preempt_webhook must be a URL such as http://hooks.example.com:8088/preempted");
  }
  return std::nullopt;
}

}  // namespace

std::optional<DomainLevel> parse_domain(std::string_view word) {
  for (const DomainLevel level :
       {DomainLevel::kNode, DomainLevel::kRack, DomainLevel::kBlock, DomainLevel::kZone}) {
    if (word == to_string(level)) return level;
  }
  return std::nullopt;
}

Answer<JobRequest> check_job(JobFields fields, bool containers_possible) {
  if (auto refused = normalize_nodes(fields)) return std::move(*refused);
  if (fields.environment) make_canonical(*fields.environment);
  if (fields.labels) make_canonical(*fields.labels);
  const StringMap none;
  auto problem = first_of([&] { return check_numbers(fields); }, [&] { return check_command(fields); },
                          [&] { return check_gpus(fields); },
                          [&] { return check_environment(fields.environment ? *fields.environment : none); },
                          [&] { return check_labels(fields.labels ? *fields.labels : none); });
  if (problem) return std::move(*problem);
  if (auto refused = settle_slice(fields)) return std::move(*refused);
  if (fields.working_directory && !fields.working_directory->empty() &&
      !fields.working_directory->starts_with('/')) {
    return invalid("working_directory", "working_directory must be an absolute path");
  }
  if (auto refused = check_preemption(fields)) return std::move(*refused);
  if (fields.work_class && !fields.work_class->empty() && *fields.work_class != "online" &&
      *fields.work_class != "batch") {
    return invalid("work_class", "work_class must be online or batch");
  }
  if (fields.max_runtime_minutes && fields.max_runtime_seconds) {
    return unprocessable("max_runtime_seconds",
                         "both max_runtime_minutes and max_runtime_seconds are given; send one of them");
  }
  const bool has_image = fields.image && !fields.image->empty();
  make_canonical(fields.box.limits);
  if (auto refused = check_box(fields.box, has_image)) return std::move(*refused);
  if (has_image && !containers_possible) {
    return ApiError{ErrorKind::kImageUnsupported,
                    "no node can run container images; leave image out, or add a node that runs containers",
                    "image"};
  }

  const bool has_directory = fields.working_directory && !fields.working_directory->empty();
  SpecFields spec{
      .name = std::move(fields.name).value_or(""),
      .command = std::move(fields.command).value_or(StringList{}),
      .args = std::move(fields.args).value_or(StringList{}),
      .script = std::move(fields.script).value_or(""),
      .image = std::move(fields.image).value_or(""),
      .environment = std::move(fields.environment).value_or(StringMap{}),
      .labels = std::move(fields.labels).value_or(StringMap{}),
      .working_directory = std::move(fields.working_directory).value_or(""),
      .working_directory_optional = has_directory && fields.working_directory_optional.value_or(false),
      .gang_scheduling = fields.gang_scheduling.value_or(false),
      .checkpoint_enabled = fields.checkpoint_enabled.value_or(false),
      .submitter = std::move(fields.submitter),
      .box = std::move(fields.box),
      .preempt_signal = std::move(fields.preempt_signal).value_or(""),
      .preempt_grace_ms = std::llround(fields.preempt_grace_seconds.value_or(0) * 1'000.0),
      .preempt_webhook = std::move(fields.preempt_webhook).value_or(""),
      .idle_after_ms = std::llround(fields.idle_after_seconds.value_or(0) * 1'000.0),
      .idle_action = std::move(fields.idle_action).value_or(""),
      .hung_after_ms = std::llround(fields.hung_after_seconds.value_or(0) * 1'000.0),
      .hung_action = std::move(fields.hung_action).value_or("")};
  JobRequest job{
      .spec = pack_spec(spec),
      .name = std::move(spec.name),
      .gpu_count = static_cast<int32_t>(fields.gpu_milli.value_or(0) > 0 ? 1 : fields.gpu_count.value_or(0)),
      .gpu_milli = static_cast<int32_t>(fields.gpu_milli.value_or(0)),
      .gpu_memory_mb = fields.gpu_memory_mb.value_or(0),
      .gpu_model = std::move(fields.gpu_model).value_or(""),
      .cpu_milli = std::llround(fields.cpu_cores.value_or(1.0) * 1'000.0),
      .memory_mb = fields.memory_mb.value_or(0),
      .max_runtime = runtime_of(fields),
      .exit_code_retries = static_cast<int32_t>(fields.retries.value_or(0)),
      .require_feasible = fields.require_feasible.value_or(false),
      .wants_container = has_image,
      .held = fields.held.value_or(false)};
  if (fields.priority) job.priority = static_cast<int32_t>(*fields.priority);
  if (auto refused = read_flow(fields.flow, job)) return std::move(*refused);
  job.interactive = fields.interactive.value_or(false);
  Answer<std::vector<PlaceRequest>> place = read_place(fields.place, job.gpu_model);
  if (!place) return place.error();
  job.place = std::move(*place);
  job.gpu_memory_each_mb = fields.gpu_memory_each_mb.value_or(0);
  job.mig_profile = std::move(fields.mig_profile).value_or("");
  if (fields.work_class == "online") job.work = WorkClass::kOnline;
  if (fields.work_class == "batch") job.work = WorkClass::kBatch;
  job.reservation = std::move(fields.reservation).value_or("");
  job.nodes = static_cast<int32_t>(fields.nodes.value_or(0));
  job.nodes_max = static_cast<int32_t>(fields.nodes_max.value_or(0));
  job.gpus_over_nodes = fields.gang_scheduling.value_or(false) && job.nodes == 0 && job.gpu_milli == 0;
  job.domain = parse_domain(fields.domain.value_or("")).value_or(DomainLevel::kAny);
  job.domain_required = fields.domain_required.value_or(false);
  if (auto wrong = read_node_loss(fields.on_node_loss.value_or(""), "on_node_loss", job))
    return std::move(*wrong);
  if (fields.preemption_mode == "cancel") job.preemption_mode = PreemptionMode::kCancel;
  job.preempt_grace = milliseconds(spec.preempt_grace_ms);
  job.preempt_webhook = std::move(spec.preempt_webhook);
  if (fields.memory_mb == 0) mark_memory_unlimited(job.spec);
  if (job.spec.size() > limits::kSpecBytesMax) {
    return ApiError{ErrorKind::kTooLarge, "the job's specification is larger than " +
                                              std::to_string(limits::kSpecBytesMax) +
                                              " bytes; put large data into a file that the job reads"};
  }
  return job;
}

namespace {

/// The box's fields as the jobs door spells them, before they are read.
struct BoxRequestFields {
  std::optional<std::string> user, stdout_path, stderr_path, stdin_path, workdir_mount, pull, credential,
      digest;
  std::optional<int64_t> umask;
  std::optional<IntegerMap> limits;
  std::optional<StringList> mounts, arguments;
};

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

std::optional<ApiError> read_box(BoxRequestFields&& words, BoxFields& box) {
  box.user = std::move(words.user).value_or("");
  box.stdout_path = std::move(words.stdout_path).value_or("");
  box.stderr_path = std::move(words.stderr_path).value_or("");
  box.stdin_path = std::move(words.stdin_path).value_or("");
  box.umask = words.umask;
  box.limits = std::move(words.limits).value_or(IntegerMap{});
  box.container_workdir_mount = std::move(words.workdir_mount).value_or("");
  box.registry_credential = std::move(words.credential).value_or("");
  box.image_digest = std::move(words.digest).value_or("");
  box.container_arguments = std::move(words.arguments).value_or(StringList{});
  for (const std::string& text : words.mounts ? *words.mounts : StringList{}) {
    auto mount = parse_mount(text);
    if (!mount) return invalid("mounts", "mounts must be texts such as \"/data:/data:ro\"");
    box.mounts.push_back(std::move(*mount));
  }
  const std::string pull = std::move(words.pull).value_or("");
  if (pull == "if_missing") {
    box.pull = Pull::kIfMissing;
  } else if (pull == "always") {
    box.pull = Pull::kAlways;
  } else if (pull == "never") {
    box.pull = Pull::kNever;
  } else if (!pull.empty()) {
    return invalid("pull", "pull must be if_missing, always or never");
  }
  return std::nullopt;
}

/// The workflow's fields as the jobs door spells them, before they are read.
struct FlowWords {
  std::optional<std::string> begin_at, deadline, on_parent_failure, array;
  std::optional<double> begin_after, deadline_after;
  std::optional<StringList> dependencies, retry_on;
};

/// Where a job may run, as the jobs door spells it.
struct PlaceJson {
  std::optional<StringList> node_labels, without_labels, gpu_ids;
  std::optional<bool> exclusive;
  std::optional<std::string> gpu_layout;
  std::optional<int64_t> gpu_bandwidth_gbs;
};

PlacementFields words_of(PlaceJson&& json) {
  return {.node_labels = std::move(json.node_labels).value_or(StringList{}),
          .without_labels = std::move(json.without_labels).value_or(StringList{}),
          .exclusive = json.exclusive.value_or(false),
          .gpu_layout = std::move(json.gpu_layout).value_or(""),
          .gpu_ids = std::move(json.gpu_ids).value_or(StringList{}),
          .gpu_bandwidth_gbs = json.gpu_bandwidth_gbs.value_or(0)};
}

std::optional<ApiError> read_flow_words(FlowWords&& words, FlowFields& flow) {
  const auto read_time = [](const std::optional<std::string>& text, Time& out) {
    if (!text || text->empty()) return true;
    const auto time = parse_rfc3339(*text);
    if (time) out = *time;
    return time.has_value();
  };
  if (!read_time(words.begin_at, flow.begin_at))
    return invalid("begin_at", "begin_at must be an instant such as 2025-01-31T09:00:00Z");
  if (!read_time(words.deadline, flow.deadline))
    return invalid("deadline", "deadline must be an instant such as 2025-01-31T09:00:00Z");
  constexpr double kSecondsMax = static_cast<double>(limits::kBeginMax.ns) / 1e9;
  if (auto problem = check_range("begin_after_seconds", words.begin_after, kSecondsMax)) return problem;
  if (auto problem = check_range("deadline_after_seconds", words.deadline_after, kSecondsMax)) return problem;
  flow.begin_after = Duration{static_cast<int64_t>(words.begin_after.value_or(0) * 1e9)};
  flow.deadline_after = Duration{static_cast<int64_t>(words.deadline_after.value_or(0) * 1e9)};
  flow.dependencies = std::move(words.dependencies).value_or(StringList{});
  flow.retry_on = std::move(words.retry_on).value_or(StringList{});
  flow.on_parent_failure = std::move(words.on_parent_failure).value_or("");
  flow.array = std::move(words.array).value_or("");
  return std::nullopt;
}

/// A number, or what a tier's name stands for.
std::optional<int64_t> tier_of(const NumberOrWord& given) {
  if (const int64_t* number = std::get_if<int64_t>(&given)) return *number;
  const std::string& word = std::get<std::string>(given);
  if (word == "low") return 100;
  if (word == "medium") return 500;
  if (word == "high") return 1'000;
  if (word == "critical") return 5'000;
  return std::nullopt;
}

}  // namespace

Answer<SubmitRequest> parse_submit(std::string_view body, bool containers_possible) {
  JobFields job;
  BoxRequestFields box;
  FlowWords flow;
  PlaceJson place;
  std::optional<std::string> tenant;
  std::optional<NumberOrWord> priority;
  const std::array fields = {
      JsonField{"tenant_id", &tenant},
      JsonField{"name", &job.name},
      JsonField{"priority", &priority},
      JsonField{"gpu_count", &job.gpu_count},
      JsonField{"gpu_milli", &job.gpu_milli},
      JsonField{"mig_profile", &job.mig_profile, R"(, such as "1g.10gb")"},
      JsonField{"gpu_memory_mb", &job.gpu_memory_mb},
      JsonField{"cpu_cores", &job.cpu_cores},
      JsonField{"memory_mb", &job.memory_mb},
      JsonField{"command", &job.command,
                R"(, such as ["python","train.py"]; to run a line in a shell, use script)"},
      JsonField{"args", &job.args, R"(, such as ["--epochs","3"])"},
      JsonField{"script", &job.script},
      JsonField{"image", &job.image},
      JsonField{"environment", &job.environment, R"(, such as {"NAME":"value"})"},
      JsonField{"gang_scheduling", &job.gang_scheduling},
      JsonField{"max_runtime_minutes", &job.max_runtime_minutes},
      JsonField{"labels", &job.labels, R"(, such as {"team":"a"})"},
      JsonField{"checkpoint_enabled", &job.checkpoint_enabled},
      JsonField{"gpu_model", &job.gpu_model},
      JsonField{"gpu_memory_each_mb", &job.gpu_memory_each_mb},
      JsonField{"node_labels", &place.node_labels, R"(, such as ["zone=eu"])"},
      JsonField{"without_labels", &place.without_labels, R"(, such as ["spot"])"},
      JsonField{"exclusive", &place.exclusive},
      JsonField{"gpu_layout", &place.gpu_layout, ", pack, spread or contiguous"},
      JsonField{"gpu_ids", &place.gpu_ids, R"(, such as ["0","1"])"},
      JsonField{"gpu_bandwidth_gbs", &place.gpu_bandwidth_gbs},
      JsonField{"retries", &job.retries},
      JsonField{"max_runtime_seconds", &job.max_runtime_seconds},
      JsonField{"working_directory", &job.working_directory},
      JsonField{"working_directory_optional", &job.working_directory_optional},
      JsonField{"require_feasible", &job.require_feasible},
      JsonField{"held", &job.held},
      JsonField{"interactive", &job.interactive},
      JsonField{"begin_at", &flow.begin_at, ", such as 2025-01-31T09:00:00Z"},
      JsonField{"begin_after_seconds", &flow.begin_after},
      JsonField{"deadline", &flow.deadline, ", such as 2025-01-31T09:00:00Z"},
      JsonField{"deadline_after_seconds", &flow.deadline_after},
      JsonField{"dependencies", &flow.dependencies, R"(, such as ["after_ok:job-12"])"},
      JsonField{"on_parent_failure", &flow.on_parent_failure, ", cancel or wait"},
      JsonField{"array", &flow.array, ", such as 0-999%50"},
      JsonField{"retry_on", &flow.retry_on, R"(, such as ["exit_code:75","signal"])"},
      JsonField{"preemption_mode", &job.preemption_mode},
      JsonField{"preempt_signal", &job.preempt_signal, ", such as USR1"},
      JsonField{"preempt_grace_seconds", &job.preempt_grace_seconds},
      JsonField{"preempt_webhook", &job.preempt_webhook},
      JsonField{"idle_after_seconds", &job.idle_after_seconds},
      JsonField{"idle_action", &job.idle_action, ", warn, requeue or cancel"},
      JsonField{"hung_after_seconds", &job.hung_after_seconds},
      JsonField{"hung_action", &job.hung_action, ", warn, requeue or cancel"},
      JsonField{"work_class", &job.work_class},
      JsonField{"reservation", &job.reservation},
      JsonField{"nodes", &job.nodes},
      JsonField{"nodes_max", &job.nodes_max},
      JsonField{"gpus_per_node", &job.gpus_per_node},
      JsonField{"domain", &job.domain, ", node, rack, block or zone"},
      JsonField{"domain_required", &job.domain_required},
      JsonField{"on_node_loss", &job.on_node_loss, ", end or continue"},
      JsonField{"user", &box.user},
      JsonField{"stdout_path", &box.stdout_path},
      JsonField{"stderr_path", &box.stderr_path},
      JsonField{"stdin_path", &box.stdin_path},
      JsonField{"umask", &box.umask, ", such as 18 for 0022"},
      JsonField{"limits", &box.limits, R"(, such as {"nofile":65536})"},
      JsonField{"mounts", &box.mounts, R"(, such as ["/data:/data:ro"])"},
      JsonField{"container_workdir_mount", &box.workdir_mount},
      JsonField{"pull", &box.pull},
      JsonField{"registry_credential", &box.credential},
      JsonField{"container_arguments", &box.arguments},
      JsonField{"image_digest", &box.digest},
  };
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  job.place = words_of(std::move(place));
  if (auto problem = read_box(std::move(box), job.box)) return std::move(*problem);
  if (auto problem = read_flow_words(std::move(flow), job.flow)) return std::move(*problem);
  if (priority) {
    job.priority = tier_of(*priority);
    if (!job.priority) return invalid("priority", "priority must be low, medium, high, critical or a number");
  }
  if (tenant) {
    if (auto problem = check_length("tenant_id", *tenant, limits::kNameBytesMax)) return std::move(*problem);
  }
  Answer<JobRequest> checked = check_job(std::move(job), containers_possible);
  if (!checked) return checked.error();
  SubmitRequest request{.tenant = std::move(tenant).value_or("")};
  request.jobs.push_back(std::move(*checked));
  return request;
}

namespace {

std::optional<ApiError> read_tier(const std::optional<NumberOrWord>& given, TenantRequest& request) {
  if (!given) return std::nullopt;
  const std::optional<int64_t> number = tier_of(*given);
  if (!number)
    return invalid("priority_tier", "priority_tier must be low, medium, high, critical or a number");
  const int64_t tier = *number;
  if (auto problem = check_range("priority_tier", tier, 0, limits::kPriorityMax)) return problem;
  request.priority_tier = static_cast<int32_t>(tier);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> read_gpu_hours(std::optional<double> gpu_hours, std::optional<int64_t> window_seconds,
                                       TenantRequest& request) {
  constexpr double kHoursMax = static_cast<double>(limits::kGpuTimeMaxMs / 3'600'000);
  if (gpu_hours && !(*gpu_hours >= 0 && *gpu_hours <= kHoursMax))
    return invalid("max_gpu_hours",
                   "max_gpu_hours must be from 0 to " + std::to_string(limits::kGpuTimeMaxMs / 3'600'000));
  if (gpu_hours) request.gpu_ms_max = std::llround(*gpu_hours * 3'600'000.0);
  if (!window_seconds) return std::nullopt;
  if (auto problem =
          check_range("gpu_hours_window_seconds", *window_seconds, limits::kGpuTimeWindowMin.ms() / 1'000,
                      limits::kGpuTimeWindowMax.ms() / 1'000))
    return problem;
  request.gpu_window = seconds(*window_seconds);
  return std::nullopt;
}

Answer<TenantRequest> parse_tenant(std::string_view body, bool creating) {
  TenantRequest request;
  std::optional<NumberOrWord> tier;
  std::optional<double> weight;
  std::optional<std::string> parent;
  std::optional<double> gpu_hours;
  std::optional<int64_t> window_seconds;
  std::array<bool, 8> lifted{};
  TenantLimits& kept = request.guarantee;
  TenantLimits& limit = request.limits;
  const std::array fields = {
      JsonField{"name", &request.name},
      JsonField{"email", &request.email},
      JsonField{"organization", &request.organization},
      JsonField{"max_gpus", &limit.gpus, "", &lifted[0]},
      JsonField{"max_gpu_memory_mb", &limit.gpu_memory_mb, "", &lifted[1]},
      JsonField{"max_cpu_cores", &limit.cpu_cores, "", &lifted[2]},
      JsonField{"max_memory_mb", &limit.memory_mb, "", &lifted[3]},
      JsonField{"max_concurrent_jobs", &limit.concurrent_jobs, "", &lifted[4]},
      JsonField{"max_gpu_hours", &gpu_hours, "", &lifted[5]},
      JsonField{"max_waiting_jobs", &limit.waiting_jobs, "", &lifted[6]},
      JsonField{"soft_waiting_jobs", &limit.soft_waiting_jobs, "", &lifted[7]},
      JsonField{"gpu_hours_window_seconds", &window_seconds},
      JsonField{"guaranteed_gpus", &kept.gpus},
      JsonField{"guaranteed_gpu_memory_mb", &kept.gpu_memory_mb},
      JsonField{"guaranteed_cpu_cores", &kept.cpu_cores},
      JsonField{"guaranteed_memory_mb", &kept.memory_mb},
      JsonField{"guaranteed_jobs", &kept.concurrent_jobs},
      JsonField{"priority_tier", &tier},
      JsonField{"fair_share_weight", &weight},
      JsonField{"allow_preemption", &request.allow_preemption},
      JsonField{"can_preempt_others", &request.can_preempt_others},
      JsonField{"parent_id", &parent},
      JsonField{"anonymous", &request.anonymous},
  };
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  if (auto problem = read_tier(tier, request)) return std::move(*problem);
  if (weight) {
    if (!(*weight >= 0.001 && *weight <= kWeightMax)) {
      return invalid("fair_share_weight", "fair_share_weight must be from 0.001 to 1000000");
    }
    request.weight_milli = std::llround(*weight * 1'000.0);
  }
  if (auto problem = read_gpu_hours(gpu_hours, window_seconds, request)) return std::move(*problem);
  request.parent = std::move(parent).value_or("");
  if (creating && !request.name) return invalid("name", "name is missing; a tenant needs one");
  for (std::size_t i = 0; i < lifted.size() && !creating; ++i) {
    if (lifted[i]) request.unlimited.emplace_back(fields[3 + i].name);
  }
  if (auto problem = check_tenant(request)) return std::move(*problem);
  return request;
}

std::optional<ApiError> check_tenant(const TenantRequest& request) {
  const TenantLimits& limit = request.limits;
  constexpr int64_t kCountMax = int64_t{1} << 40;
  if (request.name && request.name->empty()) return invalid("name", "name is empty; a tenant needs one");
  // A name like an id would be ambiguous wherever either is accepted.
  if (request.name && (request.name->starts_with("tenant-") || *request.name == "default")) {
    const std::string_view digits = std::string_view(*request.name).substr(7);
    if (*request.name == "default" || (!digits.empty() && parse_count(digits, INT64_MAX))) {
      return invalid("name", "name looks like a tenant's id; choose another one");
    }
  }
  const TenantLimits& kept = request.guarantee;
  if (auto problem = first_of(
          [&] { return check_range("guaranteed_gpus", kept.gpus, 0, kCountMax); },
          [&] { return check_range("guaranteed_gpu_memory_mb", kept.gpu_memory_mb, 0, kCountMax); },
          [&] { return check_range("guaranteed_cpu_cores", kept.cpu_cores, 0, limits::kCpuCoresMax); },
          [&] { return check_range("guaranteed_memory_mb", kept.memory_mb, 0, kCountMax); },
          [&] { return check_range("guaranteed_jobs", kept.concurrent_jobs, 0, kCountMax); }))
    return problem;
  return first_of(
      [&] {
        return check_length("name", request.name ? std::string_view(*request.name) : "",
                            limits::kNameBytesMax);
      },
      [&] {
        return check_length("email", request.email ? std::string_view(*request.email) : "", kEmailBytesMax);
      },
      [&] {
        return check_length("organization",
                            request.organization ? std::string_view(*request.organization) : "",
                            limits::kNameBytesMax);
      },
      [&] { return check_length("parent_id", request.parent, limits::kNameBytesMax); },
      [&] { return check_range("max_gpus", limit.gpus, 0, kCountMax); },
      [&] { return check_range("max_gpu_memory_mb", limit.gpu_memory_mb, 0, kCountMax); },
      [&] { return check_range("max_cpu_cores", limit.cpu_cores, 0, kCountMax); },
      [&] { return check_range("max_memory_mb", limit.memory_mb, 0, kCountMax); },
      [&] { return check_range("max_concurrent_jobs", limit.concurrent_jobs, 0, kCountMax); },
      [&] { return check_range("max_waiting_jobs", limit.waiting_jobs, 0, limits::kWaitingJobsMax); },
      [&] { return check_range("soft_waiting_jobs", limit.soft_waiting_jobs, 0, limits::kWaitingJobsMax); });
}

Answer<ConditionRequest> parse_condition(std::string_view body, std::string_view caller) {
  std::optional<std::string> condition, detail, by;
  const std::array fields = {JsonField{"condition", &condition}, JsonField{"detail", &detail},
                             JsonField{"by", &by}};
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  ConditionRequest request{.detail = std::move(detail).value_or(""), .by = std::move(by).value_or("")};
  if (auto problem = check_length("by", request.by, limits::kNameBytesMax)) return std::move(*problem);
  if (request.by.empty()) request.by = caller.empty() ? "operator" : caller;
  if (auto problem = check_length("detail", request.detail, kDetailBytesMax)) return std::move(*problem);
  if (condition == "ok") {
    request.condition = DeviceCondition::kOk;
  } else if (condition == "unhealthy") {
    request.condition = DeviceCondition::kUnhealthy;
  } else {
    return invalid("condition", "condition must be ok or unhealthy");
  }
  return request;
}

std::optional<ApiError> check_request_key(std::string_view key, std::string_view field) {
  if (key.size() > limits::kRequestKeyBytesMax) {
    return invalid(field, std::string(field) + " is longer than " +
                              std::to_string(limits::kRequestKeyBytesMax) + " bytes; shorten it");
  }
  for (const char c : key) {
    if (c < 0x21 || c > 0x7E) {
      return invalid(field,
                     std::string(field) + " must be printable ASCII without spaces; a UUID is a good one");
    }
  }
  return std::nullopt;
}

std::optional<int64_t> parse_count(std::string_view text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (value < 0 || value > most) return std::nullopt;
  return value;
}

std::optional<JobId> parse_job_id(std::string_view text) {
  if (!text.starts_with("job-")) return std::nullopt;
  const std::size_t bracket = text.find('[');
  const std::string_view digits = text.substr(4, bracket == std::string_view::npos ? bracket : bracket - 4);
  const auto number = parse_count(digits, INT64_MAX);
  // One job has one name: no sign, no leading zero.
  if (!number || *number == 0 || digits.front() == '0' || digits.front() == '-') return std::nullopt;
  const JobId job{static_cast<uint64_t>(*number)};
  if (bracket == std::string_view::npos) return job;
  if (!text.ends_with(']') || job.value >> (63 - kElementIndexBits) != 0) return std::nullopt;
  const std::string_view place = text.substr(bracket + 1, text.size() - bracket - 2);
  const auto index = parse_count(place, limits::kArrayIndexMax);
  if (!index || (place.size() > 1 && (place.front() == '0' || place.front() == '-'))) return std::nullopt;
  return element_name(job, *index);
}

std::optional<JobState> parse_job_state(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, JobState>, 7> kStates = {
      {{"pending", JobState::kPending},
       {"scheduled", JobState::kScheduled},
       {"running", JobState::kRunning},
       {"completed", JobState::kCompleted},
       {"failed", JobState::kFailed},
       {"cancelled", JobState::kCancelled},
       {"preempted", JobState::kPreempted}}};
  for (const auto& [name, state] : kStates) {
    if (name == text) return state;
  }
  return std::nullopt;
}

std::optional<Duration> parse_duration(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_count(text.substr(0, digits), 1'000'000'000);
  if (!number) return std::nullopt;
  const std::string_view unit = text.substr(digits);
  if (unit == "ms") return milliseconds(*number);
  if (unit == "s" || unit.empty()) return seconds(*number);
  if (unit == "m") return minutes(std::min<int64_t>(*number, 1'000'000));
  if (unit == "h") return hours(std::min<int64_t>(*number, 1'000'000));
  if (unit == "d") return hours(24 * std::min<int64_t>(*number, 40'000));
  return std::nullopt;
}

}  // namespace gpusched::api
