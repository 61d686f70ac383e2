#include "ops/run_command.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace gpusched {
namespace {

TEST(RunCommand, PatienceEndsIt) {
  EXPECT_EQ(
      run_command({"/bin/sh", "-c", "exec sleep 1000"}, {"PATH=/bin:/usr/bin"}, milliseconds(20)).exit_code,
      -1);
  EXPECT_EQ(run_command({"/bin/sh", "-c", "exit 4"}, {}, seconds(30)).exit_code, 4);
  EXPECT_EQ(run_command({"/absent"}, {}, seconds(30)).exit_code, -1);
}

TEST(RunCommand, BothStreamsAreKept) {
  const CommandResult told = run_command({"/bin/sh", "-c", "echo out; echo err >&2"}, {}, seconds(30));
  EXPECT_EQ(told.output, "out\n");
  EXPECT_EQ(told.errors, "err\n");
}

TEST(RunCommand, ItsInputIsWhatItReads) {
  const std::vector<std::string> cat = {"/bin/cat"};
  EXPECT_EQ(run_command(cat, {}, seconds(30), nullptr, "one\ntwo\n").output, "one\ntwo\n");
  EXPECT_EQ(run_command(cat, {}, seconds(30)).output, "");
  const std::string most(kCommandInputMax, 'x');
  EXPECT_EQ(run_command(cat, {}, seconds(30), nullptr, most).output, most);
  // Nobody reads it: that is no trouble for the one who wrote.
  EXPECT_EQ(run_command({"/bin/sh", "-c", "exit 4"}, {}, seconds(30), nullptr, most).exit_code, 4);
}

TEST(RunCommand, NoOtherFileIsOpenInIt) {
  constexpr int kOpen = 57;
  ASSERT_EQ(::dup2(STDIN_FILENO, kOpen), kOpen);  // Stays open on exec, as a socket of some libraries does.
  const CommandResult ran =
      run_command({"/bin/sh", "-c", "ls /proc/self/fd"}, {"PATH=/bin:/usr/bin"}, seconds(30));
  ::close(kOpen);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.output.find("57"), std::string::npos) << ran.output;
}

TEST(RunCommand, AStopEndsItAndWhatItStarted) {
  std::atomic<bool> stop{true};
  EXPECT_EQ(
      run_command({"/bin/sh", "-c", "sleep 1000 & wait"}, {"PATH=/bin:/usr/bin"}, hours(1), &stop).exit_code,
      -1);
}

}  // namespace
}  // namespace gpusched
