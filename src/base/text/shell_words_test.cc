#include "base/text/shell_words.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace gpusched {
namespace {

using Words = std::vector<std::string>;

TEST(ShellWords, ArePartedAsAShellWould) {
  const auto words = shell_words("a  'b c' \"d \\\" e\" f\\ g h#i # not this");
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(*words, (Words{"a", "b c", "d \" e", "f g", "h#i"}));
  EXPECT_EQ(*shell_words(" ''  \n x"), (Words{"", "x"}));
  EXPECT_EQ(*shell_words("  # nothing"), Words{});
}

TEST(ShellWords, NeedTheirQuotesClosed) {
  EXPECT_EQ(shell_words("echo 'a").error().message, "a quote ' is not closed");
  EXPECT_EQ(shell_words("echo a\"").error().message, "a quote \" is not closed");
}

TEST(ShellLine, QuotesWhatNeedsIt) {
  EXPECT_EQ(shell_line(Words{"python", "train.py", "--lr=0.1"}), "python train.py --lr=0.1");
  EXPECT_EQ(shell_line(Words{"sh", "-c", "echo $A; it's", ""}), "sh -c 'echo $A; it'\\''s' ''");
}

TEST(ShellLine, IsPartedIntoTheSameWords) {
  constexpr std::string_view kBytes = "ab '\"\\#$\n\t;";
  Prng prng(7);
  for (int round = 0; round < 2'000; ++round) {
    Words words(prng.below(4));
    for (std::string& word : words) {
      for (uint64_t i = prng.below(6); i > 0; --i) word += kBytes[prng.below(kBytes.size())];
    }
    const auto parted = shell_words(shell_line(words));
    ASSERT_TRUE(parted.ok());
    EXPECT_EQ(*parted, words) << shell_line(words);
  }
}

}  // namespace
}  // namespace gpusched
