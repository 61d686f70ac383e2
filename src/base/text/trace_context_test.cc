#include "base/text/trace_context.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched {
namespace {

constexpr std::string_view kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kValid = "00-" + std::string(kTrace) + "-00f067aa0ba902b7-01";

// The example and the rules of W3C Trace Context, sections 3.2.2 and 4.3.
TEST(TraceContexts, AreReadAsTheStandardSays) {
  EXPECT_EQ(trace_id_of(kValid), kTrace);
  EXPECT_EQ(trace_id_of("cc" + kValid.substr(2)), kTrace);                 // A version to come.
  EXPECT_EQ(trace_id_of("cc" + kValid.substr(2) + "-what-else"), kTrace);  // Such a version may say more.
}

TEST(TraceContexts, ThatAreNotValidAreNone) {
  for (const std::string& wrong :
       {std::string(), kValid + "-", kValid + "0", kValid.substr(1), "ff" + kValid.substr(2),
        "cc" + kValid.substr(2) + "x", "0g" + kValid.substr(2),
        "00-" + std::string(32, '0') + "-00f067aa0ba902b7-01",
        "00-" + std::string(kTrace) + "-" + std::string(16, '0') + "-01",
        std::string("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"), "00_" + kValid.substr(3),
        "00-" + std::string(kTrace) + "-00f067aa0ba902b7-0x"})
    EXPECT_EQ(trace_id_of(wrong), "") << wrong;
}

TEST(RequestNames, AreShortAndPlain) {
  for (const char* good : {"a", "req-12", "01HV/x_y.z:3+=~@", "7f3c2a1e-4b5d-4c6f-8a9b-0c1d2e3f4a5b"})
    EXPECT_TRUE(is_request_name(good)) << good;
  for (const std::string& bad : {std::string(), std::string("two words"), std::string("a\r\nb"),
                                 std::string("ä"), std::string("\""), std::string(65, 'a')})
    EXPECT_FALSE(is_request_name(bad)) << bad;
}

}  // namespace
}  // namespace gpusched
