#include "machines/drivers/slurm_provider.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "client/json.h"

namespace gpusched::machines {
namespace {

const provision::Pool kSlurmPool{.name = "burst", .maximum = 3};

class SlurmProviderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string shape = (std::filesystem::temp_directory_path() / "slurm-XXXXXX").string();
    ASSERT_NE(::mkdtemp(shape.data()), nullptr);
    folder_ = shape;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  /// A provider whose programs are scripts that run in the test's folder.
  SlurmProvider provider(const std::string& resume = kResume,
                         const std::string& suspend = "echo \"$1\" >>suspended",
                         Duration suspend_time = Duration{-1}, Duration timeout = seconds(30)) {
    const std::string at = "cd " + folder_ + "\n";
    return SlurmProvider({.resume = {"/bin/sh", "-c", at + resume, "resume"},
                          .suspend = {"/bin/sh", "-c", at + suspend, "suspend"},
                          .resume_fail = {"/bin/sh", "-c", at + "echo \"$1\" >>failed; exit 1", "fail"},
                          .timeout = timeout,
                          .suspend_time = suspend_time,
                          .folder = folder_ + "/notes"});
  }
  std::string file(const std::string& name) const {
    std::ifstream in(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static constexpr const char* kResume = "echo \"$1\" >>resumed; cp \"$SLURM_RESUME_FILE\" file.json";
  std::string folder_;
};

TEST_F(SlurmProviderTest, ResumesAndSuspendsByTheConvention) {
  SlurmProvider own = provider();
  EXPECT_EQ(own.describe(kSlurmPool, "burst-1").state, ProviderState::kAbsent);
  EXPECT_EQ(own.create(kSlurmPool, "burst-1").state, ProviderState::kStarting);
  EXPECT_EQ(file("resumed"), "burst-1\n");
  const Result<Json> told = Json::parse(file("file.json"));
  ASSERT_TRUE(told.ok());
  EXPECT_EQ((*told)["all_nodes_resume"].text(), "burst-1");
  EXPECT_TRUE((*told)["jobs"].is_array());
  // Another scheduler's process, after a crash.
  SlurmProvider next = provider();
  EXPECT_EQ(next.describe(kSlurmPool, "burst-1").state, ProviderState::kRunning);
  EXPECT_EQ(next.create(kSlurmPool, "burst-1").state, ProviderState::kRunning);
  EXPECT_EQ(file("resumed"), "burst-1\n");
  EXPECT_EQ(next.list(kSlurmPool).machines, std::vector<std::string>{"burst-1"});
  EXPECT_TRUE(next.list({.name = "b"}).machines.empty());
  EXPECT_EQ(next.destroy(kSlurmPool, "burst-1").state, ProviderState::kAbsent);
  EXPECT_EQ(file("suspended"), "burst-1\n");
  EXPECT_TRUE(next.list(kSlurmPool).machines.empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/notes"));
}

TEST_F(SlurmProviderTest, AMachineIsGoneWhenItsTimeToSuspendHasPassed) {
  SlurmProvider slow = provider(kResume, "echo \"$1\" >>suspended", seconds(1'000));
  slow.create(kSlurmPool, "burst-1");
  EXPECT_EQ(slow.destroy(kSlurmPool, "burst-1").state, ProviderState::kEnding);
  EXPECT_EQ(slow.destroy(kSlurmPool, "burst-1").state, ProviderState::kEnding);
  EXPECT_EQ(slow.describe(kSlurmPool, "burst-1").state, ProviderState::kEnding);
  EXPECT_EQ(slow.list(kSlurmPool).machines, std::vector<std::string>{"burst-1"});
  EXPECT_EQ(provider().destroy(kSlurmPool, "burst-1").state, ProviderState::kAbsent);
  EXPECT_EQ(file("suspended"), "burst-1\n") << "it was suspended once";
}

TEST_F(SlurmProviderTest, AProgramThatFailsOrHangsIsToldAndRunAgain) {
  SlurmProvider failing = provider("echo 'no capacity' >&2; exit 1", "exit 2");
  const ProviderAnswer answer = failing.create(kSlurmPool, "burst-1");
  EXPECT_EQ(answer.fault, Fault::kUnavailable);
  EXPECT_NE(answer.message.find("exit status 1: no capacity"), std::string::npos) << answer.message;
  EXPECT_EQ(failing.describe(kSlurmPool, "burst-1").state, ProviderState::kAbsent);
  SlurmProvider hanging = provider("sleep 1000 & wait", "true", Duration{-1}, milliseconds(200));
  EXPECT_EQ(hanging.create(kSlurmPool, "burst-1").fault, Fault::kUnavailable);
  EXPECT_EQ(hanging.describe(kSlurmPool, "burst-1").state, ProviderState::kAbsent);
  EXPECT_EQ(provider().create(kSlurmPool, "burst-1").state, ProviderState::kStarting);
  EXPECT_EQ(failing.destroy(kSlurmPool, "burst-1").fault, Fault::kUnavailable);
  EXPECT_EQ(failing.describe(kSlurmPool, "burst-1").state, ProviderState::kRunning)
      << "it may still be there";
}

TEST_F(SlurmProviderTest, AMachineWhoseNodeNeverCameIsToldAsFailedOnce) {
  SlurmProvider failing = provider(kResume, "exit 2");
  failing.create(kSlurmPool, "burst-1");
  EXPECT_EQ(failing.abandon(kSlurmPool, "burst-1").fault, Fault::kUnavailable);
  EXPECT_EQ(provider().abandon(kSlurmPool, "burst-1").state, ProviderState::kAbsent);
  EXPECT_EQ(file("failed"), "burst-1\n");
  EXPECT_EQ(file("suspended"), "burst-1\n");
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/notes"));
}

TEST_F(SlurmProviderTest, AMachineWithoutANoteIsSuspendedToo) {
  // Resumed by a scheduler that was killed before it could note that.
  EXPECT_EQ(provider().destroy(kSlurmPool, "burst-4").state, ProviderState::kAbsent);
  EXPECT_EQ(file("suspended"), "burst-4\n");
}

}  // namespace
}  // namespace gpusched::machines
