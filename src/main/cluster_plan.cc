#include <algorithm>
#include <optional>

#include "client/http_client.h"
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

ClusterChange create(const ClusterTenant& tenant) {
  ClusterChange change{
      .what = "tenant " + tenant.name, .method = "POST", .path = "/api/v1/tenants", .parent = tenant.parent};
  std::string name;
  append_json_string(name, tenant.name);
  add_member(change.body, "name", name);
  change.lines.push_back("new" + (tenant.parent.empty() ? std::string() : ", below " + tenant.parent));
  for (const auto& [field, value] : tenant.values) {
    if (value.lifted) continue;  // A new tenant has no limits.
    add_member(change.body, field, value.json);
    change.lines.push_back(field + ": " + value.json);
  }
  change.body += "}";
  return change;
}

/// Nothing when the tenant is as it shall be.
Result<std::optional<ClusterChange>> update(const ClusterTenant& present, const ClusterTenant& wanted) {
  if (present.parent != wanted.parent) {
    const auto named = [](const std::string& parent) { return parent.empty() ? "none" : parent; };
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = wanted.where + ": tenant " + wanted.name + " has the parent " +
                            named(present.parent) + ", and this version cannot give it another (" +
                            named(wanted.parent) +
                            "); write the present one, or delete it and create it anew"};
  }
  ClusterChange change{.what = "tenant " + wanted.name,
                       .method = "PUT",
                       .path = "/api/v1/tenants/" + url_encoded(wanted.name)};
  for (const auto& [field, value] : wanted.values) {
    const auto now = present.values.find(field);
    if (now != present.values.end() && now->second == value) continue;
    add_member(change.body, field, value.lifted ? "null" : value.json);
    change.lines.push_back(field + ": " + (now == present.values.end() ? "?" : shown(now->second)) + " -> " +
                           shown(value));
  }
  if (change.lines.empty()) return std::optional<ClusterChange>();
  change.body += "}";
  return std::optional(change);
}

std::optional<ClusterChange> relabel(const ClusterNode& present, const ClusterNode& wanted) {
  ClusterChange change{.what = "node " + wanted.name,
                       .method = "POST",
                       .path = "/v1/nodes/" + url_encoded(wanted.name) + "/label"};
  std::string set;
  std::string remove;
  for (const auto& [name, value] : wanted.labels) {
    const auto now = present.labels.find(name);
    const bool is_there = now != present.labels.end();
    const std::string before = is_there ? now->second.value_or("") : "none";
    if (value) {
      if (is_there && now->second == value) continue;
      std::string json;
      append_json_string(json, *value);
      add_member(set, name, json);
      change.lines.push_back("label " + name + ": " + before + " -> " + *value);
    } else if (is_there) {
      remove += remove.empty() ? "[" : ",";
      append_json_string(remove, name);
      change.lines.push_back("label " + name + ": " + before + " -> none");
    }
  }
  if (change.lines.empty()) return std::nullopt;
  if (!set.empty()) add_member(change.body, "set", set + "}");
  if (!remove.empty()) add_member(change.body, "remove", remove + "]");
  change.body += "}";
  return change;
}

}  // namespace

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
              ", which nobody knows");
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
      problem(node.where + ": no node " + node.name + " ever registered; join it first, or leave it out");
      continue;
    }
    if (std::optional<ClusterChange> change = relabel(*found, node)) changes.push_back(std::move(*change));
  }
  if (!problems.empty()) return Error{.code = ErrorCode::kInvalidArgument, .message = problems};
  return changes;
}

}  // namespace gpusched
