#include "cli/verbs/submit/slurm.h"

#include <gtest/gtest.h>

#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

/// A script whose #SBATCH and #GPU lines are read.
struct SlurmLines {
  SubmitOptions options;
  std::vector<std::string> warnings;
  std::string account;
  std::string error;

  explicit SlurmLines(const std::string& text) {
    Grammar grammar;
    declare_submit_options(grammar, options);
    const ScriptLines read = read_script_lines({.text = text, .name = "train.sh"}, grammar);
    warnings = read.warnings;
    account = read.account;
    for (const std::string& problem : read.problems) error += (error.empty() ? "" : "\n") + problem;
  }
};

TEST(SlurmLines, AreReadWhereAnOptionMeansTheSame) {
  const SlurmLines lines(
      "#!/bin/bash\n"
      "#SBATCH --job-name=train --time=1-12:30:00\n"
      "#SBATCH -c 8 --mem=32G   # all of it\n"
      "#SBATCH --gres=gpu:a100:2\n"
      "#SBATCH --array=0-99%10 -d afterok:12:13,afterany:job-14\n"
      "#SBATCH -o out-%j.txt -p gpu -A vision --comment 'two words'\n"
      "#SBATCH --nodes=1 --ntasks=1 --mail-type=NONE --export=ALL --exclusive --hold\n"
      "python train.py\n");
  EXPECT_EQ(lines.error, "");
  const SubmitOptions& got = lines.options;
  EXPECT_EQ(got.name, "train");
  EXPECT_EQ(got.time_limit, "131400s");
  EXPECT_EQ(got.cpus, 8);
  EXPECT_EQ(got.memory, "32G");
  EXPECT_EQ(got.gpus, 2);
  EXPECT_EQ(got.gpu_model, "a100");
  EXPECT_EQ(got.array, "0-99%10");
  EXPECT_EQ(got.after, (std::vector<std::string>{"ok:job-12,job-13", "any:job-14"}));
  EXPECT_EQ(got.output, "out-%j.txt");
  EXPECT_EQ(got.error, "out-%j.txt");  // As sbatch does without --error.
  EXPECT_EQ(got.node_labels, std::vector<std::string>{"partition=gpu"});
  EXPECT_EQ(lines.account, "vision");
  EXPECT_EQ(got.texts.at(1), "two words");
  EXPECT_EQ(got.nodes, "");
  EXPECT_EQ(got.export_list, "ALL");
  EXPECT_TRUE(got.exclusive && got.hold);
  EXPECT_TRUE(lines.warnings.empty());
}

TEST(SlurmLines, CountGpusOnEachNodeOfSeveral) {
  const SlurmLines each("#SBATCH -N 4 --gres=gpu:8\n");
  EXPECT_EQ(each.options.nodes, "4");
  EXPECT_EQ(each.options.gpus_per_node, 8);
  EXPECT_FALSE(each.options.gpus.has_value());
  EXPECT_EQ(SlurmLines("#SBATCH --gpus-per-node=h100:8\n").options.gpus, 8);
  EXPECT_EQ(SlurmLines("#SBATCH -G 2\n").options.gpus, 2);
  EXPECT_EQ(SlurmLines("#SBATCH --gres=gpu\n").options.gpus, 1);
  EXPECT_TRUE(
      SlurmLines("#SBATCH -N 2\n#SBATCH --gpus=8\n").error.starts_with("train.sh:2: #SBATCH --gpus: "));
}

TEST(SlurmLines, GiveWayToGpuLines) {
  const SlurmLines lines(
      "#SBATCH --gres=gpu:8 -N 4 -J theirs --time=60\n#GPU --gpus-per-node 2 --name ours\n");
  EXPECT_EQ(lines.error, "");
  EXPECT_EQ(lines.options.gpus_per_node, 2);
  EXPECT_EQ(lines.options.nodes, "4");
  EXPECT_EQ(lines.options.name, "ours");
  EXPECT_EQ(lines.options.time_limit, "3600s");
}

TEST(SlurmLines, AreRefusedWithWhatToWriteInstead) {
  EXPECT_EQ(SlurmLines("#!/bin/sh\n#SBATCH --qos=high\n").error,
            "train.sh:2: #SBATCH --qos: write #GPU --priority low, medium or high");
  for (const char* const option : {"--mem-per-gpu=4G",
                                   "--cpus-per-gpu=4",
                                   "--mem-per-cpu=0",
                                   "--mem-per-cpu=1G --mem=2G",
                                   "--gres=gpu:a100_3g.40gb:2",
                                   "--gpu=2",
                                   "--ntasks-per=1",
                                   "--licenses=x",
                                   "--account=",
                                   "--job-name ''",
                                   "-n 8",
                                   "-C a100",
                                   "--nodelist=n[1-2]",
                                   "--mail-type=END",
                                   "--mail-user=a@b",
                                   "--signal=USR1@60",
                                   "--dependency=singleton",
                                   "--dependency=afterok:1?afterok:2",
                                   "--gres=license:2",
                                   "--gres=gpu:1,shard:2",
                                   "-p a,b",
                                   "--mem=0",
                                   "--time=soon",
                                   "--output=%J.txt",
                                   "--tmp=10G",
                                   "word",
                                   "hetjob",
                                   "--begin=teatime",
                                   "--export=NIL",
                                   "--open-mode=truncate",
                                   "--no-requeue",
                                   "--gpus=a100:x",
                                   "--array"}) {
    const std::string error = SlurmLines("#SBATCH " + std::string(option) + "\n").error;
    EXPECT_TRUE(error.starts_with("train.sh:1: ")) << option << ": " << error;
    EXPECT_GT(error.size(), 30u) << option;
  }
}

TEST(SlurmLines, BehindTheFirstCommandAreNotRead) {
  const SlurmLines lines("echo hi\n#SBATCH -c 4\n#SBATCH -n 1\n#SBATCHES are fine\n");
  EXPECT_FALSE(lines.options.cpus.has_value());
  EXPECT_EQ(lines.warnings,
            (std::vector<std::string>{"train.sh:2: this #SBATCH line comes after the first command and is "
                                      "ignored, as by sbatch; move it up"}));
}

TEST(SlurmLines, AreRefusedAllAtOnce) {
  EXPECT_EQ(
      SlurmLines("#SBATCH --qos=a -c 2\n#SBATCH --nice -C x --mem=1G\n").error,
      "train.sh:1: #SBATCH --qos: write #GPU --priority low, medium or high\n"
      "train.sh:2: #SBATCH --nice: write #GPU --priority low\n"
      "train.sh:2: #SBATCH -C: write #GPU --node-label KEY=VALUE, or --gpu-model MODEL; gpu-cli node show "
      "NODE has the labels");
}

TEST(SlurmLines, ThatOnlyTuneAreLeftOutWithAWarning) {
  const SlurmLines lines(
      "#SBATCH --hint=nomultithread -m block:cyclic --get-user-env --threads-per-core=1\n");
  EXPECT_EQ(lines.error, "");
  ASSERT_EQ(lines.warnings.size(), 4u);
  EXPECT_EQ(lines.warnings[0], "train.sh:1: #SBATCH --hint is left out: it only tunes how a job runs");
  EXPECT_EQ(lines.warnings[1], "train.sh:1: #SBATCH -m is left out: it only tunes how a job runs");
}

TEST(SlurmLines, MultiplyWhatIsAskedForEachCpuOrGpu) {
  EXPECT_EQ(SlurmLines("#SBATCH --mem-per-cpu=4G -c 8\n").options.memory, "32768M");
  EXPECT_EQ(SlurmLines("#SBATCH --mem-per-cpu=1500M\n").options.memory, "1500M");
  const SlurmLines gpus("#SBATCH --gres=gpu:a100:4 --mem-per-gpu=10G --cpus-per-gpu=6\n");
  EXPECT_EQ(gpus.error, "");
  EXPECT_EQ(gpus.options.memory, "40960M");
  EXPECT_EQ(gpus.options.cpus, 24);
  EXPECT_EQ(SlurmLines("#SBATCH --cpus-per-gpu=4 --mem-per-cpu=1G -G 2\n").options.memory, "8192M");
  EXPECT_EQ(SlurmLines("#SBATCH --mem-per-cpu=1G -c 8\n#GPU --cpus 2\n").options.memory, "2048M");
  EXPECT_EQ(SlurmLines("#SBATCH --mem-per-cpu=1G -c 8\n#GPU --mem 3G\n").options.memory, "3G");
  EXPECT_EQ(SlurmLines("#SBATCH --mem-per-gpu=1G -G 8\n#GPU --gpus 2\n").options.memory, "2048M");
}

TEST(SlurmLines, TakeUniqueBeginningsOfOptions) {
  const SlurmLines lines("#SBATCH --job=train --cpus-per-t 2 --part=gpu --begin=now+1hour\n");
  EXPECT_EQ(lines.error, "");
  EXPECT_EQ(lines.options.name, "train");
  EXPECT_EQ(lines.options.cpus, 2);
  EXPECT_EQ(lines.options.node_labels, std::vector<std::string>{"partition=gpu"});
  EXPECT_TRUE(
      SlurmLines("#SBATCH --gpus-per=2\n").error.find("write one of --gpus-per-node, --gpus-per-task") !=
      std::string::npos);
}

TEST(SlurmLines, UnderstandMigSlices) {
  const SlurmLines lines("#SBATCH --gres=gpu:a100_3g.40gb:1\n");
  EXPECT_EQ(lines.error, "");
  EXPECT_EQ(lines.options.mig, "3g.40gb");
  EXPECT_EQ(lines.options.gpu_model, "a100");
  EXPECT_FALSE(lines.options.gpus.has_value());
  EXPECT_EQ(SlurmLines("#SBATCH --gres=gpu:1g.10gb\n").options.mig, "1g.10gb");
  EXPECT_EQ(SlurmLines("#SBATCH --gpus-per-node=nvidia_a100_1g.5gb:1\n").options.gpu_model, "a100");
}

TEST(SlurmLines, GiveTheNumberOfTasks) {
  const auto read = [](const std::string& text) {
    Grammar grammar;
    SubmitOptions options;
    declare_submit_options(grammar, options);
    return read_script_lines({.text = text, .name = "train.sh"}, grammar);
  };
  EXPECT_TRUE(read("#SBATCH --ntasks-per-node=1\n").asks_for_tasks);
  EXPECT_FALSE(read("#SBATCH -N 2\n").asks_for_tasks);
}

TEST(SlurmLines, PadNumbersInNamesOfFiles) {
  EXPECT_EQ(SlurmLines("#SBATCH -o out-%5j_%4a.txt\n").options.output, "out-%5j_%4a.txt");
}

TEST(SlurmTimes, AreMinutesFirst) {
  EXPECT_EQ(slurm_seconds("90"), 5'400);
  EXPECT_EQ(slurm_seconds("2:30"), 150);
  EXPECT_EQ(slurm_seconds("2:00:00"), 7'200);
  EXPECT_EQ(slurm_seconds("1-12"), 129'600);
  EXPECT_EQ(slurm_seconds("1-12:30"), 131'400);
  EXPECT_EQ(slurm_seconds("UNLIMITED"), 0);
  EXPECT_EQ(slurm_seconds("unlimited"), 0);
  EXPECT_EQ(slurm_seconds("Infinite"), 0);
  for (const char* const text : {"", "1h", "1-", "1:2:3:4", "-1"}) EXPECT_FALSE(slurm_seconds(text)) << text;
}

TEST(SlurmHints, AreLinesToCopy) {
  EXPECT_EQ(slurm_hint("--gres", "gpu:a100:2"), "write: --gpus 2 --gpu-model a100");
  EXPECT_EQ(slurm_hint("--dependency", "afterok:12"), "write: --after ok:job-12");
  EXPECT_EQ(slurm_hint("--partition", "gpu"), "write: --node-label partition=gpu");
  EXPECT_EQ(slurm_hint("-p", "gpu"), "write: --node-label partition=gpu");
  EXPECT_EQ(slurm_hint("--ntasks", "1"), "leave it out: it has no effect here");
  EXPECT_EQ(slurm_hint("--qos", "high"), "write --priority low, medium or high");
  EXPECT_EQ(slurm_hint("--gpu", "2"), "");
}

}  // namespace
}  // namespace gpusched::cli
