#include "base/text/slurm_script.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(SbatchLines, StandBeforeTheFirstCommand) {
  EXPECT_TRUE(has_sbatch_lines("#!/bin/bash\n\n# a comment\n  #SBATCH -c 2\ntrue\n"));
  EXPECT_TRUE(has_sbatch_lines("#SBATCH\t-c 2"));
  for (const char* const none :
       {"", "#!/bin/bash\ntrue\n", "true\n#SBATCH -c 2\n", "#SBATCHES -c 2\n", "##SBATCH -c 2\n", "#SBATCH"})
    EXPECT_FALSE(has_sbatch_lines(none)) << none;
}

TEST(SlurmVariables, AreFoundByTheirNames) {
  EXPECT_EQ(slurm_variables_in("cd ${SLURM_SUBMIT_DIR:-.}; x=$SLURM_JOB_ID; y=$SLURM_JOB_ID SLURMD_NODENAME"),
            (std::vector<std::string>{"SLURM_SUBMIT_DIR", "SLURM_JOB_ID", "SLURMD_NODENAME"}));
  EXPECT_TRUE(slurm_variables_in("MY_SLURM_X SLURM_ SLURM slurm_job_id SLURMISH_X").empty());
}

}  // namespace
}  // namespace gpusched
