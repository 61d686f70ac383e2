#include "node/link/scheduler_addresses.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

std::vector<SchedulerAddress> addresses_of(std::string_view list) {
  Result<std::vector<SchedulerAddress>> parsed = parse_scheduler_addresses(list, false);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return std::move(*parsed);
}

std::string refusal_of(std::string_view list, bool tls = false) {
  const Result<std::vector<SchedulerAddress>> parsed = parse_scheduler_addresses(list, tls);
  return parsed ? "none" : parsed.error().message;
}

TEST(SchedulerAddresses, AreSplitAtCommasInTheirOrder) {
  const std::vector<SchedulerAddress> found = addresses_of("a.example:9090, [::1]:9091,unix:/run/s.sock");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].tcp.host, "a.example");
  EXPECT_EQ(found[1].text, "[::1]:9091");
  EXPECT_EQ(found[1].tcp.port, 9091);
  EXPECT_FALSE(found[1].is_socket());
  EXPECT_TRUE(found[2].is_socket());
}

TEST(SchedulerAddresses, AreRefusedInOneSentenceThatNamesTheAddress) {
  EXPECT_NE(refusal_of("a:9090,b").find("'b' is not an address"), std::string::npos);
  EXPECT_NE(refusal_of("a:9090,,b:9090").find("'' is not an address"), std::string::npos);
  EXPECT_EQ(refusal_of("a:9090,b:9090,a:9090"), "the scheduler's address a:9090 is given twice; keep one");
  EXPECT_NE(refusal_of("a:9090,unix:run").find("'unix:run' names no path"), std::string::npos);
  EXPECT_NE(refusal_of("a:9090,unix:/run/s.sock", true).find("TLS is not spoken"), std::string::npos);
  std::string many = "a:1";
  for (int port = 2; port <= 17; ++port) many += ",a:" + std::to_string(port);
  EXPECT_NE(refusal_of(many).find("there are 17 addresses"), std::string::npos);
}

TEST(SchedulerRounds, TryEveryAddressSoonAndPauseLongerBehindEachRound) {
  SchedulerRounds rounds(addresses_of("a:1,b:1,c:1"), 7);
  Duration last = milliseconds(25);
  for (int round = 0; round < 6; ++round) {
    for (const char* const next : {"b:1", "c:1"}) {
      const Duration pause = rounds.failed();
      EXPECT_EQ(rounds.current().text, next);
      EXPECT_GE(pause, milliseconds(25));
      EXPECT_LE(pause, milliseconds(50));
    }
    const Duration pause = rounds.failed();
    EXPECT_EQ(rounds.current().text, "a:1");
    EXPECT_GE(pause, last);
    EXPECT_LE(pause, last * 2);
    last = last * 2;
  }
}

TEST(SchedulerRounds, KeepTheAddressThatServesAndBeginAnewAfterIt) {
  SchedulerRounds rounds(addresses_of("a:1,b:1"), 7);
  for (int i = 0; i < 21; ++i) rounds.failed();
  EXPECT_EQ(rounds.current().text, "b:1");
  rounds.succeeded();
  EXPECT_EQ(rounds.current().text, "b:1");
  EXPECT_LE(rounds.failed(), milliseconds(50));
  EXPECT_EQ(rounds.current().text, "a:1");
  EXPECT_LE(rounds.failed(), milliseconds(50)) << "the first round since it served";
}

TEST(SchedulerRounds, HaveMorePatienceWithSilenceRoundByRound) {
  SchedulerRounds rounds(addresses_of("a:1,b:1"), 7);
  EXPECT_EQ(rounds.patience(), seconds(3));
  rounds.failed();
  EXPECT_EQ(rounds.patience(), seconds(3));
  rounds.failed();
  EXPECT_EQ(rounds.patience(), seconds(6));
  for (int i = 0; i < 10; ++i) rounds.failed();
  EXPECT_EQ(rounds.patience(), seconds(15));
  EXPECT_EQ(SchedulerRounds(addresses_of("a:1"), 7).patience(), seconds(15)) << "there is no other to try";
}

TEST(SchedulerRounds, StayAtTheOnlyAddressAndPauseUpToFiveSeconds) {
  SchedulerRounds rounds(addresses_of("a:1"), 7);
  EXPECT_LE(rounds.failed(), milliseconds(50));
  Duration pause;
  for (int i = 0; i < 20; ++i) pause = rounds.failed();
  EXPECT_EQ(rounds.current().text, "a:1");
  EXPECT_GE(pause, milliseconds(2'500));
  EXPECT_LE(pause, seconds(5));
}

}  // namespace
}  // namespace gpusched
