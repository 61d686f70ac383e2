#include "ops/trusted_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gpusched::ops {
namespace {

constexpr uid_t kStranger = 54'321;

class TrustedPath : public ::testing::Test {
 protected:
  TrustedPath() {
    char name[] = "/tmp/gpusched-trusted-XXXXXX";
    folder_ = mkdtemp(name);
    std::filesystem::create_directory(folder_ + "/d");
    std::ofstream(folder_ + "/d/hook") << "#!/bin/sh\n";
    chmod((folder_ + "/d").c_str(), 0755);
    chmod((folder_ + "/d/hook").c_str(), 0755);
  }
  ~TrustedPath() override { std::filesystem::remove_all(folder_); }

  std::string found() const { return changeable_by_others(folder_ + "/d/hook").value_or(""); }

  std::string folder_;
};

TEST_F(TrustedPath, WhatOnlyItsOwnerChangesIsTrusted) {
  EXPECT_EQ(found(), "");
  EXPECT_EQ(changeable_by_others("/bin/sh"), std::nullopt);
  EXPECT_EQ(changeable_by_others(folder_ + "/none"), std::nullopt);
}

TEST_F(TrustedPath, AFileThatOthersMayWriteIsNot) {
  const std::string hook = folder_ + "/d/hook";
  chmod(hook.c_str(), 0775);
  EXPECT_EQ(found(), hook + " can be changed by its group: run `chmod go-w " + hook + "`");
  chmod(hook.c_str(), 0757);
  EXPECT_EQ(found(), hook + " can be changed by everybody: run `chmod go-w " + hook + "`");
}

TEST_F(TrustedPath, AFolderThatOthersMayWriteIsNotUnlessItIsSticky) {
  chmod((folder_ + "/d").c_str(), 0777);
  EXPECT_NE(found().find("/d can be changed by everybody"), std::string::npos) << found();
  chmod((folder_ + "/d").c_str(), 01777);
  EXPECT_EQ(found(), "");
}

TEST_F(TrustedPath, AStrangersFileFolderOrLinkIsNot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string link = folder_ + "/link";
  const std::string hook = folder_ + "/d/hook";
  std::filesystem::create_symlink("d/hook", link);
  EXPECT_EQ(changeable_by_others(link), std::nullopt);
  ASSERT_EQ(lchown(link.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(changeable_by_others(link),
            link + " belongs to user 54321, who can change it: run `chown root " + link + "`");
  ASSERT_EQ(chown(hook.c_str(), kStranger, kStranger), 0);
  EXPECT_NE(found().find("/d/hook belongs to user 54321"), std::string::npos) << found();
  ASSERT_EQ(chown(hook.c_str(), 0, 0), 0);
  ASSERT_EQ(chown((folder_ + "/d").c_str(), kStranger, kStranger), 0);
  EXPECT_NE(found().find("/d belongs to user 54321"), std::string::npos) << found();
}

TEST_F(TrustedPath, LinksAreFollowedToEachFolderOnTheWay) {
  std::filesystem::create_directory(folder_ + "/open");
  chmod((folder_ + "/open").c_str(), 0777);
  std::filesystem::create_symlink("../d/hook", folder_ + "/open/second");
  std::filesystem::create_symlink("open/second", folder_ + "/first");
  const std::string found = changeable_by_others(folder_ + "/first").value_or("");
  EXPECT_NE(found.find("/open can be changed by everybody"), std::string::npos) << found;
  std::filesystem::create_symlink("round", folder_ + "/round");
  EXPECT_NE(changeable_by_others(folder_ + "/round"), std::nullopt);
}

}  // namespace
}  // namespace gpusched::ops
