#include "main/commands/check_keys.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

constexpr Time kNow{int64_t{1'764'000'000} * 1'000'000'000};
Time days_ago(int64_t days) { return kNow - hours(24 * days); }

KeyFacts key(const std::string& id, Time expires_at, Time created_at, Time last_used_at) {
  return {.id = id,
          .holder = "tenant-7/ci",
          .prefix = "abcdefghijkl",
          .created_at = created_at,
          .expires_at = expires_at,
          .last_used_at = last_used_at};
}

TEST(CheckKeys, SaysNothingWhereThereAreNone) { EXPECT_TRUE(check_keys({}, kNow).empty()); }

TEST(CheckKeys, KeysThatExpireAndAreUsedAreWell) {
  const auto found = check_keys({key("key-1", days_ago(-30), days_ago(200), days_ago(89)),
                                 key("key-2", days_ago(-30), days_ago(1), {})},
                                kNow);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kOk);
}

TEST(CheckKeys, OneThatNeverExpiresIsNamed) {
  const auto found = check_keys(
      {key("key-1", {}, days_ago(1), days_ago(0)), key("key-2", days_ago(-1), days_ago(1), {})}, kNow);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kWarn);
  EXPECT_TRUE(found[0].detail.starts_with("1 API key never expires: key-1 tenant-7/ci (gsk_abcdefghijkl);"))
      << found[0].detail;
  EXPECT_TRUE(found[0].fix.ends_with("gpu-cli key revoke key-1")) << found[0].fix;
}

TEST(CheckKeys, OneThatNobodyUsedForNinetyDaysIsNamed) {
  const auto found = check_keys(
      {key("key-1", days_ago(-1), days_ago(200), days_ago(91)), key("key-2", days_ago(-1), days_ago(91), {}),
       key("key-3", days_ago(-1), days_ago(200), days_ago(90))},
      kNow);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].detail.find("2 API keys were not used for 90 days: key-1 "), std::string::npos);
  EXPECT_NE(found[0].detail.find("key-2 "), std::string::npos);
  EXPECT_EQ(found[0].detail.find("key-3 "), std::string::npos);
}

TEST(CheckKeys, OfManyTheFirstAreNamed) {
  std::vector<KeyFacts> keys;
  for (int i = 1; i <= 8; ++i) keys.push_back(key("key-" + std::to_string(i), {}, kNow, kNow));
  const auto found = check_keys(keys, kNow);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].detail.find("key-5 "), std::string::npos);
  EXPECT_EQ(found[0].detail.find("key-6 "), std::string::npos);
  EXPECT_NE(found[0].detail.find(" and 3 more; "), std::string::npos);
}

}  // namespace
}  // namespace gpusched
