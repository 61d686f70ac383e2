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
    const Result<Unit> read = read_script_lines({.text = text, .name = "train.sh"}, grammar, warnings);
    if (!read) error = read.error().message;
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
}

TEST(ScriptLines, BehindTheFirstCommandAreNotRead) {
  const Lines lines("echo hi\n#GPU --gpus 2\n#GPUS are fine\n#SBATCH -c 4\n#SBATCH -n 1\n");
  EXPECT_FALSE(lines.options.gpus.has_value());
  EXPECT_EQ(lines.warnings,
            (std::vector<std::string>{
                "train.sh:2: this #GPU line comes after the first command and is ignored; move it up",
                "train.sh:4: #SBATCH lines are ignored; use #GPU lines with the options of gpu-cli submit"}));
}

TEST(ShellWords, ArePartedAsAShellWould) {
  const auto words = shell_words("a  'b c' \"d \\\" e\" f\\ g h#i # not this");
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(*words, (std::vector<std::string>{"a", "b c", "d \" e", "f g", "h#i"}));
}

TEST(Moments, AreSpansOrInstants) {
  EXPECT_EQ(parse_moment("--begin", "+1h30m")->after_seconds, 5'400);
  EXPECT_EQ(parse_moment("--begin", "2025-01-31T09:00:00Z")->at, "2025-01-31T09:00:00Z");
  for (const char* const text : {"", "1h", "+", "+3", "2025-01-31", "tomorrow"}) {
    const auto parsed = parse_moment("--begin", text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(parsed.error().message.starts_with("--begin: ")) << parsed.error().message;
  }
}

}  // namespace
}  // namespace gpusched::cli
