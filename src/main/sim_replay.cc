#include "main/sim_replay.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "replay/report/measures.h"
#include "replay/report/report.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/scheduler/journal_trace.h"
#include "replay/trace/formats.h"

namespace gpusched {
namespace {

constexpr std::size_t kPoliciesMax = 8;

struct Options {
  std::string trace;
  std::string format;
  std::string journal;
  bool what_if = false;
  std::string policies = "priority_aging";
  std::string nodes;  ///< "20x8"
  int64_t pool = 0;
  std::string tenants = "auto";
  int64_t restart_s = 0;
  bool shake = false;
  int64_t seed = 1;
  bool json = false;
  std::string chart;
};

int fail(const std::string& sentence) {
  std::fprintf(stderr, "gpu-sim: %s\n", sentence.c_str());
  return 1;
}

Error wrong(std::string sentence) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(sentence)};
}

/// "20x8", or "20 x 8".
bool parse_nodes(std::string text, replay::ReplayCluster& cluster) {
  std::erase(text, ' ');
  unsigned nodes = 0;
  unsigned gpus = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%9ux%9u%n", &nodes, &gpus, &used) != 2) return false;
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus;
  return static_cast<std::size_t>(used) == text.size() && nodes > 0 && gpus > 0;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string in_words(const replay::ReplayCluster& cluster) {
  if (cluster.pool > 0) return "one pool of " + std::to_string(cluster.pool) + " GPUs";
  return std::to_string(cluster.nodes) + " nodes of " + std::to_string(cluster.gpus_per_node) + " GPUs";
}

/// The trace's cluster unless another one is named.
Result<replay::ReplayCluster> cluster_for(const Options& options, const replay::Trace& trace) {
  replay::ReplayCluster cluster;
  if (!options.nodes.empty() && options.pool > 0) return wrong("give --nodes or --pool, not both");
  if (!options.nodes.empty()) {
    if (!parse_nodes(options.nodes, cluster)) return wrong("--nodes expects N x G, such as 20x8");
    return cluster;
  }
  cluster.pool = options.pool > 0 ? options.pool : trace.capacity;
  if (cluster.pool > 0) return cluster;
  return wrong("the trace does not contain the size of its cluster; give --nodes N x G or --pool GPUS");
}

replay::TenantOf tenant_of(const std::string& word, const replay::Trace& trace) {
  if (word == "queue") return replay::TenantOf::kQueue;
  if (word == "user") return replay::TenantOf::kUser;
  if (word == "none") return replay::TenantOf::kNobody;
  return trace.queue_names.size() > 2 ? replay::TenantOf::kQueue : replay::TenantOf::kNobody;
}

replay::Tried tried_of(const std::string& policy, const std::vector<replay::TraceJob>& jobs,
                       const replay::ReplayOutcome& outcome, int64_t capacity) {
  replay::Tried tried{.policy = policy,
                      .measures = replay::measures_of(jobs, outcome, capacity),
                      .left_out = outcome.left_out,
                      .cycles = outcome.cycles,
                      .commands = outcome.commands,
                      .digest = outcome.digest,
                      .elapsed_s = 0,
                      .waits_s = {}};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (outcome.runs[i].ran)
      tried.waits_s.push_back(static_cast<double>((outcome.runs[i].started - jobs[i].submitted).ms()) / 1e3);
  }
  return tried;
}

int write_chart(const std::string& path, const replay::LineChart& chart) {
  std::ofstream file(path, std::ios::binary);
  file << replay::draw_svg(chart);
  file.close();
  return file ? 0 : fail("cannot write the chart to '" + path + "'");
}

/// A replay: its jobs, its options and its policies.
struct Work {
  replay::Replayed about;
  std::vector<replay::TraceJob> jobs;
  replay::ReplayOptions how;
  std::vector<replay::Tried> known;            ///< Shown before the policies that are tried.
  std::vector<replay::ReplayPolicy> policies;  ///< Tried before the policies that are asked for.
};

Result<Work> work_of_trace(const Options& options) {
  if (options.format.empty()) return wrong("the format of the trace is unknown; give --format NAME");
  Result<replay::Trace> trace = replay::read_trace(options.format, options.trace);
  if (!trace) return trace.error();
  const Result<replay::ReplayCluster> cluster = cluster_for(options, *trace);
  if (!cluster) return cluster.error();
  Work work;
  work.about = {.trace = file_name(options.trace),
                .format = options.format,
                .cluster = in_words(*cluster),
                .jobs = trace->jobs.size(),
                .skipped = trace->skipped,
                .capacity = cluster->capacity()};
  work.how.cluster = *cluster;
  work.how.tenant_of = tenant_of(options.tenants, *trace);
  work.jobs = std::move(trace->jobs);
  if (options.shake)
    work.jobs = replay::shaken(std::move(work.jobs), minutes(1), static_cast<uint64_t>(options.seed));
  return work;
}

/// The nodes, tenants and jobs of a scheduler's own journal.
Result<Work> work_of_journal(const Options& options) {
  if (options.shake || !options.nodes.empty() || options.pool > 0 || !options.trace.empty())
    return wrong(
        "a journal has its own nodes and arrivals; a trace, --nodes, --pool and --shake cannot be combined "
        "with --journal");
  Result<replay::JournalTrace> journal = replay::read_journal_trace(options.journal);
  if (!journal) return journal.error();
  const bool has_gpus = std::any_of(journal->nodes.begin(), journal->nodes.end(),
                                    [](const RegisterNode& node) { return !node.devices.empty(); });
  Work work;
  work.about = {.trace = options.journal,
                .format = "journal",
                .cluster = std::to_string(journal->nodes.size()) + " nodes with " +
                           std::to_string(journal->gpus) + (has_gpus ? " GPUs" : " cores"),
                .jobs = journal->trace.jobs.size(),
                .skipped = journal->unfinished,
                .capacity = std::max<int64_t>(journal->gpus, 1)};
  work.how = replay::options_of(*journal);
  work.jobs = journal->trace.jobs;
  if (!options.what_if) return work;
  work.known.push_back(tried_of("as it was", work.jobs, journal->as_it_was, work.about.capacity));
  replay::ReplayPolicy configured{.name = "as configured", .scheduling = journal->config.policy};
  if (journal->config.policy.run_times == "limits") configured.knows = replay::ReplayPolicy::Knows::kLimits;
  work.policies.push_back(std::move(configured));
  return work;
}

Result<replay::Tried> try_policy(const Work& work, const replay::ReplayPolicy& policy) {
  const auto begin = std::chrono::steady_clock::now();
  const Result<replay::ReplayOutcome> outcome = replay::replay_engine(work.jobs, policy, work.how);
  if (!outcome) return outcome.error();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  replay::Tried tried = tried_of(policy.name, work.jobs, *outcome, work.about.capacity);
  tried.elapsed_s = elapsed.count();
  return tried;
}

int run(const Options& options) {
  Result<std::vector<replay::ReplayPolicy>> policies = replay::parse_policies(options.policies);
  if (!policies) return fail(policies.error().message);
  Result<Work> work = options.journal.empty() ? work_of_trace(options) : work_of_journal(options);
  if (!work) return fail(work.error().message);
  if (work->jobs.empty()) return fail(work->about.trace + " has no jobs that ran and ended");
  work->how.restart = seconds(options.restart_s);
  work->policies.insert(work->policies.end(), policies->begin(), policies->end());
  std::vector<replay::Tried> all = std::move(work->known);
  if (work->policies.size() + all.size() > kPoliciesMax)
    return fail("at most " + std::to_string(kPoliciesMax) + " columns at a time; give fewer policies");
  for (const replay::ReplayPolicy& policy : work->policies) {
    Result<replay::Tried> tried = try_policy(*work, policy);
    if (!tried) return fail(tried.error().message);
    all.push_back(std::move(*tried));
  }
  const std::string report = options.json ? json_report(work->about, all) : text_report(work->about, all);
  std::fputs(report.c_str(), stdout);
  return options.chart.empty() ? 0 : write_chart(options.chart, wait_chart(work->about, all));
}

/// Declares what both commands take.
void declare_common(Grammar& grammar, Options& options) {
  grammar
      .option("--restart", "SECONDS", &options.restart_s,
              "Additional run time of a preempted job, in seconds, each time it starts again (default: 0)")
      .range(0, 86'400);
  grammar.flag("--json", options.json, "Print JSON");
  grammar.option("--chart", "FILE", &options.chart, "Write a chart of waiting times to this SVG file")
      .completes(Complete::kFile);
}

void explain_traces(Grammar& grammar) {
  grammar.details("Formats, plain or gzip; a malformed line is an error that gives its number.");
  for (const replay::Format& format : replay::formats()) {
    grammar.details(std::string(format.name) + ": " + std::string(format.header) + "; " +
                    std::string(format.units));
  }
  grammar.details(
      "A policy is ORDER[+OPTION..]: ORDER as scheduler.queue_order; options are jobs=NAME (as "
      "scheduler.job_order), reservations=N, preempt (with least_attained), limits (run times are what users "
      "asked for, not learned) and oracle (run times are known).");
  grammar.details(
      "Unfairness is completion over what a static share of 1/N of the cluster would have given.");
}

ProgramAction define_replay(Grammar& grammar) {
  const auto options = std::make_shared<Options>();
  grammar.argument("TRACE", &options->trace, "File of the trace").optional().completes(Complete::kFile);
  std::vector<std::string> names;
  for (const replay::Format& format : replay::formats()) names.emplace_back(format.name);
  grammar.option("--format", "NAME", &options->format, "Format of the trace").of(names);
  grammar
      .option("--journal", "DIR", &options->journal,
              "Instead of a trace: data folder of a scheduler, replayed on its own nodes")
      .completes(Complete::kFolder);
  grammar.option("--policy", "NAMES", &options->policies,
                 "Policies to compare, comma-separated (default: priority_aging)");
  grammar.option("--nodes", "NxG", &options->nodes,
                 "Number of nodes and GPUs on each, such as 20x8; a job runs on one node");
  grammar
      .option("--pool", "N", &options->pool,
              "One pool of this many identical GPUs (default: as in the trace)")
      .range(1, limits::kGpusPerJobMax);
  grammar
      .option("--tenants", "WORD", &options->tenants,
              "One tenant per queue (virtual cluster), per user, or none; auto: queue, if there are several "
              "(default: auto)")
      .of({"auto", "queue", "user", "none"});
  grammar.flag("--shake", options->shake, "Move each arrival randomly by up to a minute");
  grammar.option("--seed", "N", &options->seed, "Seed of --shake (default: 1)").range(0, INT64_MAX);
  declare_common(grammar, *options);
  explain_traces(grammar);
  return [options](const std::vector<std::string>&) {
    const bool named = !options->trace.empty() || !options->journal.empty();
    return named ? run(*options) : fail("nothing to replay; give a trace or --journal FOLDER");
  };
}

ProgramAction define_what_if(Grammar& grammar) {
  const auto options = std::make_shared<Options>();
  options->what_if = true;
  grammar.option("--journal", "DIR", &options->journal, "Data folder of the scheduler; only read")
      .must()
      .completes(Complete::kFolder);
  grammar.option("--policy", "NAMES", &options->policies, "Policies to compare, comma-separated").must();
  declare_common(grammar, *options);
  grammar.details(
      "The first column is what really happened; the second replays it under the configured policy, and "
      "shows "
      "how accurate the replay is; the others are the given policies.");
  return [options](const std::vector<std::string>&) { return run(*options); };
}

}  // namespace

ProgramCommand replay_command() {
  return {.path = "replay",
          .summary = "Replay a recorded trace on the scheduler's own engine",
          .define = define_replay};
}

ProgramCommand what_if_command() {
  return {.path = "whatif",
          .summary = "Show what another policy would have done with the jobs of a scheduler",
          .define = define_what_if};
}

}  // namespace gpusched
