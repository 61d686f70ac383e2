#include "api/http/http_message.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

TEST(PercentDecoding, DecodesEscapesOfEitherCase) {
  EXPECT_EQ(percent_decoded("a%2Fb%2f%C3%A9", false), "a/b/\xC3\xA9");
}

TEST(PercentDecoding, RefusesBrokenEscapesAndNul) {
  EXPECT_FALSE(percent_decoded("%", false));
  EXPECT_FALSE(percent_decoded("%4", false));
  EXPECT_FALSE(percent_decoded("%zz", false));
  EXPECT_FALSE(percent_decoded("a%00", false));
}

TEST(Query, ParametersKeepTheirOrder) {
  const auto parameters = parse_query("state=running&&limit=5&flag&q=a+b%26c");
  ASSERT_TRUE(parameters);
  const QueryParameters expected = {{"state", "running"}, {"limit", "5"}, {"flag", ""}, {"q", "a b&c"}};
  EXPECT_EQ(*parameters, expected);
}

TEST(Query, HasAnEnd) {
  std::string query;
  for (int i = 0; i < 100; ++i) query += "a=1&";
  EXPECT_FALSE(parse_query(query));
}

}  // namespace
}  // namespace gpusched::api
