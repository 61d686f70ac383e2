#include "cli/verbs/nodes/nodes.h"

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

constexpr int kWideWidth = 1'000;
constexpr Duration kLook = milliseconds(500);

std::string free_of(const std::string& free, const std::string& all) { return free + "/" + all; }

std::string since_text(const Json& node, Time now) {
  const Time since = parse_rfc3339(node["state_since"].text());
  return since.valid() ? format_duration((now - since).ns / 1'000'000'000) : "";
}

std::string pairs_text(const Json& object) {
  std::string out;
  for (const auto& [name, value] : object.members())
    out += (out.empty() ? "" : ", ") + name + "=" + value.text();
  return out;
}

std::string listed(const Json& list) {
  std::string out;
  for (const Json& item : list.items()) out += (out.empty() ? "" : ", ") + item.text();
  return out;
}

Cell state_cell(const Json& node) {
  const std::string contact = node["contact"].text();
  const bool silent = !contact.empty() && contact != "connected";
  return {node_state_text(node), style_of_state(silent ? contact : node["state"].text())};
}

/// A column of the list of nodes, or a line of `node show`.
struct NodeRow {
  std::string_view title;
  Cell (*cell)(const Json& node, Time now);
  bool right = false, may_shrink = false;  ///< Both as a Column's.
  int drop_order = 0;                      ///< As a Column's.
  bool wide = false;                       ///< Only with -o wide.
};

Cell name_cell(const Json& node, Time) { return node["name"].text(); }
Cell told_state_cell(const Json& node, Time) { return state_cell(node); }
Cell since_cell(const Json& node, Time now) { return since_text(node, now); }
Cell by_cell(const Json& node, Time) { return node["state_by"].text(); }
Cell reason_cell(const Json& node, Time) { return node["state_reason"].text(); }
Cell gpus_cell(const Json& node, Time) {
  return free_of(std::to_string(free_device_count(node)), std::to_string(node_devices(node).size()));
}
Cell cpus_cell(const Json& node, Time) {
  return free_of(format_cores(node_cores(node, true)), format_cores(node_cores(node, false)));
}
Cell memory_cell(const Json& node, Time) {
  return free_of(format_size_mb(node["memory_mb_free"].integer()),
                 format_size_mb(node["memory_mb"].integer()));
}
Cell attempts_cell(const Json& node, Time) { return std::to_string(node["attempts"].integer()); }
Cell version_cell(const Json& node, Time) { return node["version"].text(); }
Cell features_cell(const Json& node, Time) { return listed(node["features"]); }
Cell labels_cell(const Json& node, Time) { return pairs_text(node["labels"]); }
Cell topology_cell(const Json& node, Time) { return node["topology_note"].text(); }
Cell boot_cell(const Json& node, Time) { return node["boot_id"].text(); }

template <auto cell>
Cell free_cell(const Json& node, Time now) {
  return cell(node, now).text + " free";
}

constexpr NodeRow kNodeColumns[] = {
    {"NODE", name_cell, false, true},
    {"STATE", told_state_cell},
    {"FREE GPUS", gpus_cell, true},
    {"FREE CPUS", cpus_cell, true, false, 3},
    {"FREE MEMORY", memory_cell, true, false, 2},
    {"ATTEMPTS", attempts_cell, true, false, 4},
    {"SINCE", since_cell, true, false, 5},
    {"REASON", reason_cell, false, true, 1},
    {"BY", by_cell, false, false, 0, true},
    {"VERSION", version_cell, false, false, 0, true},
    {"FEATURES", features_cell, false, false, 0, true},
    {"LABELS", labels_cell, false, false, 0, true},
};

constexpr NodeRow kNodeRecord[] = {
    {"Node", name_cell},
    {"State", told_state_cell},
    {"Since", since_cell},
    {"By", by_cell},
    {"Reason", reason_cell},
    {"CPUs", free_cell<cpus_cell>},
    {"Memory", free_cell<memory_cell>},
    {"GPUs", free_cell<gpus_cell>},
    {"Attempts", attempts_cell},
    {"Labels", labels_cell},
    {"Topology", topology_cell},
    {"Features", features_cell},
    {"Boot", boot_cell},
    {"Version", version_cell},
};

Table node_table(const std::vector<Json>& nodes, bool wide, Time now) {
  std::vector<const NodeRow*> rows;
  std::vector<Column> columns;
  for (const NodeRow& row : kNodeColumns) {
    if (row.wide && !wide) continue;
    rows.push_back(&row);
    columns.push_back({std::string(row.title), row.right, row.may_shrink, row.drop_order});
  }
  Table table(std::move(columns));
  table.offer_wide();
  for (const Json& node : nodes) {
    std::vector<Cell> cells;
    for (const NodeRow* const row : rows) cells.push_back(row->cell(node, now));
    table.add(std::move(cells));
  }
  return table;
}

std::string percent(const Json& value) {
  return value.is_number() ? std::to_string(value.integer()) + "%" : std::string();
}

/// The job that has it, or how many jobs have how much of it.
std::string holders_text(const Json& gpu) {
  const auto& jobs = gpu["shared_by"].items();
  if (jobs.empty()) return gpu["held_by"].text();
  return (jobs.size() == 1 ? jobs.front().text() : std::to_string(jobs.size()) + " jobs") + ": " +
         format_share(gpu["shared_milli"].integer());
}

/// "ok" says nothing; anything else comes with its detail.
std::string condition_text(const Json& gpu) {
  const std::string condition = gpu["condition"].text();
  const std::string detail = gpu["detail"].text();
  if (condition.empty() || condition == "ok") return detail;
  return detail.empty() ? condition : condition + ": " + detail;
}

/// "1g.10gb@6 job-12, 3g.40gb@0 job-9 (draining); room for 2x 2g.20gb".
std::string slices_text(const Json& gpu) {
  if (!gpu["mig"].boolean()) return {};
  std::string text;
  for (const Json& slice : gpu["slices"].items()) {
    text += (text.empty() ? "" : ", ") + slice["profile"].text() + "@" +
            std::to_string(slice["start"].integer()) + " " + slice["job_id"].text() +
            (slice["draining"].boolean() ? " (draining)" : "");
  }
  const std::string room = gpu["mig_room"].text();
  if (!room.empty()) text += (text.empty() ? "room for " : "; room for ") + room;
  return text.empty() ? "MIG mode" : text;
}

Table device_table(const std::vector<Json>& devices) {
  const bool slices = std::ranges::any_of(devices, [](const Json& gpu) { return gpu["mig"].boolean(); });
  std::vector<Column> columns = {{.title = "GPU", .may_shrink = true},
                                 {.title = "MODEL", .may_shrink = true},
                                 {.title = "MEMORY", .right = true, .drop_order = 3},
                                 {.title = "STATE"},
                                 {.title = "JOB"},
                                 {.title = "USE", .right = true, .drop_order = 2},
                                 {.title = "USED", .right = true, .drop_order = 4},
                                 {.title = "TEMP", .right = true, .drop_order = 5},
                                 {.title = "CONDITION", .may_shrink = true, .drop_order = 1}};
  if (slices) columns.push_back({.title = "SLICES", .may_shrink = true});
  Table table(std::move(columns));
  for (const Json& gpu : devices) {
    const int64_t temperature = gpu["temperature_celsius"].integer();
    std::vector<Cell> cells = {gpu["id"].text(),
                               gpu["model"].text(),
                               format_size_mb(gpu["memory_mb"].integer()),
                               Cell(gpu["state"].text(), style_of_state(gpu["state"].text())),
                               holders_text(gpu),
                               percent(gpu["utilization_percent"]),
                               format_size_mb(gpu["memory_used_mb"].integer()),
                               temperature > 0 ? std::to_string(temperature) + "°C" : "",
                               Cell(condition_text(gpu), style_of_state(gpu["condition"].text()))};
    if (slices) cells.emplace_back(slices_text(gpu));
    table.add(std::move(cells));
  }
  return table;
}

/// Each GPU's NUMA node and how it is linked to each other one, in GB/s.
Table link_table(const std::vector<Json>& devices, const std::vector<Json>& links) {
  std::vector<Column> columns = {{.title = "GPU"}, {.title = "NUMA", .right = true}};
  for (std::size_t i = 0; i < devices.size(); ++i) columns.push_back({.title = "TO " + std::to_string(i)});
  Table table(std::move(columns));
  for (std::size_t from = 0; from < devices.size(); ++from) {
    const auto index = static_cast<int64_t>(from);
    std::vector<Cell> cells = {
        std::to_string(from),
        devices[from]["numa_node"].is_number() ? std::to_string(devices[from]["numa_node"].integer()) : ""};
    for (int64_t to = 0; to < static_cast<int64_t>(devices.size()); ++to) {
      std::string text = index == to ? "-" : "";
      for (const Json& link : links) {
        if (link["from"].integer() != std::min(index, to) || link["to"].integer() != std::max(index, to))
          continue;
        text = link["kind"].text();
        if (const int64_t gbs = link["bandwidth_gbs"].integer(); gbs > 0) text += " " + std::to_string(gbs);
      }
      cells.emplace_back(text);
    }
    table.add(std::move(cells));
  }
  return table;
}

std::string names_of(const std::vector<Json>& things, std::string_view field) {
  std::string text;
  for (const Json& thing : things) text += thing[field].text() + "\n";
  return text;
}

std::string objects(std::string_view name, const std::vector<Json>& things) {
  std::string text;
  for (const Json& thing : things) text += (text.empty() ? "" : ",") + thing.serialize();
  return "{\"" + std::string(name) + "\":[" + text + "],\"total\":" + std::to_string(things.size()) + "}\n";
}

}  // namespace

bool print_plain(const Session& session, Format format, std::string_view plural, std::string_view name_field,
                 const std::vector<Json>& things) {
  if (format == Format::kTable || format == Format::kWide) return false;
  if (format == Format::kName) {
    session.io().out(names_of(things, name_field));
  } else if (format == Format::kJson) {
    session.io().out(objects(plural, things));
  } else {
    const Result<Json> whole = Json::parse(objects(plural, things));
    CHECK(whole.ok());
    session.io().out(yaml_text(*whole));
  }
  return true;
}

void print_table(const Session& session, const Table& table, bool wide, const std::string& when_empty) {
  const CliIo& io = session.io();
  const int width = wide && !io.out_is_terminal ? kWideWidth : io.width;
  io.out(table.empty() ? when_empty : table.render(width, colored(session.options(), io)));
}

namespace {

struct ListOptions {
  std::string node;  ///< Only this one's devices.
  std::string format;
  std::string state;
};

int list_nodes(Session& session, const ListOptions& list) {
  const Reply reply = session.get("/v1/nodes");
  if (!reply) return session.fail(*reply.trouble);
  std::vector<Json> nodes = reply.json["nodes"].items();
  const std::vector<std::string> states = comma_list(list.state);
  std::erase_if(nodes, [&](const Json& node) {
    return !states.empty() && std::ranges::find(states, node["state"].text()) == states.end() &&
           std::ranges::find(states, node["contact"].text()) == states.end();
  });
  const Format format = format_of(list.format, session.options().json);
  if (print_plain(session, format, "nodes", "name", nodes)) return kExitOk;
  const bool wide = format == Format::kWide;
  print_table(session, node_table(nodes, wide, session.io().wall_now()), wide,
              states.empty() ? "No nodes. Start gpu-agent on a machine to add one.\n" : "No nodes match.\n");
  return kExitOk;
}

int list_devices(Session& session, const ListOptions& list) {
  const Reply reply = list.node.empty() ? session.get("/v1/nodes") : get_node(session, list.node);
  if (!reply) return session.fail(*reply.trouble);
  const std::vector<std::string> states = comma_list(list.state);
  std::vector<Json> devices;
  for (const Json& node : list.node.empty() ? reply.json["nodes"].items() : std::vector<Json>{reply.json}) {
    for (const Json& device : node_devices(node)) {
      if (states.empty() || std::ranges::find(states, device["state"].text()) != states.end())
        devices.push_back(device);
    }
  }
  const Format format = format_of(list.format, session.options().json);
  if (print_plain(session, format, "gpus", "id", devices)) return kExitOk;
  print_table(
      session, device_table(devices), format == Format::kWide,
      states.empty() ? "No GPUs. Start gpu-agent on a machine to add its GPUs.\n" : "No GPUs match.\n");
  return kExitOk;
}

struct ShowOptions {
  std::string name;
  std::string format;
};

int show_node(Session& session, const ShowOptions& show) {
  const Reply reply = get_node(session, show.name);
  if (!reply) return session.fail(*reply.trouble);
  const Json& node = reply.json;
  const CliIo& io = session.io();
  const bool color = colored(session.options(), io);
  switch (format_of(show.format, session.options().json)) {
    case Format::kJson:
      io.out(json_line(reply));
      return kExitOk;
    case Format::kYaml:
      io.out(yaml_text(node));
      return kExitOk;
    case Format::kName:
      io.out(node["name"].text() + "\n");
      return kExitOk;
    case Format::kTable:
    case Format::kWide:
      break;
  }
  Record record;
  for (const NodeRow& row : kNodeRecord) record.add(std::string(row.title), row.cell(node, io.wall_now()));
  io.out(record.render(io.line_width(), color));
  const Table devices = device_table(node_devices(node));
  if (!devices.empty()) io.out("\n" + devices.render(io.width, color));
  if (!node["links"].items().empty())
    io.out("\n" + link_table(node_devices(node), node["links"].items()).render(kWideWidth, color));
  return kExitOk;
}

struct ChangeOptions {
  std::vector<std::string> nodes;
  std::string reason;
  bool wait = false;
  std::string timeout;
};

/// Waits until none of the nodes is on its way any more.
int wait_drained(Session& session, std::vector<std::string> nodes, const std::string& timeout) {
  Duration patience = hours(24 * 365);
  if (!timeout.empty()) {
    const Result<int64_t> span = parse_duration_seconds(timeout);
    if (!span) return session.fail(kExitUsage, "--timeout: " + span.error().message, "usage");
    patience = seconds(*span);
  }
  const Time ends = session.io().wall_now() + patience;
  Progress progress(session.io());
  Patience patient(session.io());
  while (!nodes.empty()) {
    const Reply node = get_node(session, nodes.front());
    if (!node && (!node.trouble->passing || !patient.wait_again())) return session.fail(*node.trouble);
    if (node) patient.renew();
    if (node && node.json["state"].text() != "draining") {
      progress.clear();
      session.io().out(nodes.front() + " " + node_state_text(node.json) + "\n");
      nodes.erase(nodes.begin());
      continue;
    }
    if (session.io().wall_now() >= ends) {
      const int64_t left = node ? node.json["attempts"].integer() : 0;
      const std::string what = left > 0
                                   ? " still runs " + std::to_string(left) + (left == 1 ? " job" : " jobs")
                                   : " has not drained";
      return session.fail(kExitWaitedInVain,
                          nodes.front() + what + " after " + timeout + "; it stays closed for new jobs",
                          "timeout");
    }
    if (node)
      progress.show(nodes.front() + ": " + std::to_string(node.json["attempts"].integer()) +
                    (node.json["attempts"].integer() == 1 ? " attempt continues" : " attempts continue"));
    session.io().pause(kLook);
  }
  return kExitOk;
}

int drain_nodes(Session& session, const ChangeOptions& change) {
  int exit_code = kExitOk;
  JsonObjectWriter body;
  if (!change.reason.empty()) body.add("reason", change.reason);
  std::vector<std::string> accepted;
  for (const std::string& name : change.nodes) {
    const Reply reply = change_node(session, name, "drain", body.text());
    if (!reply) {
      exit_code = session.fail(*reply.trouble);
      continue;
    }
    accepted.push_back(name);
    if (!change.wait || session.options().json) {
      session.io().out(session.options().json ? json_line(reply)
                                              : name + " " + node_state_text(reply.json) + "\n");
    }
  }
  if (!change.wait) return exit_code;
  const int waited = wait_drained(session, accepted, change.timeout);
  return waited == kExitOk ? exit_code : waited;
}

int resume_nodes(Session& session, const std::vector<std::string>& nodes) {
  int exit_code = kExitOk;
  for (const std::string& name : nodes) {
    const Reply reply = change_node(session, name, "resume");
    if (!reply) {
      exit_code = session.fail(*reply.trouble);
      continue;
    }
    session.io().out(session.options().json ? json_line(reply)
                                            : name + " " + node_state_text(reply.json) + "\n");
  }
  return exit_code;
}

struct LabelOptions {
  std::string name;
  std::vector<std::string> changes;
};

int label_node(Session& session, const LabelOptions& label) {
  std::map<std::string, std::string> set;
  std::vector<std::string> remove;
  for (const std::string& change : label.changes) {
    const size_t equals = change.find('=');
    if (equals == std::string::npos && change.size() > 1 && change.ends_with('-')) {
      remove.push_back(change.substr(0, change.size() - 1));
    } else if (equals != std::string::npos && equals > 0) {
      set[change.substr(0, equals)] = change.substr(equals + 1);
    } else {
      return session.fail(kExitUsage, "\"" + change + "\" is neither KEY=VALUE nor KEY-", "usage");
    }
  }
  JsonObjectWriter body;
  if (!set.empty()) body.add("set", set);
  if (!remove.empty()) body.add("remove", remove);
  const Reply reply = change_node(session, label.name, "label", body.text());
  if (!reply) return session.fail(*reply.trouble);
  const std::string labels = pairs_text(reply.json["labels"]);
  session.io().out(session.options().json
                       ? json_line(reply)
                       : label.name + (labels.empty() ? " has no labels" : ": " + labels) + "\n");
  return kExitOk;
}

int confirm_node_dead(Session& session, const std::string& name) {
  const Reply reply = change_node(session, name, "confirm-dead");
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : "node " + name + " is declared dead\n");
  return kExitOk;
}

}  // namespace

Reply get_node(Session& session, const std::string& name) {
  return session.get("/v1/nodes/" + url_encoded(name));
}

Reply change_node(Session& session, const std::string& name, const std::string& what,
                  const std::string& body) {
  return session.send("POST", "/v1/nodes/" + url_encoded(name) + "/" + what, body);
}

std::string node_state_text(const Json& node) {
  const std::string state = node["state"].text();
  const std::string contact = node["contact"].text();
  return contact.empty() || contact == "connected" || contact == state ? state : state + ", " + contact;
}

std::vector<Json> node_devices(const Json& node) {
  const Json devices = node["devices"];
  return devices.is_array() ? devices.items() : node["gpus"].items();
}

bool is_free_device(const Json& device) {
  const std::string condition = device["condition"].text();
  return device["state"].text() == "free" && (condition.empty() || condition == "ok");
}

int64_t free_device_count(const Json& node) {
  const std::vector<Json> devices = node_devices(node);
  return std::ranges::count_if(devices, is_free_device);
}

double node_cores(const Json& node, bool free) {
  const Json milli = node[free ? "cpu_milli_free" : "cpu_milli"];
  return milli.is_number() ? milli.number() / 1000 : node[free ? "cpu_cores_free" : "cpu_cores"].number();
}

Action define_node_list(Grammar& grammar) {
  const auto list = std::make_shared<ListOptions>();
  declare_format(grammar, list->format);
  grammar.option("--state", "STATES", &list->state, "Only nodes in these states, comma-separated")
      .of({"validating", "ready", "draining", "drained", "down", "connected", "unreachable", "lost", "dead"})
      .commas();
  grammar.details(
      "A node is validating until its checks have passed, ready, draining (no new jobs; running jobs "
      "continue), drained, or down. A node that does not report is unreachable, then lost, and dead once an "
      "operator declares it so.");
  return [list](Session& session) { return list_nodes(session, *list); };
}

Action define_node_show(Grammar& grammar) {
  const auto show = std::make_shared<ShowOptions>();
  grammar.argument("NODE", &show->name, "Name of the node").completes(Complete::kNode);
  declare_format(grammar, show->format);
  return [show](Session& session) { return show_node(session, *show); };
}

Action define_device_list(Grammar& grammar) {
  const auto list = std::make_shared<ListOptions>();
  grammar.argument("NODE", &list->node, "Only the GPUs of this node").completes(Complete::kNode).optional();
  declare_format(grammar, list->format);
  grammar.option("--state", "STATES", &list->state, "Only GPUs in these states, comma-separated")
      .of({"free", "held", "draining", "quarantined"})
      .commas();
  grammar.details("Shows state, job, utilization, temperature and condition of each GPU.");
  return [list](Session& session) { return list_devices(session, *list); };
}

Action define_node_drain(Grammar& grammar) {
  const auto change = std::make_shared<ChangeOptions>();
  grammar.argument("NODE", &change->nodes, "Names of nodes").completes(Complete::kNode);
  grammar.option("--reason", "TEXT", &change->reason, "Reason, shown in the lists");
  grammar.flag("--wait", change->wait, "Wait until no jobs run there any more");
  grammar.option("--timeout", "SPAN", &change->timeout,
                 "With --wait: stop waiting after this long, with exit code 6");
  grammar.example("gpu-cli node drain n1 --reason 'new power supply' --wait", "empty a node for maintenance");
  return [change](Session& session) { return drain_nodes(session, *change); };
}

Action define_node_resume(Grammar& grammar) {
  const auto nodes = std::make_shared<std::vector<std::string>>();
  grammar.argument("NODE", nodes.get(), "Names of nodes").completes(Complete::kNode);
  grammar.details("Ends a drain, or puts a node whose checks have not passed into service.");
  return [nodes](Session& session) { return resume_nodes(session, *nodes); };
}

Action define_node_label(Grammar& grammar) {
  const auto label = std::make_shared<LabelOptions>();
  grammar.argument("NODE", &label->name, "Name of the node").completes(Complete::kNode);
  grammar.argument("LABEL", &label->changes, "KEY=VALUE sets a label, KEY- removes it");
  grammar.details("Labels set by an operator take precedence over those of the node's agent.");
  return [label](Session& session) { return label_node(session, *label); };
}

Action define_node_remove(Grammar& grammar) {
  const auto name = std::make_shared<std::string>();
  grammar.argument("NODE", name.get(), "Name of the node").completes(Complete::kNode);
  grammar.details(
      "Removes a node whose agent is stopped and which holds no jobs, with its name, GPUs, labels and "
      "remarks. Refused while it is connected, holds jobs (confirm it dead first) or is part of a "
      "reservation.");
  return [name](Session& session) -> int {
    const Reply reply = session.send("DELETE", "/v1/nodes/" + url_encoded(*name));
    if (!reply) return session.fail(*reply.trouble);
    session.io().out(session.options().json ? json_line(reply) : "node " + *name + " is removed\n");
    return kExitOk;
  };
}

Action define_node_confirm_dead(Grammar& grammar) {
  const auto name = std::make_shared<std::string>();
  grammar.argument("NODE", name.get(), "Name of the node").completes(Complete::kNode);
  grammar.details(
      "Declares that nothing runs on a node that does not report. Its attempts end as lost and are retried "
      "elsewhere; to be certain that they do not run twice, switch the machine off first.");
  return [name](Session& session) { return confirm_node_dead(session, *name); };
}

}  // namespace gpusched::cli
