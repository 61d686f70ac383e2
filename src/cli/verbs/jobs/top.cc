#include <memory>
#include <mutex>

#include "cli/framework/verbs.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/jobs/job_query.h"
#include "cli/verbs/jobs/top_view.h"

namespace gpusched::cli {
namespace {

constexpr int64_t kWaitingMax = 200;  // Nobody looks at more of them here.
constexpr int64_t kRunningMax = 2'000;

struct TopOptions {
  std::string interval = "2s";
  bool once = false;
};

Reply fetch_top(Session& session, TopData& data) {
  Reply cluster = session.get("/cluster/status");
  if (!cluster) return cluster;
  data.cluster = cluster.json;
  Reply nodes = session.get("/v1/nodes");
  if (!nodes) return nodes;
  data.nodes = nodes.json["nodes"].items();
  const auto jobs_of = [&](std::vector<std::string> states, int64_t limit, std::vector<Json>& jobs) {
    FoundJobs found;
    const JobQuery query{.states = std::move(states),
                         .tenant = session.options().tenant_id,
                         .limit = limit,
                         .fields = fields_of(top_job_columns())};
    Reply reply = find_jobs(session, query, found);
    jobs = std::move(found.jobs);
    return reply;
  };
  Reply running = jobs_of({"running", "scheduled", "preempted"}, kRunningMax, data.running);
  if (!running) return running;
  return jobs_of({"pending"}, kWaitingMax, data.waiting);
}

int show_top(Session& session, const TopOptions& top) {
  const Result<int64_t> interval = parse_duration_seconds(top.interval);
  if (!interval) return session.fail(kExitUsage, "--interval: " + interval.error().message, "usage");
  const CliIo& io = session.io();
  const bool color = colored(session.options(), io);
  const Options& options = session.options();
  const std::string server =
      options.context.empty() ? options.api_url : options.context + " " + options.api_url;
  TopControls controls;
  if (top.once || !io.out_is_terminal) {
    TopData data;
    const Reply reply = fetch_top(session, data);
    if (!reply) return session.fail(*reply.trouble);
    io.out(top_text(data, controls, {.columns = io.width, .rows = io.height}, color, io.wall_now(), server,
                    std::nullopt) +
           "\n");
    return kExitOk;
  }
  std::mutex mutex;
  TopData shown;
  ScreenSize last;
  LiveView view;
  view.interval = seconds(*interval);
  view.fetch = [&](Session& own) {
    TopData data;
    Reply reply = fetch_top(own, data);
    if (reply) {
      const std::lock_guard lock(mutex);
      shown = std::move(data);
    }
    return reply;
  };
  view.render = [&](ScreenSize size, const std::optional<Trouble>& trouble) {
    last = size;
    const std::lock_guard lock(mutex);
    return top_text(shown, controls, size, color, io.wall_now(), server,
                    trouble ? std::optional(trouble->sentence) : std::nullopt);
  };
  view.on_key = [&](int key) { return controls.on_key(key, last); };
  return run_live(session, view);
}

}  // namespace

Action define_top(Grammar& grammar) {
  const auto top = std::make_shared<TopOptions>();
  grammar.option("--interval", "SPAN", &top->interval, "Time between refreshes (default: 2s)");
  grammar.flag("--once", top->once, "Print one screen and exit, as without a terminal");
  grammar.details(
      "Shows each GPU with its utilization, memory, temperature and the job that holds it; below, the jobs. "
      "The display fills the terminal, follows its size, and restores it at the end. While the scheduler "
      "cannot be reached, it says so and retries.");
  grammar.details(
      "Keys: `q` quits. `i` `g` `r` `p` `n` sort the jobs by id, GPUs, run time, priority or name, and in "
      "reverse order when pressed again. `s` shows all, running or waiting jobs. `b` hides the bars. The "
      "arrows, PageUp and PageDown scroll the jobs, `<` and `>` the GPUs. `h` lists the keys.");
  return [top](Session& session) { return show_top(session, *top); };
}

}  // namespace gpusched::cli
