#include "api/grpc/grpc_log.h"

#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "log/log.h"

namespace gpusched::api {
namespace {

TEST(LineAllowance, LetsSoManyLinesPassInEachSpanAndCountsTheOthers) {
  LineAllowance allowance(2, seconds(60));
  EXPECT_EQ(allowance.take(Time{seconds(1).ns}), 0);
  EXPECT_EQ(allowance.take(Time{seconds(2).ns}), 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(allowance.take(Time{seconds(60).ns}), std::nullopt);
  EXPECT_EQ(allowance.take(Time{seconds(61).ns}), 5);
  EXPECT_EQ(allowance.take(Time{seconds(62).ns}), 0);
  EXPECT_EQ(allowance.take(Time{seconds(63).ns}), std::nullopt);
}

TEST(GrpcLog, ErrorsGoToOurLogOnceAMinute) {
  std::string folder = (std::filesystem::temp_directory_path() / "gpusched_grpc_log_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(log_set_up({.path = folder + "/log"}).ok());
  route_grpc_log();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) gpr_log(GPR_ERROR, "Handshake failed: %d", i);
  log_flush();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  log_shut_down();
  gpr_set_log_function(nullptr);
  std::stringstream text;
  text << std::ifstream(folder + "/log").rdbuf();
  std::filesystem::remove_all(folder);
  EXPECT_NE(text.str().find("Handshake failed: 0"), std::string::npos) << text.str();
  EXPECT_EQ(text.str().find("Handshake failed: 1"), std::string::npos) << text.str();
}

}  // namespace
}  // namespace gpusched::api
