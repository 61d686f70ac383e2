#include "cli/terminal/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>

namespace gpusched::cli {
namespace {

/// Everything that goes to the command when the keys come one by one, with a '!' where they leave.
std::string typed(std::string_view keys) {
  DetachKeys detach;
  std::string out;
  for (const char key : keys) {
    out += detach.feed(std::string_view(&key, 1));
    if (detach.detached()) return out + "!";
  }
  return out;
}

TEST(DetachKeys, CtrlPCtrlQLeavesAnywhere) {
  EXPECT_EQ(typed("ls\x10\x11more"), "ls!");
  EXPECT_EQ(typed("\x10\x11"), "!");
}

TEST(DetachKeys, CtrlPAloneIsTheCommands) {
  EXPECT_EQ(typed("a\x10z"), "a\x10z");
  EXPECT_EQ(typed("\x10\x10\x10x"), "\x10\x10\x10x");
  EXPECT_EQ(typed("\x10\x10\x11"), "\x10!");
}

TEST(DetachKeys, TildeDotLeavesAtTheStartOfALineOnly) {
  EXPECT_EQ(typed("~."), "!");
  EXPECT_EQ(typed("ls\r~."), "ls\r!");
  EXPECT_EQ(typed("cd ~.\r"), "cd ~.\r");
  EXPECT_EQ(typed("cp ~/x\r"), "cp ~/x\r");
  EXPECT_EQ(typed("~/bin\r"), "~/bin\r");
}

TEST(DetachKeys, TwoTildesTypeOne) { EXPECT_EQ(typed("~~.\r"), "~.\r"); }

TEST(DetachKeys, PastedKeysAreSeenToo) {
  DetachKeys detach;
  EXPECT_EQ(detach.feed("echo hi\r~.rm -r x\r"), "echo hi\r");
  EXPECT_TRUE(detach.detached());
  EXPECT_EQ(detach.feed("more"), "");
}

TEST(RawTerminal, IsAsItWasBeforeWhenItGoes) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  std::array<char, 64> name{};
  ASSERT_EQ(ptsname_r(terminal, name.data(), name.size()), 0);
  const int side = open(name.data(), O_RDWR | O_NOCTTY);
  ASSERT_GE(side, 0);
  const winsize size{.ws_row = 33, .ws_col = 101, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(terminal_size(side).rows, 33);
  EXPECT_EQ(terminal_size(side).columns, 101);
  termios before{};
  ASSERT_EQ(tcgetattr(side, &before), 0);
  {
    RawTerminal raw(side);
    termios now{};
    ASSERT_EQ(tcgetattr(side, &now), 0);
    EXPECT_EQ(now.c_lflag & (ICANON | ECHO | ISIG), 0u);
    raw.restore();
    ASSERT_EQ(tcgetattr(side, &now), 0);
    EXPECT_EQ(now.c_lflag, before.c_lflag);
    raw.resume();
  }
  termios after{};
  ASSERT_EQ(tcgetattr(side, &after), 0);
  EXPECT_EQ(after.c_lflag, before.c_lflag);
  EXPECT_EQ(after.c_iflag, before.c_iflag);
  EXPECT_EQ(after.c_oflag, before.c_oflag);
  close(side);
  close(terminal);
}

}  // namespace
}  // namespace gpusched::cli
