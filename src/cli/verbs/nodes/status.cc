#include "cli/verbs/nodes/status.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/text/civil_time.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/style.h"
#include "cli/terminal/table.h"
#include "cli/terminal/text.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

/// Something that an operator should know, and what to type next.
struct Finding {
  std::string subject;
  std::string what;
  std::string next;
  Style style = Style::kWarning;
};

class Findings {
 public:
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  const std::vector<Finding>& all() const { return all_; }

 private:
  std::vector<Finding> all_;
};

std::string jobs_text(int64_t count) { return std::to_string(count) + (count == 1 ? " job" : " jobs"); }

std::string with_reason(const std::string& text, const std::string& by, const std::string& reason) {
  return text + (by.empty() ? "" : " by " + by) + (reason.empty() ? "" : ": " + reason);
}

void look_at_contact(const Json& node, Time now, Findings& findings) {
  const std::string contact = node["contact"].text();
  if (contact == "connected" || contact.empty()) return;
  const std::string name = node["name"].text();
  const int64_t attempts = node["attempts"].integer();
  const Time since = parse_rfc3339(node["state_since"].text());
  std::string what = "has not reported";
  if (since.valid())
    what += " for " + format_duration(std::max<int64_t>((now - since).ns / 1'000'000'000, 0));
  if (contact == "dead") {
    return findings.add({.subject = "node " + name,
                         .what = "was declared dead; it returns when its agent reports",
                         .next = "gpu-cli node remove " + name + "   (if it is gone for good)"});
  }
  if (attempts > 0)
    what +=
        "; it is unknown whether its " + jobs_text(attempts) + (attempts == 1 ? " still runs" : " still run");
  findings.add({.subject = "node " + name,
                .what = what,
                .next = "gpu-cli node confirm-dead " + name + "   (only if it is certainly off)",
                .style = Style::kBad});
}

void look_at_service(const Json& node, Findings& findings) {
  const std::string name = node["name"].text();
  const std::string state = node["state"].text();
  if (state == "draining" || state == "drained") {
    findings.add({.subject = "node " + name,
                  .what = with_reason("is " + state, node["state_by"].text(), node["state_reason"].text()),
                  .next = "gpu-cli node resume " + name,
                  .style = node["state_by"].text() == "scheduler" ? Style::kBad : Style::kWarning});
  }
  if (state == "validating") {
    findings.add({.subject = "node " + name,
                  .what = with_reason("takes no work: its checks fail", "", node["state_reason"].text()),
                  .next = "gpu-cli node show " + name});
  }
  if (!node["suspect"].text().empty()) {
    findings.add({.subject = "node " + name,
                  .what = "is suspect: " + node["suspect"].text(),
                  .next = "gpu-cli node drain " + name,
                  .style = Style::kBad});
  }
}

void look_at_device(const std::string& node, std::size_t index, const Json& device, Findings& findings) {
  const std::string subject = "GPU " + std::to_string(index) + " of " + node;
  const std::string state = device["state"].text();
  const std::string condition = device["condition"].text();
  if (state == "quarantined") {
    const std::string reason = device["quarantine_reason"].text();
    return findings.add(
        {.subject = subject,
         .what = with_reason("is quarantined", device["quarantined_by"].text(),
                             reason.empty() ? device["detail"].text() : reason),
         .next = "gpu-cli device release " + node + " " + std::to_string(index) + "   (when it works again)",
         .style = Style::kBad});
  }
  if (condition != "ok") {
    return findings.add({.subject = subject,
                         .what = with_reason("is " + condition, "", device["detail"].text()),
                         .next = "gpu-cli node show " + node,
                         .style = condition == "hot" ? Style::kWarning : Style::kBad});
  }
  if (state == "draining") {
    findings.add({.subject = subject,
                  .what = with_reason("is still being released", "", device["detail"].text()),
                  .next = "gpu-cli node show " + node});
  }
}

/// Waiting jobs that stand still, of the newest that wait: by what their messages say.
void look_at_jobs(const Json& jobs, Findings& findings) {
  struct Kind {
    int64_t count = 0;
    std::string first, message;
  };
  std::map<std::string, Kind> kinds;
  for (const Json& job : jobs.items()) {
    const bool failing = job["reason"].text() == "held" && job["attempts"].integer() > 0;
    const bool never = never_starts(job);
    if (!failing && !never) continue;
    Kind& kind = kinds[failing ? "held after failed starts" : "waiting for resources that no node has"];
    if (kind.count++ == 0)
      kind = {.count = 1, .first = job["job_id"].text(), .message = job["message"].text()};
  }
  for (const auto& [what, kind] : kinds) {
    findings.add({.subject = jobs_text(kind.count),
                  .what = (kind.count == 1 ? "is " : "are ") + what + "; " + kind.first + ": " + kind.message,
                  .next = "gpu-cli explain " + kind.first});
  }
}

std::string text_of(const std::vector<Finding>& findings, bool color) {
  if (findings.empty()) return styled("Nothing is wrong.", Style::kGood, color) + "\n";
  std::string text = styled("\nWhat is wrong:", Style::kTitle, color) + "\n";
  for (const Finding& finding : findings) {
    text += "  " + styled(printable(finding.subject), finding.style, color) + " " + printable(finding.what) +
            "\n";
    text += "      " + styled(printable(finding.next), Style::kDim, color) + "\n";
  }
  return text;
}

}  // namespace

StatusText status_text(Session& session, int width, bool color) {
  const Reply cluster = session.get("/v1/cluster");
  if (!cluster) return {.trouble = cluster.trouble};
  const Reply nodes = session.get("/v1/nodes");
  if (!nodes) return {.trouble = nodes.trouble};
  const Reply health = session.get("/health");
  // A scheduler that takes no new work, as on a full disk, says so here.
  const bool says_why = health.json["status"].text() == "unhealthy";
  if (!health && !says_why) return {.trouble = health.trouble};
  const Reply jobs =
      session.get("/v1/jobs?state=pending&page_size=1000&fields=job_id,state,held,reason,message,attempts");
  if (!jobs) return {.trouble = jobs.trouble};

  Findings findings;
  if (says_why) {
    findings.add({.subject = "scheduler",
                  .what = "takes no new work: " + health.json["error"].text(),
                  .next = "gpu-scheduler doctor",
                  .style = Style::kBad});
  }
  for (const Json& concern : health.json["concerns"].items())
    findings.add({.subject = "scheduler", .what = concern.text(), .next = "gpu-scheduler doctor"});
  if (nodes.json["nodes"].items().empty()) {
    findings.add({.subject = "no node",
                  .what = "has registered: no job can start",
                  .next = "gpu-agent join SCHEDULER:9090   (on each machine with GPUs)",
                  .style = Style::kBad});
  }
  for (const Json& node : nodes.json["nodes"].items()) {
    look_at_contact(node, session.io().wall_now(), findings);
    look_at_service(node, findings);
    std::size_t index = 0;
    for (const Json& device : node["devices"].items())
      look_at_device(node["name"].text(), index++, device, findings);
  }
  look_at_jobs(jobs.json["jobs"], findings);
  if (session.options().json) {
    JsonObjectWriter out;
    out.add_json("cluster", cluster.text);
    std::string list;
    for (const Finding& finding : findings.all()) {
      JsonObjectWriter one;
      one.add("subject", finding.subject);
      one.add("problem", finding.what);
      one.add("next", finding.next);
      list += (list.empty() ? "" : ",") + one.text();
    }
    out.add_json("problems", "[" + list + "]");
    return {.trouble = {}, .text = out.text() + "\n"};
  }
  const Json& sums = cluster.json;
  const auto number = [&](const char* key) { return std::to_string(sums[key].integer()); };
  Record record;
  record.add("Nodes", number("online_nodes") + " of " + number("total_nodes") + " online");
  record.add("GPUs", number("available_gpus") + " of " + number("total_gpus") + " free");
  record.add("Jobs", number("running_jobs") + " running, " + number("pending_jobs") + " waiting, " +
                         number("total_jobs") + " in all");
  if (!sums["paused_since"].text().empty()) {
    record.add("Paused", Cell(with_reason("no job has been started since " +
                                              utc_text(parse_rfc3339(sums["paused_since"].text())),
                                          sums["paused_by"].text(), sums["pause_reason"].text()) +
                                  "; to resume: gpu-cli resume",
                              Style::kWarning));
  }
  return {.trouble = {}, .text = record.render(width, color) + text_of(findings.all(), color)};
}

namespace {

int show_status(Session& session) {
  const StatusText status =
      status_text(session, session.io().line_width(), colored(session.options(), session.io()));
  if (status.trouble) return session.fail(*status.trouble);
  session.io().out(status.text);
  return kExitOk;
}

}  // namespace

Action define_status(Grammar& grammar) {
  grammar.details(
      "Counts nodes, GPUs and jobs, then lists what is wrong, each with the command to type next: silent, "
      "drained and suspect nodes; faulty, hot and quarantined GPUs, and those that are not released; a full "
      "disk and problems of the journal; and, of the newest 1000 waiting jobs, those that no node can "
      "start.");
  return [](Session& session) { return show_status(session); };
}

}  // namespace gpusched::cli
