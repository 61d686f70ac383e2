#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "cli/terminal/text.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

struct MovesOptions {
  std::string job;
  int64_t moves_max = 0;
  std::string id;
  std::string reason;
};

std::string gpus_text(int64_t gpus) { return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs"); }

std::string decimal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

/// "n1[0-3]" from "n1-gpu-0" and so on; the node alone for a job without GPUs.
std::string place_text(const std::string& node, const Json& gpus) {
  std::vector<int64_t> indexes;
  for (const Json& gpu : gpus.items()) {
    const std::string name = gpu.text();
    const std::size_t dash = name.rfind('-');
    if (dash != std::string::npos) indexes.push_back(std::strtoll(name.c_str() + dash + 1, nullptr, 10));
  }
  if (indexes.empty()) return node;
  std::string text;
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < indexes.size() && indexes[last + 1] == indexes[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(indexes[i]);
    if (last > i) text += "-" + std::to_string(indexes[last]);
    i = last;
  }
  return node + "[" + text + "]";
}

std::string joined(const Json& list) {
  std::string out;
  for (const Json& item : list.items()) out += (out.empty() ? "" : ", ") + item.text();
  return out;
}

void print_proposal(Session& session, const Json& proposal) {
  const CliIo& io = session.io();
  Record record;
  record.add("Proposal", proposal["id"].text());
  record.add("Starts",
             joined(proposal["starts"]) + " (" + gpus_text(proposal["gpus_started"].integer()) + ")");
  record.add("On", place_text(proposal["node_name"].text(), proposal["gpus"]));
  if (const std::string otherwise = proposal["otherwise_at"].text(); !otherwise.empty())
    record.add("Otherwise", "expected at " + with_local_times(otherwise));
  record.add("Price", decimal(proposal["lost_gpu_seconds"].number()) + " GPU-seconds of unsaved work");
  record.add("Unusable GPUs", decimal(proposal["unusable_gpus_before"].number()) + " before, " +
                                  decimal(proposal["unusable_gpus_after"].number()) + " after");
  io.out(record.render(io.line_width()));
  Table table({{.title = "MOVES"},
               {.title = "FROM"},
               {.title = "TO"},
               {.title = "GPUS", .right = true},
               {.title = "LOST (GPU-s)", .right = true},
               {.title = "SAVED"},
               {.title = "ENDED BEFORE", .right = true}});
  for (const Json& move : proposal["moves"].items()) {
    table.add({move["job_id"].text(), place_text(move["from_node"].text(), move["from_gpus"]),
               place_text(move["to_node"].text(), move["to_gpus"]),
               std::to_string(move["gpu_count"].integer()), decimal(move["lost_gpu_seconds"].number()),
               move["saved"].boolean() ? "yes" : "no", std::to_string(move["ended_before"].integer())});
  }
  io.out(table.render(io.line_width()) + "\n");
}

int show_moves(Session& session, const MovesOptions& options) {
  std::string query;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) query += (query.empty() ? "?" : "&") + name + "=" + url_encoded(value);
  };
  add("job_id", options.job);
  if (options.moves_max > 0) add("moves_max", std::to_string(options.moves_max));
  add("tenant_id", session.options().tenant_id);
  const Reply reply = session.get("/v1/moves" + query);
  if (!reply) return session.fail(*reply.trouble);
  const CliIo& io = session.io();
  if (session.options().json) {
    io.out(json_line(reply));
    return kExitOk;
  }
  const Json& moves = reply.json;
  for (const Json& proposal : moves["proposals"].items()) print_proposal(session, proposal);
  std::string summary = moves["message"].text();
  if (!summary.empty()) summary += "; ";
  summary += gpus_text(moves["gpus_free"].integer()) + " free, " + decimal(moves["unusable_gpus"].number()) +
             " unusable for the jobs that arrive";
  io.out(printable(summary) + "\n");
  const bool first_is_said = moves["proposals"].items().empty();
  std::size_t index = 0;
  for (const Json& one : moves["unmoved"].items()) {
    if (index++ == 0 && first_is_said) continue;
    io.out(printable("nothing for " + one["job_id"].text() + ": " + one["message"].text()) + "\n");
  }
  if (moves["stopped_early"].boolean())
    io.out("the search was stopped early: there may be more or cheaper proposals\n");
  if (!moves["proposals"].items().empty())
    io.out("to carry one out: gpu-cli move apply PROPOSAL --reason WHY\n");
  return kExitOk;
}

int apply_moves(Session& session, const MovesOptions& options) {
  JsonObjectWriter body;
  body.add("id", options.id);
  if (!options.reason.empty()) body.add("reason", options.reason);
  const std::string by = session.io().login_name ? session.io().login_name() : std::string();
  if (!by.empty()) body.add("by", by);
  const Reply reply = session.send("POST", "/v1/moves", body.text());
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  const Json& proposal = reply.json;
  std::string text;
  for (const Json& move : proposal["moves"].items()) {
    text +=
        move["job_id"].text() + " continues on " + place_text(move["to_node"].text(), move["to_gpus"]) + "; ";
  }
  text += proposal["job_id"].text() + " starts on " +
          place_text(proposal["node_name"].text(), proposal["gpus"]) + " when these jobs have left";
  session.io().out(printable(text) + "\n");
  return kExitOk;
}

}  // namespace

Action define_move_list(Grammar& grammar) {
  const auto options = std::make_shared<MovesOptions>();
  grammar.option("--for", "JOB", &options->job, "Only moves that let this pending job start")
      .completes(Complete::kJob);
  grammar.option("--max-moves", "N", &options->moves_max,
                 "Maximum number of jobs to move so that one starts, at most 16 (default: 4)");
  grammar.details(
      "Free GPUs may be scattered over nodes, so that a large job waits although enough of them are free. "
      "This shows which running jobs could continue elsewhere so that it starts at once, at the lowest "
      "price: the time since they saved their work, or since their start, times their GPUs. Only jobs of "
      "tenants with `--allow-preemption yes` move, only to GPUs that are free now, and never gangs, shares "
      "or jobs of a higher priority. Nothing is changed; where no move helps, the output says why.");
  grammar.example("gpu-cli moves", "what could start if others moved?");
  grammar.example("gpu-cli moves --for job-12", "how could job-12 start now?");
  return [options](Session& session) { return show_moves(session, *options); };
}

Action define_move_apply(Grammar& grammar) {
  const auto options = std::make_shared<MovesOptions>();
  grammar.argument("PROPOSAL", &options->id, "Id of the proposal, from gpu-cli moves");
  grammar.option("--reason", "TEXT", &options->reason, "Reason, shown with these jobs");
  grammar.details(
      "The jobs to move are stopped with their own signal and grace period, and continue where the proposal "
      "says; those GPUs are kept for them meanwhile. A proposal that no longer holds is refused as a whole.");
  grammar.example("gpu-cli move apply move-1f0c6b2a99d0e7c4 --reason 'training is urgent'",
                  "carry out a proposal");
  return [options](Session& session) { return apply_moves(session, *options); };
}

}  // namespace gpusched::cli
