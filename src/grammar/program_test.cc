#include "grammar/program.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/check.h"
#include "grammar/testing/program_checks.h"

namespace gpusched {
namespace {

/// The command that was run last, and its options.
struct Story {
  std::string command;
  std::string name;
  int64_t count = 3;
  bool fast = true;
  std::vector<std::string> labels;
  std::string place;
  std::vector<std::string> words;
};

ProgramAction tell(const std::shared_ptr<Story>& story, const std::string& command) {
  return [story, command](const std::vector<std::string>& words) {
    story->command = command;
    story->words = words;
    return 7;
  };
}

Program sample(const std::shared_ptr<Story>& story) {
  const auto define_main = [story](Grammar& grammar) {
    grammar.option("-n,--name", "NAME", &story->name, "Name of it").from_environment("SAMPLE_NAME");
    grammar.option("--count", "N", &story->count, "How many").range(1, 10);
    grammar.option("--label", "K=V", &story->labels, "Label; may be repeated");
    grammar.flag("--slow", story->fast, "Take the time").turns_off();
    grammar.details("It never ends.");
    return tell(story, "main");
  };
  const auto define_show = [story](Grammar& grammar) {
    grammar.argument("PLACE", &story->place, "Where").of({"here", "there"});
    grammar.option("--name", "NAME", &story->name, "Name of it");
    return tell(story, "box show");
  };
  const auto define_check = [story](Grammar& grammar) {
    grammar.option("--file", "FILE", &story->name, "The file").must().completes(Complete::kFile);
    return tell(story, "check");
  };
  return {
      .name = "sample-d",
      .version = "1.2.3",
      .summary = "do samples",
      .commands = {{.path = "", .summary = "Does samples", .define = define_main},
                   {.path = "box show", .summary = "Show a box", .define = define_show, .alias = "box print"},
                   {.path = "check", .summary = "Check a file", .define = define_check}},
      .exit_codes = "Exit status: 7, always."};
}

class SampleProgram : public ::testing::Test {
 protected:
  ProgramRun run(const std::vector<std::string>& words, const std::vector<std::string>& environment = {}) {
    *story_ = {};
    return run_caught(program_, words, environment);
  }
  std::shared_ptr<Story> story_ = std::make_shared<Story>();
  Program program_ = sample(story_);
};

TEST_F(SampleProgram, HasASoundGrammar) { expect_a_sound_grammar(program_); }

TEST_F(SampleProgram, RunsTheCommandThatIsNamed) {
  EXPECT_EQ(run({"--count=4", "-nx", "--slow"}).status, 7);
  EXPECT_EQ(story_->command, "main");
  EXPECT_EQ(story_->name, "x");
  EXPECT_EQ(story_->count, 4);
  EXPECT_FALSE(story_->fast);
  EXPECT_EQ(story_->words, (std::vector<std::string>{"--count=4", "-nx", "--slow"}));
  EXPECT_EQ(run({"box", "show", "here"}).status, 7);
  EXPECT_EQ(story_->command, "box show");
  EXPECT_EQ(story_->place, "here");
  EXPECT_EQ(run({"box", "print", "there"}).status, 7);
  EXPECT_EQ(story_->command, "box show");
}

TEST_F(SampleProgram, TakesOptionsBeforeTheCommandsName) {
  EXPECT_EQ(run({"box", "--name", "check", "show", "here"}).status, 7);
  EXPECT_EQ(story_->command, "box show");
  EXPECT_EQ(story_->name, "check");
  EXPECT_EQ(run({"--file", "x", "check"}).status, 7);
  EXPECT_EQ(story_->command, "check");
}

TEST_F(SampleProgram, TakesWhatWasNotGivenFromTheEnvironment) {
  EXPECT_EQ(run({}, {"SAMPLE_NAME=outside"}).status, 7);
  EXPECT_EQ(story_->name, "outside");
  EXPECT_EQ(run({"--name", "inside"}, {"SAMPLE_NAME=outside"}).status, 7);
  EXPECT_EQ(story_->name, "inside");
}

TEST_F(SampleProgram, SaysWhatIsWrongAndWhoKnowsBetter) {
  EXPECT_EQ(run({"--nmae", "x"}).err,
            "sample-d: there is no option --nmae; did you mean --name? (see sample-d --help)\n");
  EXPECT_EQ(run({"chek"}).err,
            "sample-d: there is no command chek; did you mean sample-d check? (see sample-d --help)\n");
  EXPECT_EQ(run({"box"}).err, "sample-d box: a command is missing (see sample-d box --help)\n");
  EXPECT_EQ(
      run({"box", "sow"}).err,
      "sample-d box: there is no command sow; did you mean sample-d box show? (see sample-d box --help)\n");
  EXPECT_EQ(run({"box", "show"}).err,
            "sample-d box show: PLACE is missing: Where (see sample-d box show --help)\n");
  EXPECT_EQ(run({"check"}).err, "sample-d check: --file is missing (see sample-d check --help)\n");
  EXPECT_EQ(run({"check", "x"}).err,
            "sample-d check: \"x\" is an extra argument (see sample-d check --help)\n");
  EXPECT_EQ(run({"help", "nowhere"}).status, kProgramUsage);
  EXPECT_EQ(story_->command, "");
}

TEST_F(SampleProgram, ExplainsItself) {
  const std::string help = run({"--help"}).out;
  for (const char* const part :
       {"Does samples.\n\nUsage: sample-d [options]\n       sample-d COMMAND [options]\n\nIt never ends.\n",
        "  box show    Show a box\n", "  -n, --name NAME  Name of it\n", "  --version   Print the version\n",
        "\nExit status: 7, always.\n"})
    EXPECT_NE(help.find(part), std::string::npos) << part << "\n" << help;
  EXPECT_EQ(run({"help"}).out, help);
  EXPECT_EQ(run({"box", "-h"}).out,
            "Usage: sample-d box COMMAND [options]\n\nCommands\n  box show  Show a box\n\nsample-d help box "
            "COMMAND explains one command.\n");
  EXPECT_EQ(run({"help", "box"}).out, run({"box", "--help"}).out);
  EXPECT_EQ(run({"help", "box", "show"}).out, run({"box", "show", "--help"}).out);
  EXPECT_EQ(run({"--version"}).out, "sample-d 1.2.3\n");
}

TEST_F(SampleProgram, CompletesWords) {
  const auto offered = [this](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"__complete"};
    all.insert(all.end(), words.begin(), words.end());
    return run(all).out;
  };
  EXPECT_EQ(offered({"ch"}), "check\tCheck a file\n:\n");
  EXPECT_EQ(offered({"box", ""}), "show\tShow a box\n:\n");
  EXPECT_EQ(offered({"box", "show", "t"}), "there\n:\n");
  EXPECT_EQ(offered({"box", "show", "--n"}), "--name\tName of it\n:\n");
  EXPECT_EQ(offered({"check", "--file", ""}), ":files\n");
  EXPECT_EQ(offered({"check", "--file=a"}), ":files\n");
  EXPECT_EQ(offered({"--sl"}), "--slow\tTake the time\n:\n");
  EXPECT_EQ(offered({"--name", "c"}), ":\n");
  EXPECT_EQ(offered({"completion", "z"}), "zsh\n:\n");
  EXPECT_EQ(offered({"man", ""}), ":folders\n");
  EXPECT_EQ(offered({"help", "box", "s"}), "show\tShow a box\n:\n");
  for (const char* const shell : {"bash", "zsh", "fish"}) {
    const std::string script = run({"completion", shell}).out;
    EXPECT_NE(script.find("sample-d"), std::string::npos) << shell;
    EXPECT_NE(script.find("_sample_d"), std::string::npos) << shell;
    EXPECT_EQ(script.find("gpu"), std::string::npos) << shell;
  }
  EXPECT_EQ(run({"completion", "csh"}).status, kProgramUsage);
}

TEST_F(SampleProgram, WritesItsManualPage) {
  char path[] = "/tmp/gpusched_program_XXXXXX";
  CHECK(::mkdtemp(path) != nullptr);
  const std::string folder = std::string(path) + "/man8";
  EXPECT_EQ(run({"man", folder}).out, folder + "/sample-d.8\n");
  std::ifstream file(folder + "/sample-d.8");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(page.find(".TH SAMPLE\\-D 8 "), 0u) << page;
  for (const char* const part :
       {".SH NAME\nsample\\-d \\- do samples\n", ".SS sample\\-d box show [options] PLACE\n",
        ".TP\n\\fB\\-n, \\-\\-name NAME\\fR\nName of it.\n", ".SH EXIT STATUS\n"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  std::ofstream(std::string(path) + "/file") << "x";
  const ProgramRun refused = run({"man", std::string(path) + "/file"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("cannot write"), std::string::npos) << refused.err;
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace gpusched
