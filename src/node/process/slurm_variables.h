#pragma once

#include <map>
#include <string>

#include "gpusched/v1/node.pb.h"
#include "gpusched/v1/types.pb.h"

/// Variables that Slurm sets, for scripts that were written for it. Pure.
namespace gpusched {

/// Facts about the node that an attempt runs on.
struct SlurmNode {
  std::string name;  ///< The node's name.
  std::string tmp;   ///< The attempt's own folder for temporary files, as the job sees it.
};

/// Adds the variables of `kSlurmVariables`, and those of arrays to elements, when the job's script has
/// #SBATCH lines. SLURM_NTASKS and SLURM_NPROCS only where the job's environment or its script names them, as
/// Slurm sets them for jobs that gave --ntasks: programs that find them expect to be started once for each
/// task. MPI's launchers are told not to start their processes by srun. `variables` has the job's
/// environment: its SLURM_SUBMIT_DIR and settings of launchers are kept.
void add_slurm_variables(std::map<std::string, std::string>& variables, const v1::StartAttempt& order,
                         const v1::JobSpec& spec, const SlurmNode& node);

}  // namespace gpusched
