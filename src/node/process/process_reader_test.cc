#include "node/process/process_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace gpusched {
namespace {

TEST(ProcessReader, ReadsWhatThisProcessIs) {
  ProcessReader reader;
  const std::vector<std::string> words = reader.command_line(getpid());
  ASSERT_FALSE(words.empty());
  EXPECT_NE(words[0].find("test"), std::string::npos);
  const char* const path = std::getenv("PATH");
  ASSERT_NE(path, nullptr);
  EXPECT_TRUE(reader.has_environment(getpid(), std::string("PATH=") + path));
  EXPECT_FALSE(reader.has_environment(getpid(), "PATH="));
  const std::vector<pid_t> found = reader.processes_with_environment(std::string("PATH=") + path);
  EXPECT_NE(std::find(found.begin(), found.end(), getpid()), found.end());
}

/// A stuck process, to its readers: it keeps them until the test lets go.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
  int waited = 0;

  std::string wait() {
    std::unique_lock lock(mutex);
    ++waited;
    opened.wait(lock, [this] { return open; });
    return "late";
  }
};

TEST(ProcessReader, AProcessThatHoldsItsReadersIsLeftOutAndNotAskedAgain) {
  const auto gate = std::make_shared<Gate>();
  ProcessReader reader(
      [gate](pid_t pid, const std::string&) { return pid == 7 ? gate->wait() : std::to_string(pid); },
      milliseconds(50));
  for (int round = 0; round < 3; ++round) {
    std::vector<pid_t> hung;
    const std::map<pid_t, std::string> found = reader.read_all({5, 6, 7, 8, 9}, "cmdline", &hung);
    EXPECT_EQ(found, (std::map<pid_t, std::string>{{5, "5"}, {6, "6"}, {8, "8"}, {9, "9"}}));
    EXPECT_EQ(hung, std::vector<pid_t>{7});
  }
  const std::lock_guard lock(gate->mutex);
  EXPECT_EQ(gate->waited, 1);
  gate->open = true;
  gate->opened.notify_all();
}

}  // namespace
}  // namespace gpusched
