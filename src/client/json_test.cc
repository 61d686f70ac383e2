#include "client/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace gpusched {
namespace {

Json parsed(std::string_view text) {
  const Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : Json();
}

TEST(JsonValue, GivesMembersItemsAndScalars) {
  const Json json = parsed(R"({"name":"a","n":-3,"x":1.5,"yes":true,"list":[1,"two"],"none":null})");
  EXPECT_EQ(json["name"].text(), "a");
  EXPECT_EQ(json["n"].integer(), -3);
  EXPECT_EQ(json["x"].number(), 1.5);
  EXPECT_TRUE(json["yes"].boolean());
  ASSERT_EQ(json["list"].items().size(), 2u);
  EXPECT_EQ(json["list"].items()[1].text(), "two");
  EXPECT_TRUE(json["none"].is_null());
  EXPECT_EQ(json.members().front().first, "name");
}

TEST(JsonValue, ReadsWhatIsMissingOrOfAnotherTypeAsNothing) {
  const Json json = parsed(R"({"name":"a"})");
  EXPECT_TRUE(json["absent"]["deeper"].is_null());
  EXPECT_EQ(json["name"].integer(), 0);
  EXPECT_EQ(json["absent"].text(), "");
  EXPECT_TRUE(json["name"].items().empty());
  EXPECT_FALSE(Json()["x"].boolean());
}

TEST(JsonValue, StaysWithinSixtyFourBits) {
  EXPECT_EQ(parsed("18446744073709551615").integer(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parsed("1e300").integer(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parsed("-1e300").integer(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parsed("2.9").integer(), 2);
  EXPECT_EQ(parsed("[0e28736, -0.0E99999]").serialize(), "[0E0,0E0]");
}

TEST(JsonValue, KeepsItsWholeAlive) {
  Json part;
  {
    part = parsed(R"({"a":{"b":"kept"}})")["a"]["b"];
  }
  EXPECT_EQ(part.text(), "kept");
}

TEST(JsonValue, RefusesWhatIsNoJson) {
  EXPECT_FALSE(Json::parse("").ok());
  EXPECT_FALSE(Json::parse("{").ok());
  EXPECT_FALSE(Json::parse("{} {}").ok());
  EXPECT_FALSE(Json::parse(std::string(100, '[')).ok());
}

TEST(JsonObjectWriting, EscapesAndSeparates) {
  JsonObjectWriter json;
  EXPECT_TRUE(json.empty());
  json.add("text", "a\"b\n");
  json.add("n", int64_t{-1});
  json.add("half", 0.5);
  json.add("whole", 2.0);
  json.add("yes", true);
  json.add("list", std::vector<std::string>{"a", "b"});
  json.add("map", std::map<std::string, std::string>{{"k", "v"}});
  json.add_null("none");
  EXPECT_EQ(
      json.text(),
      R"({"text":"a\"b\n","n":-1,"half":5E-1,"whole":2,"yes":true,"list":["a","b"],"map":{"k":"v"},"none":null})");
}

}  // namespace
}  // namespace gpusched
