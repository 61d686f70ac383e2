#include "node/process/user_directory.h"

#include <gtest/gtest.h>

#include "node/ports/system_clock.h"

namespace gpusched {
namespace {

constexpr uint32_t kDocker = 998, kVideo = 44, kProject = 2'000;

Result<UserFacts> look(const std::string& name) {
  if (name == "ada")
    return UserFacts{.name = name,
                     .credentials = {.uid = 1'000, .gid = 100, .groups = {100, kDocker, kVideo, kProject}}};
  if (name == "backup") return UserFacts{.name = name, .credentials = {.uid = 34, .gid = 34, .groups = {34}}};
  if (name == "nobody") return UserFacts{.name = name, .credentials = {.uid = 65'534, .gid = 65'534}};
  if (name == "root" || name == "toor") return UserFacts{.name = name, .credentials = {.uid = 0, .gid = 0}};
  if (name == "minus") return UserFacts{.name = name, .credentials = {.uid = UINT32_MAX, .gid = 1'000}};
  return Error{.code = ErrorCode::kNotFound, .message = "none"};
}

class ChooseUserTest : public ::testing::Test {
 protected:
  Result<UserFacts> choose(const std::string& name) { return choose_user(name, policy_, directory_); }

  const SystemClock clock_;
  UserDirectory directory_{clock_, look};
  UserPolicy policy_{.is_root = true, .own_name = "root", .kept_groups = {kVideo}};
};

TEST_F(ChooseUserTest, UsersOfTheSystemRunNoJobsUnlessTheyAreNamed) {
  const Result<UserFacts> refused = choose("backup");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("34 is below 1000"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(choose("nobody").ok());
  policy_.allowed_users = {"backup"};
  EXPECT_EQ(choose("backup")->credentials.uid, 34u);
  policy_.allowed_users = {};
  policy_.floor.uid = 34;
  EXPECT_TRUE(choose("backup").ok());
}

TEST_F(ChooseUserTest, WithAListOthersAreRefused) {
  policy_.allowed_users = {"nobody"};
  EXPECT_TRUE(choose("nobody").ok());
  EXPECT_FALSE(choose("ada").ok());
  policy_.allowed_groups = {kProject};
  EXPECT_TRUE(choose("ada").ok());
  policy_.allowed_users = {};
  EXPECT_FALSE(choose("nobody").ok());
  policy_.allowed_groups = {34};  // A group lifts nobody above the floor.
  EXPECT_FALSE(choose("backup").ok());
}

TEST_F(ChooseUserTest, JobsHaveNoGroupOfTheSystemsThatIsNotKept) {
  EXPECT_EQ(choose("ada")->credentials.groups, (std::vector<uint32_t>{100, kVideo, kProject}));
  policy_.kept_groups = {kDocker};
  EXPECT_EQ(choose("ada")->credentials.groups, (std::vector<uint32_t>{100, kDocker, kProject}));
}

TEST_F(ChooseUserTest, WhoeverMayNotBeRootIsNotUnderAnyName) {
  policy_.allow_root_jobs = true;
  EXPECT_EQ(choose("")->credentials.uid, 0u);
  EXPECT_EQ(choose("toor")->credentials.uid, 0u);
  for (const char* const name : {"", "root", "toor"})
    EXPECT_FALSE(choose_user(name, policy_, directory_, true).ok()) << name;
  policy_.default_user = "toor";
  EXPECT_FALSE(choose_user("", policy_, directory_, true).ok());
  EXPECT_TRUE(choose_user("ada", policy_, directory_, true).ok());
}

TEST_F(ChooseUserTest, ANumberThatMeansNobodyIsRefused) {
  policy_.allowed_users = {"minus"};
  EXPECT_FALSE(choose("minus").ok());
}

TEST(UserDirectory, ANumberIsAUsersWhereItIsNobodysName) {
  const Result<UserFacts> root = UserDirectory::look_up_user("0");
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->name, "root");
  EXPECT_EQ(root->credentials.uid, 0u);
  for (const char* const none : {"", "-0", "0x0", "4294967290", "99999999999"})
    EXPECT_EQ(UserDirectory::look_up_user(none).error().code, ErrorCode::kNotFound) << none;
  const SystemClock clock;
  UserDirectory directory(clock);
  const UserPolicy policy{.is_root = true, .own_name = "root", .allow_root_jobs = true};
  EXPECT_FALSE(choose_user("0", policy, directory, true).ok());
}

}  // namespace
}  // namespace gpusched
