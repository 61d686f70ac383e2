#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

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
  session.io().out(record.render(session.io().line_width()));
  return kExitOk;
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

Action define_node_condition(Grammar& grammar) {
  const auto node = std::make_shared<ConditionOptions>();
  grammar.argument("NODE", &node->name, "Name of the node").completes(Complete::kNode);
  grammar.argument("GPU", &node->index, "Index of the GPU");
  grammar
      .argument("CONDITION", &node->condition,
                "ok, which also examines a quarantined GPU again, or unhealthy")
      .of({"ok", "unhealthy"});
  grammar.option("--detail", "TEXT", &node->detail, "Reason, shown in the lists");
  return [node](Session& session) { return set_gpu_condition(session, *node); };
}

}  // namespace gpusched::cli
