#include "node/ports/system_clock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace gpusched {
namespace {

constexpr int kCannotTell = 77;
constexpr int kWrong = 1;

/// In a time namespace whose boot was a day earlier, and whose time without sleep was not.
int read_where_the_machine_slept() {
  constexpr const char* kDay = "boottime 86400 0\n";
  if (unshare(CLONE_NEWTIME) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWTIME) != 0) return kCannotTell;
  const int file = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
  const auto size = static_cast<ssize_t>(std::strlen(kDay));
  if (file < 0 || write(file, kDay, std::strlen(kDay)) != size) return kCannotTell;
  close(file);
  const pid_t child = fork();
  if (child < 0) return kCannotTell;
  if (child == 0) {
    timespec slept{};
    clock_gettime(CLOCK_BOOTTIME, &slept);
    timespec awake{};
    clock_gettime(CLOCK_MONOTONIC, &awake);
    if (slept.tv_sec - awake.tv_sec < 80'000) _exit(kCannotTell);
    const int64_t told_s = SystemClock().monotonic().ns / 1'000'000'000;
    _exit(told_s >= slept.tv_sec && told_s <= slept.tv_sec + 60 ? 0 : kWrong);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kWrong;
}

// Words to the scheduler from before a suspend are as old as the suspend.
TEST(SystemClock, CountsWhileTheMachineSleeps) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(read_where_the_machine_slept());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotTell) GTEST_SKIP() << "no time namespace can be made here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gpusched
