#include "node/agent/term_fence.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

class TermFenceTest : public ::testing::Test {
 protected:
  TermFence fence() const {
    Result<TermFence> opened = TermFence::open(folder_.path());
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return std::move(*opened);
  }
  std::string file() const { return folder_.path() + "/scheduler-term"; }

  TemporaryFolder folder_;
};

TEST_F(TermFenceTest, ASchedulerWithoutTermsIsObeyedAsLongAsNoOtherWas) {
  TermFence fence = this->fence();
  EXPECT_TRUE(fence.admit(0).ok());
  EXPECT_TRUE(fence.admit(0).ok());
  struct stat facts{};
  EXPECT_NE(stat(file().c_str(), &facts), 0) << "nothing is kept of it";
  EXPECT_TRUE(fence.admit(3).ok());
  const Result<Unit> refused = fence.admit(0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("remove " + file()), std::string::npos) << refused.error().message;
}

TEST_F(TermFenceTest, AnEarlierTermIsRefusedAndALaterOneTaken) {
  TermFence fence = this->fence();
  EXPECT_TRUE(fence.admit(7).ok());
  EXPECT_TRUE(fence.admit(7).ok());
  const Result<Unit> refused = fence.admit(6);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(refused.error().message,
            "this scheduler leads in term 6, and this node obeyed a leader of term 7, so that it is not the "
            "leader any more");
  EXPECT_TRUE(fence.admit(UINT64_MAX).ok());
  EXPECT_FALSE(fence.admit(7).ok());
}

TEST_F(TermFenceTest, TheNextAgentKnowsTheHighestTerm) {
  EXPECT_TRUE(fence().admit(UINT64_MAX - 1).ok());
  TermFence next = fence();
  EXPECT_EQ(next.highest(), UINT64_MAX - 1);
  EXPECT_FALSE(next.admit(UINT64_MAX - 2).ok());
}

TEST_F(TermFenceTest, ADamagedFileIsRefused) {
  for (const char* const text : {"", "7", "-7\n", "seven\n", "7\n8\n", "99999999999999999999\n"}) {
    std::ofstream(file(), std::ios::trunc) << text;
    EXPECT_FALSE(TermFence::open(folder_.path()).ok()) << text;
  }
}

TEST_F(TermFenceTest, ADiskThatTakesNothingLeavesItToThisAgentsMemory) {
  ASSERT_EQ(mkdir((file() + ".new").c_str(), 0700), 0);  // No draft can be written.
  TermFence fence = this->fence();
  EXPECT_TRUE(fence.admit(7).ok());
  EXPECT_FALSE(fence.admit(6).ok());
  EXPECT_EQ(this->fence().highest(), 0u);
}

}  // namespace
}  // namespace gpusched
