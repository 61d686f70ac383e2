#include "api/contract/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gpusched::api {
namespace {

class TokenFile : public ::testing::Test {
 protected:
  TokenFile() {
    char pattern[] = "/tmp/gpusched-token-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~TokenFile() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(TokenFile, IsMadeOnceAndForItsOwnerOnly) {
  const auto first = load_or_create_token(folder_);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->size(), 64u);
  struct stat facts{};
  ASSERT_EQ(stat((folder_ + "/token").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(*load_or_create_token(folder_), *first);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);  // No draft is left.
}

TEST_F(TokenFile, IsRefusedWhenOthersCanReadIt) {
  ASSERT_TRUE(load_or_create_token(folder_).ok());
  for (const mode_t mode : {0644u, 0640u, 0604u, 0620u, 0610u}) {
    chmod((folder_ + "/token").c_str(), mode);
    const auto token = load_or_create_token(folder_);
    ASSERT_FALSE(token.ok()) << std::oct << mode;
    EXPECT_EQ(token.error().code, ErrorCode::kPermissionDenied);
  }
}

TEST_F(TokenFile, IsRefusedWhenItHoldsNone) {
  std::ofstream(folder_ + "/token") << "\n";
  chmod((folder_ + "/token").c_str(), 0600);
  EXPECT_EQ(load_or_create_token(folder_).error().code, ErrorCode::kCorrupt);
}

TEST_F(TokenFile, InAFolderThatIsNotThereIsAnError) {
  EXPECT_EQ(load_or_create_token(folder_ + "/none").error().code, ErrorCode::kIo);
}

TEST(Bearer, OnlyTheWholeTokenMatches) {
  EXPECT_TRUE(bearer_matches("Bearer secret", "secret"));
  EXPECT_TRUE(bearer_matches("bearer  secret", "secret"));
  EXPECT_FALSE(bearer_matches("Bearer secre", "secret"));
  EXPECT_FALSE(bearer_matches("Bearer secrets", "secret"));
  EXPECT_FALSE(bearer_matches("Basic secret", "secret"));
  EXPECT_FALSE(bearer_matches("", "secret"));
  EXPECT_FALSE(bearer_matches("Bearer ", ""));
}

TEST(Loopback, IsWhatNobodyElseReaches) {
  for (const char* address :
       {"127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "127.1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1",
        "::FFFF:127.9.9.9", "[::ffff:127.0.0.1]", "::ffff:7f00:1"})
    EXPECT_TRUE(is_loopback(address)) << address;
  for (const char* address : {"0.0.0.0", "10.0.0.1", "::", "192.168.1.1", "127.evil.example", "",
                              "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "::2", "[127.0.0.1"})
    EXPECT_FALSE(is_loopback(address)) << address;
}

}  // namespace
}  // namespace gpusched::api
