#include "api/doors/session/session_message.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

TEST(SessionMessage, NumbersWithinTheirBoundsAreTaken) {
  ClientMessage message;
  const auto problem = read_client_message(
      R"({"type":"open","rows":65535,"columns":0,"member":4294967295,"signal":64})", message);
  ASSERT_FALSE(problem.has_value()) << problem->message;
  EXPECT_EQ(message.rows, 65'535);
  EXPECT_EQ(message.columns, 0);
  EXPECT_EQ(message.member, 4'294'967'295);
  EXPECT_EQ(message.signal, 64);
}

TEST(SessionMessage, ANumberBeyondItsBoundsIsRefusedWithThem) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"resize","rows":65536})", "rows must be from 0 to 65535, not 65536"},
      {R"({"type":"resize","columns":-1})", "columns must be from 0 to 65535, not -1"},
      {R"({"type":"signal","signal":65})", "signal must be from 0 to 64, not 65"},
      {R"({"type":"open","attempt":4294967296})", "attempt must be from 0 to 4294967295, not 4294967296"},
      {R"({"type":"open","member":-2})", "member must be from 0 to 4294967295, not -2"},
      {R"({"type":"open","session":-1})", "session must be from 0 to 9223372036854775807, not -1"}};
  for (const auto& [text, expected] : cases) {
    ClientMessage message;
    const auto problem = read_client_message(text, message);
    ASSERT_TRUE(problem.has_value()) << text;
    EXPECT_EQ(problem->message, expected);
  }
}

TEST(SessionMessage, APortStandsAlone) {
  ClientMessage message;
  EXPECT_FALSE(read_client_message(R"({"type":"open","port":8888,"attempt":2,"member":1})", message));
  EXPECT_EQ(message.port, 8888);
  for (const char* const text :
       {R"({"type":"open","port":0})", R"({"type":"open","port":65536})",
        R"({"type":"open","port":80,"command":["true"]})", R"({"type":"open","port":80,"terminal":true})",
        R"({"type":"open","port":80,"session":3})"}) {
    ClientMessage other;
    const auto problem = read_client_message(text, other);
    ASSERT_TRUE(problem) << text;
    EXPECT_EQ(problem->field, "port") << text;
  }
}

}  // namespace
}  // namespace gpusched::api
