#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/limits.h"
#include "base/text/civil_time.h"
#include "base/text/slurm_script.h"
#include "base/utf8.h"
#include "cli/framework/job_words.h"
#include "cli/terminal/output.h"
#include "cli/terminal/units.h"
#include "cli/verbs/submit/environment.h"
#include "cli/verbs/submit/host_list.h"
#include "cli/verbs/submit/submit.h"
#include "client/json.h"
#include "grammar/job_name.h"

namespace gpusched::cli {
namespace {

/// A whole number, or what a tier's name stands for.
Result<int64_t> parse_priority(const std::string& text) {
  if (text == "low") return 100;
  if (text == "medium") return 500;
  if (text == "high") return 1'000;
  if (text == "critical") return 5'000;
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure == std::errc{} && stop == end) return value;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "\"" + text + "\" is neither low, medium, high, critical nor a whole number"};
}

using Pairs = Variables;

Error bad_option(const std::string& option, const std::string& why) {
  return {.code = ErrorCode::kInvalidArgument, .message = option + ": " + why};
}

/// The labels of "K=V" texts.
Result<Pairs> labels_of(const std::vector<std::string>& texts) {
  Pairs out;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      return bad_option("--label", "\"" + text + "\" is not KEY=VALUE");
    out[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return out;
}

std::vector<std::string> parted(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The names of "K=V" or "K", each once.
std::vector<std::string> names_of(const std::vector<std::string>& texts) {
  std::set<std::string> names;
  for (const std::string& text : texts) names.insert(text.substr(0, text.find('=')));
  return {names.begin(), names.end()};
}

/// The name of a job that was given none, as people call it.
std::string default_name(const SubmitOptions& submit, const std::optional<Script>& script) {
  std::string name = script ? script->name : submit.command.empty() ? submit.image : submit.command.front();
  while (name.ends_with('/')) name.pop_back();
  return name.erase(0, name.rfind('/') + 1);
}

/// A path of the caller's as an absolute one.
Result<std::string> absolute(const std::string& option, const std::string& path, const CliIo& io) {
  if (path.empty() || path.starts_with('/')) return path;
  const std::string folder = io.working_directory();
  if (folder.empty())
    return bad_option(
        option, path + " is relative, and the current directory no longer exists; change to another one");
  std::string rest = path;
  while (rest.starts_with("./")) rest.erase(0, 2);
  return rest.empty() || rest == "." ? folder : (folder == "/" ? "" : folder) + "/" + rest;
}

/// "0.25" or "25%" in thousandths; digits that say less than one are refused.
std::optional<int64_t> parse_share_milli(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  std::string fraction(point == std::string_view::npos ? std::string_view() : text.substr(point + 1));
  const std::size_t digits = percent ? 1 : 3;
  const auto is_number = [](std::string_view word) {
    return word.size() <= 3 &&
           std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!is_number(whole) || !is_number(fraction) || (whole.empty() && fraction.empty())) return std::nullopt;
  if (fraction.size() > digits) return std::nullopt;
  fraction.resize(digits, '0');
  const int64_t milli =
      std::stoll(std::string(whole.empty() ? "0" : whole)) * (percent ? 10 : 1000) + std::stoll(fraction);
  return milli > 0 && milli < 1000 ? std::optional(milli) : std::nullopt;
}

/// Adds where it may run. Nodes are chosen by the label that each has of its name.
Result<Unit> add_place(const SubmitOptions& submit, JsonObjectWriter& body) {
  const auto all_of = [](const std::vector<std::string>& texts) {
    std::vector<std::string> all;
    for (const std::string& text : texts) {
      for (std::string& part : parted(text, ',')) all.push_back(std::move(part));
    }
    return all;
  };
  std::vector<std::string> with = all_of(submit.node_labels);
  std::vector<std::string> without = all_of(submit.without_labels);
  if (!submit.nodelist.empty()) {
    const Result<std::vector<std::string>> names = expand_host_list(submit.nodelist);
    if (!names) return bad_option("--nodelist", names.error().message);
    if (names->size() > 1) {
      return bad_option(
          "--nodelist",
          "one node can be named; to choose among several label them (gpu-cli node label) and give "
          "--node-label, or exclude the others with --exclude");
    }
    with.push_back("node=" + names->front());
  }
  if (!submit.exclude.empty()) {
    const Result<std::vector<std::string>> names = expand_host_list(submit.exclude);
    if (!names) return bad_option("--exclude", names.error().message);
    for (const std::string& name : *names) without.push_back("node=" + name);
  }
  if (!with.empty()) body.add("node_labels", with);
  if (!without.empty()) body.add("without_labels", without);
  if (submit.exclusive) body.add("exclusive", true);
  if (!submit.gpu_layout.empty()) body.add("gpu_layout", submit.gpu_layout);
  if (!submit.gpu_ids.empty()) body.add("gpu_ids", all_of({submit.gpu_ids}));
  if (submit.gpu_bandwidth) body.add("gpu_bandwidth_gbs", *submit.gpu_bandwidth);
  return Unit{};
}

/// "4" or "2-8".
Result<Unit> add_nodes(const SubmitOptions& submit, JsonObjectWriter& body) {
  if (submit.nodes.empty()) {
    if (submit.gpus_per_node)
      return bad_option("--gpus-per-node", "the number of nodes is missing; give it with --nodes");
  } else {
    const std::size_t dash = submit.nodes.find('-');
    const auto number = [](std::string_view text) -> std::optional<int64_t> {
      int64_t value = 0;
      const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool whole = failure == std::errc{} && stop == text.data() + text.size();
      return whole && value > 0 && value <= limits::kMembersMax ? std::optional(value) : std::nullopt;
    };
    const std::string_view text = submit.nodes;
    const std::optional<int64_t> least = number(text.substr(0, dash));
    const std::optional<int64_t> most = dash == std::string::npos ? least : number(text.substr(dash + 1));
    if (!least || !most || *most < *least)
      return bad_option("--nodes", "\"" + submit.nodes + "\" is not a number of nodes; write 4, or 2-8");
    body.add("nodes", *least);
    if (*most > *least) body.add("nodes_max", *most);
    if (submit.gpus_per_node) body.add("gpus_per_node", *submit.gpus_per_node);
  }
  if (!submit.domain.empty()) body.add("domain", submit.domain);
  if (submit.domain_required) body.add("domain_required", true);
  if (!submit.on_node_loss.empty()) body.add("on_node_loss", submit.on_node_loss);
  return Unit{};
}

Result<Unit> add_amounts(const SubmitOptions& submit, JsonObjectWriter& body) {
  if (const Result<Unit> added = add_nodes(submit, body); !added) return added.error();
  if (submit.gpus) body.add("gpu_count", *submit.gpus);
  if (!submit.gpu_share.empty()) {
    const std::optional<int64_t> milli = parse_share_milli(submit.gpu_share);
    if (!milli)
      return bad_option("--gpu-share",
                        "expected a fraction of one GPU between 0.001 and 0.999, or 1% to 99%");
    body.add("gpu_milli", *milli);
  }
  if (!submit.mig.empty()) body.add("mig_profile", submit.mig);
  if (!submit.gpu_model.empty()) body.add("gpu_model", submit.gpu_model);
  if (!submit.gpu_memory.empty()) {
    const Result<int64_t> mb = parse_size_mb(submit.gpu_memory);
    if (!mb) return bad_option("--gpu-memory", mb.error().message);
    body.add("gpu_memory_mb", *mb);
  }
  if (!submit.gpu_memory_each.empty()) {
    const Result<int64_t> mb = parse_size_mb(submit.gpu_memory_each);
    if (!mb) return bad_option("--gpu-memory-each", mb.error().message);
    body.add("gpu_memory_each_mb", *mb);
  }
  if (const Result<Unit> added = add_place(submit, body); !added) return added.error();
  if (submit.cpus) {
    if (*submit.cpus < 0) return bad_option("--cpus", "expected a number of at least 0");
    body.add("cpu_cores", *submit.cpus);
  }
  if (!submit.memory.empty()) {
    const Result<int64_t> mb =
        submit.memory == "unlimited" ? Result<int64_t>(0) : parse_size_mb(submit.memory);
    if (!mb) return bad_option("--mem", mb.error().message);
    body.add("memory_mb", *mb);
  }
  if (!submit.priority.empty()) {
    const Result<int64_t> priority = parse_priority(submit.priority);
    if (!priority) return bad_option("--priority", priority.error().message);
    body.add("priority", *priority);
  }
  if (!submit.work_class.empty()) body.add("work_class", submit.work_class);
  if (submit.retries) body.add("retries", *submit.retries);
  if (!submit.time_limit.empty()) {
    const Result<int64_t> limit = parse_duration_seconds(submit.time_limit);
    if (!limit) return bad_option("--time", limit.error().message);
    body.add("max_runtime_seconds", *limit);
  }
  return Unit{};
}

Result<Unit> add_paths(const SubmitOptions& submit, const CliIo& io, JsonObjectWriter& body,
                       std::vector<std::string>& warnings) {
  struct Path {
    const char* option;
    const char* field;
    const std::string& value;
  };
  const std::string none;
  if (submit.working_directory.empty()) {
    // Containers have folders of their own, and a folder that is gone here is nobody's wish.
    std::string here = submit.image.empty() ? io.working_directory() : "";
    if (!is_utf8(here)) {
      warnings.push_back("the job runs in a folder of its own: the current directory's name is not UTF-8");
      here.clear();
    }
    if (!here.empty()) body.add("working_directory", here);
    if (!here.empty()) body.add("working_directory_optional", true);
  }
  for (const Path& path :
       {Path{"--chdir", "working_directory",
             submit.working_directory == "-" ? none : submit.working_directory},
        Path{"--output", "stdout_path", submit.output}, Path{"--error", "stderr_path", submit.error},
        Path{"--input", "stdin_path", submit.input}}) {
    if (path.value.empty()) continue;
    const Result<std::string> whole = absolute(path.option, path.value, io);
    if (!whole) return whole.error();
    body.add(path.field, *whole);
  }
  return Unit{};
}

/// Jobs run as whoever submits them, unless told. "-" leaves it to the node's agent.
void add_user(const SubmitOptions& submit, const CliIo& io, JsonObjectWriter& body) {
  if (submit.user == "-") return;
  const std::string own = submit.user.empty() && io.login_name ? io.login_name() : submit.user;
  if (!own.empty()) body.add("user", own);
}

Result<Unit> add_box(const SubmitOptions& submit, JsonObjectWriter& body) {
  if (!submit.umask.empty()) {
    int64_t bits = 0;
    const char* const end = submit.umask.data() + submit.umask.size();
    const auto [stop, failure] = std::from_chars(submit.umask.data(), end, bits, 8);
    if (failure != std::errc{} || stop != end || bits < 0 || bits > 0777) {
      return bad_option("--umask", "\"" + submit.umask + "\" is not a mask; write it in octal, such as 0027");
    }
    body.add("umask", bits);
  }
  JsonObjectWriter limits;
  for (const std::string& text : submit.limits) {
    const size_t equals = text.find('=');
    const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
    int64_t value = 0;
    const char* const end = number.data() + number.size();
    const auto [stop, failure] = std::from_chars(number.data(), end, value);
    const bool unlimited = number == "unlimited";
    if (equals == 0 || number.empty() || (!unlimited && (failure != std::errc{} || stop != end))) {
      return bad_option("--limit", "\"" + text + "\" is not NAME=NUMBER, such as nofile=65536");
    }
    limits.add(text.substr(0, equals), unlimited ? int64_t{-1} : value);
  }
  if (!limits.empty()) body.add_json("limits", limits.text());
  return Unit{};
}

Result<Unit> add_container(const SubmitOptions& submit, const CliIo& io, JsonObjectWriter& body) {
  if (!submit.image.empty()) body.add("image", submit.image);
  if (!submit.image_digest.empty()) body.add("image_digest", submit.image_digest);
  if (!submit.pull.empty()) body.add("pull", submit.pull);
  if (!submit.credential.empty()) body.add("registry_credential", submit.credential);
  if (!submit.container_arguments.empty()) body.add("container_arguments", submit.container_arguments);
  std::vector<std::string> mounts;
  for (const std::string& text : submit.mounts) {
    std::vector<std::string> parts = parted(text, ':');
    const bool good = parts.size() == 2 || (parts.size() == 3 && (parts[2] == "ro" || parts[2] == "rw"));
    if (!good || parts[0].empty() || !parts[1].starts_with('/')) {
      return bad_option("--mount", "\"" + text + "\" is not SOURCE:TARGET[:ro], with an absolute target");
    }
    const Result<std::string> source = absolute("--mount", parts[0], io);
    if (!source) return source.error();
    mounts.push_back(*source + ":" + parts[1] + (parts.size() == 3 ? ":" + parts[2] : ""));
  }
  if (!mounts.empty()) body.add("mounts", mounts);
  return Unit{};
}

void add_work(const SubmitOptions& submit, const std::optional<Script>& script, JsonObjectWriter& body) {
  if (!script) {
    if (!submit.command.empty()) body.add("command", submit.command);
    return;
  }
  body.add("script", script->text);
  if (!submit.script_arguments.empty()) body.add("args", submit.script_arguments);
}

/// "any:job-12,job-13" as "after_any:job-12" and "after_any:job-13".
Result<std::vector<std::string>> dependencies_of(const std::vector<std::string>& after) {
  std::vector<std::string> out;
  for (const std::string& text : after) {
    const size_t colon = text.find(':');
    const std::string kind = colon == std::string::npos ? "ok" : text.substr(0, colon);
    const std::vector<std::string> words =
        split_outside_brackets(colon == std::string::npos ? text : text.substr(colon + 1));
    if (words.empty()) return bad_option("--after", "\"" + text + "\" has a bracket without its counterpart");
    for (const std::string& word : words) {
      const std::string job = full_job_id(word);
      if ((kind != "ok" && kind != "any" && kind != "start") || !job.starts_with("job-"))
        return bad_option("--after",
                          "\"" + text + "\" is not ok:JOB, any:JOB or start:JOB, such as ok:job-12");
      const Result<std::vector<std::string>> named = expand_elements(job);
      if (!named) return bad_option("--after", named.error().message);
      for (const std::string& one : *named) {
        if (out.size() == limits::kDependenciesMax)
          return bad_option("--after", "more than " + std::to_string(limits::kDependenciesMax) +
                                           " jobs are named; depend on a whole array, or on fewer jobs");
        out.push_back("after_" + kind + ":" + one);
      }
    }
  }
  return out;
}

Result<Unit> add_flow(const SubmitOptions& submit, Time now, JsonObjectWriter& body) {
  if (!submit.begin.empty()) {
    const Result<Moment> begin = parse_moment("--begin", submit.begin, now);
    if (!begin) return begin.error();
    if (begin->at.empty()) {
      body.add("begin_after_seconds", begin->after_seconds);
    } else {
      body.add("begin_at", begin->at);
    }
  }
  if (!submit.deadline.empty()) {
    const Result<Moment> deadline = parse_moment("--deadline", submit.deadline, now);
    if (!deadline) return deadline.error();
    if (deadline->at.empty()) {
      body.add("deadline_after_seconds", deadline->after_seconds);
    } else {
      body.add("deadline", deadline->at);
    }
  }
  const Result<std::vector<std::string>> dependencies = dependencies_of(submit.after);
  if (!dependencies) return dependencies.error();
  if (!dependencies->empty()) body.add("dependencies", *dependencies);
  if (!submit.on_parent_failure.empty()) body.add("on_parent_failure", submit.on_parent_failure);
  if (!submit.array.empty()) body.add("array", submit.array);
  std::vector<std::string> retry_on;
  for (const std::string& text : submit.retry_on) {
    for (const std::string& cause : parted(text, ',')) retry_on.push_back(cause);
  }
  if (!retry_on.empty() && !submit.retries) return bad_option("--retry-on", "only with --retries");
  if (!retry_on.empty()) body.add("retry_on", retry_on);
  return Unit{};
}

Result<Unit> check_whole(const SubmitOptions& submit) {
  if (submit.logs && !submit.wait) return bad_option("--logs", "only with --wait");
  if (submit.logs && !submit.array.empty())
    return bad_option("--logs", "shows one job, and --array creates several; use gpu-cli logs");
  if (!submit.timeout.empty() && !submit.wait) return bad_option("--timeout", "only with --wait");
  const int scripts = (submit.script.empty() ? 0 : 1) + (submit.script_file.empty() ? 0 : 1);
  if (scripts > 1) return bad_option("--script", "there is another script, " + submit.script_file);
  if (!submit.command.empty() && scripts > 0) {
    return bad_option(submit.script.empty() ? submit.script_file : "--script",
                      "cannot be combined with a command after --");
  }
  return Unit{};
}

}  // namespace

namespace {

Result<Unit> add_watchdog(const SubmitOptions& submit, JsonObjectWriter& body) {
  struct Span {
    const char* option;
    const char* field;
    const std::string* text;
  };
  for (const Span& span : {Span{"--idle-after", "idle_after_seconds", &submit.idle_after},
                           Span{"--hung-after", "hung_after_seconds", &submit.hung_after}}) {
    if (span.text->empty()) continue;
    const Result<int64_t> parsed = parse_duration_seconds(*span.text);
    if (!parsed) return bad_option(span.option, parsed.error().message);
    body.add(span.field, *parsed);
  }
  if (!submit.idle_action.empty()) body.add("idle_action", submit.idle_action);
  if (!submit.hung_action.empty()) body.add("hung_action", submit.hung_action);
  return Unit{};
}

/// Adds what it asks for when it is ended for another job.
Result<Unit> add_handshake(const SubmitOptions& submit, JsonObjectWriter& body) {
  if (!submit.preempt_signal.empty()) body.add("preempt_signal", submit.preempt_signal);
  if (!submit.preempt_grace.empty()) {
    const Result<int64_t> grace = parse_duration_seconds(submit.preempt_grace);
    if (!grace) return bad_option("--preempt-grace", grace.error().message);
    body.add("preempt_grace_seconds", *grace);
  }
  if (!submit.preempt_webhook.empty()) body.add("preempt_webhook", submit.preempt_webhook);
  return add_watchdog(submit, body);
}

/// The folder of the script, and for one with #SBATCH lines that of the caller. The node sets the other
/// variables of Slurm, SLURM_NTASKS to the number of nodes.
void add_origin(const SubmitOptions& submit, const Script& script, const CliIo& io, Pairs& environment,
                std::vector<std::string>& warnings) {
  const auto add = [&](const std::string& name, std::string folder) {
    if (folder.empty()) return;  // The current directory no longer exists.
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    if (is_utf8(folder)) {
      environment.try_emplace(name, std::move(folder));
    } else {
      warnings.push_back(name + " is not set: the name of the folder is not UTF-8");
    }
  };
  if (!script.folder.empty()) {
    const Result<std::string> folder = absolute("SCRIPT", script.folder, io);
    if (folder) add("GPU_SCHEDULER_SCRIPT_DIR", *folder);
  }
  if (!has_sbatch_lines(script.text)) return;
  add("SLURM_SUBMIT_DIR", io.working_directory());
  if (submit.slurm_tasks) environment.try_emplace("SLURM_NTASKS", "1");
}

/// The job's environment, and where its script is from.
Result<Pairs> whole_environment(const SubmitOptions& submit, const std::optional<Script>& script,
                                const CliIo& io, std::vector<std::string>& warnings) {
  Result<Pairs> environment = job_environment(submit, io, warnings);
  if (environment && script) add_origin(submit, *script, io, *environment, warnings);
  return environment;
}

}  // namespace

Result<std::string> job_body(const Options& options, const SubmitOptions& submit,
                             const std::optional<Script>& script, const CliIo& io,
                             std::vector<std::string>& warnings) {
  if (const Result<Unit> good = check_whole(submit); !good) return good.error();
  JsonObjectWriter body;
  const std::string& tenant = options.tenant_id.empty() ? submit.tenant : options.tenant_id;
  if (!tenant.empty()) body.add("tenant_id", tenant);
  const std::string name = submit.name.empty() ? utf8_cleaned(default_name(submit, script)) : submit.name;
  if (!name.empty()) body.add("name", name);
  if (const Result<Unit> added = add_amounts(submit, body); !added) return added.error();
  add_work(submit, script, body);
  if (const Result<Unit> added = add_container(submit, io, body); !added) return added.error();
  if (const Result<Unit> added = add_paths(submit, io, body, warnings); !added) return added.error();
  const Result<Pairs> environment = whole_environment(submit, script, io, warnings);
  if (!environment) return environment.error();
  if (!environment->empty()) body.add("environment", *environment);
  if (const std::vector<std::string> names = names_of(submit.secrets); !names.empty())
    body.add("secret_variables", names);
  const Result<Pairs> labels = labels_of(submit.labels);
  if (!labels) return labels.error();
  if (!labels->empty()) body.add("labels", *labels);
  add_user(submit, io, body);
  if (const Result<Unit> added = add_box(submit, body); !added) return added.error();
  if (submit.require_feasible) body.add("require_feasible", true);
  if (submit.hold) body.add("held", true);
  if (submit.now) body.add("interactive", true);
  add_texts(submit.texts, body);
  if (!submit.preemption_mode.empty()) body.add("preemption_mode", submit.preemption_mode);
  if (const Result<Unit> added = add_handshake(submit, body); !added) return added.error();
  if (const Result<Unit> added = add_flow(submit, io.wall_now(), body); !added) return added.error();
  return body.text();
}

Result<Moment> parse_moment(const std::string& option, const std::string& text, Time now) {
  Moment moment;
  if (text.starts_with('+')) {
    const Result<int64_t> span = parse_duration_seconds(text.substr(1));
    if (!span) return bad_option(option, span.error().message);
    moment.after_seconds = *span;
    return moment;
  }
  const bool exact = parse_rfc3339(text).valid();
  const Time time = parse_local_time(text, now, TimeOfDay::kNext);
  if (!time.valid()) {
    return bad_option(option, "\"" + text +
                                  "\" is not a time; write a duration from now on, such as +2h, or a time, "
                                  "such as 18:30, tomorrow 10:00 or 2025-01-31T09:00:00+01:00");
  }
  moment.at = exact ? text : utc_text(time);
  return moment;
}

}  // namespace gpusched::cli
