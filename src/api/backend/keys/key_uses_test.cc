#include "api/backend/keys/key_uses.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace gpusched::api {
namespace {

class KeyUsesTest : public ::testing::Test {
 protected:
  KeyUsesTest() {
    char pattern[] = "/tmp/gpusched-uses-XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/key-uses";
  }
  ~KeyUsesTest() override { std::filesystem::remove_all(folder_); }
  void put(const std::string& text) const { std::ofstream(path_) << text; }

  std::string folder_, path_;
  const KeyUses uses_ = {{KeyId{1}, Time{seconds(60).ns}}, {KeyId{77}, Time{seconds(1'764'067'500).ns}}};
};

TEST_F(KeyUsesTest, WhatIsWrittenIsRead) {
  EXPECT_EQ(*read_key_uses(path_), KeyUses());
  ASSERT_TRUE(write_key_uses(path_, uses_).ok());
  EXPECT_EQ(*read_key_uses(path_), uses_);
  struct stat facts{};
  ASSERT_EQ(stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  ASSERT_TRUE(write_key_uses(path_, {}).ok());
  EXPECT_EQ(*read_key_uses(path_), KeyUses());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(KeyUsesTest, AnythingElseIsNoList) {
  for (const char* const text :
       {"", "x\n", "gpu-scheduler key uses 2\n", "gpu-scheduler key uses 1\n1\n",
        "gpu-scheduler key uses 1\n1 \n", "gpu-scheduler key uses 1\n0 60\n",
        "gpu-scheduler key uses 1\n1 60x\n", "gpu-scheduler key uses 1\n1 -60\n",
        "gpu-scheduler key uses 1\n1 99999999999999\n", "gpu-scheduler key uses 1\nkey-1 60\n"}) {
    put(text);
    const Result<KeyUses> read = read_key_uses(path_);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt) << text;
  }
}

TEST_F(KeyUsesTest, AFolderThatIsGoneIsAnError) {
  EXPECT_EQ(write_key_uses(folder_ + "/gone/key-uses", uses_).error().code, ErrorCode::kIo);
}

TEST_F(KeyUsesTest, AKeeperWritesWhatChangedNowAndThenAndAtItsEnd) {
  std::atomic<int64_t> minute{1};
  const auto look = [&] { return KeyUses{{KeyId{1}, Time{seconds(60 * minute).ns}}}; };
  const auto is_written = [&](int64_t wanted) {
    const Result<KeyUses> read = read_key_uses(path_);
    return read.ok() && *read == KeyUses{{KeyId{1}, Time{seconds(60 * wanted).ns}}};
  };
  {
    KeyUseKeeper keeper(path_, milliseconds(1), look);
    minute = 2;
    while (!is_written(2)) std::this_thread::yield();
  }
  {
    KeyUseKeeper keeper(path_, hours(1), look);
    minute = 3;
    keeper.stop();
    EXPECT_TRUE(is_written(3));
  }
  std::filesystem::remove(path_);
  {
    KeyUseKeeper keeper(path_, hours(1), look);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));  // Nothing has changed.
}

}  // namespace
}  // namespace gpusched::api
