#include "model/types.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(GpuModel, AWordOfTheModelIsEnough) {
  EXPECT_TRUE(gpu_model_matches("NVIDIA A100-SXM4-80GB", "a100"));
  EXPECT_TRUE(gpu_model_matches("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"));
  EXPECT_TRUE(gpu_model_matches("H100", ""));
}

TEST(GpuModel, PartOfAWordIsNot) {
  EXPECT_FALSE(gpu_model_matches("NVIDIA A100-SXM4-80GB", "A10"));
  EXPECT_FALSE(gpu_model_matches("NVIDIA A100-SXM4-80GB", "SXM4 A100"));
}

TEST(Limits, ZeroIsALimitAndTheDefaultIsNone) {
  Limits limits;
  EXPECT_EQ(limits.get(Resource::kGpus), Limits::kUnlimited);
  limits.set(Resource::kGpus, 0);
  EXPECT_EQ(limits.get(Resource::kGpus), 0);
}

}  // namespace
}  // namespace gpusched
