// The rules about a job's GPUs and nodes.
#include <algorithm>

#include "api/fields/checks.h"
#include "api/fields/job_rows.h"
#include "api/fields/job_rules.h"
#include "base/limits.h"
#include "model/mig.h"

namespace gpusched::api {
namespace {

bool given(const auto& field) { return field && !field->empty(); }

}  // namespace

std::optional<ApiError> check_gpus(const JobFields& fields) {
  if (!fields.mig_profile.value_or("").empty()) return std::nullopt;  // See settle_slice.
  if (fields.gpu_milli.value_or(0) > 0) {
    if (fields.gpu_count.value_or(0) <= 1) return std::nullopt;
    return unprocessable("gpu_milli",
                         "gpu_milli is given with more than one GPU, but a share is a part of one GPU; "
                         "remove gpu_count or gpu_milli");
  }
  if (fields.gpu_count.value_or(0) > 0) return std::nullopt;
  if (fields.gpu_memory_each_mb.value_or(0) > 0) {
    return unprocessable("gpu_memory_each_mb",
                         "gpu_memory_each_mb is given without gpu_count; set the number of GPUs");
  }
  if (fields.gpu_memory_mb.value_or(0) > 0) {
    return unprocessable("gpu_memory_mb", "gpu_memory_mb is given without gpu_count; set the number of GPUs");
  }
  if (fields.gpu_model && !fields.gpu_model->empty()) {
    return unprocessable("gpu_model", "gpu_model is given without gpu_count; set the number of GPUs");
  }
  return std::nullopt;
}

std::optional<ApiError> settle_slice(JobFields& fields) {
  const std::string profile = fields.mig_profile.value_or("");
  if (profile.empty()) return std::nullopt;
  const auto beside = [](const char* field, const char* why) {
    return unprocessable(field,
                         std::string(field) + " is given with mig_profile; " + why + ": remove one of them");
  };
  if (!mig::is_profile(profile)) {
    return unprocessable("mig_profile", "no GPU has a MIG profile \"" +
                                            profile.substr(0, limits::kMigProfileMax) +
                                            "\"; the known profiles are " + mig::all_names());
  }
  if (fields.gpu_milli.value_or(0) > 0) return beside("gpu_milli", "a MIG slice already is a part of a GPU");
  if (fields.gpu_count.value_or(0) > 1) return beside("gpu_count", "a MIG slice is a part of one GPU");
  if (fields.nodes.value_or(0) > 0 || fields.gpus_per_node)
    return beside("nodes", "jobs on several nodes use whole GPUs or shares");
  if (fields.gpu_memory_mb.value_or(0) > 0)
    return beside("gpu_memory_mb", "a slice has the memory of its profile");
  if (fields.gpu_memory_each_mb.value_or(0) > 0)
    return beside("gpu_memory_each_mb", "a slice has the memory of its profile");
  if (given(fields.gpu_ids)) return beside("gpu_ids", "the scheduler chooses the GPU of a MIG slice");
  if (given(fields.gpu_layout)) return beside("gpu_layout", "a layout needs two or more GPUs");
  if (fields.gpu_bandwidth_gbs.value_or(0) != 0)
    return beside("gpu_bandwidth_gbs", "a minimum bandwidth needs two or more GPUs");
  if (fields.exclusive.value_or(false))
    return beside("exclusive", "a MIG slice leaves the rest of its GPU to other jobs");
  const std::string models = fields.gpu_model.value_or("");
  bool possible = models.empty();
  for (std::size_t begin = 0; begin < models.size() && !possible;) {
    const std::size_t end = std::min(models.find(',', begin), models.size());
    possible = mig::may_have(std::string_view(models).substr(begin, end - begin), profile);
    begin = end + 1;
  }
  if (!possible) {
    return unprocessable("mig_profile", "no GPU of model " + models.substr(0, limits::kNameBytesMax) +
                                            " has a MIG profile " + profile + "; its profiles are " +
                                            mig::names_of_model(models.substr(0, models.find(','))));
  }
  fields.gpu_count = 1;
  fields.gpu_milli = mig::milli_of(profile);
  fields.gpu_memory_mb = mig::named_mb_of(profile);
  return std::nullopt;
}

std::optional<ApiError> normalize_nodes(JobFields& fields) {
  static const JobRow* const kRows[] = {&row_of_door("nodes"), &row_of_door("nodes_max"),
                                        &row_of_door("gpus_per_node")};
  std::optional<ApiError> problem;
  for (const JobRow* const row : kRows) {
    if (!problem) problem = check_row(*row, fields);
  }
  if (problem) return problem;
  if (fields.domain && !fields.domain->empty() && !parse_domain(*fields.domain))
    return invalid("domain", "domain must be node, rack, block or zone");
  if (fields.domain_required.value_or(false) && fields.domain.value_or("").empty())
    return unprocessable("domain_required", "domain_required is given without domain; set the domain");
  const int64_t nodes = fields.nodes.value_or(0);
  if (nodes == 0) {
    if (fields.nodes_max.value_or(0) > 0)
      return unprocessable("nodes_max", "nodes_max is given without nodes; set nodes to the minimum number");
    if (fields.gpus_per_node)
      return unprocessable("gpus_per_node",
                           "gpus_per_node is given without nodes; set nodes, or send gpu_count instead");
    return std::nullopt;
  }
  if (fields.nodes_max.value_or(0) > 0 && *fields.nodes_max < nodes)
    return unprocessable("nodes_max", "nodes_max is less than nodes; exchange the two, or remove nodes_max");
  if (fields.gpu_milli.value_or(0) > 0 && fields.gpus_per_node)
    return unprocessable(
        "gpus_per_node",
        "gpus_per_node is given with gpu_milli, but a share is a part of one GPU; remove one of them");
  if (fields.gpus_per_node && fields.gpu_count)
    return unprocessable("gpu_count", "both gpu_count and gpus_per_node are given; send one of them");
  if (fields.gpu_count.value_or(0) % nodes != 0) {
    return unprocessable("gpu_count",
                         "gpu_count is the total of all nodes and cannot be divided evenly among " +
                             std::to_string(nodes) + " nodes; send gpus_per_node");
  }
  if (!fields.gpus_per_node) fields.gpus_per_node = fields.gpu_count.value_or(0) / nodes;
  if (*fields.gpus_per_node > int64_t{limits::kDevicesPerNodeMax}) {
    return unprocessable("gpu_count", "a node has at most " + std::to_string(limits::kDevicesPerNodeMax) +
                                          " GPUs; request more nodes");
  }
  if (fields.gpu_count || fields.gpu_milli.value_or(0) == 0) fields.gpu_count = fields.gpus_per_node;
  if (fields.gpu_memory_mb) fields.gpu_memory_mb = (*fields.gpu_memory_mb + nodes - 1) / nodes;
  return std::nullopt;
}

}  // namespace gpusched::api
