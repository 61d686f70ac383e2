#include "main/commands/check_nodes.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

constexpr Time kCheckedAt = Time{} + hours(24 * 1'000);

NodeFacts node(const std::string& name, int64_t days_old, const std::string& state = "active") {
  const Time since = kCheckedAt - hours(24 * days_old);
  return {.node = name, .state = state, .since = since, .expires_at = since + hours(24 * 90)};
}

TEST(CheckNodes, SaysNothingWhereNoneHasACertificate) { EXPECT_TRUE(check_nodes({}, kCheckedAt).empty()); }

TEST(CheckNodes, IsContentWithThoseThatAreRenewedInTime) {
  const auto found = check_nodes({node("n1", 1), node("n2", 65), node("n3", 89, "revoked")}, kCheckedAt);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kOk);
  EXPECT_EQ(found[0].detail, "2 nodes have a certificate with time left");
}

TEST(CheckNodes, NamesThoseThatWereNot) {
  const auto found = check_nodes({node("n1", 1), node("n2", 68), node("n3", 200, "expired")}, kCheckedAt);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kWarn);
  EXPECT_NE(found[0].detail.find("n2, n3"), std::string::npos) << found[0].detail;
  EXPECT_EQ(found[0].detail.find("n1"), std::string::npos);
}

}  // namespace
}  // namespace gpusched
