#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/submit/estimates.h"
#include "cli/verbs/submit/text_options.h"

namespace gpusched::cli {
namespace {

constexpr int kWideWidth = 1'000;

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
  return time.valid() ? format_relative(time, now) + " (" + value.text() + ")" : "";
}

std::string number_text(const Json& value) {
  return value.is_number() ? std::to_string(value.integer()) : std::string();
}

/// The number when it is given and not zero.
std::string count_text(const Json& value) {
  return value.integer() != 0 ? std::to_string(value.integer()) : std::string();
}

std::string size_text(const Json& value) {
  return value.integer() > 0 ? format_size_mb(value.integer()) : std::string();
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

/// Where it runs: a line for each member of a gang.
void add_members(const Json& job, Record& record) {
  record.add("Members", parts_text(job["parts"]));
  if (job["on_node_loss"].text() == "continue")
    record.add("On node loss", "goes on with the nodes that are left");
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

std::string record_text(const Json& job, Time now, bool color) {
  const auto field = [&](std::string_view name) { return job_field(job, name); };
  Record record;
  record.add("Job", job_id_of(job));
  record.add("Name", field("name").text());
  record.add("State", state_cell(job));
  record.add("Message", job["message"].text());
  record.add("Moved", job["moved"].text());
  record.add("Exit code", number_text(job["exit_code"]));
  record.add("Signal", count_text(job["signal"]));
  record.add("Tenant", job["tenant_id"].text());
  record.add("User", field("user").text());
  record.add("Priority", number_text(job["priority"]));
  if (const std::string profile = field("mig_profile").text(); !profile.empty()) {
    const Json start = job["mig_start"];
    record.add("MIG slice",
               profile + (start.is_number() ? " at slot " + std::to_string(start.integer()) : ""));
  }
  record.add("GPUs", field("gpu_milli").integer() > 0 ? format_share(field("gpu_milli").integer()) + " of one"
                                                      : count_text(field("gpu_count")));
  record.add("GPU model", field("gpu_model").text());
  record.add("GPU memory", size_text(field("gpu_memory_mb")));
  record.add("GPU layout", field("gpu_layout").text());
  record.add("GPU ids", joined(field("gpu_ids"), ", "));
  if (const int64_t gbs = field("gpu_bandwidth_gbs").integer(); gbs > 0)
    record.add("GPU bandwidth", std::to_string(gbs) + " GB/s");
  record.add("Node labels", joined(field("node_labels"), ", "));
  record.add("Without", joined(field("without_labels"), ", "));
  if (field("exclusive").boolean()) record.add("Exclusive", "yes");
  record.add("CPUs", find_job_column("cpus")->cell(job, now).text);
  record.add("Memory", size_text(field("memory_mb")));
  const std::string script = field("script").text();
  record.add(script.empty() ? "Command" : "Script", job_command_text(job));
  record.add("Image", field("image").text());
  record.add("Folder", field("working_directory").text());
  record.add("Output", field("stdout_path").text());
  record.add("Errors", field("stderr_path").text());
  record.add("Labels", pairs_text(field("labels")));
  for (const TextOption& text : kTextOptions) {
    if (!text.label.empty()) record.add(std::string(text.label), field(text.field).text());
  }
  record.add("Time limit", find_job_column("limit")->cell(job, now).text);
  record.add("Retries", count_text(job["retries"]));
  record.add("Retries on", joined(job["retry_on"], ", "));
  record.add("Begins", time_text(job["begin_at"], now));
  record.add("Deadline", time_text(job["deadline"], now));
  record.add("After", joined(job["dependencies"], ", "));
  record.add("Waits for", joined(job["unmet_dependencies"], ", "));
  record.add("Element of", job["array_id"].text());
  record.add("Index", number_text(job["array_index"]));
  record.add("Array", job["array"]["indexes"].text());
  record.add("Elements", array_text(job["array"]));
  add_members(job, record);
  record.add("Attempts", count_text(job["attempts"]));
  record.add("In line", count_text(job["queue_position"]));
  if (job["queue_position"].integer() > 0) record.add("Starts in", job["estimated_wait"].text());
  record.add("Submitted", time_text(job["submitted_at"], now));
  record.add("Started", time_text(job["started_at"], now));
  record.add("Ended", time_text(job["completed_at"], now));
  const int64_t ran = run_seconds(job, now);
  if (ran >= 0) record.add("Ran", format_duration(ran));
  return record.render(color);
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
      return job_table(jobs, wide_job_columns(), now)
          .render(io.out_is_terminal ? io.width : kWideWidth, colored(session.options(), io));
    }
    case Format::kTable:
      for (const Reply& reply : replies) {
        text += (text.empty() ? "" : "\n") + record_text(reply.json, now, colored(session.options(), io));
      }
      return text;
  }
  UNREACHABLE();
}

struct GetOptions {
  std::vector<std::string> jobs;
  std::string format;
};

int get_jobs(Session& session, const GetOptions& get) {
  int exit_code = kExitOk;
  std::vector<Reply> replies;
  for (const std::string& job : get.jobs) {
    Reply reply = session.get("/jobs/" + url_encoded(job));
    if (reply) {
      replies.push_back(std::move(reply));
      continue;
    }
    exit_code = session.fail(*reply.trouble);
    if (exit_code == kExitUnreachable) return exit_code;
  }
  if (!replies.empty()) {
    session.io().out(jobs_text(session, replies, format_of(get.format, session.options().json)));
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
  record.add("Why", reply.json["message"].text());
  record.add("Lifted by", joined(reply.json["lifted_by"], ", "));
  record.add("In line", count_text(reply.json["queue_position"]));
  const Time now = session.io().wall_now();
  const std::string start = time_text(reply.json["estimated_start"], now);
  if (!start.empty()) record.add("Starts", start + ", if what runs ends as expected");
  add_outlook(reply.json, now, record);
  session.io().out(record.render());
  return kExitOk;
}

}  // namespace

Action define_get(Grammar& grammar) {
  const auto get = std::make_shared<GetOptions>();
  grammar.argument("JOB", &get->jobs, "Their ids, such as job-12").completes(Complete::kJob);
  declare_format(grammar, get->format);
  return [get](Session& session) { return get_jobs(session, *get); };
}

Action define_explain(Grammar& grammar) {
  const auto job = std::make_shared<std::string>();
  grammar.argument("JOB", job.get(), "Its id").completes(Complete::kJob);
  grammar.details(
      "`Expected` is what comes out when the scheduler is run forward on a copy of its state, with run times "
      "that are likely. `Now with` lists the smallest changes of the request that would start it at once, "
      "the first costs least: they are for gpu-cli update, or for another submission. With `--tenant-id` "
      "only jobs of that tenant are named.");
  return [job](Session& session) { return explain_job(session, *job); };
}

}  // namespace gpusched::cli
