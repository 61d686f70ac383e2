#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/json.h"

namespace gpusched {

/// One setting of a tenant: nothing, "lift this limit", or a value as JSON writes it.
struct ClusterValue {
  bool lifted = false;
  std::string json;
  friend bool operator==(const ClusterValue&, const ClusterValue&) = default;
};

struct ClusterTenant {
  std::string name;
  std::string parent;                          ///< A name; empty: a root.
  std::map<std::string, ClusterValue> values;  ///< By the REST API's field; what is absent is left alone.
  std::string where = {};                      ///< "cluster.yaml:3"
};
struct ClusterNode {
  std::string name;
  std::map<std::string, std::optional<std::string>> labels;  ///< Nothing: to be removed.
  std::string where = {};
};

/// The state that `admin apply` makes true, or the state that is true.
struct ClusterFile {
  std::vector<ClusterTenant> tenants;  ///< Parents before their children.
  std::vector<ClusterNode> nodes;
};

/// Reads a cluster's file. kInvalidArgument, one problem a line with file and line: unknown keys with the
/// nearest known one, values out of range, names given twice, parents in a circle, and sections that this
/// version's engine does not have, such as `pools`.
Result<ClusterFile> parse_cluster_file(const std::string& path, const std::string& text);

/// The present as the API tells it: the answers of GET /api/v1/tenants and, where there is one, GET
/// /v1/nodes.
ClusterFile cluster_of(const Json& tenants, const Json& nodes);
/// As YAML that `parse_cluster_file` reads.
std::string print_cluster_file(const ClusterFile& cluster);

/// One change that brings the present nearer to what is wanted.
struct ClusterChange {
  std::string what;                ///< "tenant vision"
  std::vector<std::string> lines;  ///< "max_gpus: 2 -> 4"
  bool of_node = false;            ///< Else of a tenant.
  std::string json;                ///< One entry of `tenants` or `nodes` of POST /v1/cluster:edit.
};

/// The body of POST /v1/cluster:edit that makes all of the changes or none.
std::string edits_json(const std::vector<ClusterChange>& changes, bool dry_run);

/// The changes that make `wanted` true, parents before their children; none: it is true already.
/// kInvalidArgument for what no call can change: another parent, or a parent or node that nobody knows.
Result<std::vector<ClusterChange>> plan_changes(const ClusterFile& present, const ClusterFile& wanted);

}  // namespace gpusched
