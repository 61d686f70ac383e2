#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

constexpr const char* kLease = "0198f3a2-1111-8222-9333-444455556666";

Ran run_in_lease(int status, const std::string& detail) {
  return run_against(
      [status, detail](const Request& request) {
        EXPECT_EQ(request.target, std::string("/api/gpuscheduler/v1/gpu/") + kLease);
        return Reply{.status = status, .body = R"({"detail":")" + detail + R"("})"};
      },
      {"run", "--in-lease", kLease, "--", "true"});
}

TEST(RunInLease, SaysThatThereIsNoneAndHowToFindOne) {
  const Ran ran = run_in_lease(404, "GPU not found.");
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_NE(ran.err.find(std::string("no such lease: ") + kLease), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("gpu-cli list --label gpusched.lease (lease_not_found)"), std::string::npos)
      << ran.err;
}

TEST(RunInLease, PassesOnWhatElseTheDoorSays) {
  const Ran ran = run_in_lease(409, "You do not have permission to access this resource.");
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_NE(ran.err.find(std::string("lease ") + kLease + ": You do not have permission"), std::string::npos)
      << ran.err;
}

}  // namespace
}  // namespace gpusched::cli::testing
