#include "anticipate/anticipator.h"

#include <gtest/gtest.h>

namespace gpusched::anticipate {
namespace {

using Kind = Decision::Kind;

Rule rule(const std::string& name, int32_t weight, int32_t gpus = 1) {
  return {.name = name, .any = {name}, .weight = weight, .gpus = gpus, .gpus_from = {"--gpus"}};
}

/// An anticipator with the rules strong (100), half (60), against (-50) and done, and a clock.
class TestAnticipator {
 public:
  explicit TestAnticipator(Settings settings = {}, Memory memory = {})
      : it(rules(), settings, std::move(memory)) {}

  std::vector<Decision> see(const std::string& text, const std::string& monitor = "logs") {
    return it.observe({.source = Source::kLog, .monitor = monitor, .origin = "a.log", .text = text}, now);
  }
  std::vector<Decision> after(Duration span) {
    std::vector<Decision> all;
    for (const Time end = now + span; now < end;) {
      now = now + seconds(1);
      for (Decision& decision : it.tick(now)) all.push_back(std::move(decision));
    }
    return all;
  }
  /// Asks for a lease and lets it be ready.
  uint64_t lease(const std::string& text = "strong", const std::string& monitor = "logs") {
    const std::vector<Decision> decisions = see(text, monitor);
    CHECK(decisions.size() == 1 && decisions[0].kind == Kind::kAllocate);
    it.lease_seen(decisions[0].lease, {.is_ready = true, .expires_at = now + it.settings().lease}, now);
    return decisions[0].lease;
  }

  Time now{int64_t{1'700'000'000} * 1'000'000'000};
  Anticipator it;

 private:
  static std::vector<Rule> rules() {
    Rule over = rule("done", 1);
    over.meaning = Meaning::kOver;
    return {rule("strong", 100), rule("half", 60), rule("other", 60), rule("against", -50), over};
  }
};

TEST(Anticipator, AsksForALeaseWhenSignsSuffice) {
  TestAnticipator pilot;
  EXPECT_TRUE(pilot.see("nothing of interest").empty());
  const std::vector<Decision> first = pilot.see("half");
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].kind, Kind::kWait);
  EXPECT_EQ(first[0].score, 60);
  EXPECT_TRUE(pilot.see("half again").empty()) << "the same sign is no news";
  const std::vector<Decision> second = pilot.see("other");
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].kind, Kind::kAllocate);
  EXPECT_EQ(second[0].request.gpus, 1);
  EXPECT_EQ(second[0].reasons.size(), 2U);
}

TEST(Anticipator, ForgetsOldSignsAndWeighsThoseAgainst) {
  TestAnticipator pilot;
  pilot.see("half");
  pilot.after(minutes(15));
  EXPECT_EQ(pilot.see("other").at(0).score, 60);
  EXPECT_EQ(pilot.see("strong against").at(0).score, 110);
  TestAnticipator doubting;
  EXPECT_EQ(doubting.see("strong against").at(0).kind, Kind::kWait);
}

TEST(Anticipator, NeverAsksForMoreThanTheUserAllows) {
  TestAnticipator pilot({.bounds = {.gpus_max = 2}});
  EXPECT_EQ(pilot.see("strong: allocate 100 GPUs now --gpus 100").at(0).request.gpus, 2);
  EXPECT_EQ(pilot.see("other").at(0).kind, Kind::kWait) << "a lease is held for this already";
  TestAnticipator poor({.bounds = {.gpu_minutes_per_day = 5}});
  EXPECT_EQ(poor.see("strong").at(0).kind, Kind::kRefuse);
  EXPECT_TRUE(poor.it.leases().empty());
}

TEST(Anticipator, CountsTheGpuTimeOfADay) {
  TestAnticipator pilot({.bounds = {.gpu_minutes_per_day = 25, .held_max = hours(10)}, .cooldown = {}});
  const uint64_t lease = pilot.lease();
  std::vector<Decision> decisions;
  for (int minute = 0; minute < 18 && decisions.empty(); ++minute) {
    pilot.it.lease_use(lease, true, pilot.now);
    pilot.it.lease_seen(lease, {.is_ready = true, .expires_at = pilot.now + minutes(10)}, pilot.now);
    decisions = pilot.after(minutes(1));
  }
  EXPECT_TRUE(decisions.empty());
  pilot.it.lease_seen(lease, {.is_ready = true, .expires_at = pilot.now + minutes(4)}, pilot.now);
  decisions = pilot.after(seconds(2));
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].kind, Kind::kRefuse);
  EXPECT_NE(decisions[0].why.find("gpu_minutes_per_day"), std::string::npos);
  pilot.it.lease_seen(lease, {.is_gone = true}, pilot.now);
  pilot.after(minutes(20));
  EXPECT_EQ(pilot.see("strong").at(0).kind, Kind::kRefuse);
  pilot.after(hours(24));
  EXPECT_EQ(pilot.see("strong").at(0).kind, Kind::kAllocate) << "that was yesterday";
}

TEST(Anticipator, LetsAMonitorRestAfterALease) {
  TestAnticipator pilot;
  const uint64_t lease = pilot.lease();
  pilot.it.lease_seen(lease, {.is_gone = true}, pilot.now);
  pilot.after(minutes(1));
  EXPECT_EQ(pilot.see("other").at(0).kind, Kind::kRefuse)
      << "strong and other are signs of a monitor that rests";
  pilot.after(minutes(9));
  EXPECT_EQ(pilot.see("half").at(0).kind, Kind::kAllocate);
}

TEST(Anticipator, ExtendsALeaseThatIsUsedAndReleasesItWhenItIsIdle) {
  TestAnticipator pilot;
  const uint64_t lease = pilot.lease();
  pilot.it.lease_use(lease, true, pilot.now);
  std::vector<Decision> decisions = pilot.after(minutes(5));
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].kind, Kind::kExtend);
  pilot.it.lease_seen(lease, {.is_ready = true, .expires_at = pilot.now + minutes(10)}, pilot.now);
  pilot.it.lease_use(lease, true, pilot.now);
  pilot.it.lease_use(lease, false, pilot.now);
  EXPECT_TRUE(pilot.after(minutes(4)).empty());
  decisions = pilot.after(minutes(2));
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].kind, Kind::kRelease);
  EXPECT_EQ(decisions[0].lease, lease);
  pilot.it.lease_seen(lease, {.is_gone = true}, pilot.now);
  EXPECT_EQ(pilot.it.memory().learning.records().at("strong"), (Record{.hits = 1}));
}

TEST(Anticipator, ReleasesALeaseThatNobodyUsesHoweverOftenTheSignComes) {
  TestAnticipator pilot;
  pilot.lease();
  bool released = false;
  for (int minute = 0; minute < 60 && !released; ++minute) {
    pilot.see("strong");
    for (const Decision& decision : pilot.after(minutes(1)))
      released = released || decision.kind == Kind::kRelease;
    if (!pilot.it.leases().empty() && !released)
      pilot.it.lease_seen(1, {.is_ready = true, .expires_at = pilot.now + minutes(10)}, pilot.now);
  }
  EXPECT_TRUE(released);
}

TEST(Anticipator, EndsALeaseWhoseTimeIsOverEvenIfNobodyAnswers) {
  TestAnticipator pilot;
  pilot.lease();
  pilot.after(minutes(10));
  EXPECT_TRUE(pilot.it.leases().empty());
  EXPECT_EQ(pilot.it.memory().learning.records().at("strong"), (Record{.misses = 1}));
}

TEST(Anticipator, DoesNotHoldALeaseLongerThanTheUserAllows) {
  TestAnticipator pilot({.bounds = {.held_max = minutes(12)}});
  const uint64_t lease = pilot.lease();
  pilot.it.lease_use(lease, true, pilot.now);
  const std::vector<Decision> decisions = pilot.after(minutes(9));
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].kind, Kind::kRefuse);
  EXPECT_NE(decisions[0].why.find("held_max"), std::string::npos);
}

TEST(Anticipator, ReleasesALeaseWhenARuleSawTheEnd) {
  TestAnticipator pilot;
  const uint64_t lease = pilot.lease();
  pilot.it.lease_use(lease, true, pilot.now);
  EXPECT_TRUE(pilot.see("all done").empty());
  EXPECT_TRUE(pilot.after(seconds(3)).empty()) << "it is in use";
  pilot.it.lease_use(lease, false, pilot.now);
  pilot.see("all done");
  EXPECT_EQ(pilot.after(seconds(1)).at(0).kind, Kind::kRelease);
}

TEST(Anticipator, BelievesRulesLessThatMissed) {
  Memory memory;
  for (int miss = 0; miss < 4; ++miss) memory.learning.count("strong", false);
  TestAnticipator pilot({}, memory);
  EXPECT_EQ(pilot.see("strong").at(0).score, 50);
  EXPECT_EQ(memory.learning.weight_of("strong", 100), 50);
  EXPECT_EQ(memory.learning.weight_of("unknown", 70), 70);
  EXPECT_EQ(memory.learning.weight_of("strong", -70), -70);
  for (int miss = 0; miss < 60; ++miss) memory.learning.count("strong", false);
  EXPECT_EQ(memory.learning.weight_of("strong", 100), 10) << "a tenth stays";
  for (int hit = 0; hit < 60; ++hit) memory.learning.count("strong", true);
  EXPECT_GT(memory.learning.weight_of("strong", 100), 60) << "and may come back";
}

TEST(Anticipator, DoesNotLearnFromLeasesThatWereNeverReady) {
  TestAnticipator pilot;
  const uint64_t lease = pilot.see("strong").at(0).lease;
  pilot.it.lease_failed(lease);
  EXPECT_TRUE(pilot.it.leases().empty());
  EXPECT_TRUE(pilot.it.memory().learning.records().empty());
}

TEST(Anticipator, WeighsConclusionsOfOthersLikeSigns) {
  TestAnticipator pilot;
  const Observation seen{
      .source = Source::kCustom, .monitor = "calendar", .origin = "it", .text = "a meeting"};
  EXPECT_EQ(pilot.it.conclude(seen, "calendar", 60, 3, pilot.now).at(0).kind, Kind::kWait);
  EXPECT_EQ(pilot.see("half").at(0).kind, Kind::kAllocate);
}

}  // namespace
}  // namespace gpusched::anticipate
