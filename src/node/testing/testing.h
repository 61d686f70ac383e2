#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace gpusched {

/// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "gpusched-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Waits for an event counter and takes its value out. Gives up after 30 s, as a hang.
inline void wait_readable(int event) {
  pollfd source{.fd = event, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&source, 1, 30'000), 1);
  uint64_t value = 0;
  ASSERT_EQ(read(event, &value, sizeof value), static_cast<ssize_t>(sizeof value));
}

}  // namespace gpusched
