#include "predict/task_use.h"

#include <gtest/gtest.h>

namespace gpusched::predict {
namespace {

constexpr uint64_t kKind = 7;

TEST(TaskUse, BelowThreeTasksNothingIsSaid) {
  TaskUse use;
  EXPECT_FALSE(use.memory_mb(kKind).has_value());
  for (int i = 0; i < 2; ++i) use.finished(kKind, {.memory_mb = 8'000, .busy_per_mille = 400});
  EXPECT_FALSE(use.memory_mb(kKind).has_value());
  EXPECT_FALSE(use.busy_per_mille(kKind).has_value());
  use.finished(kKind, {.memory_mb = 8'000, .busy_per_mille = 400});
  EXPECT_EQ(use.memory_mb(kKind), 9'216);
  EXPECT_EQ(use.busy_per_mille(kKind), 400);
  EXPECT_FALSE(use.memory_mb(kKind + 1).has_value());
}

TEST(TaskUse, FewTasksAreExpectedToHaveAsMuchAsTheLargestAndAMargin) {
  TaskUse use;
  for (int64_t i = 1; i <= 10; ++i) use.finished(kKind, {.memory_mb = 800 * i});
  EXPECT_EQ(use.memory_mb(kKind), 9'216);
  TaskUse small;
  for (int i = 0; i < 3; ++i) small.finished(kKind, {.memory_mb = 100});
  EXPECT_EQ(small.memory_mb(kKind), 176);
}

TEST(TaskUse, OfManyTasksTheLargestTwentiethDoesNotCount) {
  TaskUse use;
  for (int i = 0; i < 61; ++i) use.finished(kKind, {.memory_mb = 800});
  for (int i = 0; i < 3; ++i) use.finished(kKind, {.memory_mb = 80'000});
  EXPECT_EQ(use.memory_mb(kKind), 960);
}

TEST(TaskUse, OnlyTheNewestCount) {
  TaskUse use;
  for (int i = 0; i < 64; ++i) use.finished(kKind, {.memory_mb = 80'000, .busy_per_mille = 900});
  for (int i = 0; i < 64; ++i) use.finished(kKind, {.memory_mb = 800, .busy_per_mille = 100});
  EXPECT_EQ(use.memory_mb(kKind), 960);
  EXPECT_EQ(use.busy_per_mille(kKind), 100);
}

TEST(TaskUse, WhatIsSaidStaysWhileItIsNeitherTooLittleNorFarTooMuch) {
  TaskUse use;
  for (int i = 0; i < 3; ++i) use.finished(kKind, {.memory_mb = 8'000});
  EXPECT_EQ(use.memory_mb(kKind), 9'216);
  use.finished(kKind, {.memory_mb = 8'150});  // 9,168 are expected.
  EXPECT_EQ(use.memory_mb(kKind), 9'216);
  use.finished(kKind, {.memory_mb = 8'300});
  EXPECT_EQ(use.memory_mb(kKind), 10'240);
  for (int i = 0; i < 64; ++i) use.finished(kKind, {.memory_mb = 6'200});
  EXPECT_EQ(use.memory_mb(kKind), 10'240);
  for (int i = 0; i < 64; ++i) use.finished(kKind, {.memory_mb = 4'000});
  EXPECT_EQ(use.memory_mb(kKind), 4'608);
}

TEST(TaskUse, WhatWasCutOffCountsTwiceAndForAllOthers) {
  TaskUse use;
  for (int i = 0; i < 60; ++i) use.finished(kKind, {.memory_mb = 800});
  use.finished(kKind, {.memory_mb = 4'000, .cut_off = true});
  EXPECT_EQ(use.memory_mb(kKind), 9'216);
}

TEST(TaskUse, TasksOfWhichNothingIsKnownTeachNothing) {
  TaskUse use;
  for (int i = 0; i < 10; ++i) use.finished(kKind, {});
  EXPECT_EQ(use.kinds(), 0u);
  for (int i = 0; i < 10; ++i) use.finished(kKind, {.busy_per_mille = 5'000});
  EXPECT_FALSE(use.memory_mb(kKind).has_value());
  EXPECT_EQ(use.busy_per_mille(kKind), 1'000);
}

TEST(TaskUse, TheKindThatRestedLongestMakesRoom) {
  TaskUse use({.kinds_max = 2});
  for (int i = 0; i < 3; ++i) {
    use.finished(1, {.memory_mb = 800});
    use.finished(2, {.memory_mb = 800});
  }
  use.finished(1, {.memory_mb = 800});
  use.finished(3, {.memory_mb = 800});
  EXPECT_EQ(use.kinds(), 2u);
  EXPECT_TRUE(use.memory_mb(1).has_value());
  EXPECT_FALSE(use.memory_mb(2).has_value());
}

TEST(TaskUse, WhatIsForgottenIsLearnedAnew) {
  TaskUse use;
  for (int i = 0; i < 9; ++i) use.finished(kKind, {.memory_mb = 800});
  use.forget(kKind);
  use.forget(kKind);
  EXPECT_FALSE(use.memory_mb(kKind).has_value());
  for (int i = 0; i < 3; ++i) use.finished(kKind, {.memory_mb = 1'600});
  EXPECT_EQ(use.memory_mb(kKind), 1'920);
}

TEST(TaskUse, NoFigureIsTooLarge) {
  TaskUse use;
  for (int i = 0; i < 3; ++i) use.finished(kKind, {.memory_mb = INT64_MAX, .cut_off = true});
  EXPECT_GT(use.memory_mb(kKind).value_or(0), 0);
}

}  // namespace
}  // namespace gpusched::predict
