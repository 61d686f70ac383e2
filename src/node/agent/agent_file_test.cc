#include "node/agent/agent_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "grammar/grammar.h"
#include "node/testing/testing.h"

namespace gpusched {
namespace {

struct Values {
  std::string scheduler;
  int64_t cpus = 0;
  std::vector<std::string> labels;
  std::string config;
  bool tls = false;
  bool is_private = true;
};

void declare(Grammar& grammar, Values& values) {
  grammar.option("--scheduler", "HOST:PORT", &values.scheduler, "Scheduler");
  grammar.option("--cpus", "N", &values.cpus, "Cores").alias("--cores").range(1, 100);
  grammar.option("--label", "K=V", &values.labels, "Label");
  grammar.option("--config", "FILE", &values.config, "File");
  grammar.flag("--tls", values.tls, "TLS");
  grammar.flag("--shared", values.is_private, "Shared").turns_off();
  grammar.flag("--private", values.is_private, "Private");
}

class AgentFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = folder_.path() + "/agent.yaml";
    std::ofstream(path) << text;
    return path;
  }
  /// The problem with a file, without its name.
  std::string refusal(const std::string& text, const std::vector<std::string>& arguments = {}) {
    const std::string path = write(text);
    const Result<std::vector<AgentSetting>> settings = read_agent_file(path);
    const Result<Unit> done = settings ? apply(*settings, arguments) : Result<Unit>(settings.error());
    std::string message = done ? "accepted" : done.error().message;
    for (size_t at = message.find(path + ":"); at != std::string::npos; at = message.find(path + ":")) {
      message.erase(at, path.size() + 1);
    }
    return message;
  }
  Result<Unit> apply(const std::vector<AgentSetting>& settings, const std::vector<std::string>& arguments) {
    values_ = {};
    Grammar grammar;
    declare(grammar, values_);
    const Result<Unit> parsed = grammar.parse(arguments);
    return parsed ? give_settings(grammar, settings) : parsed;
  }

  TemporaryFolder folder_;
  Values values_;
};

TEST_F(AgentFile, GivesOptionsByTheirLongNames) {
  EXPECT_EQ(refusal("scheduler: 10.0.0.5:9090\ncpus: 12\nlabel: [zone=a, rack=3]\n"), "accepted");
  EXPECT_EQ(values_.scheduler, "10.0.0.5:9090");
  EXPECT_EQ(values_.cpus, 12);
  EXPECT_EQ(values_.labels, (std::vector<std::string>{"zone=a", "rack=3"}));
}

TEST_F(AgentFile, YieldsToTheCommandLine) {
  EXPECT_EQ(refusal("scheduler: a:1\ncpus: 12\n", {"--scheduler", "b:2"}), "accepted");
  EXPECT_EQ(values_.scheduler, "b:2");
  EXPECT_EQ(values_.cpus, 12);
}

TEST_F(AgentFile, TakesYamlsWordsForFlags) {
  for (const char* const yes : {"true", "True", "yes", "on", "1"}) {
    EXPECT_EQ(refusal(std::string("tls: ") + yes + "\nshared: " + yes + "\n"), "accepted");
    EXPECT_TRUE(values_.tls) << yes;
    EXPECT_FALSE(values_.is_private) << yes;
  }
  for (const char* const no : {"false", "no", "off", "0"}) {
    EXPECT_EQ(refusal(std::string("tls: ") + no + "\nshared: " + no + "\n"), "accepted");
    EXPECT_FALSE(values_.tls) << no;
    EXPECT_TRUE(values_.is_private) << no;
  }
}

TEST_F(AgentFile, YieldsToAnotherNameOnTheCommandLine) {
  EXPECT_EQ(refusal("private: false\n", {"--private"}), "accepted");
  EXPECT_TRUE(values_.is_private);
  EXPECT_EQ(refusal("private: true\n", {"--shared"}), "accepted");
  EXPECT_FALSE(values_.is_private);
}

TEST_F(AgentFile, MayBeEmpty) { EXPECT_EQ(refusal("# nothing yet\n"), "accepted"); }

TEST_F(AgentFile, NamesTheLineOfEachMistake) {
  EXPECT_EQ(refusal("scheduler: a:1\nschedulr: b:2\n"), "2: unknown key schedulr; did you mean scheduler?");
  EXPECT_EQ(refusal("zzzzzzzzzzzzzzzz: 1\n"),
            "1: unknown key zzzzzzzzzzzzzzzz; the keys are the options that gpu-agent --help lists");
  EXPECT_EQ(refusal("cpus: 1\ncpus: 2\n"), "2: cpus is given twice; keep one");
  EXPECT_EQ(refusal("cpus: 1\ncores: 2\n"), "2: cores is given twice; keep one");
  EXPECT_EQ(refusal("cpus: {a: 1}\n"), "1: cpus must be a value or a list of values");
  EXPECT_EQ(refusal("- cpus\n"), "1: expected keys such as `scheduler: host:9090`, one per line");
  EXPECT_EQ(refusal("\n\ncpus: 1000\n"), "3: --cpus: 1000 is not possible; give 1 to 100");
  EXPECT_EQ(refusal("cpus: many\n"), "1: --cpus: \"many\" is not a whole number");
  EXPECT_EQ(refusal("cpus: [1, 2]\n"), "1: --cpus takes one value, and not a list");
  EXPECT_EQ(refusal("tls: maybe\n"), "1: --tls: 'maybe' is neither true nor false");
  // The file is checked also where the command line gives another value.
  EXPECT_EQ(refusal("cpus: 1000\n", {"--cpus", "4"}), "1: --cpus: 1000 is not possible; give 1 to 100");
  EXPECT_NE(refusal("config: other.yaml\n").find("unknown key config"), std::string::npos);
  EXPECT_NE(refusal("cpus: [1\n").find("not valid YAML"), std::string::npos);
}

TEST_F(AgentFile, IsMissedByName) {
  const Result<std::vector<AgentSetting>> read = read_agent_file("/nowhere/agent.yaml");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kNotFound);
  EXPECT_NE(read.error().message.find("/nowhere/agent.yaml"), std::string::npos);
}

TEST(OptionChanges, NameWhatDiffers) {
  Values old_values;
  Values new_values;
  Grammar before;
  Grammar after;
  declare(before, old_values);
  declare(after, new_values);
  ASSERT_TRUE(before.parse({"--cpus", "4", "--label", "a=1", "--label", "b=2"}).ok());
  ASSERT_TRUE(after.parse({"--cpus", "4", "--label", "a=1", "--scheduler", "c:3"}).ok());
  const std::vector<OptionChange> changes = option_changes(before, after);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].name, "scheduler");
  EXPECT_EQ(changes[0].before, "");
  EXPECT_EQ(changes[0].after, "c:3");
  EXPECT_EQ(changes[1].name, "label");
  EXPECT_EQ(changes[1].before, "a=1, b=2");
}

TEST(AgentEnvironment, GivesTheNodeItsNameRuntimeAndChecks) {
  const auto read = read_agent_environment({{"AGENT_NODE_ID", "n1"},
                                            {"GPU_SCHEDULER_AGENT_CONTAINER_RUNTIME", "docker"},
                                            {"AGENT_CONTAINER_RUNTIME", "podman"},
                                            {"AGENT_HEALTH_CHECK_INTERVAL_MS", "30001"},
                                            {"AGENT_DCGM_ENABLED", "true"},
                                            {"AGENT_DCGM_HOST_PORT", ""},
                                            {"AGENT_SOMEBODY_ELSES", "x"}});
  ASSERT_TRUE(read) << read.error().message;
  std::map<std::string, std::string> given;
  for (const AgentSetting& setting : read->settings) given[setting.name] = setting.values.at(0);
  EXPECT_EQ(given, (std::map<std::string, std::string>{
                       {"node", "n1"}, {"container-runtime", "docker"}, {"check-every-s", "31"}}));
  EXPECT_EQ(read->without_effect, "AGENT_DCGM_ENABLED");
}

TEST(AgentEnvironment, RefusesWhatItCannotMean) {
  const auto read = read_agent_environment(
      {{"GPU_SCHEDULER_AGENT_NODEID", "n1"}, {"AGENT_HEALTH_CHECK_INTERVAL_MS", "often"}});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message,
            "environment variable AGENT_HEALTH_CHECK_INTERVAL_MS: expected an integer from 1 to 86400000\n"
            "environment variable GPU_SCHEDULER_AGENT_NODEID: unknown key agent.nodeid; did you mean "
            "GPU_SCHEDULER_AGENT_NODE_ID?");
}

TEST(AgentEnvironment, WinsOverTheFileAndNotOverTheCommandLine) {
  const std::vector<AgentSetting> merged = with_environment(
      {{.name = "node", .values = {"file"}, .where = "f:1"}, {.name = "cpus", .values = {"1"}}},
      {{.name = "node", .values = {"environment"}, .where = "environment variable A"}});
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].name, "cpus");
  EXPECT_EQ(merged[1].values.at(0), "environment");
}

}  // namespace
}  // namespace gpusched
