#include "host/core/stamp_clock.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

constexpr Duration kDay = hours(24);
constexpr Duration kYear = hours(24 * 365);
constexpr Duration kBound = hours(24 * 7);
constexpr Time kBegin{1'750'000'000'000'000'000};

class FakeClock final : public Clock {
 public:
  Time monotonic() const override { return now; }
  Time wall() const override { return at; }
  /// Both go on.
  void pass(Duration span) {
    now = now + span;
    at = at + span;
  }
  Time now{1'000'000'000};
  Time at = kBegin;
};

TEST(StampClock, TheFirstOneEverIsTheWallClocks) {
  const FakeClock clock;
  EXPECT_EQ(StampClock(clock, Time{}, kBound).last(), kBegin);
}

TEST(StampClock, AShortAbsenceIsTaken) {
  FakeClock clock;
  clock.at = kBegin + kDay * 6;
  StampClock stamps(clock, kBegin, kBound);
  EXPECT_EQ(stamps.last(), kBegin + kDay * 6);
  EXPECT_TRUE(stamps.believes());
}

TEST(StampClock, AWallClockThatIsBehindNeverTakesTimeBack) {
  FakeClock clock;
  clock.at = kBegin - kDay;
  StampClock stamps(clock, kBegin, kBound);
  EXPECT_EQ(stamps.last(), kBegin);
  clock.pass(seconds(20));
  EXPECT_EQ(stamps.now(), kBegin + seconds(19)) << "it leans back by a twentieth";
}

TEST(StampClock, AYearAheadIsNotBelievedAndTimeGoesOn) {
  FakeClock clock;
  clock.at = kBegin + kYear;
  StampClock stamps(clock, kBegin, kBound);
  EXPECT_EQ(stamps.last(), kBegin);
  EXPECT_FALSE(stamps.believes());
  EXPECT_EQ(stamps.gap(), kYear);
  clock.pass(hours(10));
  EXPECT_EQ(stamps.now(), kBegin + hours(10)) << "by the monotonic clock, without leaning";
}

TEST(StampClock, AYearBehindIsNotBelievedEither) {
  FakeClock clock;
  clock.at = kBegin - kYear;
  StampClock stamps(clock, kBegin, kBound);
  clock.pass(hours(10));
  EXPECT_EQ(stamps.now(), kBegin + hours(10));
  EXPECT_FALSE(stamps.believes());
}

TEST(StampClock, OnceTheWallClockIsNearAgainItIsFollowed) {
  FakeClock clock;
  clock.at = kBegin + kYear;
  StampClock stamps(clock, kBegin, kBound);
  clock.pass(seconds(2));
  EXPECT_EQ(stamps.now(), kBegin + seconds(2));
  clock.at = clock.at - kYear + minutes(5);
  clock.pass(seconds(20));
  EXPECT_EQ(stamps.now(), kBegin + seconds(2 + 20 + 1));
  EXPECT_TRUE(stamps.believes());
}

TEST(StampClock, AStepWhileItRunsIsNotFollowedBeyondTheBound) {
  FakeClock clock;
  StampClock stamps(clock, kBegin, kBound);
  clock.at = kBegin + kYear;
  clock.pass(hours(100));
  EXPECT_EQ(stamps.now(), kBegin + hours(100));
}

TEST(StampClock, NoTimeIsPastWhatReadersTake) {
  FakeClock clock;
  clock.at = limits::kTimeMax + kYear;
  EXPECT_EQ(StampClock(clock, Time{}, kBound).last(), limits::kTimeMax);
  StampClock stamps(clock, limits::kTimeMax - seconds(1), kBound);
  EXPECT_LE(stamps.last(), limits::kTimeMax);
  clock.pass(hours(1));
  EXPECT_EQ(stamps.now(), limits::kTimeMax);
}

TEST(StampClock, AWallClockBeforeTheEpochGivesATimeThatIsOne) {
  FakeClock clock;
  clock.at = Time{-5'000};
  EXPECT_TRUE(StampClock(clock, Time{}, kBound).last().valid());
}

}  // namespace
}  // namespace gpusched
