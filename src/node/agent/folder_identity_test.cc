#include "node/agent/folder_identity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

class FolderIdentityTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};
TEST_F(FolderIdentityTest, TheSameNodeTakesItAgain) {
  const Result<FolderIdentity> first = take_folder(folder_.path(), "n1", "m1");
  ASSERT_TRUE(first.ok()) << first.error().message;
  const Result<FolderIdentity> again = take_folder(folder_.path(), "n1", "m1");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(first->instance, again->instance);
}

TEST_F(FolderIdentityTest, AnotherNodeNameIsRefusedAndToldWhatToDo) {
  ASSERT_TRUE(take_folder(folder_.path(), "n1", "m1").ok());
  const Result<FolderIdentity> renamed = take_folder(folder_.path(), "n1.example", "m1");
  ASSERT_FALSE(renamed.ok());
  EXPECT_NE(renamed.error().message.find("start with --node n1;"), std::string::npos);
  std::filesystem::remove(folder_.path() + "/identity");
  EXPECT_TRUE(take_folder(folder_.path(), "n1.example", "m1").ok());
}

TEST_F(FolderIdentityTest, AnotherMachineIsRefusedAndOneThatCannotTellIsNot) {
  ASSERT_TRUE(take_folder(folder_.path(), "n1", "m1").ok());
  EXPECT_TRUE(take_folder(folder_.path(), "n1", "").ok());
  const Result<FolderIdentity> moved = take_folder(folder_.path(), "n1", "m2");
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.error().code, ErrorCode::kPermissionDenied);
  EXPECT_NE(moved.error().message.find("another machine"), std::string::npos);
}

TEST_F(FolderIdentityTest, ACopyOfTheFolderIsRefused) {
  const std::string original = folder_.path() + "/a";
  const std::string copy = folder_.path() + "/b";
  std::filesystem::create_directory(original);
  ASSERT_TRUE(take_folder(original, "n1", "m1").ok());
  std::filesystem::copy(original, copy, std::filesystem::copy_options::recursive);
  const Result<FolderIdentity> taken = take_folder(copy, "n1", "m1");
  ASSERT_FALSE(taken.ok());
  EXPECT_NE(taken.error().message.find("is a copy"), std::string::npos);
  EXPECT_TRUE(take_folder(original, "n1", "m1").ok());
}

TEST_F(FolderIdentityTest, AFolderOfAnOlderAgentBecomesThisNodes) {
  std::ofstream(folder_.path() + "/instance") << "0123456789abcdef\n";
  const Result<FolderIdentity> taken = take_folder(folder_.path(), "n1", "m1");
  ASSERT_TRUE(taken.ok()) << taken.error().message;
  EXPECT_EQ(taken->instance, "0123456789abcdef");
  EXPECT_FALSE(take_folder(folder_.path(), "n2", "m1").ok());
}

TEST_F(FolderIdentityTest, TheClusterIsRemembered) {
  Result<FolderIdentity> taken = take_folder(folder_.path(), "n1", "m1");
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(taken->cluster.empty());
  ASSERT_TRUE(remember_cluster(folder_.path(), *taken, "c1").ok());
  EXPECT_EQ(take_folder(folder_.path(), "n1", "m1")->cluster, "c1");
}

TEST(MachineName, IsTheSameEachTime) { EXPECT_EQ(machine_name(), machine_name()); }

}  // namespace
}  // namespace gpusched
