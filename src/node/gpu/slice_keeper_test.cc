#include "node/gpu/slice_keeper.h"

#include <gtest/gtest.h>

#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

/// An agent's driver on one folder; the simulated GPU lives as long as the folder.
class SliceKeeperTest : public ::testing::Test {
 protected:
  void SetUp() override { begin("boot-1"); }
  void begin(const std::string& boot_id) {
    driver_ = std::shared_ptr<GpuDriver>(
        std::move(*open_sim_driver("1xA100-SXM4-80GB:mig", "n1", folder_.path() + "/sim-gpus.json")));
    keeper_ = std::make_unique<SliceKeeper>(driver_, folder_.path(), boot_id);
  }
  void control(const std::string& text) {
    std::ofstream(folder_.path() + "/new") << R"({"devices": {"0": {)" << text << "}}}";
    std::filesystem::rename(folder_.path() + "/new", folder_.path() + "/sim-gpus.json");
  }

  TemporaryFolder folder_;
  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<SliceKeeper> keeper_;
};

TEST_F(SliceKeeperTest, OursAreOursAfterARestart) {
  ASSERT_TRUE(keeper_->make_slice(0, "1g.10gb", 5).ok());
  begin("boot-1");
  const DeviceReading reading = keeper_->read(0);
  ASSERT_EQ(reading.slices.size(), 1u);
  EXPECT_TRUE(reading.slices[0].ours);
  EXPECT_EQ(reading.mig_problem, "");
  EXPECT_EQ(keeper_->make_slice(0, "1g.10gb", 5)->uuid, "MIG-sim-n1-0-1g.10gb-5");  // It does as well.
  EXPECT_TRUE(keeper_->destroy_slice(0, "1g.10gb", 5).ok());
  EXPECT_TRUE(keeper_->read(0).slices.empty());
}

TEST_F(SliceKeeperTest, NotesOfAnEarlierBootCountForNothing) {
  ASSERT_TRUE(keeper_->make_slice(0, "1g.10gb", 5).ok());
  begin("boot-2");
  EXPECT_FALSE(keeper_->read(0).slices.at(0).ours);
}

TEST_F(SliceKeeperTest, AnothersSliceStaysAndStandsAgainstTheDevice) {
  ASSERT_TRUE(driver_->make_slice(0, "2g.20gb", 2).ok());
  const DeviceReading reading = keeper_->read(0);
  EXPECT_EQ(reading.condition, v1::DEVICE_CONDITION_OK);
  EXPECT_EQ(
      reading.mig_problem,
      "it has MIG instances that this agent did not create: 2g.20gb at slot 2; destroy them (nvidia-smi mig "
      "-i 0 -dci; nvidia-smi mig -i 0 -dgi) or switch its MIG mode off (nvidia-smi -i 0 -mig 0) and "
      "restart gpu-agent");
  EXPECT_EQ(keeper_->make_slice(0, "2g.20gb", 2).error().message,
            "there is a MIG instance that this agent did not create");
  EXPECT_EQ(keeper_->destroy_slice(0, "2g.20gb", 2).error().message, "this agent did not create it");
  EXPECT_EQ(driver_->read(0).slices.size(), 1u);
}

TEST_F(SliceKeeperTest, WhatWentAndCameAgainIsNotOurs) {
  ASSERT_TRUE(keeper_->make_slice(0, "1g.10gb", 5).ok());
  ASSERT_TRUE(driver_->destroy_slice(0, "1g.10gb", 5).ok());
  for (int listing = 0; listing < 3; ++listing) EXPECT_TRUE(keeper_->read(0).slices.empty());
  ASSERT_TRUE(driver_->make_slice(0, "1g.10gb", 5).ok());
  EXPECT_FALSE(keeper_->read(0).slices.at(0).ours);
}

TEST_F(SliceKeeperTest, OneMissingFromOneListingStaysOurs) {
  ASSERT_TRUE(keeper_->make_slice(0, "1g.10gb", 5).ok());
  ASSERT_TRUE(driver_->destroy_slice(0, "1g.10gb", 5).ok());
  EXPECT_TRUE(keeper_->read(0).slices.empty());
  ASSERT_TRUE(driver_->make_slice(0, "1g.10gb", 5).ok());
  EXPECT_TRUE(keeper_->read(0).slices.at(0).ours);
}

TEST_F(SliceKeeperTest, OneThatIsInUseIsNeitherGivenAgainNorDestroyed) {
  ASSERT_TRUE(keeper_->make_slice(0, "1g.10gb", 5).ok());
  control(R"("processes": [[77, 100, 5]])");
  EXPECT_EQ(keeper_->make_slice(0, "1g.10gb", 5).error().message,
            "there is already a MIG instance, in use by pid 77");
  EXPECT_EQ(keeper_->destroy_slice(0, "1g.10gb", 5).error().message, "in use by pid 77");
  EXPECT_EQ(driver_->read(0).slices.size(), 1u);
}

// An agent that is killed while the driver makes a slice has noted it, whether it came or not.
TEST_F(SliceKeeperTest, OneThatWasBeingMadeIsOursWhenItComes) {
  std::ofstream(folder_.path() + "/mig-slices") << "boot boot-1\nGPU-sim-n1-0 1g.10gb 4 -\n";
  begin("boot-1");
  EXPECT_TRUE(keeper_->read(0).slices.empty());
  ASSERT_TRUE(driver_->make_slice(0, "1g.10gb", 4).ok());
  EXPECT_TRUE(keeper_->read(0).slices.at(0).ours);
}

TEST_F(SliceKeeperTest, OneThatCouldNotBeMadeIsNoted) {
  control(R"("mig_make_error": "Unknown Error")");
  EXPECT_EQ(keeper_->make_slice(0, "1g.10gb", 5).error().message, "Unknown Error");
  control("");
  ASSERT_TRUE(driver_->make_slice(0, "1g.10gb", 5).ok());
  EXPECT_FALSE(keeper_->read(0).slices.at(0).ours);
}

TEST_F(SliceKeeperTest, AnAttemptsSliceIsClaimed) {
  ASSERT_TRUE(driver_->make_slice(0, "1g.10gb", 5).ok());
  keeper_->claim(0, "1g.10gb", 5);
  EXPECT_TRUE(keeper_->read(0).slices.at(0).ours);
}

TEST_F(SliceKeeperTest, ADamagedNoteIsNone) {
  std::ofstream(folder_.path() + "/mig-slices") << "boot boot-1\nGPU-sim-n1-0 1g.10gb\n\nGPU x y z\n";
  begin("boot-1");
  EXPECT_EQ(keeper_->read(0).mig_problem, "");
}

}  // namespace
}  // namespace gpusched
