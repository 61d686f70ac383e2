#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "cli/commands.h"
#include "cli/framework/tenant_names.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/submit/estimates.h"
#include "cli/verbs/submit/text_options.h"

namespace gpusched::cli {
namespace {

std::string joined(const Json& list, std::string_view separator) {
  std::string out;
  for (const Json& item : list.items()) {
    if (!out.empty()) out += separator;
    out += item.text();
  }
  return out;
}

/// "12s ago (2025-01-31T09:00:00.123Z)", or nothing.
std::string time_text(const Json& value, Time now) {
  const Time time = parse_rfc3339(value.text());
  return time.valid() ? format_relative(time, now) + " (" + format_local(time) + ")" : "";
}

/// The number when it is given and not zero.
std::string count_text(const Json& value) {
  return value.integer() != 0 ? std::to_string(value.integer()) : std::string();
}

/// "K=V, K=V"
std::string pairs_text(const Json& object) {
  std::string out;
  for (const auto& [name, value] : object.members())
    out += (out.empty() ? "" : ", ") + name + "=" + value.text();
  return out;
}

/// The state, with why it waits or failed; in the other states the reason says the same again.
Cell state_cell(const Json& job) {
  const std::string state = shown_state(job);
  const std::string reason = job["reason"].text();
  const bool telling = state == "pending" || state == "failed" || state == "held";
  return {telling && !reason.empty() && reason != state ? state + " (" + reason + ")" : state,
          style_of_state(job["state"].text())};
}

/// "949 wait, 50 run, 1 completed"
std::string array_text(const Json& array) {
  if (array["count"].integer() == 0) return "";
  std::string out;
  for (const auto& [field, word] :
       {std::pair("waiting", "wait"), std::pair("running", "run"), std::pair("completed", "completed"),
        std::pair("failed", "failed"), std::pair("cancelled", "were cancelled")}) {
    if (array[field].integer() == 0) continue;
    out += (out.empty() ? "" : ", ") + std::to_string(array[field].integer()) + " " + word;
  }
  return out;
}

/// "4 x 8 GPUs, 1 x 0 GPUs": what the members of each part have.
std::string parts_text(const Json& parts) {
  std::string out;
  for (const Json& part : parts.items()) {
    const int64_t most = part["members_max"].integer();
    out += (out.empty() ? "" : ", ") + std::to_string(part["members"].integer()) +
           (most > 0 ? "-" + std::to_string(most) : "") + " x " +
           std::to_string(part["gpu_count"].integer()) +
           (part["gpu_count"].integer() == 1 ? " GPU" : " GPUs");
  }
  return out;
}

/// Adds where it runs: a line for each member of a gang.
void add_members(const Json& job, Record& record) {
  record.add("Members", parts_text(job["parts"]));
  if (job["on_node_loss"].text() == "continue")
    record.add("On node loss", "continues on the remaining nodes");
  record.add("Domain", job["domain"].text() + (job["domain_required"].boolean() ? " (required)" : ""));
  const std::vector<Json> members = job["members"].items();
  if (members.empty()) {
    record.add("Node", job["node_name"].text());
    record.add("On", joined(job["allocated_gpus"], ", "));
    return;
  }
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const Json& member = members[rank];
    const std::string gpus = joined(member["allocated_gpus"], ", ");
    record.add("Member " + std::to_string(rank),
               member["node_name"].text() + (gpus.empty() ? "" : ": " + gpus) +
                   (member["state"].text().empty() ? "" : " (" + member["state"].text() + ")"));
  }
}

/// A line of `get`: its title, the field that it is made of, and how that is written. Nothing: no line.
struct JobRecordRow {
  std::string_view title;
  std::string_view field;
  Cell (*cell)(const Json& job, std::string_view field, Time now);
};

Cell as_text(const Json& job, std::string_view field, Time) { return job_field(job, field).text(); }

/// "root" for "person root"; "batch, by API key key-5 of vision" for "service vision/batch (key-5)".
Cell owner_cell(const Json& job, std::string_view field, Time) {
  constexpr std::string_view kPerson = "person ";
  constexpr std::string_view kService = "service ";
  const std::string owner = job_field(job, field).text();
  if (owner.starts_with(kPerson)) return owner.substr(kPerson.size());
  const size_t slash = owner.find('/');
  const size_t key = owner.rfind(" (key-");
  if (!owner.starts_with(kService) || slash == std::string::npos || key == std::string::npos || key < slash)
    return owner;
  return owner.substr(slash + 1, key - slash - 1) + ", by API key " +
         owner.substr(key + 2, owner.size() - key - 3) + " of " +
         owner.substr(kService.size(), slash - kService.size());
}

Cell as_sentence(const Json& job, std::string_view field, Time) {
  return with_local_times(job_field(job, field).text());
}
Cell as_number(const Json& job, std::string_view field, Time) { return number_text(job_field(job, field)); }
Cell as_count(const Json& job, std::string_view field, Time) { return count_text(job_field(job, field)); }
Cell as_size(const Json& job, std::string_view field, Time) { return size_text(job_field(job, field)); }
Cell as_list(const Json& job, std::string_view field, Time) { return joined(job_field(job, field), ", "); }
Cell as_pairs(const Json& job, std::string_view field, Time) { return pairs_text(job_field(job, field)); }
Cell as_time(const Json& job, std::string_view field, Time now) {
  return time_text(job_field(job, field), now);
}
/// As the column of that name shows it.
Cell as_column(const Json& job, std::string_view column, Time now) {
  return find_job_column(column)->cell(job, now).text;
}

/// "research (tenant-3)"
Cell tenant_cell(const Json& job, std::string_view field, Time) {
  const std::string name = job["tenant_name"].text();
  const std::string id = job[field].text();
  return name.empty() || name == id ? id : name + " (" + id + ")";
}
Cell slice_cell(const Json& job, std::string_view field, Time) {
  const std::string profile = job_field(job, field).text();
  const Json start = job["mig_start"];
  return !profile.empty() && start.is_number() ? profile + " at slot " + std::to_string(start.integer())
                                               : profile;
}
Cell gpus_cell(const Json& job, std::string_view field, Time) {
  const int64_t share = job_field(job, "gpu_milli").integer();
  return share > 0 ? format_share(share) + " of one" : count_text(job_field(job, field));
}
Cell bandwidth_cell(const Json& job, std::string_view field, Time) {
  const int64_t gbs = job_field(job, field).integer();
  return gbs > 0 ? std::to_string(gbs) + " GB/s" : std::string();
}
Cell when_queued_cell(const Json& job, std::string_view field, Time) {
  return job["queue_position"].integer() > 0 ? job[field].text() : std::string();
}
Cell ran_cell(const Json& job, std::string_view, Time now) {
  const int64_t ran = run_seconds(job, now);
  return ran >= 0 ? format_duration(ran) : std::string();
}
/// "1.2G of 4G requested": whether it could do with less.
Cell peak_memory_cell(const Json& job, std::string_view field, Time) {
  std::string text = peak_memory_text(job);
  if (text.empty()) return text;
  const std::string requested = size_text(job_field(job, field));
  if (!requested.empty()) text += " of " + requested + " requested";
  const bool of_process = job["usage"]["peak_memory_of"].text() == "largest_process";
  const bool of_member = !job["members"].items().empty();
  if (of_process)
    return text + (of_member ? ", by the largest process of a member" : ", by its largest process");
  return of_member ? text + ", by the member with the most" : text;
}

/// "3m12s (48 % of 4 CPUs for 1m40s)": how many of its CPUs it kept busy. Members of a gang differ in how
/// many they have and how long they run.
Cell cpu_time_cell(const Json& job, std::string_view, Time now) {
  const std::string text = cpu_time_text(job);
  const std::string cpus = find_job_column("cpus")->cell(job, now).text;
  const Time started = parse_rfc3339(job["started_at"].text());
  const Time ended = parse_rfc3339(job["completed_at"].text());
  const int64_t ran_ms = started.valid() && ended.valid() ? (ended - started).ms() : 0;
  if (text.empty() || cpus.empty() || ran_ms < 1'000 || !job["members"].items().empty()) return text;
  const double possible_ms = static_cast<double>(ran_ms) * cpu_count(job);
  const int64_t percent = std::llround(job["usage"]["cpu_ms"].number() * 100 / possible_ms);
  return text + " (" + std::to_string(percent) + " % of " + cpus + (cpus == "1" ? " CPU" : " CPUs") +
         " for " + format_duration(ran_ms / 1'000) + ")";
}

Cell gpu_memory_used_cell(const Json& job, std::string_view, Time) {
  const int64_t peak_mb = job["usage"]["peak_gpu_memory_mb"].integer();
  return peak_mb > 0 ? "up to " + std::to_string(peak_mb) + " MB" : "";
}

Cell unknown_members_cell(const Json& job, std::string_view, Time) {
  const int64_t unknown = job["usage"]["members_unknown"].integer();
  if (unknown == 0) return "";
  return std::to_string(unknown) + (unknown == 1 ? " member, whose node" : " members, whose nodes") +
         " reported nothing";
}

Cell script_cell(const Json& job, std::string_view field, Time) {
  return job_field(job, field).text().empty() ? std::string() : job_command_text(job);
}
Cell command_cell(const Json& job, std::string_view field, Time) {
  return job_field(job, field).text().empty() ? job_command_text(job) : std::string();
}

constexpr JobRecordRow kJobRecord[] = {
    {"Job", "", [](const Json& job, std::string_view, Time) -> Cell { return job_id_of(job); }},
    {"Name", "name", as_text},
    {"State", "", [](const Json& job, std::string_view, Time) { return state_cell(job); }},
    {"Message", "message", as_sentence},
    {"Moved", "moved", as_text},
    {"Exit code", "exit_code", as_number},
    {"Signal", "signal", as_count},
    {"Tenant", "tenant_id", tenant_cell},
    {"User", "user", as_text},
    {"Submitted by", "submitted_by", as_text},
    {"Owner", "owner", owner_cell},
    {"Priority", "priority", as_number},
    {"MIG slice", "mig_profile", slice_cell},
    {"GPUs", "gpu_count", gpus_cell},
    {"GPU model", "gpu_model", as_text},
    {"GPU memory", "gpu_memory_mb", as_size},
    {"GPU layout", "gpu_layout", as_text},
    {"GPU ids", "gpu_ids", as_list},
    {"GPU bandwidth", "gpu_bandwidth_gbs", bandwidth_cell},
    {"Node labels", "node_labels", as_list},
    {"Without", "without_labels", as_list},
    {"Exclusive", "exclusive",
     [](const Json& job, std::string_view field, Time) -> Cell {
       return job_field(job, field).boolean() ? "yes" : "";
     }},
    {"CPUs", "cpus", as_column},
    {"Memory", "memory_mb", as_size},
    {"Command", "script", command_cell},
    {"Script", "script", script_cell},
    {"Image", "image", as_text},
    {"Executor", "executor", as_text},
    {"Folder", "working_directory", as_text},
    {"Output", "stdout_path", as_text},
    {"Errors", "stderr_path", as_text},
    {"Labels", "labels", as_pairs},
};
// Between them: kTextOptions.
constexpr JobRecordRow kFlowRecord[] = {
    {"Time limit", "limit", as_column},
    {"Retries", "retries", as_count},
    {"Retries on", "retry_on", as_list},
    {"Begins", "begin_at", as_time},
    {"Deadline", "deadline", as_time},
    {"After", "dependencies", as_list},
    {"Waits for", "unmet_dependencies", as_list},
    {"Element of", "array_id", as_text},
    {"Index", "array_index", as_number},
    {"Array", "array",
     [](const Json& job, std::string_view field, Time) -> Cell { return job[field]["indexes"].text(); }},
    {"Elements", "array",
     [](const Json& job, std::string_view field, Time) -> Cell { return array_text(job[field]); }},
};
// Between them: where its members run.
constexpr JobRecordRow kEndRecord[] = {
    {"Attempts", "attempts", as_count},
    {"Queue position", "queue_position", as_count},
    {"Starts in", "estimated_wait", when_queued_cell},
    {"Submitted", "submitted_at", as_time},
    {"Started", "started_at", as_time},
    {"Ended", "completed_at", as_time},
    {"Ran", "", ran_cell},
    {"Peak memory", "memory_mb", peak_memory_cell},
    {"CPU time", "", cpu_time_cell},
    {"GPU use", "", [](const Json& job, std::string_view, Time) -> Cell { return gpu_use_text(job); }},
    {"GPU memory used", "", gpu_memory_used_cell},
    {"Not measured", "", unknown_members_cell},
};

std::string record_text(const Json& job, Time now, int width, bool color) {
  Record record;
  const auto add = [&](std::span<const JobRecordRow> rows) {
    for (const JobRecordRow& row : rows) record.add(std::string(row.title), row.cell(job, row.field, now));
  };
  add(kJobRecord);
  for (const TextOption& text : kTextOptions) {
    if (!text.label.empty()) record.add(std::string(text.label), job_field(job, text.field).text());
  }
  add(kFlowRecord);
  add_members(job, record);
  add(kEndRecord);
  return record.render(width, color);
}

std::string jobs_text(const Session& session, const std::vector<Reply>& replies, Format format) {
  const CliIo& io = session.io();
  const Time now = io.wall_now();
  std::string text;
  switch (format) {
    case Format::kJson:
      if (replies.size() == 1) return json_line(replies.front());
      for (const Reply& reply : replies) text += (text.empty() ? "" : ",") + reply.json.serialize();
      return "{\"jobs\":[" + text + "]}\n";
    case Format::kYaml:
      for (const Reply& reply : replies) text += (text.empty() ? "" : "---\n") + yaml_text(reply.json);
      return text;
    case Format::kName:
      for (const Reply& reply : replies) text += job_id_of(reply.json) + "\n";
      return text;
    case Format::kWide: {
      std::vector<Json> jobs;
      for (const Reply& reply : replies) jobs.push_back(reply.json);
      return job_table(jobs, wide_job_columns(), now).render(io.line_width(), colored(session.options(), io));
    }
    case Format::kTable:
      for (const Reply& reply : replies) {
        text += (text.empty() ? "" : "\n") +
                record_text(reply.json, now, io.line_width(), colored(session.options(), io));
      }
      return text;
  }
  UNREACHABLE();
}

struct GetOptions {
  std::vector<std::string> jobs;
  std::string format;
};

/// Puts the tenants' names beside their ids.
void name_tenants(Session& session, std::vector<Reply>& replies) {
  std::vector<Json> records;
  for (const Reply& reply : replies) records.push_back(reply.json);
  records = with_tenant_names(session, records);
  for (std::size_t i = 0; i < replies.size(); ++i) replies[i].json = records[i];
}

int get_jobs(Session& session, const GetOptions& get) {
  int exit_code = kExitOk;
  std::vector<Reply> replies;
  for (const std::string& job : get.jobs) {
    Reply reply = session.get("/jobs/" + url_encoded(job));
    if (reply) {
      replies.push_back(std::move(reply));
      continue;
    }
    exit_code = session.fail(about_job(job, *reply.trouble));
    if (exit_code == kExitUnreachable) return exit_code;
  }
  const Format format = format_of(get.format, session.options().json);
  if (format == Format::kTable || format == Format::kWide) name_tenants(session, replies);
  if (!replies.empty()) {
    session.io().out(jobs_text(session, replies, format));
  }
  return exit_code;
}

int explain_job(Session& session, const std::string& job) {
  const std::string& tenant = session.options().tenant_id;
  const Reply reply = session.get("/jobs/" + url_encoded(job) + "/explain" +
                                  (tenant.empty() ? "" : "?tenant_id=" + url_encoded(tenant)));
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  Record record;
  record.add("Job", job);
  record.add("State", reply.json["state"].text());
  record.add("Reason", reply.json["reason"].text());
  record.add("Why", with_tenant_names(session, with_local_times(reply.json["message"].text())));
  record.add("Queue position", count_text(reply.json["queue_position"]));
  record.add("Starts", start_text(reply.json, session.io().wall_now()));
  add_outlook(reply.json, record);
  session.io().out(record.render(session.io().line_width()));
  return kExitOk;
}

}  // namespace

Action define_get(Grammar& grammar) {
  const auto get = std::make_shared<GetOptions>();
  grammar.argument("JOB", &get->jobs, "Job ids, such as job-12").completes(Complete::kJob);
  declare_format(grammar, get->format);
  return [get](Session& session) { return get_jobs(session, *get); };
}

Action define_explain(Grammar& grammar) {
  const auto job = std::make_shared<std::string>();
  grammar.argument("JOB", job.get(), "Job id").completes(Complete::kJob);
  grammar.details(
      "`Starts` is the result of running the scheduler forward on a copy of its state, with likely run "
      "times; `--json` also has its evidence. `Now with` lists the smallest changes to the request that "
      "would let the job start at once, the "
      "cheapest first: use them with gpu-cli update, or in another submission. With `--tenant-id` only jobs "
      "of that tenant are named.");
  return [job](Session& session) { return explain_job(session, *job); };
}

}  // namespace gpusched::cli
