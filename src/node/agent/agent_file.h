#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpusched {

class Grammar;

/// One key of the agent's configuration file.
struct AgentSetting {
  std::string name;                 ///< The option's long name without its dashes, "data-dir".
  std::vector<std::string> values;  ///< One, or those of a list.
  std::string where;                ///< "/etc/gpu-scheduler/agent.yaml:3"
};

/// Reads a YAML file whose keys are the long options of `gpu-agent` with '_' for '-', and whose values are
/// theirs; an option that may be repeated takes a list. kNotFound or kIo when it cannot be read;
/// kInvalidArgument, one problem a line, for what is no such file.
Result<std::vector<AgentSetting>> read_agent_file(const std::string& path);

/// The settings of an agent in its environment.
struct AgentEnvironment {
  std::vector<AgentSetting> settings;
  std::string without_effect;  ///< Variables that an agent knows and that change nothing, "A, B".
};

/// Reads `AGENT_<KEY>` and `GPU_SCHEDULER_AGENT_<KEY>`, of which the latter wins, for the keys of the section
/// `agent` of the scheduler's configuration: `node_id`, `container_runtime` and `health_check_interval_ms`
/// are options of an agent, the others change nothing here. An empty one is not given. kInvalidArgument, one
/// problem a line, for a value that is no interval, and for `GPU_SCHEDULER_AGENT_` with an unknown key.
Result<AgentEnvironment> read_agent_environment(const std::map<std::string, std::string>& environment);

/// `file` with what `environment` says instead.
std::vector<AgentSetting> with_environment(std::vector<AgentSetting> file,
                                           const std::vector<AgentSetting>& environment);

/// Gives every option of `grammar` that neither its last `parse` nor the environment gave the value of
/// `settings`. All settings are checked; a flag's are true or false. kInvalidArgument, one problem a line,
/// names unknown keys with the nearest known one.
Result<Unit> give_settings(const Grammar& grammar, const std::vector<AgentSetting>& settings);

/// An option that two grammars of one kind were given different values for.
struct OptionChange {
  std::string name;  ///< "log-level"
  std::string before, after;
};
std::vector<OptionChange> option_changes(const Grammar& before, const Grammar& after);

}  // namespace gpusched
