#include <algorithm>
#include <optional>

#include "log/line.h"
#include "main/cluster_file.h"

namespace gpusched {
namespace {

std::string shown(const ClusterValue& value) { return value.lifted ? "no limit" : value.json; }

void add_member(std::string& body, const std::string& name, const std::string& json) {
  body += body.empty() ? "{" : ",";
  append_json_string(body, name);
  body += ":" + json;
}

void add_text(std::string& body, const std::string& name, const std::string& text) {
  std::string json;
  append_json_string(json, text);
  add_member(body, name, json);
}

ClusterChange create(const ClusterTenant& tenant) {
  ClusterChange change{.what = "tenant " + tenant.name};
  add_text(change.json, "name", tenant.name);
  if (!tenant.parent.empty()) add_text(change.json, "parent_id", tenant.parent);
  change.lines.push_back("new" + (tenant.parent.empty() ? std::string() : ", below " + tenant.parent));
  for (const auto& [field, value] : tenant.values) {
    if (value.lifted) continue;  // A new tenant has no limits.
    add_member(change.json, field, value.json);
    change.lines.push_back(field + ": " + value.json);
  }
  change.json += "}";
  return change;
}

/// Nothing when the tenant is as it shall be.
Result<std::optional<ClusterChange>> update(const ClusterTenant& present, const ClusterTenant& wanted) {
  if (present.parent != wanted.parent) {
    const auto named = [](const std::string& parent) { return parent.empty() ? "none" : parent; };
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = wanted.where + ": tenant " + wanted.name + " has the parent " +
                            named(present.parent) + ", and this version cannot change the parent (" +
                            named(wanted.parent) +
                            "); write the current parent, or delete the tenant and create it again"};
  }
  ClusterChange change{.what = "tenant " + wanted.name};
  add_text(change.json, "name", wanted.name);
  for (const auto& [field, value] : wanted.values) {
    const auto now = present.values.find(field);
    if (now != present.values.end() && now->second == value) continue;
    add_member(change.json, field, value.lifted ? "null" : value.json);
    change.lines.push_back(field + ": " + (now == present.values.end() ? "?" : shown(now->second)) + " -> " +
                           shown(value));
  }
  if (change.lines.empty()) return std::optional<ClusterChange>();
  change.json += "}";
  return std::optional(change);
}

std::optional<ClusterChange> relabel(const ClusterNode& present, const ClusterNode& wanted) {
  ClusterChange change{.what = "node " + wanted.name, .of_node = true};
  add_text(change.json, "node_name", wanted.name);
  std::string set;
  std::string remove;
  for (const auto& [name, value] : wanted.labels) {
    const auto now = present.labels.find(name);
    const bool is_there = now != present.labels.end();
    const std::string before = is_there ? now->second.value_or("") : "none";
    if (value) {
      if (is_there && now->second == value) continue;
      add_text(set, name, *value);
      change.lines.push_back("label " + name + ": " + before + " -> " + *value);
    } else if (is_there) {
      remove += remove.empty() ? "[" : ",";
      append_json_string(remove, name);
      change.lines.push_back("label " + name + ": " + before + " -> none");
    }
  }
  if (change.lines.empty()) return std::nullopt;
  if (!set.empty()) add_member(change.json, "set", set + "}");
  if (!remove.empty()) add_member(change.json, "remove", remove + "]");
  change.json += "}";
  return change;
}

}  // namespace

std::string edits_json(const std::vector<ClusterChange>& changes, bool dry_run) {
  std::string tenants;
  std::string nodes;
  for (const ClusterChange& change : changes) {
    std::string& list = change.of_node ? nodes : tenants;
    list += (list.empty() ? "" : ",") + change.json;
  }
  return "{\"dry_run\":" + std::string(dry_run ? "true" : "false") + ",\"tenants\":[" + tenants +
         "],\"nodes\":[" + nodes + "]}";
}

Result<std::vector<ClusterChange>> plan_changes(const ClusterFile& present, const ClusterFile& wanted) {
  std::vector<ClusterChange> changes;
  std::string problems;
  const auto problem = [&](const std::string& sentence) {
    problems += (problems.empty() ? "" : "\n") + sentence;
  };
  const auto knows = [](const ClusterFile& file, const std::string& name) {
    return std::ranges::find(file.tenants, name, &ClusterTenant::name) != file.tenants.end();
  };
  for (const ClusterTenant& tenant : wanted.tenants) {
    if (!tenant.parent.empty() && !knows(present, tenant.parent) && !knows(wanted, tenant.parent)) {
      problem(tenant.where + ": tenant " + tenant.name + " has the parent " + tenant.parent +
              ", which does not exist");
      continue;
    }
    const auto holders = std::ranges::count(present.tenants, tenant.name, &ClusterTenant::name);
    if (holders > 1) {
      problem(
          tenant.where + ": " + std::to_string(holders) + " tenants have the name " + tenant.name +
          "; rename all but one (gpu-cli tenant list, gpu-cli tenant update), or leave it out of the file");
      continue;
    }
    const auto found = std::ranges::find(present.tenants, tenant.name, &ClusterTenant::name);
    if (found == present.tenants.end()) {
      changes.push_back(create(tenant));
      continue;
    }
    Result<std::optional<ClusterChange>> change = update(*found, tenant);
    if (!change.ok()) {
      problem(change.error().message);
    } else if (*change) {
      changes.push_back(std::move(**change));
    }
  }
  for (const ClusterNode& node : wanted.nodes) {
    const auto found = std::ranges::find(present.nodes, node.name, &ClusterNode::name);
    if (found == present.nodes.end()) {
      problem(node.where + ": no node " + node.name + " has ever registered; join it first, or leave it out");
      continue;
    }
    if (std::optional<ClusterChange> change = relabel(*found, node)) changes.push_back(std::move(*change));
  }
  if (!problems.empty()) return Error{.code = ErrorCode::kInvalidArgument, .message = problems};
  return changes;
}

}  // namespace gpusched
