#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/policy/fragmentation/shapes.h"

namespace gpusched::replay {

/// Empty nodes and tasks in the order of a list: what an experiment about placement needs, without times.
struct PlacementTrace {
  std::vector<policy::NodeSpace> nodes;
  std::vector<policy::TaskShape> tasks;
  std::vector<std::string> models;  ///< A node's device_class is an index into it.
  int64_t capacity_milli = 0;       ///< Capacity of all devices.
};

/// Reads the two lists of openb: nodes (`sn,cpu_milli,memory_mib,gpu,model`) and pods
/// (`name,cpu_milli,memory_mib, num_gpu,gpu_milli[,gpu_spec,..]`), plain or gzip. `gpu_spec` names the models
/// that a pod may use, with `|` between them, models that no node has included; empty or absent: any.
/// kNotFound, kIo; kCorrupt: a line is broken, with its number and what is wrong with it.
Result<PlacementTrace> read_openb_placement(const std::string& nodes_path, const std::string& pods_path);

/// Reads the machines of PAI 2020, a file without column names: `id,model,cpus,memory_gib,gpus`. Those
/// without GPUs are left out. Errors as above.
Result<PlacementTrace> read_pai_machines(const std::string& path);

}  // namespace gpusched::replay
