#include "shim/script_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace gpusched::shim {
namespace {

using Words = std::vector<std::string>;

TEST(InterpreterWords, AreThoseThatTheKernelPasses) {
  EXPECT_EQ(interpreter_words("#!/bin/bash\ntrue\n"), Words{"/bin/bash"});
  EXPECT_EQ(interpreter_words("#! /usr/bin/env -S python3 -u \t\n"),
            (Words{"/usr/bin/env", "-S python3 -u"}));
  EXPECT_EQ(interpreter_words("#!/bin/sh -e"), (Words{"/bin/sh", "-e"}));
  for (const char* const none : {"", "true\n", " #!/bin/sh\n", "#!", "#! \n/bin/sh"})
    EXPECT_TRUE(interpreter_words(none).empty()) << none;
}

class ScriptFile : public ::testing::Test {
 protected:
  ScriptFile() : path_((std::filesystem::temp_directory_path() / "gpusched-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    folder_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  ~ScriptFile() override {
    close(folder_);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string content(const std::string& name) const {
    std::ifstream in(path_ + '/' + name);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  std::string path_;
  int folder_ = -1;
};

TEST_F(ScriptFile, IsItsOwnersAlone) {
  ASSERT_TRUE(write_script(folder_, "script", "true\n", {}, 0700));
  EXPECT_EQ(content("script"), "true\n");
  struct stat facts{};
  ASSERT_EQ(stat((path_ + "/script").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
  if (geteuid() != 0) return;
  ASSERT_TRUE(write_script(folder_, "script", "true\n", Credentials{.uid = 1234, .gid = 4321}, 0700));
  ASSERT_EQ(stat((path_ + "/script").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_uid, 1234u);
  EXPECT_EQ(facts.st_gid, 4321u);
}

TEST_F(ScriptFile, ALinkWithItsNameIsReplacedAndNotFollowed) {
  std::ofstream(path_ + "/other") << "kept";
  ASSERT_EQ(symlinkat("other", folder_, "script"), 0);
  ASSERT_TRUE(write_script(folder_, "script", "true\n", {}, 0700));
  EXPECT_EQ(content("other"), "kept");
  EXPECT_EQ(content("script"), "true\n");
}

TEST_F(ScriptFile, AnotherFileWithItsNameIsNotWrittenTo) {
  std::ofstream(path_ + "/script") << "of another user";
  const int held = open((path_ + "/script").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_TRUE(write_script(folder_, "script", "true\n", {}, 0700));
  ASSERT_EQ(pwrite(held, "false", 5, 0), 5);  // Who held the old file cannot change the new one.
  close(held);
  EXPECT_EQ(content("script"), "true\n");
}

TEST_F(ScriptFile, AFolderWithItsNameIsAnError) {
  ASSERT_EQ(mkdirat(folder_, "script", 0700), 0);
  EXPECT_FALSE(write_script(folder_, "script", "true\n", {}, 0700));
}

}  // namespace
}  // namespace gpusched::shim
