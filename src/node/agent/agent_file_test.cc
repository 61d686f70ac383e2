#include "node/agent/agent_file.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

struct Values {
  std::string scheduler;
  int64_t cpus = 0;
  std::vector<std::string> labels;
  std::string config;
};

void declare(CLI::App& app, Values& values) {
  app.add_option("--scheduler", values.scheduler);
  app.add_option("--cpus", values.cpus)->check(CLI::Range(int64_t{1}, int64_t{100}));
  app.add_option("--label", values.labels);
  app.add_option("--config", values.config);
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
    CLI::App app("", "test");
    declare(app, values_);
    return parse_with_settings(app, arguments, settings, [](const std::function<void(CLI::App&)>& use) {
      CLI::App alone("", "test");
      Values ignored;
      declare(alone, ignored);
      use(alone);
    });
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

TEST_F(AgentFile, MayBeEmpty) { EXPECT_EQ(refusal("# nothing yet\n"), "accepted"); }

TEST_F(AgentFile, NamesTheLineOfEachMistake) {
  EXPECT_EQ(refusal("scheduler: a:1\nschedulr: b:2\n"), "2: unknown key schedulr; did you mean scheduler?");
  EXPECT_EQ(refusal("zzzzzzzzzzzzzzzz: 1\n"),
            "1: unknown key zzzzzzzzzzzzzzzz; the keys are the options that gpu-agent --help lists");
  EXPECT_EQ(refusal("cpus: 1\ncpus: 2\n"), "2: cpus is given twice; keep one");
  EXPECT_EQ(refusal("cpus: {a: 1}\n"), "1: cpus must be a value or a list of values");
  EXPECT_EQ(refusal("- cpus\n"), "1: expected keys such as `scheduler: host:9090`, one per line");
  EXPECT_NE(refusal("\n\ncpus: 1000\n").find("3: --cpus: "), std::string::npos);
  EXPECT_NE(refusal("cpus: many\n").find("1: "), std::string::npos);
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
  CLI::App before("", "test");
  CLI::App after("", "test");
  declare(before, old_values);
  declare(after, new_values);
  before.parse("--cpus 4 --label a=1 --label b=2");
  after.parse("--cpus 4 --label a=1 --scheduler c:3");
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
