#include "cli/verbs/submit/submit.h"

#include <gtest/gtest.h>

namespace gpusched::cli {
namespace {

/// A script whose #GPU lines are read.
struct Lines {
  SubmitOptions options;
  std::vector<std::string> warnings;
  std::string error;

  explicit Lines(const std::string& text) {
    Grammar grammar;
    declare_submit_options(grammar, options);
    const ScriptLines read = read_script_lines({.text = text, .name = "train.sh"}, grammar);
    warnings = read.warnings;
    for (const std::string& problem : read.problems) error += (error.empty() ? "" : "\n") + problem;
  }
};

TEST(ScriptLines, GiveOptions) {
  const Lines lines(
      "#!/bin/sh\n#GPU --gpus 2 --time 2h   # for the night\n\n# a comment\n#GPU --label 'team=a b' --label "
      "x=y\necho hi\n");
  EXPECT_EQ(lines.error, "");
  EXPECT_EQ(lines.options.gpus, 2);
  EXPECT_EQ(lines.options.time_limit, "2h");
  EXPECT_EQ(lines.options.labels, (std::vector<std::string>{"team=a b", "x=y"}));
  EXPECT_TRUE(lines.warnings.empty());
}

TEST(ScriptLines, SayWhereAMistakeIs) {
  EXPECT_EQ(Lines("#!/bin/sh\n\n#GPU --gpu 2\n").error,
            "train.sh:3: there is no option --gpu; did you mean --gpus?");
  EXPECT_EQ(Lines("#GPU --gpus two\n").error, "train.sh:1: --gpus: \"two\" is not a whole number");
  EXPECT_EQ(Lines("#GPU --name 'a\n").error, "train.sh:1: a quote ' is not closed");
  EXPECT_EQ(Lines("#GPU --script x.sh\n").error, "train.sh:1: there is no option --script");
  EXPECT_EQ(Lines("#GPU --gpus two\n#GPU --gpus 1\n#SBATCH --qos=x\n#GPU --cpus none\n").error,
            "train.sh:1: --gpus: \"two\" is not a whole number\n"
            "train.sh:3: #SBATCH --qos: write #GPU --priority low, medium or high\n"
            "train.sh:4: --cpus: \"none\" is not a number");
}

TEST(ScriptLines, BehindTheFirstCommandAreNotRead) {
  const Lines lines("echo hi\n#GPU --gpus 2\n#GPUS are fine\n");
  EXPECT_FALSE(lines.options.gpus.has_value());
  EXPECT_EQ(lines.warnings,
            (std::vector<std::string>{
                "train.sh:2: this #GPU line comes after the first command and is ignored; move it up"}));
}

TEST(Moments, AreSpansOrTimes) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const Time now{1'738'314'100'000'000'000};  // 2025-01-31T09:01:40Z
  EXPECT_EQ(parse_moment("--begin", "+1h30m", now)->after_seconds, 5'400);
  EXPECT_EQ(parse_moment("--begin", "+1-00:00:00", now)->after_seconds, 86'400);
  EXPECT_EQ(parse_moment("--begin", "2025-01-31T09:00:00Z", now)->at, "2025-01-31T09:00:00Z");
  EXPECT_EQ(parse_moment("--begin", "tomorrow 10:00", now)->at, "2025-02-01T10:00:00Z");
  for (const char* const text : {"", "1h", "+", "+3", "soon"}) {
    const auto parsed = parse_moment("--begin", text, now);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(parsed.error().message.starts_with("--begin: ")) << parsed.error().message;
  }
}

}  // namespace
}  // namespace gpusched::cli
