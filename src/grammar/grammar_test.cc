#include "grammar/grammar.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

/// A grammar with one option of each kind.
struct Sample {
  Grammar grammar;
  bool follow = false;
  bool tty = false;
  std::string name;
  std::optional<int64_t> count;
  std::vector<std::string> labels;
  std::string state;
  std::vector<std::string> jobs;

  Sample() {
    grammar.flag("-f,--follow", follow, "Go on");
    grammar.flag("-t,--tty", tty, "Terminal");
    grammar.option("-n,--name", "NAME", &name, "Name");
    grammar.option("--count", "N", &count, "Number").range(1, 10);
    grammar.option("--label", "K=V", &labels, "Label");
    grammar.option("--state", "STATE", &state, "State").of({"pending", "running"}).commas();
    grammar.argument("JOB", &jobs, "Ids").optional();
  }

  std::string refusal(const std::vector<std::string>& words) const {
    const Result<Unit> parsed = grammar.parse(words);
    return parsed ? "" : parsed.error().message;
  }
};

TEST(Grammar, TakesEveryWayOfWritingAnOption) {
  Sample sample;
  ASSERT_EQ(
      sample.refusal({"-ft", "-nalice", "--count=3", "job-1", "--label", "a=b", "--label=c=d", "job-2"}), "");
  EXPECT_TRUE(sample.follow && sample.tty);
  EXPECT_EQ(sample.name, "alice");
  EXPECT_EQ(sample.count, 3);
  EXPECT_EQ(sample.labels, (std::vector<std::string>{"a=b", "c=d"}));
  EXPECT_EQ(sample.jobs, (std::vector<std::string>{"job-1", "job-2"}));
}

TEST(Grammar, ValuesMayBeginWithADash) {
  Sample sample;
  ASSERT_EQ(sample.refusal({"--name", "-5"}), "");
  EXPECT_EQ(sample.name, "-5");
}

TEST(Grammar, NamesTheNearestOption) {
  const Sample sample;
  EXPECT_EQ(sample.refusal({"--lable", "a=b"}), "there is no option --lable; did you mean --label?");
  EXPECT_EQ(sample.refusal({"-count", "3"}), "there is no option -count; did you mean --count?");
  EXPECT_EQ(sample.refusal({"--zebra"}), "there is no option --zebra");
}

TEST(Grammar, RefusesWhatIsNoValue) {
  const Sample sample;
  EXPECT_EQ(sample.refusal({"--count", "two"}), "--count: \"two\" is not a whole number");
  EXPECT_EQ(sample.refusal({"--count", "11"}), "--count: 11 is not possible; give 1 to 10");
  EXPECT_EQ(sample.refusal({"--count"}), "--count needs a value: N");
  EXPECT_EQ(sample.refusal({"--follow=yes"}), "--follow takes no value");
  EXPECT_EQ(sample.refusal({"--state", "runing"}), "--state: \"runing\" is not known; did you mean running?");
  EXPECT_EQ(sample.refusal({"--state", "running,x"}),
            "--state: \"x\" is not known; there is pending or running");
  EXPECT_EQ(sample.refusal({"--", "ls"}), "this command takes no arguments after --");
}

TEST(Grammar, AsksForAJobWithAnExample) {
  std::string job;
  Grammar grammar;
  grammar.argument("JOB", &job, "Job id").completes(Complete::kJob);
  ASSERT_TRUE(grammar.parse({}).ok());
  EXPECT_EQ(grammar.check_complete("gpu-cli logs").error().message,
            "which job? For example: gpu-cli logs job-12");
  EXPECT_EQ(grammar.check_complete().error().message, "JOB is missing: Job id");
}

TEST(Grammar, SaysHowANameIsGiven) {
  std::string name;
  Grammar grammar;
  grammar.option("--name", "NAME", &name, "Name").must();
  EXPECT_EQ(grammar.parse({"vision"}).error().message,
            "\"vision\" is an extra argument; the name is given as --name vision");
}

TEST(Grammar, MissesWhatIsRequired) {
  std::string node;
  std::string reason;
  Grammar grammar;
  grammar.argument("NODE", &node, "Name");
  grammar.option("--reason", "TEXT", &reason, "Why").must();
  ASSERT_TRUE(grammar.parse({"n1"}).ok());
  EXPECT_EQ(grammar.check_complete().error().message, "--reason is missing");
  ASSERT_TRUE(grammar.parse({"--reason", "x"}).ok());
  EXPECT_EQ(grammar.check_complete().error().message, "NODE is missing: Name");
  EXPECT_EQ(grammar.check_complete("gpu-cli node show").error().message, "NODE is missing: Name");
  ASSERT_TRUE(grammar.parse({"--reason", "x", "n1"}).ok());
  EXPECT_TRUE(grammar.check_complete().ok());
}

TEST(Grammar, LeavesAScriptsArgumentsAlone) {
  std::string script;
  std::vector<std::string> arguments;
  bool wait = false;
  Grammar grammar;
  grammar.argument("SCRIPT", &script, "File").greedy();
  grammar.argument("ARG", &arguments, "Its arguments").optional();
  grammar.flag("--wait", wait, "Wait");
  ASSERT_TRUE(grammar.parse({"--wait", "a.sh", "--epochs", "3", "--", "-x"}).ok());
  EXPECT_TRUE(wait);
  EXPECT_EQ(arguments, (std::vector<std::string>{"--epochs", "3", "--", "-x"}));
}

TEST(Grammar, SwitchesOff) {
  bool bound = true;
  Grammar grammar;
  grammar.flag("--share", bound, "Share").turns_off();
  ASSERT_TRUE(grammar.parse({"--share"}).ok());
  EXPECT_FALSE(bound);
  ASSERT_TRUE(grammar.parse({"--share=false"}).ok());
  EXPECT_TRUE(bound);
}

TEST(Grammar, RemembersWhatItWasGiven) {
  Sample sample;
  ASSERT_EQ(sample.refusal({"-f", "--label", "a=1", "--label=b=2", "--count", "4"}), "");
  const auto values = [&](const char* name) { return sample.grammar.values_of(*sample.grammar.find(name)); };
  EXPECT_EQ(values("--follow"), (std::vector<std::string>{"true"}));
  EXPECT_EQ(values("--label"), (std::vector<std::string>{"a=1", "b=2"}));
  EXPECT_EQ(values("--name"), std::vector<std::string>());
  ASSERT_TRUE(sample.grammar.give(*sample.grammar.find("--name"), "n").ok());
  EXPECT_EQ(values("--name"), (std::vector<std::string>{"n"}));
  EXPECT_FALSE(sample.grammar.give(*sample.grammar.find("--count"), "11").ok());
}

TEST(Grammar, TheLastOneWinsUnlessRepetitionsAreRefused) {
  Sample sample;
  ASSERT_EQ(sample.refusal({"--name", "a", "--name", "b"}), "");
  EXPECT_EQ(sample.name, "b");
  sample.grammar.refuses_repetitions();
  EXPECT_EQ(sample.refusal({"--name", "a", "-n", "b"}), "--name is given twice; give it once");
  EXPECT_EQ(sample.refusal({"-f", "-f", "--label", "a", "--label", "b"}), "");
}

TEST(Grammar, EmptyValuesAreValuesUnlessTheyAreRefused) {
  Sample sample;
  ASSERT_EQ(sample.refusal({"--name", "", "--label", ""}), "");
  sample.grammar.refuses_empty_values();
  const std::string why = ": its value is empty; give one, or leave the option out";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--name", ""}, {"--name="}, {"-n", ""}, {"-n="}})
    EXPECT_EQ(sample.refusal(words), "--name" + why);
  EXPECT_EQ(sample.refusal({"--label", "a=", "--label="}), "--label" + why);
  EXPECT_EQ(sample.refusal({"--count", ""}), "--count: \"\" is not a whole number");

  std::vector<std::string> jobs;
  std::vector<std::string> command;
  Grammar arguments;
  arguments.refuses_empty_values();
  arguments.argument("JOB", &jobs, "Job ids");
  arguments.takes_command(command, "command");
  EXPECT_EQ(arguments.parse({"7", ""}).error().message, "JOB is empty: Job ids");
  EXPECT_TRUE(arguments.parse({"7", "--", "echo", ""}).ok());
  std::string script;
  std::vector<std::string> words;
  Grammar greedy;
  greedy.refuses_empty_values();
  greedy.argument("SCRIPT", &script, "Script").greedy();
  greedy.argument("ARG", &words, "Its arguments");
  EXPECT_EQ(greedy.parse({""}).error().message, "SCRIPT is empty: Script");
  ASSERT_TRUE(greedy.parse({"a.sh", "", "b"}).ok());
  EXPECT_EQ(words, (std::vector<std::string>{"", "b"}));
}

TEST(Grammar, TakesTheEnvironmentsWordForWhatIsNotGiven) {
  std::string url;
  std::optional<int64_t> count;
  Grammar grammar;
  grammar.option("--url", "URL", &url, "Where").from_environment("SAMPLE_URL");
  grammar.option("--count", "N", &count, "Number").range(1, 10).from_environment("SAMPLE_COUNT");
  std::string outside = "4";
  const auto environment = [&](const char* name) {
    return name == std::string("SAMPLE_URL") ? std::string("http://outside") : outside;
  };
  ASSERT_TRUE(grammar.parse({"--url", "http://inside"}).ok());
  ASSERT_TRUE(grammar.take_environment(environment).ok());
  EXPECT_EQ(url, "http://inside");
  EXPECT_EQ(count, 4);
  outside = "many";
  ASSERT_TRUE(grammar.parse({}).ok());
  EXPECT_EQ(grammar.take_environment(environment).error().message,
            "environment variable SAMPLE_COUNT: --count: \"many\" is not a whole number");
  outside = "";
  count.reset();
  ASSERT_TRUE(grammar.parse({}).ok());
  EXPECT_TRUE(grammar.take_environment(environment).ok());
  EXPECT_EQ(count, std::nullopt);
}

TEST(Grammar, HidesWhatAnotherPageExplains) {
  Sample sample;
  sample.grammar.hide_options();
  bool json = false;
  sample.grammar.flag("--json", json, "Print JSON");
  ASSERT_EQ(sample.grammar.groups().size(), 1u);
  ASSERT_EQ(sample.grammar.groups()[0].options.size(), 1u);
  EXPECT_EQ(sample.grammar.groups()[0].options[0]->name, "--json");
  EXPECT_EQ(sample.refusal({"--follow"}), "");
}

TEST(Nearest, KnowsMisspellingsAndAbbreviations) {
  EXPECT_EQ(nearest_of("lst", {"list", "logs"}), "list");
  EXPECT_EQ(nearest_of("comp", {"completion", "context"}), "completion");
  EXPECT_EQ(nearest_of("xyz", {"list", "get"}), "");
  EXPECT_EQ(nearest_of("ist", {"list", "get"}), "list");
}

TEST(Nearest, GivesNoneRatherThanAWrongOne) {
  EXPECT_EQ(nearest_of("resubmit", {"submit", "requeue"}), "");
  EXPECT_EQ(nearest_of("queue", {"requeue"}), "");
  EXPECT_EQ(nearest_of("--follow", {"--color"}), "");
  EXPECT_EQ(nearest_of("--email", {"--domain"}), "");
}

}  // namespace
}  // namespace gpusched
