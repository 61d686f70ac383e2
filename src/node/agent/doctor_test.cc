#include "node/agent/doctor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace gpusched {
namespace {

/// A folder with programs of a few lines.
class DoctorOfContainers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string draft = "/tmp/doctor-containers.XXXXXX";
    ASSERT_NE(mkdtemp(draft.data()), nullptr);
    folder_ = draft;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void program(const std::string& name, const std::string& script) {
    std::ofstream(folder_ + '/' + name) << "#!/bin/sh\n" << script;
    chmod((folder_ + '/' + name).c_str(), 0755);
  }
  Finding look(const std::string& runtime = "auto") {
    return check_containers({.runtime = runtime}, folder_);
  }

  std::string folder_;
};

TEST_F(DoctorOfContainers, ADockerThatDoesNotAnswerIsAWarning) {
  program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1\n");
  const Finding alone = look();
  EXPECT_EQ(alone.verdict, Verdict::kWarn);
  EXPECT_EQ(alone.detail,
            folder_ +
                "/docker does not work: Cannot connect to the Docker daemon; jobs with an image "
                "wait for other nodes");
  EXPECT_EQ(alone.fix, "systemctl start docker; docker info");
  program("podman", "echo 'runc|/var/lib/containers/storage|overlay|false|4.3.1'\n");
  const Finding beside = look();
  EXPECT_EQ(beside.verdict, Verdict::kWarn);
  EXPECT_EQ(beside.detail, folder_ + "/podman 4.3.1 answers; " + folder_ +
                               "/docker does not work: Cannot connect to the Docker daemon");
  EXPECT_EQ(look("podman").verdict, Verdict::kOk);
}

TEST_F(DoctorOfContainers, ARuntimeThatAnswersIsNamed) {
  program("docker", "echo 24.0.5\n");
  const Finding found = look("docker");
  EXPECT_EQ(found.verdict, Verdict::kOk);
  EXPECT_EQ(found.detail, folder_ + "/docker 24.0.5 answers");
  EXPECT_EQ(look("none").verdict, Verdict::kOk);
}

TEST_F(DoctorOfContainers, NoneInstalledIsAWarningWithWhatToInstall) {
  EXPECT_EQ(look().verdict, Verdict::kWarn);
  EXPECT_EQ(look().fix, "apt-get install podman");
  EXPECT_EQ(look("apptainer").detail, "apptainer is not installed; jobs with an image wait for other nodes");
}

}  // namespace
}  // namespace gpusched
