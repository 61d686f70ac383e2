#include "anticipate/rule.h"

#include <gtest/gtest.h>

#include "anticipate/plain_text.h"

namespace gpusched::anticipate {
namespace {

TEST(Phrase, StandsForWholeWords) {
  EXPECT_TRUE(has_phrase("run torchrun train.py", "torchrun"));
  EXPECT_FALSE(has_phrase("torchrunner", "torchrun"));
  EXPECT_FALSE(has_phrase("my_torchrun", "torchrun"));
  EXPECT_TRUE(has_phrase("x torchrunner torchrun", "torchrun"));
  EXPECT_TRUE(has_phrase("/usr/bin/python3 -u train.py", "python*train*.py"));
  EXPECT_FALSE(has_phrase("python\ntrain.py", "python*train*.py"));
  EXPECT_FALSE(has_phrase("python " + std::string(kGapBytesMax + 1, 'x') + " train.py", "python*train*.py"));
  EXPECT_FALSE(has_phrase("anything", "*"));
  EXPECT_TRUE(has_phrase("python a.py --gpus 2", "python*--gpus"));
  EXPECT_FALSE(has_phrase("python a.py --gpus-quota 2", "python*--gpus"));
}

TEST(Phrase, TakesTimeInProportionToTheText) {
  const std::string hostile(kFileTextBytesMax, 'a');
  for (int repeat = 0; repeat < 20; ++repeat) EXPECT_FALSE(has_phrase(hostile, "a*a*a*a*a*a*a*a*b"));
}

TEST(Rule, NeedsAllOneOfAnyAndNoneOfNone) {
  const Rule rule{.name = "mine",
                  .sources = {Source::kLog},
                  .all = {"GPU"},
                  .any = {"wanted", "needed"},
                  .none = {"not"}};
  EXPECT_TRUE(matches(rule, Source::kLog, "gpu needed"));
  EXPECT_FALSE(matches(rule, Source::kFile, "gpu needed"));
  EXPECT_FALSE(matches(rule, Source::kLog, "gpu"));
  EXPECT_FALSE(matches(rule, Source::kLog, "needed"));
  EXPECT_FALSE(matches(rule, Source::kLog, "gpu not needed"));
}

TEST(Rule, ReadsTheNumberOfGpusBesideItsOption) {
  const Rule rule{.name = "mine", .any = {"x"}, .gpus = 2, .gpus_from = {"--nproc_per_node", "--gpus"}};
  EXPECT_EQ(gpus_of(rule, "x --nproc_per_node=4"), 4);
  EXPECT_EQ(gpus_of(rule, "x --gpus 8"), 8);
  EXPECT_EQ(gpus_of(rule, "x --gpus all"), 2);
  EXPECT_EQ(gpus_of(rule, "x --gpus"), 2);
  EXPECT_EQ(gpus_of(rule, "x --gpus 0"), 2);
  EXPECT_EQ(gpus_of(rule, "x --gpus 99999999999999999999"), 1'000'000);
}

TEST(Rule, IsRefusedWhenItWouldMatchEverything) {
  EXPECT_EQ(check_rule({.name = "mine"}).error().field, "any");
  EXPECT_EQ(check_rule({.name = "mine", .any = {"*"}}).error().field, "any");
  EXPECT_EQ(check_rule({.any = {"x"}}).error().field, "name");
  EXPECT_EQ(check_rule({.name = "mine", .any = {"x"}, .weight = 101}).error().field, "weight");
  EXPECT_EQ(check_rule({.name = "mine", .any = {"x"}, .gpus = 0}).error().field, "gpus");
  for (const Rule& rule : builtin_rules()) EXPECT_TRUE(check_rule(rule).ok()) << rule.name;
}

std::string strongest(Source source, const std::string& text) {
  std::string name = "none";
  int32_t weight = 0;
  for (const Rule& rule : builtin_rules()) {
    if (!matches(rule, source, lower_case(text)) || rule.weight <= weight) continue;
    name = rule.name;
    weight = rule.weight;
  }
  return name;
}

TEST(BuiltinRules, TellTrainingFromLookingAtIt) {
  using enum Source;
  EXPECT_EQ(strongest(kShell, "torchrun --nproc_per_node=2 train.py"), "launcher");
  EXPECT_EQ(strongest(kProcess, "/opt/venv/bin/python -u scripts/train_lora.py --lr 1e-4"),
            "training-script");
  EXPECT_EQ(strongest(kShell, "python -m trainer.train --config a.yaml"), "training-script");
  EXPECT_EQ(strongest(kShell, "vim train.py"), "none");
  EXPECT_EQ(strongest(kShell, "git add train.py && git commit -m 'python train.py'"), "none");
  EXPECT_EQ(strongest(kShell, "python train.py --help"), "none");
  EXPECT_EQ(strongest(kShell, "python train.py --device cpu"), "none");
  EXPECT_EQ(strongest(kShell, "python -m pytest tests/test_train.py"), "none");
  EXPECT_EQ(strongest(kLog, "INFO ***** Running training *****"), "training-begins");
  EXPECT_EQ(strongest(kLog, "RuntimeError: No CUDA GPUs are available"), "gpu-missing");
  EXPECT_EQ(strongest(kShell, "rg 'accelerate launch' docs"), "none");
  EXPECT_EQ(strongest(kShell, "python constrained_search.py"), "none");
  EXPECT_EQ(strongest(kShell, "python plot_training_curves.py"), "none");
  EXPECT_EQ(strongest(kShell, "python train_sklearn.py"), "none");
  EXPECT_EQ(strongest(kLog, "the dataset is not ready"), "none");
  EXPECT_EQ(strongest(kLog, "GET /train 200"), "none");
  EXPECT_EQ(strongest(kFile, "model.to(\"cuda\")\n"), "gpu-code");
}

}  // namespace
}  // namespace gpusched::anticipate
