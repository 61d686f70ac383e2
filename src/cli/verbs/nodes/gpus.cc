#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"
#include "cli/verbs/nodes/nodes.h"
#include "grammar/job_name.h"

namespace gpusched::cli {
namespace {

struct GpuOptions {
  std::string node, job, tenant;
  bool held = false, free = false;
  std::string format;

  bool is_about(const Json& holder) const {
    return (job.empty() || holder["job_id"].text() == job) &&
           (tenant.empty() || holder["tenant_id"].text() == tenant);
  }
  bool asks_for_holders() const { return held || !job.empty() || !tenant.empty(); }
};

/// The GPU with those of its holders that are asked for; nothing: it is not.
std::optional<std::vector<Json>> chosen_holders(const Json& gpu, const GpuOptions& wanted) {
  std::vector<Json> holders;
  for (const Json& holder : gpu["holders"].items()) {
    if (wanted.is_about(holder)) holders.push_back(holder);
  }
  if (wanted.free && !is_free_device(gpu)) return std::nullopt;
  if (wanted.asks_for_holders() && holders.empty()) return std::nullopt;
  return holders;
}

std::string part_of(const Json& holder) {
  const int64_t milli = holder["gpu_milli"].integer();
  return milli == 0 ? "" : format_share(milli);
}

void add_rows(Table& table, const Json& gpu, const std::vector<Json>& holders, Time now) {
  const Cell state(gpu["state"].text(), style_of_state(gpu["state"].text()));
  const std::string use = gpu["utilization_percent"].is_number()
                              ? std::to_string(gpu["utilization_percent"].integer()) + "%"
                              : "";
  if (holders.empty()) table.add({gpu["id"].text(), gpu["model"].text(), state, "", "", "", "", "", use});
  for (const Json& holder : holders) {
    const Time since = parse_rfc3339(holder["since"].text());
    table.add({gpu["id"].text(), gpu["model"].text(), state, holder["job_id"].text(),
               holder["tenant_id"].text(), holder["owner"].text(), part_of(holder),
               since.valid() ? format_duration((now - since).ns / 1'000'000'000) : "", use});
  }
}

int list_gpus(Session& session, GpuOptions wanted) {
  if (!wanted.job.empty()) wanted.job = full_job_id(wanted.job);
  const Reply reply = wanted.node.empty() ? session.get("/v1/nodes") : get_node(session, wanted.node);
  if (!reply) return session.fail(*reply.trouble);
  Table table({{.title = "GPU", .may_shrink = true},
               {.title = "MODEL", .may_shrink = true, .drop_order = 2},
               {.title = "STATE"},
               {.title = "JOB"},
               {.title = "TENANT", .may_shrink = true, .drop_order = 3},
               {.title = "OWNER", .may_shrink = true},
               {.title = "PART", .right = true, .drop_order = 1},
               {.title = "FOR", .right = true},
               {.title = "USE", .right = true, .drop_order = 4}});
  std::vector<Json> gpus;
  for (const Json& node : wanted.node.empty() ? reply.json["nodes"].items() : std::vector<Json>{reply.json}) {
    for (const Json& gpu : node_devices(node)) {
      const auto holders = chosen_holders(gpu, wanted);
      if (!holders) continue;
      gpus.push_back(gpu);
      add_rows(table, gpu, *holders, session.io().wall_now());
    }
  }
  const Format format = format_of(wanted.format, session.options().json);
  if (print_plain(session, format, "gpus", "id", gpus)) return kExitOk;
  const bool all = !wanted.asks_for_holders() && !wanted.free;
  print_table(session, table, format == Format::kWide,
              all ? "No GPUs. Start gpu-agent on a machine to add its GPUs.\n" : "No GPUs match.\n");
  return kExitOk;
}

}  // namespace

Action define_gpu(Grammar& grammar) {
  const auto wanted = std::make_shared<GpuOptions>();
  grammar.argument("NODE", &wanted->node, "Only the GPUs of this node").completes(Complete::kNode).optional();
  declare_format(grammar, wanted->format);
  grammar.flag("--held", wanted->held, "Only GPUs that a job holds");
  grammar.flag("--free", wanted->free, "Only GPUs that are free and fit for new jobs");
  grammar.option("--job", "JOB", &wanted->job, "Only GPUs of this job").completes(Complete::kJob);
  grammar.option("--tenant", "ID", &wanted->tenant, "Only GPUs of jobs of the tenant with this id");
  grammar.details(
      "One line for each GPU and job that has it or a part of it: whose job it is, how large the part is, "
      "and for how long it has been held. Jobs of other tenants are left out where the caller may not see "
      "them. Health and temperature: gpu-cli device list.");
  grammar.example("gpu-cli gpu --held", "show who holds GPUs");
  return [wanted](Session& session) { return list_gpus(session, *wanted); };
}

}  // namespace gpusched::cli
