#include "shim/container/pinned_mount.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace gpusched::shim {
namespace {

namespace fs = std::filesystem;

class PinnedMount : public ::testing::Test {
 protected:
  PinnedMount() {
    char name[] = "/tmp/gpusched-pin-XXXXXX";
    folder_ = fs::canonical(mkdtemp(name)).string();
    for (const char* part : {"/allowed", "/allowed/mine", "/secret", "/pins"})
      fs::create_directory(folder_ + part);
    std::ofstream(folder_ + "/allowed/mine/file") << "mine";
    std::ofstream(folder_ + "/secret/file") << "secret";
  }
  ~PinnedMount() override {
    release_pins(folder_ + "/pins");
    fs::remove_all(folder_);
  }

  static std::string read(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Result<std::string> pin(const std::string& mount, bool seen = true) const {
    return pin_mount(mount, folder_ + "/pins/0", seen);
  }

  std::string folder_;
};

TEST_F(PinnedMount, LeadsToWhatWasOpenedWhateverBecomesOfThePath) {
  const std::string mine = folder_ + "/allowed/mine";
  for (const std::string& source : {mine, mine + "/file"}) {
    const Result<std::string> mount = pin(source + ":/in:ro");
    ASSERT_TRUE(mount.ok()) << mount.error().message;
    if (*mount == source + ":/in:ro") GTEST_SKIP() << "this machine or user may not mount";
    ASSERT_EQ(*mount, folder_ + "/pins/0:/in:ro");
    fs::rename(mine, mine + "-away");
    fs::create_symlink(folder_ + "/secret", mine);
    EXPECT_EQ(read(folder_ + "/pins/0" + (source == mine ? "/file" : "")), "mine");
    release_pins(folder_ + "/pins");
    EXPECT_FALSE(fs::exists(folder_ + "/pins"));
    fs::remove(mine);
    fs::rename(mine + "-away", mine);
    fs::create_directory(folder_ + "/pins");
    EXPECT_EQ(read(mine + "/file"), "mine");
  }
}

TEST_F(PinnedMount, APathThatBecameALinkIsRefused) {
  const std::string mine = folder_ + "/allowed/mine";
  fs::rename(mine, mine + "-away");
  fs::create_symlink(folder_ + "/secret", mine);
  for (const std::string& source : {mine, mine + "/file"}) {
    for (const bool seen : {true, false}) {
      const Result<std::string> mount = pin(source + ":/in:ro", seen);
      ASSERT_FALSE(mount.ok());
      EXPECT_NE(mount.error().message.find("it points elsewhere since"), std::string::npos);
    }
  }
}

TEST_F(PinnedMount, WhereTheRuntimeWouldNotSeeItThePathIsLookedAtAgain) {
  const std::string mount = folder_ + "/allowed/mine:/in:ro";
  const Result<std::string> same = pin(mount, false);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(*same, mount);
  EXPECT_TRUE(fs::is_empty(folder_ + "/pins"));
}

TEST_F(PinnedMount, WhatIsGoneIsRefused) {
  const Result<std::string> mount = pin(folder_ + "/allowed/none:/in:rw");
  ASSERT_FALSE(mount.ok());
  EXPECT_NE(mount.error().message.find("it no longer exists (No such file"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::shim
