#include "shim/processes.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace gpusched::shim {
namespace {

TEST(Processes, APipeInPlaceOfAFileKeepsNobodyWaiting) {
  std::string folder = (std::filesystem::temp_directory_path() / "gpusched-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/passwd";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(read_small_file(path.c_str(), 100), "");
  std::filesystem::remove_all(folder);
}

TEST(Processes, OneThatHidesItsMemoryIsStillItsUsers) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_DUMPABLE, 0);  // From here on its files in /proc are root's.
    _exit(write(ready[1], "x", 1) == 1 ? pause() : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(runs_as(child, geteuid()));
  EXPECT_FALSE(runs_as(child, geteuid() + 1));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace gpusched::shim
