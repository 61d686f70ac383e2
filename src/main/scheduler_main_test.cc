#include "main/scheduler_main.h"

#include <gtest/gtest.h>

#include "grammar/testing/program_checks.h"

namespace gpusched {
namespace {

TEST(SchedulerProgram, HasASoundGrammar) { expect_a_sound_grammar(scheduler_program()); }

TEST(SchedulerProgram, KnowsItsCommands) {
  const Program program = scheduler_program();
  for (const char* const command :
       {"dev", "doctor", "accept-clock", "journal verify", "journal dump", "journal audit", "journal stat",
        "backup", "restore", "admin apply", "admin get", "node-token create", "order-key rotate",
        "order-key finish", "members init", "members export", "members join", "members list"}) {
    EXPECT_NE(run_caught(program, {"--help"}).out.find(std::string("\n  ") + command + " "),
              std::string::npos)
        << command;
  }
  EXPECT_NE(run_caught(program, {"admin", "export", "--help"}).out.find("gpu-scheduler admin get"),
            std::string::npos);
}

TEST(SchedulerProgram, SaysHowToTryItWithoutAFolder) {
  EXPECT_EQ(run_caught(scheduler_program(), {}).status, 2);
  EXPECT_EQ(run_caught(scheduler_program(), {"serv"}).status, 2);
}

TEST(SchedulerProgram, RefusesASpanThatIsNone) {
  for (const char* const span : {"", "h", "1y", "-1h", "1.5h", "99999999999999999999d", "9999999999d"}) {
    EXPECT_EQ(run_caught(scheduler_program(), {"node-token", "create", "n1", "--expires", span}).status, 2)
        << span;
  }
}

TEST(SchedulerProgram, TakesTheOrderKeysFolderOnEitherSideOfTheCommand) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"order-key", "finish", "--data-dir", "/nowhere"},
                                             {"order-key", "--data-dir", "/nowhere", "finish"}})
    EXPECT_EQ(run_caught(scheduler_program(), words).status, 1);
}

}  // namespace
}  // namespace gpusched
