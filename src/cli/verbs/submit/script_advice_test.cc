#include "cli/verbs/submit/script_advice.h"

#include <gtest/gtest.h>

namespace gpusched::cli {
namespace {

using Texts = std::vector<std::string>;

TEST(SlurmAdvice, NamesTheVariablesThatAreNotSet) {
  EXPECT_EQ(
      slurm_advice("a.sh",
                   "#!/bin/bash\n#SBATCH -c 2\n# $SLURM_COMMENTED\ncd $SLURM_SUBMIT_DIR\n"
                   "rm -rf $SLURM_SCRATCH/*; echo $SLURM_MEM_PER_NODE $SLURM_SCRATCH\n"),
      Texts{"a.sh: no value is set here for SLURM_SCRATCH (line 5), SLURM_MEM_PER_NODE (line 5); an empty "
            "value can change what a command does"});
  EXPECT_EQ(
      slurm_advice("a.py", "#!/usr/bin/python3\nimport os\nprint(os.environ['SLURM_JOB_ID'])\n"),
      Texts{"a.py: no value is set here for SLURM_JOB_ID (line 3); a job has variables of Slurm when its "
            "script has #SBATCH lines"});
}

TEST(SlurmAdvice, PassesOverVariablesThatTheScriptSetsItself) {
  EXPECT_EQ(slurm_advice("a.sh",
                         "#SBATCH -c 2\nexport SLURM_EXPORT_ENV=ALL\nunset SLURM_CPU_BIND\n"
                         "echo $SLURM_EXPORT_ENV $SLURM_ARRAY_TASK_ID\n"),
            Texts{});
}

TEST(SlurmAdvice, SaysWhatToWriteForSlurmsCommands) {
  const Texts advice = slurm_advice(
      "a.sh",
      "#!/bin/bash -l\nmodule load cuda\nX=1 srun python train.py\nnodes=$(scontrol show hostnames)\n"
      "if true; then /usr/bin/sbatch next.sh; fi\necho module srun; python srun.py --srun\nsrun again\n");
  ASSERT_EQ(advice.size(), 4u);
  EXPECT_TRUE(advice[0].starts_with("a.sh:2: module: a node may not have it"));
  EXPECT_TRUE(advice[1].starts_with("a.sh:3: srun: write its command alone"));
  EXPECT_TRUE(advice[2].starts_with("a.sh:4: scontrol: $SLURM_JOB_NODELIST"));
  EXPECT_EQ(advice[3], "a.sh:5: sbatch: write gpu-cli submit");
  EXPECT_EQ(slurm_advice("a.py", "#!/usr/bin/env python3\nmodule = 1\nsrun = 2\n"), Texts{});
}

}  // namespace
}  // namespace gpusched::cli
