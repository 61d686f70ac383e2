#include "node/output/trash.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

class TrashTest : public ::testing::Test {
 protected:
  std::string make_folder(const std::string& name) const {
    const std::string path = folder_.path() + "/" + name;
    std::filesystem::create_directories(path);
    return path;
  }
  bool trash_is_empty() const { return std::filesystem::is_empty(folder_.path() + "/trash"); }

  TemporaryFolder folder_;
  std::atomic<bool> stopping_{false};
};

TEST_F(TrashTest, ManyFilesAndFoldersGo) {
  Trash trash(folder_.path(), stopping_);
  const std::string job = make_folder("job/a/b/c");
  for (int i = 0; i < 1'100; ++i) std::ofstream(folder_.path() + "/job/a/" + std::to_string(i));
  EXPECT_TRUE(trash.throw_away(folder_.path() + "/job"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/job"));
  trash.empty();
  EXPECT_TRUE(trash_is_empty());
}

TEST_F(TrashTest, FoldersDeeperThanAPathGo) {
  Trash trash(folder_.path(), stopping_);
  const std::string job = make_folder("job");
  int at = open(job.c_str(), O_RDONLY | O_DIRECTORY);
  const std::string name(200, 'd');
  for (int depth = 0; depth < 40; ++depth) {
    ASSERT_EQ(mkdirat(at, name.c_str(), 0755), 0);
    const int next = openat(at, name.c_str(), O_RDONLY | O_DIRECTORY);
    close(at);
    at = next;
  }
  close(at);
  EXPECT_TRUE(trash.throw_away(job));
  trash.empty();
  EXPECT_TRUE(trash_is_empty());
}

TEST_F(TrashTest, ALinkGoesAndWhatItNamesStays) {
  Trash trash(folder_.path(), stopping_);
  const std::string precious = make_folder("precious");
  std::ofstream(precious + "/kept") << "x";
  const std::string job = make_folder("job");
  std::filesystem::create_symlink(precious, job + "/link");
  EXPECT_TRUE(trash.throw_away(job));
  trash.empty();
  EXPECT_TRUE(trash_is_empty());
  EXPECT_TRUE(std::filesystem::exists(precious + "/kept"));
}

TEST_F(TrashTest, FoldersWithoutRightsGo) {
  Trash trash(folder_.path(), stopping_);
  const std::string inner = make_folder("job/closed/inner");
  std::ofstream(inner + "/file");
  for (const char* path : {"/job/closed/inner", "/job/closed", "/job"})
    chmod((folder_.path() + path).c_str(), 0);
  EXPECT_TRUE(trash.throw_away(folder_.path() + "/job"));
  trash.empty();
  EXPECT_TRUE(trash_is_empty());
}

TEST_F(TrashTest, AnInterruptedRemovalIsTakenUpByTheNext) {
  {
    Trash trash(folder_.path(), stopping_);
    const std::string job = make_folder("job");
    std::ofstream(job + "/file");
    EXPECT_TRUE(trash.throw_away(job));
    stopping_ = true;
    trash.empty();
    EXPECT_FALSE(trash_is_empty());
  }
  stopping_ = false;
  Trash next(folder_.path(), stopping_);
  next.empty();
  EXPECT_TRUE(trash_is_empty());
}

}  // namespace
}  // namespace gpusched
