#include "node/process/slurm_variables.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/text/slurm_script.h"

namespace gpusched {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr std::size_t kNamesBytesMax = 100'000;  // A variable has less than 128 KiB.

/// Settings by which launchers of MPI do without srun, which is not there.
constexpr std::pair<std::string_view, std::string_view> kWithoutSrun[] = {
    {"OMPI_MCA_plm", "^slurm"}, {"OMPI_MCA_ras", "^slurm"}, {"PRTE_MCA_plm", "^slurm"},
    {"PRTE_MCA_ras", "^slurm"}, {"HYDRA_BOOTSTRAP", "ssh"}, {"I_MPI_HYDRA_BOOTSTRAP", "ssh"}};

/// The members of an attempt, as Slurm counts its tasks and nodes.
struct Tasks {
  int64_t count = 1;  ///< Members: the script runs once in each.
  int64_t rank = 0;
  int64_t local_rank = 0;  ///< Among those of its node.
  int64_t node = 0;        ///< Its node's place in `nodes`.
  std::vector<std::string> nodes;
  std::vector<int64_t> on_node;  ///< Members on each.
  int64_t gpus = 0;              ///< GPUs of all members.
};

Tasks tasks_of(const v1::StartAttempt& order, const SlurmNode& node) {
  Tasks tasks;
  const auto rank = static_cast<int>(order.key().member());
  if (!order.has_gang() || rank >= order.gang().members_size()) {
    tasks.nodes = {node.name};
    tasks.on_node = {1};
    tasks.gpus = order.devices_size();
    return tasks;
  }
  tasks.count = order.gang().members_size();
  tasks.rank = rank;
  for (int i = 0; i < order.gang().members_size(); ++i) {
    const v1::Gang::Member& member = order.gang().members(i);
    const auto found = std::ranges::find(tasks.nodes, member.node());
    const auto place = found - tasks.nodes.begin();
    if (found == tasks.nodes.end()) {
      tasks.nodes.push_back(member.node());
      tasks.on_node.push_back(0);
    }
    int64_t& before = tasks.on_node[static_cast<std::size_t>(place)];
    if (i == rank) {
      tasks.local_rank = before;
      tasks.node = place;
    }
    ++before;
    tasks.gpus += member.gpus();
  }
  return tasks;
}

/// "2(x3),1": so many tasks on each node, in the order of the nodes.
std::string tasks_per_node(const std::vector<int64_t>& on_node) {
  std::string text;
  for (std::size_t at = 0; at < on_node.size();) {
    std::size_t end = at;
    while (end < on_node.size() && on_node[end] == on_node[at]) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(on_node[at]);
    if (end - at > 1) text += "(x" + std::to_string(end - at) + ")";
    at = end;
  }
  return text;
}

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

/// An element's index and its array, as numbers.
void add_array(Variables& variables) {
  const std::string array = value_of(variables, "GPU_SCHEDULER_ARRAY_ID");
  if (array.empty()) return;
  variables["SLURM_ARRAY_JOB_ID"] = array.substr(array.find('-') + 1);
  for (const auto& [theirs, ours] :
       {std::pair{"TASK_ID", "INDEX"}, std::pair{"TASK_COUNT", "COUNT"}, std::pair{"TASK_MIN", "FIRST"},
        std::pair{"TASK_MAX", "LAST"}, std::pair{"TASK_STEP", "STEP"}}) {
    if (std::string value = value_of(variables, std::string("GPU_SCHEDULER_ARRAY_") + ours); !value.empty())
      variables[std::string("SLURM_ARRAY_") + theirs] = std::move(value);
  }
}

}  // namespace

void add_slurm_variables(Variables& variables, const v1::StartAttempt& order, const v1::JobSpec& spec,
                         const SlurmNode& node) {
  if (!has_sbatch_lines(spec.script())) return;
  const Tasks tasks = tasks_of(order, node);
  const auto set = [&variables](std::initializer_list<const char*> names, const std::string& value) {
    for (const char* const name : names) variables[name] = value;
  };
  // An element of an array has a number of its own.
  set({"SLURM_JOB_ID", "SLURM_JOBID"}, std::to_string(order.key().job()));
  set({"SLURM_JOB_NAME"}, spec.name());
  set({"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"},
      std::to_string(std::max<int64_t>(order.cpu_milli() / 1000, 1)));
  set({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}, std::to_string(tasks.nodes.size()));
  set({"SLURM_TASKS_PER_NODE"}, tasks_per_node(tasks.on_node));
  set({"SLURM_PROCID"}, std::to_string(tasks.rank));
  set({"SLURM_LOCALID"}, std::to_string(tasks.local_rank));
  set({"SLURM_NODEID"}, std::to_string(tasks.node));
  set({"SLURMD_NODENAME"}, node.name);
  set({"SLURM_TMPDIR"}, node.tmp);
  std::string names;
  for (const std::string& name : tasks.nodes) names += (names.empty() ? "" : ",") + name;
  // The kernel starts nothing with a longer variable.
  if (names.size() <= kNamesBytesMax) set({"SLURM_JOB_NODELIST", "SLURM_NODELIST"}, names);
  for (const char* const name : {"SLURM_NTASKS", "SLURM_NPROCS"}) {
    const bool is_named = variables.contains(name) || spec.script().find(name) != std::string::npos;
    if (is_named) variables[name] = std::to_string(tasks.count);
  }
  // Slurm does not set them in jobs without GPUs.
  variables.erase("SLURM_GPUS");
  variables.erase("SLURM_GPUS_ON_NODE");
  if (tasks.gpus > 0) variables["SLURM_GPUS"] = std::to_string(tasks.gpus);
  if (order.devices_size() > 0) variables["SLURM_GPUS_ON_NODE"] = std::to_string(order.devices_size());
  variables.try_emplace("SLURM_SUBMIT_DIR",
                        spec.working_directory().empty() ? node.tmp : spec.working_directory());
  add_array(variables);
  for (const auto& [name, value] : kWithoutSrun) variables.try_emplace(std::string(name), value);
}

}  // namespace gpusched
