#include "cli/submit.h"

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
  EXPECT_EQ(Lines("#GPU --gpus two\n").error, "train.sh:1: --gpus: \"two\" is no whole number");
  EXPECT_EQ(Lines("#GPU --name 'a\n").error, "train.sh:1: a quote ' is not closed");
  EXPECT_EQ(Lines("#GPU --script x.sh\n").error, "train.sh:1: there is no option --script");
}

TEST(ScriptLines, BehindTheFirstCommandAreNotRead) {
  const Lines lines("echo hi\n#GPU --gpus 2\n#GPUS are fine\n#SBATCH -c 4\n#SBATCH -n 1\n");
  EXPECT_FALSE(lines.options.gpus.has_value());
  EXPECT_EQ(lines.warnings,
            (std::vector<std::string>{
                "train.sh:2: this #GPU line stands behind the first command and is not read",
                "train.sh:4: #SBATCH lines are not read; write #GPU, with gpu-cli submit's options"}));
}

TEST(ShellWords, ArePartedAsAShellWould) {
  const auto words = shell_words("a  'b c' \"d \\\" e\" f\\ g h#i # not this");
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(*words, (std::vector<std::string>{"a", "b c", "d \" e", "f g", "h#i"}));
}

TEST(Arrays, NameTheirIndexes) {
  const auto indexes = [](const std::string& text) {
    const auto parsed = parse_array(text, 1000);
    return parsed ? *parsed : std::vector<int64_t>{};
  };
  EXPECT_EQ(indexes("3-5"), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(indexes("0-20:10"), (std::vector<int64_t>{0, 10, 20}));
  EXPECT_EQ(indexes("7,1,3-4"), (std::vector<int64_t>{1, 3, 4, 7}));
  EXPECT_EQ(indexes("9223372036854775806-9223372036854775807"),
            (std::vector<int64_t>{INT64_MAX - 1, INT64_MAX}));
}

TEST(Arrays, RefuseWhatNamesNone) {
  for (const char* const text : {"", "a", "1-", "5-3", "1-3:0", "1,1", "-1", "1-2000", "1:2", "1-3:1:1",
                                 "1-9%2", "0-9223372036854775807"}) {
    const auto parsed = parse_array(text, 1000);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(parsed.error().message.starts_with("--array: ")) << parsed.error().message;
  }
}

}  // namespace
}  // namespace gpusched::cli
