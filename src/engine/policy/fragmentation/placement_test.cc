#include "engine/policy/fragmentation/placement.h"

#include <gtest/gtest.h>

namespace gpusched::policy {
namespace {

NodeSpace space_of(int64_t cpu_milli, uint32_t gpus, uint32_t device_class = 0) {
  NodeSpace space{
      .cpu_milli = cpu_milli, .memory_mb = 100'000, .device_class = device_class, .device_count = gpus};
  for (uint32_t i = 0; i < gpus; ++i) {
    space.milli[i] = static_cast<uint16_t>(kWholeMilli);
    space.device_memory_mb[i] = 80'000;
  }
  return space;
}

constexpr TaskShape kUsual{.cpu_milli = 8'000, .gpu_count = 1, .gpu_milli = kWholeMilli};
constexpr TaskShape kCores{.cpu_milli = 16'000};

bool takes_all(const FragmentationPlacement::Found&) { return true; }

class Placement : public ::testing::TestWithParam<const char*> {
 protected:
  FragmentationPlacement placement_ = *FragmentationPlacement::make(GetParam());
};

TEST_P(Placement, LearnsWhatRoomIsToBeKeptFor) {
  for (int i = 0; i < 40; ++i) placement_.arrived(kUsual);
  placement_.put(3, {space_of(16'000, 1)});
  placement_.put(7, {space_of(64'000, 2)});
  const auto found = placement_.best(kCores, takes_all);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->node, 7u);
  EXPECT_EQ(found->devices, 0u);
}

TEST_P(Placement, ANodeThatIsTurnedDownIsPassedOverOnce) {
  placement_.put(0, {space_of(64'000, 2)});
  placement_.put(1, {space_of(64'000, 2)});
  const auto first = placement_.best(kUsual, takes_all);
  ASSERT_TRUE(first.has_value());
  const auto other = placement_.best(kUsual, [&](const auto& found) { return found.node != first->node; });
  ASSERT_TRUE(other.has_value());
  EXPECT_NE(other->node, first->node);
  EXPECT_FALSE(placement_.best(kUsual, [](const auto&) { return false; }).has_value());
  EXPECT_EQ(placement_.best(kUsual, takes_all)->node, first->node);
}

TEST_P(Placement, AClassOfDevicesThatANodeNoLongerHasIsGone) {
  placement_.put(0, {space_of(64'000, 2, 0), space_of(64'000, 2, 1)});
  TaskShape wants = kUsual;
  wants.device_classes = 2;
  ASSERT_TRUE(placement_.best(wants, takes_all).has_value());
  EXPECT_EQ(placement_.best(wants, takes_all)->device_class, 1u);
  placement_.put(0, {space_of(64'000, 2, 0)});
  EXPECT_FALSE(placement_.best(wants, takes_all).has_value());
  placement_.put(0, {});
  EXPECT_FALSE(placement_.best(kUsual, takes_all).has_value());
  placement_.put(0, {space_of(64'000, 2, 0), space_of(64'000, 2, 1)});
  EXPECT_TRUE(placement_.best(wants, takes_all).has_value()) << "what was there before is there again";
}

TEST_P(Placement, ACopyGoesOnByItself) {
  placement_.put(0, {space_of(64'000, 1)});
  FragmentationPlacement copy = placement_;
  copy.put(0, {});
  for (int i = 0; i < 40; ++i) placement_.arrived(kUsual);
  EXPECT_FALSE(copy.best(kUsual, takes_all).has_value());
  EXPECT_TRUE(placement_.best(kUsual, takes_all).has_value());
}

INSTANTIATE_TEST_SUITE_P(Rules, Placement, ::testing::Values("fgd", "least_value_lost"));

TEST(PlacementNames, AnotherNameIsNone) {
  EXPECT_FALSE(FragmentationPlacement::make("best_fit").has_value());
}

}  // namespace
}  // namespace gpusched::policy
