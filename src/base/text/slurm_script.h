#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Scripts that were written for Slurm: their #SBATCH lines, and the variables that Slurm sets. Pure.
namespace gpusched {

/// Whether a script has #SBATCH lines before its first command, where sbatch reads them.
bool has_sbatch_lines(std::string_view script);

/// Variables of Slurm that the node sets in jobs whose script has such lines.
inline constexpr std::string_view kSlurmVariables[] = {
    "SLURM_JOB_ID",         "SLURM_JOBID",         "SLURM_JOB_NAME",     "SLURM_SUBMIT_DIR",
    "SLURM_CPUS_PER_TASK",  "SLURM_CPUS_ON_NODE",  "SLURM_NTASKS",       "SLURM_NPROCS",
    "SLURM_NNODES",         "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
    "SLURM_TASKS_PER_NODE", "SLURM_PROCID",        "SLURM_LOCALID",      "SLURM_NODEID",
    "SLURMD_NODENAME",      "SLURM_TMPDIR",        "SLURM_GPUS",         "SLURM_GPUS_ON_NODE"};

/// Further ones in elements of an array.
inline constexpr std::string_view kSlurmArrayVariables[] = {
    "SLURM_ARRAY_JOB_ID",   "SLURM_ARRAY_TASK_ID",  "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP"};

/// Names that look like variables of Slurm in the text, each once, in their order there: SLURM_ or SLURMD_
/// and capital letters, digits and underscores.
std::vector<std::string> slurm_variables_in(std::string_view text);

}  // namespace gpusched
