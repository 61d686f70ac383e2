#include "api/contract/json_writer.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

std::string written(auto&& fill) {
  std::string out;
  JsonWriter json(out);
  fill(json);
  return out;
}

TEST(JsonWriter, NestedValuesGetTheirCommas) {
  EXPECT_EQ(
      written([](JsonWriter& json) {
        json.begin_object().field("a", 1).key("b").begin_array();
        json.value("x").value(true).begin_object().end_object().end_array().field("c", 0.5).end_object();
      }),
      R"({"a":1,"b":["x",true,{}],"c":0.5})");
}

TEST(JsonWriter, TextIsEscaped) {
  EXPECT_EQ(written([](JsonWriter& json) { json.value("a\"b\\\n\x01"); }), R"("a\"b\\\n\u0001")");
}

TEST(JsonWriter, BadUtf8BecomesTheReplacementCharacter) {
  EXPECT_EQ(written([](JsonWriter& json) { json.value("a\xFF"); }), R"("a\ufffd")");
}

TEST(JsonWriter, AnInstantThatIsNotYetIsNull) {
  EXPECT_EQ(written([](JsonWriter& json) { json.value(Time{}); }), "null");
}

TEST(JsonWriter, TimesAreRfc3339Utc) {
  EXPECT_EQ(written([](JsonWriter& json) { json.value(Time{1'700'000'000'000'000'000}); }),
            R"("2023-11-14T22:13:20Z")");
  EXPECT_EQ(written([](JsonWriter& json) { json.value(Time{951'782'400'120'000'000}); }),
            R"("2000-02-29T00:00:00.12Z")");
}

TEST(JsonWriter, NumbersThatJsonCannotSayAreNull) {
  EXPECT_EQ(written([](JsonWriter& json) { json.value(1.0 / 0.0); }), "null");
}

TEST(JsonWriter, LongTextsAreWhole) {
  std::string script;
  for (int i = 0; i < 10'000; ++i) script += "echo \xc3\xbc\n";
  std::string out;
  append_json_text(out, script);
  EXPECT_GT(out.size(), script.size());
  EXPECT_TRUE(out.ends_with("echo \xc3\xbc\\n\""));
}

}  // namespace
}  // namespace gpusched::api
