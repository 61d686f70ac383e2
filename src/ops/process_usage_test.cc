#include "ops/process_usage.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace gpusched {
namespace {

TEST(ProcessUsage, IsThatOfThisProcess) {
  const std::vector<char> held(64u << 20, 'x');
  const ProcessUsage usage = process_usage();
  EXPECT_GE(usage.resident_bytes.value_or(0), static_cast<double>(held.size()));
  EXPECT_GE(usage.virtual_bytes.value_or(0), usage.resident_bytes.value_or(0));
  EXPECT_GT(usage.cpu_seconds.value_or(0), 0);
  EXPECT_GE(usage.open_files.value_or(0), 3);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(usage.start_time_seconds.value_or(0), now, 3'600);
}

}  // namespace
}  // namespace gpusched
