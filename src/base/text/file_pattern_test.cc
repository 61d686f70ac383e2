#include "base/text/file_pattern.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

const FileWords kWords{.job = "job-12",
                       .array = "a1b2",
                       .array_index = "7",
                       .member = "0",
                       .name = "train/big",
                       .user = "ada",
                       .node = "n1"};

TEST(FilePattern, EachLetterIsReplacedAndTwoPercentSignsAreOne) {
  EXPECT_EQ(fill_file_pattern("/logs/%u/%x-%j_%A_%a.%t@%N.%%.out", kWords),
            "/logs/ada/train_big-job-12_a1b2_7.0@n1.%.out");
  EXPECT_EQ(fill_file_pattern("/%%j", kWords), "/%j");
  EXPECT_EQ(fill_file_pattern("/plain", kWords), "/plain");
}

TEST(FilePattern, AWidthPadsNumbersWithZeros) {
  EXPECT_EQ(fill_file_pattern("/%5j_%4a_%02t_%3N_%1a_%0a", kWords), "/job-00012_0007_00_n1_7_7");
  EXPECT_EQ(fill_file_pattern("/%4j", {.job = "job-3[4]"}), "/job-3[4]");
  EXPECT_EQ(fill_file_pattern("/%3A", {.array = "17"}), "/017");
}

TEST(FilePattern, WhatIsPutInIsNotReplacedAgain) {
  EXPECT_EQ(fill_file_pattern("/%x", {.job = "job-1", .name = "%j"}), "/%j");
}

TEST(FilePattern, WhatMeansNothingStaysAndIsFound) {
  EXPECT_EQ(fill_file_pattern("/%q-%", kWords), "/%q-%");
  EXPECT_EQ(unknown_file_pattern("/%j-%%-%q-%z"), "%q");
  EXPECT_EQ(unknown_file_pattern("/%j-%%%"), "%");
  EXPECT_EQ(unknown_file_pattern("/%4q"), "%4");
  EXPECT_EQ(unknown_file_pattern("/%11j"), "%1");
  EXPECT_EQ(unknown_file_pattern("/%2%"), "%2");
  EXPECT_EQ(unknown_file_pattern("/%4"), "%4");
  EXPECT_EQ(unknown_file_pattern("/%\xC3\xA9x"), "%\xC3\xA9");
  EXPECT_EQ(unknown_file_pattern("/%j%A%a%t%x%u%N%%"), "");
  EXPECT_EQ(unknown_file_pattern(""), "");
}

}  // namespace
}  // namespace gpusched
