#include "cli/verbs/sessions/port_forward.h"

#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

TEST(PortForward, ReadsThePortOfTheJobAndThatOfThisMachine) {
  EXPECT_EQ(*parse_forwarded_port("8888"), (ForwardedPort{.local = 8888, .remote = 8888}));
  EXPECT_EQ(*parse_forwarded_port("8080:80"), (ForwardedPort{.local = 8080, .remote = 80}));
  EXPECT_EQ(*parse_forwarded_port(":80"), (ForwardedPort{.local = 0, .remote = 80}));
  EXPECT_EQ(*parse_forwarded_port("0:65535"), (ForwardedPort{.local = 0, .remote = 65535}));
  for (const char* const text : {"", ":", "0", "80:0", "80:", "65536", "-1", "8 0", "http", "1:2:3", "80x"})
    EXPECT_FALSE(parse_forwarded_port(text)) << text;
}

TEST(PortForward, ListensOnLoopbackOfBothKindsAndOnNothingThatIsNoAddress) {
  PortListeners listeners;
  ASSERT_TRUE(listeners.add("127.0.0.1", 0));
  const uint16_t port = listeners.ports()[0];
  EXPECT_EQ(listeners.places()[0], "127.0.0.1:" + std::to_string(port));
  const Result<Unit> taken = listeners.add("localhost", port);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(taken.error().message.find("Address already in use; choose another port"), std::string::npos);
  for (const char* const text : {"", "here", "127.0.0.1:80", "[::1]"}) {
    const Result<Unit> added = listeners.add(text, 0);
    ASSERT_FALSE(added) << text;
    EXPECT_EQ(added.error().code, ErrorCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(listeners.sockets().size(), 1u);
}

TEST(PortForward, ListensBeforeItAsksForTheJob) {
  PortListeners taken;
  ASSERT_TRUE(taken.add("127.0.0.1", 0));
  const Ran ran = run(
      {"--api-url", "http://127.0.0.1:1", "port-forward", "job-1", std::to_string(taken.ports()[0]) + ":80"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_NE(ran.err.find("(port_in_use)"), std::string::npos) << ran.err;
  EXPECT_NE(
      refusal({"port-forward", "job-1", "--address", "here", "80"}).find("--address: 'here' is no address"),
      std::string::npos);
}

TEST(PortForward, OfAJobThatHasEndedSaysHow) {
  const Ran ran = run_against(
      [](const Request&) {
        return Reply{.body = R"({"job_id":"job-1","state":"cancelled","cause":"cancelled","message":"x"})"};
      },
      {"port-forward", "job-1", ":80"});
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_NE(ran.err.find("a forward needs a running job (job_not_running)"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace gpusched::cli::testing
