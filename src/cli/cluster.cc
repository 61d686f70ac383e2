#include <memory>

#include "cli/commands.h"
#include "cli/table.h"
#include "cli/units.h"
#include "cli/verbs.h"

namespace gpusched::cli {
namespace {

std::string free_of(int64_t free, int64_t total) {
  return std::to_string(free) + "/" + std::to_string(total);
}

std::string percent(const Json& value) {
  return value.is_number() ? std::to_string(value.integer()) + "%" : std::string();
}

int64_t free_gpus(const Json& node) {
  int64_t free = 0;
  for (const Json& gpu : node["gpus"].items()) free += gpu["state"].text() == "free" ? 1 : 0;
  return free;
}

/// "ok" says nothing; anything else comes with its detail.
std::string condition_text(const Json& gpu) {
  const std::string condition = gpu["condition"].text();
  const std::string detail = gpu["detail"].text();
  if (condition.empty() || condition == "ok") return detail;
  return detail.empty() ? condition : condition + ": " + detail;
}

int print_done(const Session& session, const Reply& reply, const std::string& sentence) {
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : sentence + "\n");
  return kExitOk;
}

int show_cluster(Session& session) {
  const Reply reply = session.get("/cluster/status");
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  const Json& status = reply.json;
  const auto number = [&](const char* key) { return std::to_string(status[key].integer()); };
  Record record;
  record.add("Nodes", number("online_nodes") + " of " + number("total_nodes") + " online");
  record.add("GPUs", number("available_gpus") + " of " + number("total_gpus") + " free");
  record.add("Jobs", number("running_jobs") + " running, " + number("pending_jobs") + " waiting, " +
                         number("total_jobs") + " in all");
  session.io().out(record.render());
  return kExitOk;
}

int list_nodes(Session& session) {
  const Reply reply = session.get("/nodes");
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  Table table({{.title = "NODE", .may_shrink = true},
               {.title = "STATE"},
               {.title = "FREE GPUS", .right = true},
               {.title = "FREE CPUS", .right = true, .drop_order = 2},
               {.title = "FREE MEMORY", .right = true, .drop_order = 1},
               {.title = "ATTEMPTS", .right = true, .drop_order = 3}});
  for (const Json& node : reply.json["nodes"].items()) {
    const auto gpus = static_cast<int64_t>(node["gpus"].items().size());
    table.add(
        {node["name"].text(), node["state"].text(), free_of(free_gpus(node), gpus),
         format_cores(node["cpu_cores_free"].number()) + "/" + format_cores(node["cpu_cores"].number()),
         format_size_mb(node["memory_mb_free"].integer()) + "/" + format_size_mb(node["memory_mb"].integer()),
         std::to_string(node["attempts"].integer())});
  }
  session.io().out(table.empty() ? "No nodes; start an agent with gpu-agent.\n"
                                 : table.render(session.io().width));
  return kExitOk;
}

int list_gpus(Session& session) {
  const Reply reply = session.get("/nodes");
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    std::string text;
    size_t count = 0;
    for (const Json& node : reply.json["nodes"].items()) {
      for (const Json& gpu : node["gpus"].items()) text += (count++ > 0 ? "," : "") + gpu.serialize();
    }
    session.io().out("{\"gpus\":[" + text + "],\"total\":" + std::to_string(count) + "}\n");
    return kExitOk;
  }
  Table table({{.title = "GPU", .may_shrink = true},
               {.title = "MODEL", .may_shrink = true},
               {.title = "MEMORY", .right = true, .drop_order = 3},
               {.title = "STATE"},
               {.title = "JOB"},
               {.title = "USE", .right = true, .drop_order = 2},
               {.title = "USED", .right = true, .drop_order = 4},
               {.title = "TEMP", .right = true, .drop_order = 5},
               {.title = "CONDITION", .may_shrink = true, .drop_order = 1}});
  for (const Json& node : reply.json["nodes"].items()) {
    for (const Json& gpu : node["gpus"].items()) {
      const int64_t temperature = gpu["temperature_celsius"].integer();
      table.add({gpu["id"].text(), gpu["model"].text(), format_size_mb(gpu["memory_mb"].integer()),
                 gpu["state"].text(), gpu["held_by"].text(), percent(gpu["utilization_percent"]),
                 format_size_mb(gpu["memory_used_mb"].integer()),
                 temperature > 0 ? std::to_string(temperature) + "°C" : "", condition_text(gpu)});
    }
  }
  session.io().out(table.empty() ? "No GPUs; start an agent with gpu-agent.\n"
                                 : table.render(session.io().width));
  return kExitOk;
}

int confirm_node_dead(Session& session, const std::string& name) {
  const Reply reply = session.send("POST", "/nodes/" + url_encoded(name) + "/confirm-dead");
  return print_done(session, reply, "node " + name + " is taken for dead");
}

struct ConditionOptions {
  std::string name;
  int64_t index = 0;
  std::string condition;
  std::string detail;
};

int set_gpu_condition(Session& session, const ConditionOptions& node) {
  JsonObjectWriter body;
  body.add("condition", node.condition);
  body.add("detail", node.detail);
  const std::string index = std::to_string(node.index);
  const Reply reply =
      session.send("POST", "/nodes/" + url_encoded(node.name) + "/gpus/" + index + "/condition", body.text());
  return print_done(session, reply, "GPU " + index + " of node " + node.name + " is " + node.condition);
}

}  // namespace

Action define_cluster(Grammar&) {
  return [](Session& session) { return show_cluster(session); };
}

Action define_node_list(Grammar&) {
  return [](Session& session) { return list_nodes(session); };
}

Action define_device_list(Grammar& grammar) {
  grammar.details("State, the job that holds it, use, temperature and condition of each GPU.");
  return [](Session& session) { return list_gpus(session); };
}

Action define_node_confirm_dead(Grammar& grammar) {
  const auto name = std::make_shared<std::string>();
  grammar.argument("NODE", name.get(), "Its name").completes(Complete::kNode);
  grammar.details(
      "An operator's word that nothing runs on a node that does not report. Its attempts end as lost and are "
      "retried "
      "elsewhere, so be certain: switch it off first.");
  return [name](Session& session) { return confirm_node_dead(session, *name); };
}

Action define_node_condition(Grammar& grammar) {
  const auto node = std::make_shared<ConditionOptions>();
  grammar.argument("NODE", &node->name, "The node's name").completes(Complete::kNode);
  grammar.argument("GPU", &node->index, "The GPU's index");
  grammar.argument("CONDITION", &node->condition, "ok, which also ends a quarantine, or unhealthy")
      .of({"ok", "unhealthy"});
  grammar.option("--detail", "TEXT", &node->detail, "Why, for those who look later");
  return [node](Session& session) { return set_gpu_condition(session, *node); };
}

}  // namespace gpusched::cli
