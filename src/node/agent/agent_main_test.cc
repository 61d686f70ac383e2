#include "node/agent/agent_main.h"

#include <gtest/gtest.h>

#include "grammar/testing/program_checks.h"

namespace gpusched {
namespace {

Program agent() {
  return agent_program([](const std::string&) {});
}

TEST(AgentProgram, HasASoundGrammar) { expect_a_sound_grammar(agent()); }

TEST(AgentProgram, ADoctorTakesTheAgentsOptionsWithoutListingThem) {
  const ProgramRun help = run_caught(agent(), {"doctor", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--json"), std::string::npos);
  EXPECT_EQ(help.out.find("--service-ports"), std::string::npos);
  EXPECT_NE(
      run_caught(agent(), {"doctor", "--cpus", "none"}).err.find("--cpus: \"none\" is not a whole number"),
      std::string::npos);
}

TEST(AgentProgram, NeedsAFolderAndAName) {
  EXPECT_EQ(run_caught(agent(), {"--config", "/nowhere/agent.yaml"}).status, 2);
  EXPECT_EQ(run_caught(agent(), {"--scheduler", "127.0.0.1:1"}).status, 2);
}

TEST(AgentProgram, RefusesAddressesOfSchedulersThatCannotBe) {
  for (const std::string addresses : {"127.0.0.1:1,gpu.example", "127.0.0.1:1,127.0.0.1:1", "127.0.0.1:1,"}) {
    const ProgramRun run =
        run_caught(agent(), {"--scheduler", addresses, "--node", "n1", "--data-dir", "/dev/null/nowhere"});
    EXPECT_EQ(run.status, 2) << addresses;  // Before anything is opened, which would end with 1.
  }
}

TEST(AgentProgram, HidesATokenThatIsAWord) {
  std::string hidden;
  const Program program = agent_program([&](const std::string& secret) { hidden = secret; });
  // Refused before anything is asked or written: a path that is not absolute.
  EXPECT_EQ(run_caught(program, {"join", "127.0.0.1:1", "0123456789abcdef", "--config", "agent.yaml"}).status,
            2);
  EXPECT_EQ(hidden, "0123456789abcdef");
}

}  // namespace
}  // namespace gpusched
