#include "cli/verbs/submit/environment.h"

#include <gtest/gtest.h>

namespace gpusched::cli {
namespace {

/// A job's environment as a shell with `own` variables gives it.
struct Given {
  Variables variables;
  std::vector<std::string> warnings;
  std::string error;

  Given(std::vector<std::string> own, const SubmitOptions& submit) {
    CliIo io;
    io.environment_all = [&own] { return own; };
    const Result<Variables> made = job_environment(submit, io, warnings);
    made ? void(variables = *made) : void(error = made.error().message);
  }
};

TEST(JobEnvironment, LeavesOutOfAllWhatCannotBeSentAndSaysSo) {
  const Given given({"A=1", "BAD=caf\xE9", "NA\xFFME=x", "WITH SPACE=x", "PWD=/here",
                     "BASH_FUNC_f%%=() { :; }", "BASH_FUNC_g%%=() { :; }"},
                    {.export_list = "ALL"});
  EXPECT_EQ(given.error, "");
  EXPECT_EQ(given.variables, (Variables{{"A", "1"}}));
  ASSERT_EQ(given.warnings.size(), 4u);
  EXPECT_EQ(given.warnings[0],
            "--export ALL: BAD is left out: in its value byte 4 is 0xE9, which is not UTF-8");
  EXPECT_TRUE(given.warnings[2].starts_with("--export ALL: WITH SPACE is left out: its name is empty or"));
  EXPECT_EQ(given.warnings[3],
            "--export ALL: the shell's functions are not passed on, define them in the script: f, g");
}

TEST(JobEnvironment, RefusesAVariableThatWasNamedAndCannotBeSent) {
  const std::string bad = "BAD=caf\xE9";
  EXPECT_EQ(Given({bad}, {.environment = {"BAD"}}).error,
            "--env: BAD cannot be sent: in its value byte 4 is 0xE9, which is not UTF-8");
  EXPECT_TRUE(Given({bad}, {.export_list = "BAD"}).error.starts_with("--export: BAD cannot be sent: "));
  EXPECT_TRUE(Given({}, {.environment = {bad}}).error.starts_with("--env: BAD cannot be sent: "));
}

TEST(JobEnvironment, KeepsCommasOfExportedValues) {
  const auto exported = [](const std::string& list) {
    return Given({"A=1", "B=2"}, {.export_list = list}).variables;
  };
  EXPECT_EQ(exported("X=1,2,3,B"), (Variables{{"X", "1,2,3"}, {"B", "2"}}));
  EXPECT_EQ(exported("X='1,B',A"), (Variables{{"X", "1,B"}, {"A", "1"}}));
  EXPECT_EQ(exported("X=\"a, b\",Y=it's"), (Variables{{"X", "a, b"}, {"Y", "it's"}}));
  EXPECT_EQ(exported("NONE"), Variables{});
}

TEST(JobEnvironment, SaysThatAVariableHasNoValue) {
  EXPECT_EQ(Given({"A="}, {.environment = {"A"}}).variables, (Variables{{"A", ""}}));
  EXPECT_EQ(Given({}, {.environment = {"A"}}).error,
            "--env: A has no value in this shell; set and export it first, or write A=VALUE");
  EXPECT_EQ(Given({"A="}, {.secrets = {"A"}}).error,
            "--secret-env: A has no value in this shell; set and export it first");
  EXPECT_EQ(Given({}, {.export_list = "A"}).warnings,
            std::vector<std::string>{"--export: A has no value in this shell and is left out"});
}

}  // namespace
}  // namespace gpusched::cli
